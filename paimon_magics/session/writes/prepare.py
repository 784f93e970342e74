"""A write planned and checked against its table; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.columnar.merging import KIND
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch, read_keys, read_rows
from paimon_magics.planning.commits.requests import (
    Append,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.reads.predicates import column_predicates
from paimon_magics.planning.reads.read_points import POINT_OPTIONS
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.distributions import (
    ByBucket,
    ByGivenBucket,
    Distribution,
    OwnBuckets,
    distribution_of,
)
from paimon_magics.planning.writes.inserts import (
    Constant,
    FromInput,
    Source,
    check_writable,
    match_columns,
    static_partition_columns,
)
from paimon_magics.planning.writes.row_origins import ORIGIN
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.resolution import resolve
from paimon_magics.session.scope import StatementScope, errors_located, errors_translated
from paimon_magics.session.settings_checks import with_settings
from paimon_magics.session.writes.exactness import check_exact, check_policy
from paimon_magics.spark.casting import partition_values, project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.losses import changeable, lossy_columns, without_losses
from paimon_magics.spark.sizes import Estimate, estimate
from paimon_magics.spark.struct_names import with_fields_by_name
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import Insert, TableName, TableReference
from paimon_magics.tables.manifests.partitions import partitions_max
from paimon_magics.tables.snapshots.latest import latest_state
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.bucket_counts import check_cross_partition_size

if TYPE_CHECKING:
    import pyarrow

    from paimon_magics.spark.handles import DataFrame


_KIND_COLUMN = Column(0, KIND, AtomicType("TINYINT"))


def _no_check() -> None:
    """Rows that are stored as they are need no check."""


@dataclass(frozen=True)
class PreparedWrite:
    """A planned write: its rows in the table's columns, and what they do to the table.

    `base_snapshot_id` is the table's latest snapshot before planning, 0 for none, and
    `base_manifest_list` names its delta manifest list, "" if that is unknown. `again` plans the
    same statement on the table's then current state. `check` raises InvalidValueError for rows that
    storing would change. `column(only=…)` makes the frame of one column of an INSERT. With
    `has_kinds` the frame has a column of the rows' kinds behind the table's, with `has_buckets` one
    of their buckets, too. With `keys_repeat` rows with kinds are changes, and a later one of a
    key replaces an earlier one. `read_set` is what the rows were made of, if they are made of rows
    of the table. With `own_buckets` no two tasks of the frame have rows of one bucket. With
    `marks_unseen` some kinds say that a row is not seen. `changeable` lists the casts that may
    change values. `is_for_next_schema` says that the schema of `table` is not stored yet.
    """

    table: Table
    frame: DataFrame
    change: InsertChange
    base_snapshot_id: int
    again: Callable[[], PreparedWrite]
    check: Callable[[], None] = _no_check
    column: Callable[..., DataFrame] | None = None
    has_kinds: bool = False
    has_buckets: bool = False
    keys_repeat: bool = False
    read_set: ReadSet | None = None
    own_buckets: bool = False
    marks_unseen: bool = False
    changeable: Callable[[], tuple[str, ...]] = tuple
    base_manifest_list: str = ""
    is_for_next_schema: bool = False

    @property
    def base(self) -> tuple[int, str]:
        """The snapshot before planning, as `state_of` returns it."""
        return self.base_snapshot_id, self.base_manifest_list


@dataclass(frozen=True, slots=True)
class GivenRows:
    """A frame that replaces an INSERT's source. `mode`, static or dynamic, replaces Spark's
    partitionOverwriteMode; `are_own` says that a program gave the rows. A frame whose last column
    is KIND has changes of rows (`with_changes`); one whose last column is ORIGIN has the number of
    each row's origin there. `merging` are options of how the table's columns are merged with its
    own (`write.merge-schema`)."""

    frame: DataFrame
    mode: str | None = None
    are_own: bool = False
    merging: Mapping[str, str] = field(default_factory=dict)


def _checked(frame: DataFrame, table: Table) -> DataFrame:
    """The frame. Raises InvalidValueError if it has no columns."""
    if not frame.columns:
        raise InvalidValueError(
            "The frame has no columns.",
            hint=f"Nothing was written. DESCRIBE {table.name} shows the table's columns.",
        )
    return frame


def prepare_insert(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    rows: GivenRows | None = None,
) -> PreparedWrite:
    """Plan an INSERT and check it against its table; nothing runs. See `run_insert`."""
    table = scope.load(insert.target, insert.text, insert.target_position)
    # Taken before the source is planned: a later commit then counts as newer than the plan.
    state = latest_state(table)
    schema = _writable_schema(scope, insert, table)
    static = static_partition_columns(insert, schema)
    if rows is not None:
        frame = _checked(rows.frame, table)
    else:
        frame = frame_of_query(
            scope.filling(), insert.text, insert.source, parameters,
            value_names=partial(_value_names, insert, schema),
        )  # fmt: skip
    kinds = rows is not None and frame.columns[-1] == KIND
    origins = [ORIGIN] if rows is not None and frame.columns[-1] == ORIGIN else []
    names = frame.columns[:-1] if kinds or origins else frame.columns
    sources = match_columns(insert, schema, names)
    bound = bind(insert.source.parameters, parameters, insert.text, scope.zone)
    constants = partition_constants(scope, schema, static, bound, insert.text)
    fixed = zip(schema.columns, sources, strict=True)
    assert set(constants) == {column.name for column, value in fixed if isinstance(value, Constant)}
    taken = _taken_by(frame, schema, sources)
    is_exact = scope.settings.store_assignment != "ansi"
    with errors_translated(insert.text, insert.source.range.start):
        if insert.by_name:
            frame = made_of(with_fields_by_name(frame, taken), frame)
        columns = (*schema.columns, _KIND_COLUMN) if kinds else schema.columns
        values = (*sources, FromInput(len(frame.columns) - 1)) if kinds else sources
        projection = partial(project, scope.spark, frame, columns, values, constants)
        is_given = insert.source.is_values or (rows is not None and rows.are_own)
        losses = [] if is_given and is_exact else lossy_columns(frame, taken)
        projected = projection(more=[*losses, *origins])
    mode = None if rows is None else rows.mode
    change = change_of(scope, insert, schema, constants, mode)
    made_of(projected, frame)

    def again() -> PreparedWrite:
        scope.tables.renew()
        return prepare_insert(scope, insert, parameters, rows)

    return PreparedWrite(
        table,
        projected,
        change,
        state[0],
        again,
        column=projection,
        check=_exactness(scope, frame, taken, is_given=is_given),
        has_kinds=kinds and schema.rowkind_field is None,
        keys_repeat=kinds,
        changeable=partial(changeable, frame, taken),
        read_set=None if rows is not None else _own_read_set(scope, insert, table, state, bound),
        base_manifest_list=state[1],
    )


def _value_names(insert: Insert, schema: TableSchema, count: int) -> list[str]:
    """The columns that `count` values of a row of VALUES are for."""
    if not insert.source.is_values:
        return []
    sources = match_columns(insert, schema, [f"col{number}" for number in range(1, count + 1)])
    names = {
        source.position: column.name
        for column, source in zip(schema.columns, sources, strict=True)
        if isinstance(source, FromInput)
    }
    return [names[position] for position in range(count)]


def _writable_schema(scope: StatementScope, insert: Insert, table: Table) -> TableSchema:
    with errors_located(insert.text, insert.target_position):
        check_writable(table.name, table.schema)
        if not insert.overwrite:
            check_cross_partition_size(table, scope.settings.cross_partition_rows_max)
    return table.schema


def _taken_by(
    frame: DataFrame, schema: TableSchema, sources: Sequence[Source]
) -> Sequence[Column | None]:
    """The target column of each column of `frame`, None for none."""
    columns: list[Column | None] = [None] * len(frame.columns)
    for column, source in zip(schema.columns, sources, strict=True):
        if isinstance(source, FromInput):
            columns[source.position] = column
    return columns


def _exactness(
    scope: StatementScope,
    frame: DataFrame,
    columns: Sequence[Column | None],
    *,
    is_given: bool,
) -> Callable[[], None]:
    """Return the check that raises InvalidValueError for rows that storing would change."""
    if scope.settings.store_assignment == "ansi":
        return _no_check
    if is_given:
        return lambda: check_exact(frame, columns)
    return lambda: check_policy(scope.spark, frame, columns)


def distribution(scope: StatementScope, prepared: PreparedWrite) -> Distribution:
    """Return how the rows are distributed to the writing tasks. Runs no job."""
    schema = prepared.table.schema
    if prepared.has_buckets:
        return ByGivenBucket()
    if prepared.own_buckets and schema.bucket_mode == "HASH_FIXED":
        return OwnBuckets(ByBucket(schema.bucket_keys, schema.bucket))
    table = prepared.table
    manifests = scope.manifests(table)
    partitions = partitions_max(table, prepared.base_snapshot_id, manifests)
    estimated = Estimate()
    if schema.bucket_mode == "BUCKET_UNAWARE":
        estimated = estimate(without_losses(prepared.frame))
    return distribution_of(
        schema,
        slots=scope.slots,
        single_writer_rows_max=scope.settings.cross_partition_rows_max,
        partitions_max=partitions,
        estimated_bytes=estimated.size_bytes,
        tells_work=estimated.tells_work,
    )


def change_of(
    scope: StatementScope,
    insert: Insert,
    schema: TableSchema,
    constants: Mapping[str, str | None],
    mode: str | None = None,
) -> InsertChange:
    """Return what the INSERT replaces. For an overwrite of a partitioned table `mode` decides, or
    else Spark's partitionOverwriteMode."""
    if not insert.overwrite:
        return Append()
    if mode is None:
        mode = scope.spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")
    swallow = scope.settings.overwrite_swallows_newer
    if schema.is_partitioned and (mode or "static").lower() == "dynamic":
        return OverwriteTouched(swallow)
    if not constants:
        return OverwritePartitions((), swallow)
    return OverwritePartitions((tuple(constants.items()),), swallow)


