"""The changes between two snapshots, the newest first, with the row before an update beside the row
after it. Each row names its snapshot, and who committed that.

Snapshots are read from the newest back, and only as many as the shown rows need: neither the size
of the table nor the length of its history matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.differences import changed_columns
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.views import ViewKind, shown_columns, view_named
from paimon_magics.planning.reports.view_queries import single_changes_sql
from paimon_magics.session.reports.difference import overwritten_rows, rows_of_query
from paimon_magics.session.reports.report import Report, Section
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.clauses.names import quoted, table_text, text_literal
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.reading.data_read import row_view
from paimon_magics.tables.snapshots.chain import snapshot_ids
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.table import Table

_ROWS_MAX = 1_000
_SNAPSHOTS = 10
_STEPS_MAX = 20  # of one query
_KINDS = {"+I": "inserted", "-U": "before an update", "+U": "after an update", "-D": "deleted"}


def changes_of(scope: StatementScope, name: TableName, start: str, end: str) -> Report:
    """Return the changes after `start` up to `end`, two snapshots or two tags: the newest thousand
    rows of `$audit_log`, or of `$binlog` if `name` is that. Paimon keeps no changes of an
    overwrite, so its snapshot is compared with the one before.

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
    table = scope.catalog.load(replace(name, system_table=None))
    schema = table.schema
    read = _read(scope, name, table, start, end)
    rows, notes = read.rows, list(read.notes)
    counts = Counter(rows.column("rowkind").to_pylist())
    kinds = ", ".join(f"{counts[kind]:,} {word}" for kind, word in _KINDS.items() if counts[kind])
    note = f"These are the newest {_ROWS_MAX:,} rows; there are older ones." if read.follow else ""
    first = _first_state(scope, name, start)
    has_updates_only = schema.is_primary_key_table and schema.changelog_producer == "none"
    if has_updates_only and first != end:  # before the first snapshot no row existed
        notes.append(
            "The table has no changelog-producer: only the row after an update is stored. "
            f"%paimon diff {table_text(table.name)} {first}..{end} shows the rows before."
        )
    repeated = schema.option("rowkind.field")  # repeats the row kind, which is no change
    changed = tuple(
        tuple(column for column in columns if column != repeated)
        for columns in changed_columns(rows)
    )
    in_query = tuple(rows.column_names)
    section = Section(
        "", _with_authors(read), read.query, in_query,
        changed=changed, note=note, in_query=in_query,
    )  # fmt: skip
    summary = (
        f"{name}, after {start} up to {end}: {count_text(rows.num_rows, 'row')}"
        f"{' at least' if read.follow else ''}{f' ({kinds})' if kinds else ''}"
    )
    return Report("CHANGES", summary, (section,), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Step:
    """The changes of the snapshot `id`, or, without an id, all changes between two tags.

    `rows` is about how many there are; None if unknown, as for an overwrite. With
    `has_before` the state before the snapshot can be read.
    """

    start: str
    end: str
    id: int | None = None
    snapshot: Any = None
    rows: int | None = None
    has_before: bool = True

    @property
    def is_overwrite(self) -> bool:
        return self.snapshot is not None and self.snapshot.commit_kind == "OVERWRITE"


def _steps(table: Table, start: str, end: str) -> Iterator[_Step]:
    """The parts of a range that may have changes, the newest first. Paimon compares two tags as a
    whole, overwrites included."""
    if not (start.isdigit() and end.isdigit()) or int(end) <= int(start):
        yield _Step(start, end)
        return
    has_producer = table.schema.changelog_producer != "none"
    for id in range(int(end), int(start), -1):
        snapshot = read_snapshot(table.paimon, id)
        step = _Step(str(id - 1), str(id), id, snapshot)
        if snapshot is None:  # reading says why it is missing
            yield step
        elif step.is_overwrite:
            has_before = id == 1 or read_snapshot(table.paimon, id - 1) is not None
            yield replace(step, has_before=has_before)
        elif has_producer and snapshot.changelog_manifest_list is not None:
            yield replace(step, rows=snapshot.changelog_record_count or 0)
        elif id == int(end) or (not has_producer and snapshot.commit_kind == "APPEND"):
            # Even where nothing changed, the newest snapshot gives the columns.
            yield replace(step, rows=snapshot.delta_record_count or 0)


def _batches(steps: Iterator[_Step]) -> Iterator[list[_Step]]:
    """Steps for one query each: adjacent steps that together have enough rows, or one step that may
    have any number of them."""
    batch: list[_Step] = []
    for step in steps:
        if step.rows is None and batch:
            yield batch
            batch = []
        batch.append(step)
        rows = sum(part.rows or 0 for part in batch)
        if step.rows is None or rows > _ROWS_MAX or len(batch) == _STEPS_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class _Changes:
    """The newest changes of a range: their rows, and the query that gives them; whether older ones
    `follow`; the snapshots with changes, by their ids."""

    rows: pa.Table
    query: str
    follow: bool
    notes: Sequence[str]
    snapshots: dict[int, Any]


def _read(scope: StatementScope, name: TableName, table: Table, start: str, end: str) -> _Changes:
    view = row_view(table.schema, ViewKind.AUDIT_LOG)
    names = [column.name for column in shown_columns(table.schema.columns, view)][1:]
    queries: list[str] = []
    parts: list[pa.Table] = []
    notes: list[str] = []
    snapshots: dict[int, Any] = {}
    rows = 0
    for batch in _batches(_steps(table, start, end)):
        queries += [_step_sql(scope, name, table, names, step) for step in batch]
        notes += [_overwrite_note(step) for step in batch if step.is_overwrite]
        snapshots |= {step.id: step.snapshot for step in batch if step.id is not None}
        # Without a shuffle the parts of a union come in their order.
        query = " UNION ALL ".join(queries[-len(batch) :])
        parts.append(rows_of_query(scope, f"{query} LIMIT {_ROWS_MAX + 1 - rows}"))
        rows += parts[-1].num_rows
        if rows > _ROWS_MAX:
            break
    follow = rows > _ROWS_MAX
    query = " UNION ALL ".join(queries) + (f" LIMIT {_ROWS_MAX}" if follow else "")
    return _Changes(
        _joined(parts).slice(0, _ROWS_MAX),
        query,
        follow,
        notes,
        snapshots,
    )


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of all parts. A column whose type was changed between them has the wider type, or is
    a text where there is none."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        types: dict[str, pa.DataType] = {}
        for field in (field for part in parts for field in part.schema):
            same = types.setdefault(field.name, field.type) == field.type
            types[field.name] = field.type if same else pa.string()
        texts = [
            part.cast(pa.schema([field.with_type(types[field.name]) for field in part.schema]))
            for part in parts
        ]
        return pa.concat_tables(texts, promote_options="default")


def _step_sql(
    scope: StatementScope, name: TableName, table: Table, names: Sequence[str], step: _Step
) -> str:
    if step.is_overwrite and step.has_before:
        rows = overwritten_rows(scope, table, step.end, names)
    else:
        span = text_literal(f"{step.start},{step.end}")
        rows = f"SELECT * FROM {table_text(name)} WITH ('incremental-between' = {span})"
        if view_named(name.system_table) is ViewKind.BINLOG:
            rows = single_changes_sql(rows, names)
    if step.id is None:
        return rows
    return f"SELECT {step.id}L AS {quoted(_free('snapshot_id', names))}, * FROM ({rows})"


def _overwrite_note(step: _Step) -> str:
    text = f"Snapshot {step.id} is an overwrite. Paimon keeps no changes of it"
    if step.has_before:
        return f"{text}; its differences from snapshot {step.start} are shown."
    return f"{text}. The snapshot before it has expired, so the rows that it removed are left out."


def _with_authors(changes: _Changes) -> pa.Table:
    """The rows with the time, user and notebook of their snapshots, in columns at the end."""
    rows = changes.rows
    if not changes.snapshots:
        return rows
    ids = rows.column(0)
    places = pc.index_in(ids, pa.array(changes.snapshots, ids.type))
    snapshots = changes.snapshots.values()
    origins = [{} if snapshot is None else noted(snapshot.properties) for snapshot in snapshots]
    times = [None if snapshot is None else snapshot.time_millis for snapshot in snapshots]
    columns = {
        "commit_time": pa.array(times, pa.timestamp("ms", tz="UTC")),
        "user": pa.array([origin.get("user") for origin in origins], pa.string()),
        "notebook": pa.array([origin.get("notebook") for origin in origins], pa.string()),
    }
    for name, values in columns.items():
        rows = rows.append_column(_free(name, rows.column_names), values.take(places))
    return rows


def _free(name: str, names: Sequence[str]) -> str:
    """The name for a column of ours beside columns of a table."""
    return _free(f"commit_{name}", names) if name in names else name


def _first_state(scope: StatementScope, name: TableName, start: str) -> str:
    """The state to compare with: the one at `start`, or the first after it that still exists."""
    ids = snapshot_ids(table_view(scope.catalog, replace(name, system_table=None)).table)
    return str(ids[0]) if start.isdigit() and ids and int(start) < ids[0] else start


def latest_range(scope: StatementScope, name: TableName) -> tuple[str, str]:
    """The start and end of the last ten snapshots, or of as many as have not expired."""
    view = table_view(scope.catalog, replace(name, system_table=None))
    ids = snapshot_ids(view.table)[-_SNAPSHOTS:]
    if not ids:
        raise InvalidValueError(
            f"`{view.table.name}` has no snapshot, and so no changes.", hint="Insert rows first."
        )
    return str(ids[0] - 1), str(ids[-1])
