"""Frames for the names in a query: Paimon's tables, system tables, files and Python's frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
)
from paimon_magics.planning.reads.read_points import AtSnapshot, Latest, point_of_read
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.planning.reads.views import ViewKind, shown_kind
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.given_streams import spooled_rows
from paimon_magics.session.parameters import bind
from paimon_magics.session.python_frames import spark_frame
from paimon_magics.session.queries.buffered import frame_with_buffer
from paimon_magics.session.queries.file_relations import FileRelation, frame_of_files
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.plans import plan_of
from paimon_magics.session.queries.relations import Relation, check_plain, relation_of
from paimon_magics.session.queries.resolution import GivenFrame, SparkOwn
from paimon_magics.session.queries.selections import Selection
from paimon_magics.spark.queries import query_frame
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.queries.row_ids import stars_without_row_ids
from paimon_magics.statements.queries.used_columns import used_names
from paimon_magics.statements.statement import QueryText, TableName, TableReference
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import DataRead, ReadRequest, plan_data_read
from paimon_magics.tables.snapshots.targets import Resolved, TableState, snapshot_ids
from paimon_magics.tables.snapshots.time_travel import find_target
from paimon_magics.tables.system_tables.registry import is_metadata, metadata_table
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "KeptRead",
    "buffered_frame",
    "frame_of_query",
    "frame_of_views",
    "kept_read",
    "metadata_frame",
    "read_plan",
]

_READS_MAX = 10


def frame_of_query(
    connection: Connection,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    selection: Selection | None = None,
) -> DataFrame:
    """Return the lazy frame of a query inside `statement`; with `include_buffer` also acknowledged
    rows that are not loaded. `selection` is for queries of rows to change. Errors have positions
    in `statement`."""
    bound = bind(query.parameters, parameters, statement, connection.zone)
    held = HeldSnapshots(connection.committer)
    try:
        frame = frame_of_views(
            connection, statement, query, held, bound,
            include_buffer=include_buffer, selection=selection,
        )  # fmt: skip
        names = tuple(reference.name.object_name for reference in query.references)
        return held.noted(frame, names)
    finally:
        held.release()
        connection.views.drop_passing()


def frame_of_views(
    connection: Connection,
    statement: str,
    query: QueryText,
    held: HeldSnapshots,
    bound: Mapping[str, object],
    *,
    include_buffer: bool = False,
    selection: Selection | None = None,
) -> DataFrame:
    """Return the frame of a query with a view in place of each reference to a Paimon table. The
    caller drops passing views, and keeps `held` for as long as they are used. `bound` are the
    values of the bind names."""

    def planned(names: frozenset[str] | None) -> DataFrame:
        reading = _Reading(connection, statement, held, bound, names, include_buffer, selection)
        views, with_ids = _views(reading, query)
        more = stars_without_row_ids(statement, query, with_ids) if with_ids else ()
        if selection is not None:
            more = (*more, *selection.replacements)
        frame = query_frame(connection.spark, statement, query, views, bound, more)
        connection.views.read_by(frame, {view for _, view in views})
        return frame

    names = used_names(statement, query)
    try:
        return planned(names)
    except UnknownNameError:
        if names is None:
            raise
        # With all columns Spark's error can suggest the one that was meant.
        return planned(None)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is known when the views of a query's references are made."""

    connection: Connection
    statement: str
    held: HeldSnapshots
    bound: Mapping[str, object]
    names: frozenset[str] | None
    include_buffer: bool
    selection: Selection | None

    def given(self, reference: TableReference) -> DataFrame | None:
        """The frame that takes the place of the reference."""
        chosen = self.selection
        is_target = chosen is not None and reference.range.start == chosen.position
        return chosen.frame if chosen is not None and is_target else None

    def relation_of(
        self, reference: TableReference
    ) -> Relation | SparkOwn | FileRelation | GivenFrame:
        """What the reference reads."""
        found = relation_of(self.connection, reference, self.statement, self.bound, self.names)
        chosen = self.selection
        if chosen is not None and chosen.shows_row_ids and isinstance(found, Relation):
            found = replace(found, names_row_ids=True)
        if chosen is None or not isinstance(found, Relation) or found.name != chosen.table:
            return found
        if not found.options:
            found = replace(found, snapshot_id=chosen.snapshot_id)
        if reference.range.start != chosen.position:
            return found
        if chosen.conditions is None:
            return replace(found, names=None)
        filters, bound = chosen.conditions.filters, chosen.conditions.bound
        return replace(found, filters=filters, bound=bound)


def _views(
    reading: _Reading, query: QueryText
) -> tuple[list[tuple[TableReference, str]], list[TableReference]]:
    """The views of the references, and the references whose views have the ids of rows."""
    connection, statement, held = reading.connection, reading.statement, reading.held
    views, with_ids = [], []
    frames: dict[str, str] = {}
    for reference in query.references:
        given_frame = reading.given(reference)
        if given_frame is not None:
            held.hold_of(given_frame)
            views.append((reference, connection.views.pass_by(given_frame)))
            continue
        try:
            match reading.relation_of(reference):
                case Relation() as relation:
                    frame = None
                    if reading.include_buffer:
                        frame = buffered_frame(connection, relation, held)
                    if frame is not None:
                        view = connection.views.pass_by(frame)
                    else:
                        view = _view_of(connection, relation, held)
                        if relation.names_row_ids and _shows_row_ids(connection, relation):
                            with_ids.append(reference)
                case FileRelation() as files:
                    view = connection.views.pass_by(frame_of_files(connection, files))
                case GivenFrame(name=name, frame=given):
                    check_plain(reference)
                    if name not in frames:  # a self-join sends the frame once
                        frame = spark_frame(connection.spark, given)
                        held.hold_of(frame)
                        connection.streams.extend(spooled_rows(frame))
                        frames[name] = connection.views.pass_by(frame)
                    view = frames[name]
                case SparkOwn():
                    continue
            views.append((reference, view))
        except PaimonMagicsError as error:
            raise located(error, statement, reference.range.start) from None
    return views, with_ids


