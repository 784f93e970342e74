"""Plans reads of tables for queries, and keeps plans and frames for the next query on the same
snapshot."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.errors import UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.read_points import AtSnapshot, point_of_read
from paimon_magics.planning.reads.scans import (
    LocalLimits,
    ReadPlan,
    fixes_keys,
    plan_local,
    plan_read,
)
from paimon_magics.planning.reads.views import (
    COMMIT_COLUMNS,
    ViewKind,
    shown_columns,
    shown_kind,
)
from paimon_magics.session.planned_work import Reads, note_reads, reads_of
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.rows import frame_of_batch, frame_of_count
from paimon_magics.spark.stores import spelled
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import contains_type
from paimon_magics.statements.queries.plain_queries import AggregateCall
from paimon_magics.statements.queries.rewriting import ROW_ID_COLUMNS
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.reading.data_read import DataRead, ReadRequest, plan_data_read
from paimon_magics.tables.reading.keyed_rows import few_rows
from paimon_magics.tables.reading.known_rows import are_decided, known_bounds, row_count
from paimon_magics.tables.schema.types import unknown_zone_note
from paimon_magics.tables.snapshots.analyzed import table_statistics
from paimon_magics.tables.snapshots.targets import (
    Resolved,
    SnapshotChanges,
    TableState,
    snapshot_ids,
)
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


_READS_MAX = 10


_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
_NAMED_MAX = 5  # snapshots, in a note
_ROW_BYTES = 8  # beside the values
_FILES_MAX, _REMOTE_FILES_MAX = 32, 8
"""Files that one process opens one after the other: on a disk in about a millisecond each, in
another store in tens of them, where several tasks would wait at the same time."""


@dataclass(frozen=True)
class PlannedRead:
    """A read of a table at a point. `key` identifies it."""

    key: Hashable
    read: DataRead
    table: Table
    point: Resolved


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A read whose view and frame are kept for later queries on the same snapshot."""

    view: str
    frame: DataFrame
    planned: PlannedRead

    @property
    def read(self) -> DataRead:
        """The plan of the table's read."""
        return self.planned.read


@dataclass(frozen=True, slots=True)
class KnownRow:
    """The results of the aggregates that a query wants of a relation, which manifests tell:
    `relation` is one of SQL with one row, whose columns are named as the aggregates are."""

    relation: str


def planned_read(scope: StatementScope, relation: Relation, leases: SnapshotLeases) -> PlannedRead:
    """Plan a read of data files, and keep its snapshot from expiring; the plan is kept for later
    queries on the snapshot. Raises what `plan_data_read` raises."""
    return _planned_read(scope, relation, leases, None, False)


def _planned_read(
    scope: StatementScope,
    relation: Relation,
    leases: SnapshotLeases,
    again: PlannedRead | None,
    with_entries: bool,
) -> PlannedRead:
    """As `planned_read`. With `again` it is of the table and snapshot of that one. `with_entries`:
    see `TableScan`."""
    table = table_of(scope, relation) if again is None else again.table
    kind = kind_of(table, relation)
    zone = scope.zone
    for _ in range(_READS_MAX):
        point = _resolved(table, relation, zone) if again is None else again.point
        key = (
            table.location, table.name.branch, table.schema, point.identity, kind,
            relation.options, zone, relation.filters, repr(relation.bound), relation.unordered,
            relation.hidden, relation.changes,
            with_entries,
        )  # fmt: skip
        if not _hold(leases, table.name, point):
            continue  # the snapshot has expired meanwhile
        read = scope.connection.plans.read(key)
        if read is None:
            read = _read(scope, table, relation, point, with_entries=with_entries)
        scope.connection.plans.keep_read(key, read)
        for note in (unknown_zone_note(table.schema, relation.names), _left_out_note(table, point)):
            if note is not None:
                scope.note(note)
        return PlannedRead(key, read, table, point)
    raise UnknownNameError(
        f"Snapshots of `{table.name}` expire before they can be read.",
        hint="Keep its snapshots longer: 'snapshot.num-retained.min', 'snapshot.time-retained'.",
    )