def partition_constants(
    scope: StatementScope,
    schema: TableSchema,
    static: Mapping[str, str],
    parameters: Mapping[str, object],
    statement: str,
) -> dict[str, str | None]:
    """Evaluate a PARTITION clause to values as text, cast to the columns' types."""
    items: list[tuple[Column, str]] = [(schema.column(name), sql) for name, sql in static.items()]
    with errors_translated(statement):
        return partition_values(scope.spark, items, parameters, schema.partition_default_name)


def fetched_values(prepared: PreparedWrite, statement: str) -> pyarrow.Table:
    """Return the rows of a VALUES list. An error names the column that failed. Raises
    InvalidValueError for rows that storing would change."""
    prepared.check()
    try:
        return fetched(prepared.frame)
    except Exception as error:
        ours = translate(error, statement=statement)
        if isinstance(ours, InvalidValueError) and not ours.message.startswith("Column `"):
            column = _failing_column(prepared)
            if column is not None:
                message = ours.message[:1].lower() + ours.message[1:]
                ours = InvalidValueError(f"Column `{column}`: {message}", hint=ours.hint)
        raise ours from error


def _failing_column(prepared: PreparedWrite) -> str | None:
    """The first column of the table whose values can't be computed on their own."""
    assert prepared.column is not None
    for name in prepared.table.schema.column_names:
        try:
            prepared.column(only=name).collect()  # the rows are folded: this runs no job
        except Exception as error:
            # Any other failure than that of a value is not about this column.
            return name if isinstance(translate(error), InvalidValueError) else None
    return None


