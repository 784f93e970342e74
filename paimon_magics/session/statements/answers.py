"""The outcomes of statements that define and show: a message, or columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.statements.kinds import Statement
from paimon_magics.statements.statement import TableName

__all__ = ["done", "listing", "position_of", "said"]


def listing(
    connection: Connection,
    statement: Statement,
    kind: str,
    columns: Mapping[str, Sequence[object]],
) -> Outcome:
    """Return rows of text columns; `isTemporary` alone is BOOLEAN."""
    types = {"isTemporary": pa.bool_()}
    rows = pa.table(
        {
            name: pa.array(values, type=types.get(name, pa.string()))
            for name, values in columns.items()
        }
    )
    return Outcome.of_rows(connection.spark, statement.text, kind, rows)


def done(statement: Statement, kind: str, name: TableName, message: str) -> Outcome:
    """Return the outcome, with its message, of a statement on a table."""
    return Outcome(statement=statement.text, kind=kind, table=str(name), message=message)


def said(statement: Statement, kind: str, message: str) -> Outcome:
    """Return the outcome, with its message, of a statement on a database."""
    return Outcome(statement=statement.text, kind=kind, message=message)


def position_of(statement: Statement, name: TableName) -> int:
    """The offset of the table's name in the statement; 0 if it is not found."""
    return max(statement.text.find(name.table), 0)
