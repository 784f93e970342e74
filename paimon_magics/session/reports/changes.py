"""The changes between two snapshots, with the row before an update beside the row after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.columnar.updates import changed_columns
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.views import ViewKind, view_named
from paimon_magics.planning.reports.change_queries import single_changes_sql
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.reports.difference import overwritten_rows, rows_of_query
from paimon_magics.session.reports.report import Report, Section
from paimon_magics.statements.clauses.names import table_text, text_literal
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.chain import snapshot_ids
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.table import Table

__all__ = ["changes_of", "latest_range"]

_ROWS_MAX = 1_000
_SNAPSHOTS = 10
_STEPS_MAX = 20
_LOOKED_AT_MAX = 200  # snapshots; each is a file to read
_KINDS = {"+I": "inserted", "-U": "before an update", "+U": "after an update", "-D": "deleted"}


def changes_of(connection: Connection, name: TableName, start: str, end: str) -> Report:
    """Return the changes after `start` up to `end`, two snapshots or two tags, by one Spark job:
    the first thousand rows of `$audit_log`, or of `$binlog` if `name` is that. Paimon keeps no
    changes of an overwrite, so its snapshot is compared with the one before.

    Raises UnknownNameError for an unknown name, InvalidValueError for other system tables.
    """
    kind = view_named(name.system_table)
    if kind is ViewKind.TABLE:
        name = replace(name, system_table=ViewKind.AUDIT_LOG.value)
    elif kind not in (ViewKind.AUDIT_LOG, ViewKind.BINLOG):
        raise InvalidValueError(
            f"`{name}` has no changes to show.",
            hint="Name the table, its $audit_log or its $binlog.",
        )
    table = connection.catalog.load(replace(name, system_table=None))
    schema = table.schema
    steps, notes = _steps(table, start, end)
    audit_log = replace(name, system_table=ViewKind.AUDIT_LOG.value)
    names = frame_of_table(connection, audit_log).columns[1:]
    query = " UNION ALL ".join(
        overwritten_rows(connection, table, one.end, names)
        if one.is_overwrite
        else _step_sql(name, kind is ViewKind.BINLOG, names, one)
        for one in steps
    )
    # Without a shuffle the parts of a union come in their order.
    found = rows_of_query(connection, f"{query} LIMIT {_ROWS_MAX + 1}")
    follow = found.num_rows > _ROWS_MAX
    rows = found.slice(0, _ROWS_MAX)
    counts = Counter(rows.column("rowkind").to_pylist())
    said = ", ".join(f"{counts[one]:,} {word}" for one, word in _KINDS.items() if counts[one])
    note = f"These are the first {_ROWS_MAX:,} rows; more follow." if follow else ""
    first = _first_state(connection, name, start)
    has_updates_only = schema.is_primary_key_table and schema.changelog_producer == "none"
    if has_updates_only and first != end:  # before the first snapshot no row existed
        notes.append(
            "The table has no changelog-producer: only the row after an update is stored. "
            f"%paimon diff {table_text(table.name)} {first}..{end} shows what was before."
        )
    field = schema.option("rowkind.field")  # repeats the row kind, which is no change
    changed = tuple(tuple(one for one in names if one != field) for names in changed_columns(rows))
    shown = f"{query} LIMIT {_ROWS_MAX}" if follow else query
    section = Section("", rows, shown, changed=changed, note=note)
    summary = (
        f"{name}, after {start} up to {end}: {count_text(rows.num_rows, 'row')}"
        f"{' at least' if follow else ''}{f' ({said})' if said else ''}"
    )
    return Report("CHANGES", summary, (section,), tuple(notes))


def _step_sql(name: TableName, is_binlog: bool, names: Sequence[str], step: _Step) -> str:
    span = text_literal(f"{step.start},{step.end}")
    rows = f"SELECT * FROM {table_text(name)} WITH ('incremental-between' = {span})"
    return single_changes_sql(rows, names) if is_binlog else rows


def _first_state(connection: Connection, name: TableName, start: str) -> str:
    """The state to compare with: the one at `start`, or the first after it that still exists."""
    ids = snapshot_ids(table_view(connection.catalog, replace(name, system_table=None)).table)
    return str(ids[0]) if start.isdigit() and ids and int(start) < ids[0] else start


@dataclass(frozen=True, slots=True)
class _Step:
    """One part of the range: the changes after `start` up to `end`."""

    start: str
    end: str
    is_overwrite: bool = False


def _steps(table: Table, start: str, end: str) -> tuple[list[_Step], list[str]]:
    """Split the range into parts; return them with notes.

    Each overwrite is a part of its own. The other snapshots are a part each, so that changes come
    in order; in a range of many snapshots, neighbours share a part. Paimon compares two tags as a
    whole, overwrites included.
    """
    whole = [_Step(start, end)]
    if not (start.isdigit() and end.isdigit()) or int(end) <= int(start):
        return whole, []
    ids = range(int(start) + 1, int(end) + 1)
    if len(ids) > _LOOKED_AT_MAX:
        note = f"Rows that overwrites removed are left out, in more than {_LOOKED_AT_MAX} snapshots"
        return whole, [f"{note}: name a shorter range to see them."]
    overwrites = [id for id in ids if _is_overwrite(table, id)]
    known = [id for id in overwrites if id == 1 or read_snapshot(table.paimon, id - 1) is not None]
    notes = [
        f"Snapshot {id} is an overwrite, of which Paimon keeps no changes: its differences from "
        f"snapshot {id - 1} are shown."
        if id in known
        else f"Snapshot {id} is an overwrite, of which Paimon keeps no changes, and the snapshot "
        "before it has expired: the rows that it removed are left out."
        for id in overwrites
    ]
    if len(ids) <= _STEPS_MAX:
        return [_Step(str(id - 1), str(id), id in known) for id in ids], notes
    steps, begin = [], ids.start - 1
    for id in known:
        if id - 1 > begin:
            steps.append(_Step(str(begin), str(id - 1)))
        steps.append(_Step(str(id - 1), str(id), is_overwrite=True))
        begin = id
    return [*steps, *([_Step(str(begin), end)] if begin < int(end) else [])], notes


def _is_overwrite(table: Table, id: int) -> bool:
    snapshot = read_snapshot(table.paimon, id)
    return snapshot is not None and snapshot.commit_kind == "OVERWRITE"


def latest_range(connection: Connection, name: TableName) -> tuple[str, str]:
    """The start and end of the last ten snapshots, or of as many as have not expired."""
    view = table_view(connection.catalog, replace(name, system_table=None))
    ids = snapshot_ids(view.table)[-_SNAPSHOTS:]
    if not ids:
        raise InvalidValueError(
            f"`{view.table.name}` has no snapshot, and so no changes.", hint="Insert rows first."
        )
    return str(ids[0] - 1), str(ids[-1])
