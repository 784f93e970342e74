"""DELETE and UPDATE of rows that are named by their keys, in the log of small inserts.

If this process dies, a change that was answered is durable; the fate of another is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.columnar.value_ranges import can_have
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.row_changes.logged_changes import LoggedChange, logged_change
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.writes.exactness import is_strict
from paimon_magics.session.writes.row_selection import kind_of
from paimon_magics.session.writes.small_inserts import PendingInsert, inserts_of
from paimon_magics.statements.row_changes import RowChange, Update
from paimon_magics.tables.schema.identity import version_of
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table

__all__ = ["run_small_change", "small_change"]


def small_change(
    connection: Connection, change: RowChange, table: Table, parameters: Mapping[str, object]
) -> LoggedChange | None:
    """The small change that a statement is; None where its table, or the session, takes none, or
    where Spark has to decide what it does.

    Raises errors of ours for parameters without a value, and for wrong assignments.
    """
    if inserts_of(connection, table) is None:
        return None
    if isinstance(change, Update) and is_strict(connection.spark):
        return None  # Spark has to check the types of what is assigned
    bound = bind(change.selection.query.parameters, parameters, change.text, connection.zone)
    found = logged_change(change, table.name, table.schema, bound)
    return found if found is not None and _fits(found, table) else None


def run_small_change(
    connection: Connection,
    change: RowChange,
    table: Table,
    logged: LoggedChange,
    wait: str | None,
) -> Outcome:
    """Put a change into the log. `wait` says when it is answered; the default is the table's mode.

    Raises errors of ours where it is not taken.
    """
    inserts = inserts_of(connection, table)
    assert inserts is not None
    answer = inserts.insert(
        table.name,
        logged,
        mode="async_mode" if wait is not None else None,
        version=version_of(table),
    )
    visible = wait == "visible"
    outcome = PendingInsert(connection, table, answer, visible, kind_of(change)).outcome()
    outcome.statement, outcome.query = change.text, None
    return outcome


def _fits(change: LoggedChange, table: Table) -> bool:
    """Whether all columns can have the values that they are compared with."""
    schema = arrow_schema(table.schema)
    values = [
        *(
            ColumnPredicate(name, "in", tuple(key[at] for key in change.keys))
            for at, name in enumerate(change.columns)
        ),
        *change.conditions,
    ]
    return all(can_have(one, schema.field(one.column).type) for one in values)
