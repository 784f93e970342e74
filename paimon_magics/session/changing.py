"""The changes between two snapshots, with what was before an update beside what is after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from paimon_magics.columnar.updates import changed_columns, single_changes
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.amounts import count_text
from paimon_magics.planning.views import ViewKind, view_named
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reading import frame_of_table
from paimon_magics.session.reports import Report, Section
from paimon_magics.statements.names import table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshot_chain import snapshot_ids
from paimon_magics.tables.system_tables import table_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["changes_of", "latest_range"]

_ROWS_MAX = 1_000
_SNAPSHOTS = 10
_STEPS_MAX = 20
_KINDS = {"+I": "inserted", "-U": "before an update", "+U": "after an update", "-D": "deleted"}


def changes_of(connection: Connection, name: TableName, start: str, end: str) -> Report:
    """The changes after `start` up to `end`, two snapshots or two tags, by one Spark job: the first
    thousand rows of `$audit_log`, or of `$binlog` where `name` says so.

    Raises UnknownNameError for what is not there, InvalidValueError for other system tables.
    """
    kind = view_named(name.system_table)
    if kind is ViewKind.TABLE:
        name = replace(name, system_table=ViewKind.AUDIT_LOG.value)
    elif kind not in (ViewKind.AUDIT_LOG, ViewKind.BINLOG):
        raise InvalidValueError(
            f"`{name}` shows no changes.", hint="Name the table, its $audit_log or its $binlog."
        )
    definition = connection.catalog.load(replace(name, system_table=None)).definition
    text = table_text(name)
    query = f"SELECT * FROM {text} WITH ('incremental-between' = '{start},{end}')"
    frames = [
        frame_of_table(connection, name, {"incremental-between": f"{one},{other}"})
        for one, other in _steps(start, end)
    ]
    # Parts of a union come in its order, as long as nothing is shuffled.
    found = Outcome(query, "SELECT", dataframe=reduce(_behind, frames)).fetched(
        lambda frame: frame.limit(_ROWS_MAX + 1).toArrow()
    )
    follow = found.num_rows > _ROWS_MAX
    rows = found.slice(0, _ROWS_MAX)
    if kind is ViewKind.BINLOG:
        rows = single_changes(rows)
    counts = Counter(rows.column("rowkind").to_pylist())
    said = ", ".join(f"{counts[one]:,} {word}" for one, word in _KINDS.items() if counts[one])
    note = f"These are the first {_ROWS_MAX:,} rows; more follow." if follow else ""
    notes = []
    if definition.is_primary_key_table and definition.changelog_producer == "none":
        notes.append(
            "The table has no changelog-producer: an update is stored as the row after it alone. "
            f"%paimon diff {table_text(replace(name, system_table=None))} "
            f"{_first_state(connection, name, start)}..{end} shows what was before."
        )
    field = definition.option("rowkind.field")  # has the kind once more, which is no change
    changed = tuple(tuple(one for one in names if one != field) for names in changed_columns(rows))
    section = Section("", rows, query, changed=changed, note=note)
    summary = (
        f"{name}, after {start} up to {end}: {count_text(rows.num_rows, 'row')}"
        f"{' at least' if follow else ''}{f' ({said})' if said else ''}"
    )
    return Report("CHANGES", summary, (section,), tuple(notes))


def _first_state(connection: Connection, name: TableName, start: str) -> str:
    """The state to compare from: the one that changes were read after, where it is there."""
    ids = snapshot_ids(table_view(connection.catalog, replace(name, system_table=None)).table)
    return str(ids[0]) if start.isdigit() and ids and int(start) < ids[0] else start


def _steps(start: str, end: str) -> list[tuple[str, str]]:
    """The range one snapshot after the other, so that changes come in their order; tags, and a
    range of many snapshots, as a whole."""
    if not (start.isdigit() and end.isdigit()) or not 0 < int(end) - int(start) <= _STEPS_MAX:
        return [(start, end)]
    return [(str(id), str(id + 1)) for id in range(int(start), int(end))]


def _behind(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionAll(other)


def latest_range(connection: Connection, name: TableName) -> tuple[str, str]:
    """The last ten snapshots, or as many as have not expired: where they start and end."""
    view = table_view(connection.catalog, replace(name, system_table=None))
    ids = snapshot_ids(view.table)[-_SNAPSHOTS:]
    if not ids:
        raise InvalidValueError(
            f"`{view.table.name}` has no snapshot, and so no changes.", hint="Insert something."
        )
    return str(ids[0] - 1), str(ids[-1])