def _left_out_note(table: Table, point: Resolved) -> str | None:
    """What a read of changes leaves out; None if nothing."""
    if not isinstance(point.target, SnapshotChanges) or not point.target.overwrites:
        return None
    ids = point.target.overwrites
    named = ", ".join(map(str, ids[:_NAMED_MAX]))
    more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
    name = replace(table.name, system_table=None)
    return (
        f"No changes are kept of overwrites, which replace or remove rows: snapshots {named}{more} "
        f"are left out. `%paimon changes {name} {ids[0] - 1}..{ids[-1]}` shows what they did."
    )


def check_whole_changes(table_read: KeptRead) -> None:
    """Raise UnsupportedStatementError for changes among which are updates of single columns: no
    commit has their whole rows (data evolution)."""
    read = table_read.read
    for split in read.planned.splits:
        for file in split.files:
            own = read.schemas.columns(file.schema_id)
            columns = file.write_columns
            if columns is not None and not {column.name for column in own} <= {*columns}:
                name = replace(table_read.planned.table.name, system_table=None)
                version = "" if file.commit is None else f" of version {file.commit[0]}"
                raise UnsupportedStatementError(
                    f"The changes{version} of `{name}` are new values of single columns: a table "
                    "with 'data-evolution.enabled' keeps no whole rows of an UPDATE or MERGE.",
                    hint=f"`%paimon diff {name} 1..2` compares two versions.",
                )


def query_read(
    scope: StatementScope, relation: Relation, leases: SnapshotLeases
) -> KeptRead | KnownRow:
    """The read of a relation as `kept_read`; if manifests tell the aggregates that are wanted of
    it, their results."""
    chosen = _strategy(scope, relation, partial(_planned_read, scope, relation, leases, None))
    if chosen.plan.known_row is not None:
        return KnownRow(chosen.plan.known_row)
    return _remembered(scope, relation, leases, chosen)


def kept_read(
    scope: StatementScope,
    relation: Relation,
    leases: SnapshotLeases,
    again: PlannedRead | None = None,
    *,
    by_spark: bool = False,
) -> KeptRead:
    """Return the read of a relation's rows, and keep its view and frame for later queries on the
    snapshot. With `again` it is of the table and snapshot of that one. With `by_spark` this process
    reads no files, however small."""
    relation = replace(relation, aggregates=())
    planned = partial(_planned_read, scope, relation, leases, again)
    chosen = _strategy(scope, relation, planned, by_spark=by_spark)
    return _remembered(scope, relation, leases, chosen)


def _remembered(
    scope: StatementScope, relation: Relation, leases: SnapshotLeases, chosen: _Strategy
) -> KeptRead:
    planned, plan, limits = chosen.planned, chosen.plan, chosen.limits
    read = planned.read
    if plan.known_rows is not None:
        counted = planned.key, plan.known_rows
        view = scope.views.find(counted)
        if view is None:
            view = scope.views.keep(counted, frame_of_count(scope.spark, plan.known_rows))
        return KeptRead(*view, planned)
    leases.planned.append(read.planned)
    if relation.file_call is not None:
        _check_files(plan, relation, relation.file_call)
    columns = _used_columns(read, plan, relation.names)
    key = planned.key, columns, limits, relation.lists_null
    view = scope.views.find(key)
    if view is None:
        narrowed = read if columns is None else read.with_columns(columns)
        frame = _frame(scope, narrowed, limits, lists_null=relation.lists_null)
        view = scope.views.keep(key, frame)
    return KeptRead(*view, planned)