# What a statement reads of the table that it writes to: `INSERT INTO t SELECT … FROM t`.
#
# Such rows are made of rows of the table, so that its commit is checked against what it has read,
# as that of an UPDATE is. It stays an append: compactions, and rows that others add without having
# read the table, don't stand in its way.


def _own_read_set(
    scope: StatementScope,
    insert: Insert,
    table: Table,
    state: tuple[int, str],
    bound: Mapping[str, object],
) -> ReadSet | None:
    """What the commit of an INSERT INTO is checked against; None if its query does not read the
    table as it is now. `state` is the latest snapshot before the query was planned
    (`latest_state`), `bound` are the values of the bind names."""
    if insert.overwrite or table.schema.engine.keeps_first_row:
        return None  # an overwrite has a check of its own; first-row keeps rows that are there
    references = insert.source.references
    own = [reference for reference in references if reads_now(scope, insert.text, table, reference)]
    if not own:
        return None
    snapshot_id, name = state
    if table.schema.is_primary_key_table:
        return read_keys(snapshot_id, manifest_list=name)
    filters = own[0].filters if len(own) == 1 else ()
    conditions = RowSearch(column_predicates(filters, table.schema.columns, bound))
    return read_rows(snapshot_id, conditions, manifest_list=name)


def reads_now(
    scope: StatementScope, statement: str, table: Table, reference: TableReference
) -> bool:
    """Whether a reference in a statement's text reads the latest rows of the table."""
    if reference.time_travel or reference.changes or reference.options:
        return False
    if reference.name.object_name.lower() != table.name.object_name.lower():
        return False  # spares the catalog
    meaning = resolve(scope, reference, statement)
    if not isinstance(meaning, TableName) or meaning != table.name:
        return False
    return not any(
        option in ("branch", *POINT_OPTIONS) for option in with_settings(scope, meaning, {})
    )