def metadata_frame(connection: Connection, relation: Relation) -> DataFrame:
    """The rows of a system table that shows no data, such as `$snapshots`."""
    rows = metadata_table(
        connection.catalog,
        relation.name,
        snapshot_id=_snapshot_of(connection, relation),
        folder_of=lambda table: connection.manifests(
            table.location, lambda: ManifestCache(table.paimon)
        ),
    )
    return frame_of_rows(connection.spark, rows)


def _snapshot_of(connection: Connection, relation: Relation) -> int | None:
    """The id of the snapshot that the read options name; None for the latest."""
    if relation.name.system_table is None:
        return None
    table = _table_of(connection, relation)
    point = point_of_read(table.schema, dict(relation.options))
    if isinstance(point, Latest):
        return None
    target = find_target(table, point, connection.zone).target
    if not isinstance(target, TableState):
        raise InvalidValueError(
            f"`{relation.name}` shows one state of its table, not changes between two.",
            hint="Name a snapshot, a tag or a time.",
        )
    return None if target.snapshot is None else int(target.snapshot.id)


def _view_of(connection: Connection, relation: Relation, held: HeldSnapshots) -> str:
    if is_metadata(relation.name):
        return connection.views.pass_by(metadata_frame(connection, relation))
    return kept_read(connection, relation, held).view


@dataclass(frozen=True, slots=True)
class KeptRead:
    """A read that is kept for later queries on the same snapshot: its view and frame, its plan,
    the table, and the point that it reads."""

    view: str
    frame: DataFrame
    read: DataRead
    table: Table
    point: Resolved


def kept_read(
    connection: Connection,
    relation: Relation,
    held: HeldSnapshots,
    again: KeptRead | None = None,
) -> KeptRead:
    """Return the read of a relation; with `again` of the table and snapshot of that one."""
    table = _table_of(connection, relation) if again is None else again.table
    kind = _kind(table, relation)
    zone = connection.zone
    for _ in range(_READS_MAX):
        found_point = _resolved(table, relation, zone) if again is None else again.point
        key = (
            table.location, table.name.branch, table.schema, found_point.identity, kind,
            relation.options, zone, relation.filters, repr(relation.bound), relation.unordered,
        )  # fmt: skip
        if not _hold(held, table.name, found_point):
            continue  # the snapshot has expired meanwhile
        read = connection.reads.get(key)
        if read is None:
            read = _read(connection, table, relation, zone, found_point)
        connection.keep_read(key, read)
        held.planned.append(read.planned)
        narrowed, columns, plan = read, None, None
        if not read.planned.splits:
            plan = plan_of(connection, read)
        # In a raw scan Spark itself leaves columns out, and its errors can name all columns.
        if plan is None or plan.tasks:
            narrowed, columns = _narrowed(read, relation.names)
        found = connection.views.find((key, columns))
        if found is not None:
            return KeptRead(*found, read, table, found_point)
        if plan is None or narrowed is not read:
            plan = plan_of(connection, narrowed)
        by_name = {column.name: column for column in narrowed.schema.columns}
        frame = read_frame(
            connection.spark, plan, [by_name[name] for name in narrowed.reader.columns],
            narrowed.reader,
        )  # fmt: skip
        found = connection.views.keep((key, columns), frame)
        return KeptRead(*found, read, table, found_point)
    raise UnknownNameError(
        f"Snapshots of `{table.name}` expire before they can be read.",
        hint="Keep its snapshots longer: 'snapshot.num-retained.min', 'snapshot.time-retained'.",
    )


def _kind(table: Table, relation: Relation) -> ViewKind | None:
    named = relation.names_row_ids
    return shown_kind(table.schema, relation.name.system_table, names_row_ids=named)


def _shows_row_ids(connection: Connection, relation: Relation) -> bool:
    """Whether a table, no system table, is shown with the ids of its rows."""
    if relation.name.system_table is not None:
        return False
    return _kind(_table_of(connection, relation), relation) is ViewKind.ROW_TRACKING


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


def buffered_frame(
    connection: Connection, relation: Relation, held: HeldSnapshots
) -> DataFrame | None:
    """The frame of a table with rows that are not loaded yet; None where it has none."""
    return frame_with_buffer(
        connection, relation, lambda one: kept_read(connection, one, held).frame
    )


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


def _table_of(connection: Connection, relation: Relation) -> Table:
    name = replace(relation.name, system_table=None)
    branch = dict(relation.options).get("branch")
    if branch is not None and branch != "main":
        name = replace(name, branch=branch)
    return connection.tables.load(name)


def _read(
    connection: Connection, table: Table, relation: Relation, zone: str, found: Resolved
) -> DataRead:
    request = ReadRequest(
        _kind(table, relation) or ViewKind.TABLE,
        options=dict(relation.options),
        zone=zone,
        filters=relation.filters,
        bound=dict(relation.bound),
        unordered=relation.unordered,
    )
    return plan_data_read(
        table,
        request,
        target=found.target,
        manifests=connection.manifests(table.location, lambda: ManifestCache(table.paimon)),
        batch_rows=connection.settings.batch_rows,
    )


def read_plan(connection: Connection, relation: Relation) -> tuple[ReadPlan, DataRead]:
    """Return how a table, or a system table of its data, is read."""
    table = _table_of(connection, relation)
    zone = connection.zone
    read = _read(connection, table, relation, zone, _resolved(table, relation, zone))
    return plan_of(connection, read), read