def read_plan(scope: StatementScope, relation: Relation) -> tuple[ReadPlan, DataRead]:
    """Return how a table, or a system table of its data, would be read; nothing is read."""
    table = table_of(scope, relation)
    point = _resolved(table, relation, scope.zone)

    def planned(with_entries: bool) -> PlannedRead:
        read = _read(scope, table, relation, point, with_entries=with_entries)
        return PlannedRead(None, read, table, point)

    chosen = _strategy(scope, relation, planned)
    # Files are pruned further where their entries are not wanted whole.
    is_known = chosen.plan.known_row is not None
    return chosen.plan, (planned(False) if is_known else chosen.planned).read


@dataclass(frozen=True, slots=True)
class _Strategy:
    """How a planned read is done, and the limits of reading in this process."""

    planned: PlannedRead
    plan: ReadPlan
    limits: LocalLimits | None = None


def _strategy(
    scope: StatementScope,
    relation: Relation,
    planned: Callable[[bool], PlannedRead],
    *,
    by_spark: bool = False,
) -> _Strategy:
    """How a relation is read: from the manifests, in this process, by Spark's own scans, or in
    tasks. `planned` plans its read, with the entries of its manifests or without."""
    if relation.aggregates:
        wants_bounds = any(call.column is not None for call in relation.aggregates)
        of_entries = planned(wants_bounds)
        row = _known_row(of_entries.read, relation)
        if row is not None:
            return _Strategy(of_entries, ReadPlan((), (), known_row=row))
    chosen = planned(False)
    read = chosen.read
    rows = row_count(read) if _needs_no_column(read, relation) else None
    if rows is not None:
        return _Strategy(chosen, ReadPlan((), (), known_rows=rows))
    if by_spark or relation.file_call is not None:  # a Python process reports no files to Spark
        return _Strategy(chosen, plan_of(scope, read))
    limits = limits_of(scope, read, relation)
    return _Strategy(chosen, plan_of(scope, read, limits), limits)


def _known_row(read: DataRead, relation: Relation) -> str | None:
    """A relation of SQL with one row, the results of the aggregates, named as they are. None if
    they are not known from manifests."""
    if not are_decided(read, relation.filters):
        return None
    results = {call.name: _aggregate(read, call) for call in relation.aggregates}
    if None in results.values():
        return None
    values = ", ".join(value for value in results.values() if value is not None)
    names = ", ".join(map(quoted, results))
    return f"(VALUES ({values}) AS known ({names}))"


def _aggregate(read: DataRead, call: AggregateCall) -> str | None:
    """The result of a call as a literal."""
    if call.column is None:
        rows = row_count(read)
        return None if rows is None else f"{rows}L"
    named = [column for column in read.schema.columns if column.name.lower() == call.column.lower()]
    if len(named) != 1:
        return None
    bounds = known_bounds(read, read.schemas.columns, named[0])
    if bounds is None:
        return None
    value = bounds.least if call.function == "min" else bounds.greatest
    match value:
        case None:
            text = "NULL"
        case datetime.date():
            text = f"'{value.isoformat()}'"
        case _:
            text = str(value)
    return f"CAST({text} AS {to_spark_sql(named[0].type)})"


def _check_files(plan: ReadPlan, relation: Relation, call: str) -> None:
    """Raise UnsupportedStatementError where Python reads rows, whose files Spark does not know."""
    if not plan.tasks:
        return
    name = relation.name
    raise UnsupportedStatementError(
        f"{call} can't name a file for rows of `{name}` that are merged from several files, or "
        "read by Python: no single file has these rows as they are shown.",
        hint=f"SELECT file_path, record_count FROM {replace(name, system_table=None)}$files lists "
        "the files. After CALL sys.compact, the call works where Spark opens the table's files "
        "itself: on S3 it needs the jar hadoop-aws for that.",
    )


def limits_of(scope: StatementScope, read: DataRead, relation: Relation) -> LocalLimits | None:
    """The limits up to which this process reads the rows of a query itself."""
    wanted = relation.rows_wanted if are_decided(read, relation.filters) else None
    return local_limits(scope, read, wanted)


