"""States of a table that reports compare: snapshots, tags, times, and the empty state."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.planning.reads.read_points import AtTimestamp, AtVersion
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.connection import Connection
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.tagged import tag_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.system_tables.layout import NamedFiles, named_files
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.table import Table

__all__ = ["Side", "is_kept", "named_table", "side_of", "sides_of"]

_DAYS = {"today": 0, "yesterday": 1}
_EMPTY = "0"
"""The name of the state before the first snapshot."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two states: the caller's name for it, its snapshot, and the version that a query
    names. The state before the first snapshot has no snapshot, and version "0"."""

    text: str
    snapshot: Any
    version: str
    columns: tuple[Column, ...]
    named: NamedFiles

    @property
    def files(self) -> pa.Table:
        """The data files, with their partitions."""
        return self.named.files

    @property
    def id(self) -> int:
        """The snapshot's number; 0 for the empty state."""
        return 0 if self.snapshot is None else int(self.snapshot.id)

    @property
    def index_manifest(self) -> Any:
        """The name of the snapshot's index manifest, None without one."""
        return None if self.snapshot is None else self.snapshot.index_manifest

    def source(self, name: TableName, other: Side) -> str:
        """The rows of the state in a FROM clause. Those of the empty state have the columns of the
        `other` one."""
        if self.snapshot is None:
            return f"(SELECT * FROM {named_table(name)} VERSION AS OF {other.version} WHERE false)"
        return f"{named_table(name)} VERSION AS OF {self.version}"


def sides_of(connection: Connection, table: Table, before: str, after: str) -> tuple[Side, Side]:
    """The two states that a caller names; 0 is the empty one, and so is a time before the table's
    first snapshot. Raises UnknownNameError for a state that does not exist, InvalidValueError for
    two empty ones."""
    sides = [_side(connection, table, text.strip()) for text in (before, after)]
    stored = next((side for side in sides if side is not None), None)
    if stored is None:
        raise InvalidValueError(
            f"Both states of `{table.name}` are the empty one before its first snapshot.",
            hint=f"Name a snapshot, a tag or a time: %paimon diff {table.name} 0..1.",
        )
    files = replace(stored.named, files=stored.files.slice(0, 0), twice=())
    empty = replace(stored, text=_EMPTY, snapshot=None, version=_EMPTY, named=files)
    first, second = (side or empty for side in sides)
    return first, second


def _side(connection: Connection, table: Table, text: str) -> Side | None:
    """The state that a text names; None for the empty one."""
    if text == _EMPTY:
        return None
    try:
        return side_of(connection, table, text)
    except UnknownNameError:
        # Its first snapshot is number 1: where that has expired, the state of a time before the
        # one that is first now is gone.
        is_time = isinstance(_point(connection, table, text), AtTimestamp)
        if is_time and earliest_snapshot_id(table.paimon, table.store) in (None, 1):
            return None
        raise


def _point(connection: Connection, table: Table, text: str) -> AtTimestamp | AtVersion:
    if text.lower() in _DAYS and tag_snapshot(table.paimon, text) is None:
        today = datetime.datetime.now(rules_of(connection.zone)).date()
        return AtTimestamp(str(today - datetime.timedelta(days=_DAYS[text.lower()])))
    is_time = "-" in text[1:5] and text[:4].isdigit()
    return AtTimestamp(text) if is_time else AtVersion(text)


def side_of(connection: Connection, table: Table, text: str) -> Side:
    """The state of a snapshot, a tag or a time; `yesterday` and `today` are when that day began,
    unless a tag has the name. Raises UnknownNameError if there is none."""
    point = _point(connection, table, text)
    is_time = isinstance(point, AtTimestamp)
    target = find_target(table, point, connection.zone).target
    assert isinstance(target, TableState) and target.snapshot is not None
    snapshot = target.snapshot
    view = table_view(connection.catalog, table.name, int(snapshot.id))
    columns = TableSchemas(table.paimon).columns(snapshot.schema_id)
    version = text_literal(str(snapshot.id) if is_time else text)
    return Side(text, snapshot, version, columns, named_files(view, connection.zone))


def is_kept(table: Table, side: Side) -> bool:
    """Whether the snapshot has not expired; the empty state never does."""
    return side.snapshot is None or read_snapshot(table.paimon, side.id) is not None


def named_table(name: TableName) -> str:
    """The name as SQL."""
    parts = (name.database, replace(name, database=None).object_name)
    return ".".join(quoted(part) for part in parts if part is not None)
