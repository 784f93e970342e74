"""Plans reads of tables for queries, and keeps plans and frames for the next query on the same
snapshot."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.reads.local_reads import LocalLimits
from paimon_magics.planning.reads.read_points import AtSnapshot, point_of_read
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.planning.reads.views import ViewKind, shown_columns, shown_kind
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.plans import frame_of_read, local_limits, plan_of
from paimon_magics.session.queries.relations import Relation
from paimon_magics.spark.rows import frame_of_count
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import DataRead, ReadRequest, plan_data_read
from paimon_magics.tables.reading.known_rows import are_decided, row_count
from paimon_magics.tables.schema.orc_zone import unknown_zone_note
from paimon_magics.tables.snapshots.targets import Resolved, TableState, snapshot_ids
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "KeptRead",
    "PlannedRead",
    "kept_read",
    "kind_of",
    "limits_of",
    "needs_no_column",
    "planned_read",
    "table_of",
    "unkept_read",
]

_READS_MAX = 10


@dataclass(frozen=True)
class PlannedRead:
    """A read of a table at a point. `key` tells it from all other reads."""

    key: Hashable
    read: DataRead
    table: Table
    point: Resolved


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A read that is kept for later queries on the same snapshot: its view and frame, its plan,
    the table, and the point that it reads."""

    view: str
    frame: DataFrame
    read: DataRead
    table: Table
    point: Resolved


def planned_read(
    connection: Connection,
    relation: Relation,
    held: HeldSnapshots,
    again: KeptRead | None = None,
    *,
    with_entries: bool = False,
) -> PlannedRead:
    """Plan a read of data files, and keep its snapshot from expiring; the plan is kept for later
    queries on the snapshot. With `again` it is of the table and snapshot of that one.
    `with_entries`: see `TableScan`.

    Raises what `plan_data_read` raises.
    """
    table = table_of(connection, relation) if again is None else again.table
    kind = kind_of(table, relation)
    zone = connection.zone
    for _ in range(_READS_MAX):
        point = _resolved(table, relation, zone) if again is None else again.point
        key = (
            table.location, table.name.branch, table.schema, point.identity, kind,
            relation.options, zone, relation.filters, repr(relation.bound), relation.unordered,
            with_entries,
        )  # fmt: skip
        if not _hold(held, table.name, point):
            continue  # the snapshot has expired meanwhile
        read = connection.reads.get(key)
        if read is None:
            read = _read(connection, table, relation, point, with_entries=with_entries)
        connection.keep_read(key, read)
        note = unknown_zone_note(table.schema, relation.names)
        if note is not None:
            connection.tell(note)
        return PlannedRead(key, read, table, point)
    raise UnknownNameError(
        f"Snapshots of `{table.name}` expire before they can be read.",
        hint="Keep its snapshots longer: 'snapshot.num-retained.min', 'snapshot.time-retained'.",
    )


def kept_read(
    connection: Connection,
    relation: Relation,
    held: HeldSnapshots,
    again: KeptRead | None = None,
    *,
    by_spark: bool = False,
) -> KeptRead:
    """Return the read of a relation, and keep its view and frame for later queries on the snapshot;
    `again` as in `planned_read`. With `by_spark` this process reads no files, however small."""
    planned = planned_read(connection, relation, held, again)
    read = planned.read
    if needs_no_column(read, relation):
        rows = row_count(read)
        if rows is not None:
            counted = connection.views.find((planned.key, rows))
            if counted is None:
                frame = frame_of_count(connection.spark, rows)
                counted = connection.views.keep((planned.key, rows), frame)
            return KeptRead(*counted, read, planned.table, planned.point)
    held.planned.append(read.planned)
    by_spark |= relation.file_call is not None  # a Python process tells Spark no files
    limits = None if by_spark else limits_of(connection, read, relation)
    narrowed, columns, plan = read, None, None
    if relation.file_call is not None:
        _check_files(plan_of(connection, read), relation, relation.file_call)
    if not read.planned.splits:
        plan = plan_of(connection, read, limits)
    # In a raw scan Spark itself leaves columns out, and its errors can name all columns.
    if plan is None or plan.tasks or plan.local:
        narrowed, columns = _narrowed(read, relation.names)
    key = planned.key, columns, limits, relation.lists_null
    found = connection.views.find(key)
    if found is None:
        frame = frame_of_read(connection, narrowed, limits, lists_null=relation.lists_null)
        found = connection.views.keep(key, frame)
    return KeptRead(*found, read, planned.table, planned.point)