def kind_of(table: Table, relation: Relation) -> ViewKind | None:
    """What of the table a query shows; None for system tables that don't show rows."""
    named = not relation.hidden.isdisjoint(ROW_ID_COLUMNS)
    return shown_kind(table.schema, relation.name.system_table, names_row_ids=named)


def _resolved(table: Table, relation: Relation, zone: str) -> Resolved:
    if relation.changes is not None:
        return find_target(table, relation.changes, zone)
    match relation.snapshot_id:
        case None:
            pass
        case 0:
            return Resolved(TableState(None))
        case snapshot_id:
            target = find_target(table, AtSnapshot(snapshot_id), zone)
            assert isinstance(target.target, TableState)
            return replace(target, target=TableState(target.target.snapshot))
    return find_target(table, point_of_read(table.schema, dict(relation.options)), zone)


def _hold(leases: SnapshotLeases, name: TableName, point: Resolved) -> bool:
    """Keep the snapshot of a read from expiring. Returns whether it still existed. Tags keep
    theirs."""
    ids = snapshot_ids(point.target)
    if not ids or point.protected_by_tag:
        return True
    return leases.hold(replace(name, system_table=None), min(ids))


def table_of(scope: StatementScope, relation: Relation) -> Table:
    """The table of a read, or the branch of it that the read names."""
    name = replace(relation.name, system_table=None)
    branch = dict(relation.options).get("branch")
    if branch is not None and branch != "main":
        name = replace(name, branch=branch)
    return scope.tables.load(name)


def _read(
    scope: StatementScope,
    table: Table,
    relation: Relation,
    point: Resolved,
    *,
    with_entries: bool = False,
) -> DataRead:
    request = ReadRequest(
        kind_of(table, relation) or ViewKind.TABLE,
        metadata=relation.hidden.difference(ROW_ID_COLUMNS)
        if relation.changes is None
        else frozenset(COMMIT_COLUMNS),
        options=dict(relation.options),
        zone=scope.zone,
        filters=relation.filters,
        bound=dict(relation.bound),
        unordered=relation.unordered,
        with_entries=with_entries,
    )
    return plan_data_read(
        table,
        request,
        target=point.target,
        manifests=scope.manifests(table),
        batch_rows=scope.settings.batch_rows,
    )


def _needs_no_column(read: DataRead, relation: Relation) -> bool:
    """Whether the query only needs to know how many rows there are."""
    if relation.names is None or relation.filters or relation.file_call is not None:
        return False
    shown = shown_columns(read.schema.columns, read.view)
    return relation.names.isdisjoint(column.name.lower() for column in shown)


def _used_columns(
    read: DataRead, plan: ReadPlan, names: frozenset[str] | None
) -> tuple[str, ...] | None:
    """The columns that a name in the query can mean; None for all. Tasks would read the others in
    vain, and their types may rule out a raw scan. In a raw scan Spark itself leaves columns out,
    and its errors can name all columns."""
    if names is None or not (plan.tasks or plan.local):
        return None
    columns = tuple(name for name in read.reader.columns if name.lower() in names)
    if len(columns) == len(read.reader.columns):
        return None
    # At least one column: Spark counts the rows of a batch by its columns.
    return columns or read.reader.columns[:1]


# How a planned read is run: which files Spark scans itself, and which splits tasks read.


def plan_of(scope: StatementScope, read: DataRead, limits: LocalLimits | None = None) -> ReadPlan:
    """The plan of a read in the connection's Spark, or within `limits` in this process."""
    planned = read.planned
    local = None if limits is None else plan_local(limits, planned.raw, planned.splits)
    if local is not None:
        return local
    shown = set(read.reader.columns)
    paths = (path for files in planned.raw for path in files.paths)
    schemes = {} if read.stores == {"file"} else scope.connection.opened.schemes(paths)
    plan = plan_read(
        [column for column in read.schema.columns if column.name in shown],
        {
            files.schema_id: read.schema.columns
            if files.schema_id == read.schema.schema_id
            else read.schemas.columns(files.schema_id)
            for files in read.planned.raw
        },
        read.planned.raw,
        read.planned.splits,
        changed=read.changed_parts,
        slots=scope.slots,
        spark_opens_store=schemes is not None,
    )
    if not schemes or all(scheme == stored for (stored, _), scheme in schemes.items()):
        return plan
    scans = tuple(
        replace(scan, paths=tuple(spelled(path, schemes) for path in scan.paths))
        for scan in plan.raw_scans
    )
    return replace(plan, raw_scans=scans)


