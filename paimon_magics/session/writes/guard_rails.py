"""Statements that take much away by few words: what would go, told before anything runs.

An INSERT OVERWRITE without PARTITION of a partitioned table, TRUNCATE, DROP TABLE, DROP DATABASE
CASCADE, DROP PARTITION where a clause takes several partitions, and ALTER TABLE that makes stored
values unreadable. What has nothing to lose is
passed over, and so is what is wrong with a statement: that is said when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from paimon_magics.errors import PaimonMagicsError, UnconfirmedError
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.spark_passthrough import is_for_spark
from paimon_magics.session.writes.insert import partition_specs, truncate_specs
from paimon_magics.session.writes.preview import rows_taken
from paimon_magics.session.writes.type_changes import HarmTold, harm_told
from paimon_magics.statements.kinds import Statement
from paimon_magics.statements.statement import (
    DropDatabase,
    DropTable,
    Insert,
    PassThrough,
    TruncateTable,
)
from paimon_magics.statements.table_changes import AlterTable, DropPartitions
from paimon_magics.tables.commits.replaced_partitions import PartitionSize, sizes_of_replaced

__all__ = ["check_confirmed", "may_take_away"]

_WORDS = re.compile(r"\b(?:overwrite|truncate|drop|alter)\b", re.IGNORECASE)
_MODE = re.compile(r"partitionOverwriteMode\s*=\s*['\"`]?(\w+)", re.IGNORECASE)
_MODE_KEY = "spark.sql.sources.partitionOverwriteMode"
_TABLES_SHOWN = 5


def may_take_away(text: str) -> bool:
    """Whether a cell has a word of such statements: others need not be looked at."""
    return _WORDS.search(text) is not None


def check_confirmed(
    connection: Connection, statements: Sequence[Statement], parameters: Mapping[str, object]
) -> None:
    """Raise UnconfirmedError for the first of `statements` that would take much away."""
    mode = connection.spark.conf.get(_MODE_KEY, "static") or "static"
    for statement in statements:
        if isinstance(statement, PassThrough):
            found = _MODE.search(statement.text)
            mode = found[1] if found is not None else mode
            continue
        try:
            told = _harm(connection, statement)
            taken = _taken(connection, statement, parameters, mode.lower())
        except PaimonMagicsError:
            continue
        if told is not None and told.what:
            raise UnconfirmedError(
                told.what,
                hint=f"{told.examined} To run it all the same, begin the cell with "
                f"%%paimon --yes. {told.way_back} {told.not_looked_at}".rstrip(),
                statement=statement.text,
                position=0,
            )
        if taken is not None:
            what, loss, instead = taken
            raise UnconfirmedError(
                f"{what} takes away {loss}.",
                hint=f"To run it, begin the cell with %%paimon --yes. {instead}",
                statement=statement.text,
                position=0,
            )


def _harm(connection: Connection, statement: Statement) -> HarmTold | None:
    """What an ALTER TABLE does to the rows that are there."""
    match statement:
        case AlterTable(changes=changes) if not is_for_spark(connection, statement):
            table = connection.load(statement.name, statement.text, 0)
            return harm_told(connection, table, changes)
        case _:
            return None


def _taken(
    connection: Connection, statement: Statement, parameters: Mapping[str, object], mode: str
) -> tuple[str, str, str] | None:
    """What is done, what goes, and what could be done instead; None where nothing is asked."""
    if is_for_spark(connection, statement):
        return None
    preview = "%%paimon --preview shows what lies where."
    match statement:
        case Insert(overwrite=True, partition=None) if mode != "dynamic":
            table = connection.load(statement.target, statement.text, 0)
            sizes = sizes_of_replaced(table, specs=()) if table.schema.is_partitioned else []
            instead = "PARTITION (…) after the table's name, or the dynamic overwrite mode, "
            instead += f"replaces less. {preview}"
            what = f"INSERT OVERWRITE `{table.name}` without PARTITION"
            return _unless_nothing(what, sizes, instead)
        case TruncateTable():
            table = connection.load(statement.name, statement.text, 0)
            specs = truncate_specs(connection, statement, table, parameters)
            sizes = sizes_of_replaced(table, specs=specs)
            if specs and len(sizes) < 2:
                return None
            return _unless_nothing(f"TRUNCATE TABLE `{table.name}`", sizes, preview)
        case DropTable():
            table = connection.load(statement.name, statement.text, 0)
            sizes = sizes_of_replaced(table, specs=())
            instead = f"The table's snapshots, tags and branches go with it. {preview}"
            return _unless_nothing(f"DROP TABLE `{table.name}`", sizes, instead)
        case AlterTable(changes=changes):
            table = connection.load(statement.name, statement.text, 0)
            wanted = [spec for c in changes if isinstance(c, DropPartitions) for spec in c.specs]
            if not wanted:
                return None
            specs = partition_specs(connection, table, statement.text, wanted, parameters)
            # A clause for each partition says what it means.
            several = [s for s in specs if len(sizes_of_replaced(table, specs=[s])) > 1]
            if not several:
                return None
            sizes = sizes_of_replaced(table, specs=specs)
            return _unless_nothing(f"DROP PARTITION of `{table.name}`", sizes, preview)
        case DropDatabase(name=name, cascade=True):
            tables = connection.catalog.list_tables(name)
            shown = ", ".join(f"`{table}`" for table in tables[:_TABLES_SHOWN])
            shown += ", …" if len(tables) > _TABLES_SHOWN else ""
            loss = f"{len(tables):,} tables ({shown})" if len(tables) > 1 else f"the table {shown}"
            what = f"DROP DATABASE `{name}` CASCADE"
            return (what, loss, "DROP TABLE drops them one by one.") if tables else None
        case _:
            return None


def _unless_nothing(
    what: str, sizes: Sequence[PartitionSize], instead: str
) -> tuple[str, str, str] | None:
    return (what, rows_taken(sizes), instead) if sizes else None