def _check_files(plan: ReadPlan, relation: Relation, call: str) -> None:
    """Raise UnsupportedStatementError where Python reads rows, whose files Spark does not know."""
    if not plan.tasks:
        return
    name = relation.name
    raise UnsupportedStatementError(
        f"{call} has no answer for rows of `{name}` that are merged from several files, or read by "
        "Python: no single file has them as they are shown.",
        hint=f"SELECT file_path, record_count FROM {replace(name, system_table=None)}$files lists "
        "the files. After CALL sys.compact, Spark reads most tables itself, and the call works.",
    )


def limits_of(connection: Connection, read: DataRead, relation: Relation) -> LocalLimits | None:
    """Up to where this process reads the rows of a query itself."""
    wanted = relation.rows_wanted if are_decided(read, relation.filters) else None
    return local_limits(connection, read, wanted)


def unkept_read(connection: Connection, relation: Relation) -> DataRead:
    """Plan a read that nothing is read of."""
    table = table_of(connection, relation)
    return _read(connection, table, relation, _resolved(table, relation, connection.zone))


def kind_of(table: Table, relation: Relation) -> ViewKind | None:
    """What of the table a query shows; None for system tables that don't show rows."""
    named = relation.names_row_ids
    return shown_kind(table.schema, relation.name.system_table, names_row_ids=named)


def _resolved(table: Table, relation: Relation, zone: str) -> Resolved:
    match relation.snapshot_id:
        case None:
            pass
        case 0:
            return Resolved(TableState(None))
        case snapshot_id:
            found = find_target(table, AtSnapshot(snapshot_id), zone)
            assert isinstance(found.target, TableState)
            return replace(found, target=TableState(found.target.snapshot))
    return find_target(table, point_of_read(table.schema, dict(relation.options)), zone)


def _hold(held: HeldSnapshots, name: TableName, found: Resolved) -> bool:
    """Keep the snapshot of a read from expiring. Returns whether it still existed. Tags keep
    theirs."""
    ids = snapshot_ids(found.target)
    if not ids or found.kept_by_tag:
        return True
    return held.hold(replace(name, system_table=None), min(ids))


def table_of(connection: Connection, relation: Relation) -> Table:
    """The table of a read, or the branch of it that the read names."""
    name = replace(relation.name, system_table=None)
    branch = dict(relation.options).get("branch")
    if branch is not None and branch != "main":
        name = replace(name, branch=branch)
    return connection.tables.load(name)


def _read(
    connection: Connection,
    table: Table,
    relation: Relation,
    found: Resolved,
    *,
    with_entries: bool = False,
) -> DataRead:
    request = ReadRequest(
        kind_of(table, relation) or ViewKind.TABLE,
        options=dict(relation.options),
        zone=connection.zone,
        filters=relation.filters,
        bound=dict(relation.bound),
        unordered=relation.unordered,
        with_entries=with_entries,
    )
    return plan_data_read(
        table,
        request,
        target=found.target,
        manifests=connection.manifests(table.location, lambda: ManifestCache(table.paimon)),
        batch_rows=connection.settings.batch_rows,
    )


def needs_no_column(read: DataRead, relation: Relation) -> bool:
    """Whether the query only needs to know how many rows there are."""
    if relation.names is None or relation.filters or relation.file_call is not None:
        return False
    shown = shown_columns(read.schema.columns, read.view)
    return relation.names.isdisjoint(column.name.lower() for column in shown)


def _narrowed(
    read: DataRead, names: frozenset[str] | None
) -> tuple[DataRead, tuple[str, ...] | None]:
    """Return the read without columns that no name in the query can mean: tasks would read them in
    vain, and their types may rule out a raw scan."""
    if names is None:
        return read, None
    columns = tuple(name for name in read.reader.columns if name.lower() in names)
    if len(columns) == len(read.reader.columns):
        return read, None
    # At least one column: Spark counts the rows of a batch by its columns.
    columns = columns or read.reader.columns[:1]
    return read.with_columns(columns), columns
