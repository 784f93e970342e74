"""CALL sys.compact_database: compacts the tables whose names match, one after the other.

A table that can't be compacted stops nobody: the others are, and the notes say what became of it.
"""

from __future__ import annotations

import re

import pyarrow as pa

from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.statements.compaction import run_compaction
from paimon_magics.statements.maintenance import CompactDatabase, CompactTable
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call

__all__ = ["database_lines", "run_database_compaction"]

_NOTES_MAX = 20


def run_database_compaction(
    connection: Connection, statement: Call, asked: CompactDatabase
) -> Outcome:
    """Run CALL sys.compact_database. It returns how many tables were compacted and how many could
    not be, in the words of Paimon's `CompactDatabaseProcedure`."""
    tables = _tables(connection, statement, asked)
    position = statement.procedure_position
    wanted = CompactTable(options=asked.options)
    failed: list[str] = []
    for name in tables:
        try:
            run_compaction(connection, statement, name, wanted, position)
        except PaimonMagicsError as error:
            failed.append(f"`{name}`: {error.message}")
    done = len(tables) - len(failed)
    text = f"Compact database finished. Success: {done}, Failed: {len(failed)}"
    rows = pa.table({"result": pa.array([text])})
    outcome = Outcome.of_rows(connection.spark, statement.text, "CALL", rows)
    outcome.message = f"{count_text(done, 'table')} compacted, {len(failed)} failed."
    left = len(failed) - _NOTES_MAX
    more = (f"{left:,} more failed.",) if left > 0 else ()
    outcome.notes = (*failed[:_NOTES_MAX], *more)
    return outcome


def database_lines(connection: Connection, statement: Call, asked: CompactDatabase) -> list[str]:
    """What CALL sys.compact_database would compact."""
    tables = _tables(connection, statement, asked)
    if not tables:
        return ["No table matches: nothing to compact."]
    shown = ", ".join(f"`{name}`" for name in tables[:_NOTES_MAX])
    left = len(tables) - _NOTES_MAX
    return [
        f"{count_text(len(tables), 'table')} compacted as CALL sys.compact does: {shown}"
        + (f" and {left:,} more." if left > 0 else ".")
    ]


def _tables(connection: Connection, statement: Call, asked: CompactDatabase) -> list[TableName]:
    """The tables that match: `CompactDatabaseProcedure.shouldCompactTable`."""
    databases = _pattern(statement, "including_databases", asked.including_databases or ".*")
    included = _pattern(statement, "including_tables", asked.including_tables or ".*")
    excluded = None
    if asked.excluding_tables is not None and asked.excluding_tables.strip():
        excluded = _pattern(statement, "excluding_tables", asked.excluding_tables)
    catalog = connection.catalog
    return [
        TableName(table, database=database)
        for database in sorted(catalog.list_databases())
        if databases.fullmatch(database)
        for table in sorted(catalog.list_tables(database))
        if included.fullmatch(f"{database}.{table}")
        and not (excluded is not None and excluded.fullmatch(f"{database}.{table}"))
    ]


def _pattern(statement: Call, parameter: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidValueError(
            f"`{parameter}` is no regular expression: {error}.",
            hint=r"For example `shop\..*`, which matches all tables of the database shop.",
            statement=statement.text,
            position=statement.procedure_position,
        ) from None