def local_limits(
    scope: StatementScope, read: DataRead, first_rows: int | None = None
) -> LocalLimits | None:
    """The limits within which this process reads the rows itself; None if Spark has to. A VARIANT
    has no form outside of Spark's tasks. `first_rows` is how many rows are needed, of any."""
    settings = scope.settings
    shown = set(read.reader.columns)
    if any(
        column.name in shown and contains_type(column.type, "VARIANT")
        for column in read.schema.columns
    ):
        return None
    return LocalLimits(
        settings.local_rows_max,
        settings.local_bytes_max,
        _FILES_MAX if read.stores == {"file"} else _REMOTE_FILES_MAX,
        by_key=fixes_keys(read.schema, read.predicates, settings.local_rows_max),
        first_rows=first_rows,
    )


def _frame(
    scope: StatementScope, read: DataRead, limits: LocalLimits | None, *, lists_null: bool = False
) -> DataFrame:
    """The lazy frame of a read. What this process reads itself, within `limits`, is read now. With
    `lists_null` a condition may compare a column with a list that has NULL in it.

    Raises TableDamagedError for files of those that can't be read.
    """
    by_name = {column.name: column for column in read.schema.columns}
    columns = [by_name[name] for name in read.reader.columns]
    plan = plan_of(scope, read, limits)
    if limits is not None and not plan.raw_scans and not plan.tasks:
        rows = few_rows(read, plan.local, limits)
        if rows is not None:
            frame = frame_of_batch(scope.spark, rows, shown_columns(columns, read.view))
            return note_reads(frame, Reads(rows_at_most=rows.num_rows))
        plan = plan_of(scope, read)  # they are more in memory than they are stored
    frame = read_frame(scope.spark, plan, columns, read.reader, lists_null=lists_null)
    return note_reads(frame, Reads(plan=plan))


def fits_broadcast(scope: StatementScope, table_read: KeptRead) -> bool:
    """Whether a join should send the rows of a read to all its tasks, as Spark does with small
    files that it scans itself. Spark knows no size of rows that come from Python: it would sort
    both sides.

    The size is that of the files, as in Spark. ANALYZE … FOR COLUMNS knows better, where the rows
    are still the same: their number, and how long the values are.
    """
    plan = reads_of(table_read.frame).plan
    if plan is None or not plan.tasks:
        return False
    threshold = scope.spark.conf.get(_BROADCAST, None) or "-1"
    if threshold.startswith("-"):
        return False
    size_bytes = _analyzed_bytes(table_read)
    if size_bytes is None:
        raw = table_read.read.planned.raw
        size_bytes = plan.merged_bytes + sum(sum(files.sizes_bytes) for files in raw)
    return size_bytes <= memory_size_bytes(_BROADCAST, threshold)


def _analyzed_bytes(table_read: KeptRead) -> int | None:
    """The bytes of the rows of a read by the table's statistics (Spark: `EstimationUtils`)."""
    target = table_read.planned.point.target
    if not isinstance(target, TableState) or target.snapshot is None:
        return None
    analyzed = table_statistics(table_read.planned.table, target.snapshot)
    if analyzed is None or not analyzed.is_current or analyzed.rows is None:
        return None
    lengths = [
        analyzed.columns.get(name, {}).get("avgLen") for name in table_read.read.reader.columns
    ]
    if None in lengths:
        return None
    size_bytes: int = analyzed.rows * (_ROW_BYTES + sum(filter(None, lengths)))
    return size_bytes
