"""A DELETE or UPDATE of few keys, run in this process.

A condition that fixes every key column needs few rows of few files: reading them takes some
milliseconds, where a Spark job takes hundreds. Spark evaluates the condition and the assigned
values over a local relation of the rows, which it does without a job; all other values are written
as they were read. A condition that only compares key columns needs no evaluation, and neither do
plain values (`planning/row_changes/plain_values.py`).

What happens when this process dies is said in `session/writes/transactions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_magics.columnar.merging import KIND
from paimon_magics.columnar.value_bounds import can_have, matching
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import OutdatedPlanError, UnknownNameError
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.predicates import column_predicates, few_values
from paimon_magics.planning.reads.scans import LocalLimits, stored_bytes
from paimon_magics.planning.reads.views import DELETE, UPDATE_AFTER
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate
from paimon_magics.planning.row_changes.plain_values import computed, plain_filters, plain_values
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.inserts import plans_in_turn
from paimon_magics.planning.writes.losses import LOSSES
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.planned_reads import SnapshotLeases
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.exactness import check_losses, is_strict
from paimon_magics.session.writes.row_selection import (
    new_values,
    operation_of,
    paths_of,
    predicates_of,
    selected_rows,
)
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_batch
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.row_changes import Delete, RowChange, Update
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.reading.keyed_rows import few_rows, splits_of
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite, completed, write_spec
from paimon_magics.tables.writing.writer import write_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.spark.handles import DataFrame

_KEYS_MAX = 1000
_FILES_BYTES_MAX = 256 << 20
"""The size of the files that can hold the keys, which one core may have to read."""
_ROWS_BYTES_MAX = 256 << 20
"""What the rows with the keys may take in memory."""
_NUMBER = Column(0, "__paimon_magics_number", AtomicType("BIGINT"))


@dataclass(frozen=True)
class PreparedKeys:
    """A planned DELETE or UPDATE of few keys. `rows` evaluates the statement: it returns the rows
    to write, in the table's columns, with their kinds in the last one. `again` plans it on the
    table's then current state, None where that has to be done otherwise. `manifest_list` names the
    delta manifest list of the snapshot that was read."""

    table: Table
    base_snapshot_id: int
    manifest_list: str
    rows: Callable[[], pa.Table]
    again: Callable[[int], PreparedKeys | None]


def prepare_by_key(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
    merged: MergedUpdate | None,
) -> PreparedKeys | None:
    """Plan a change of the rows of a snapshot, and read those with the keys that the condition
    names. None if it does not fix the whole key, or if more has to be read than is worth it.

    Raises TableDamagedError for files that can't be read, and what planning the statement raises.
    """
    if not _is_plain(table.schema):
        return None
    predicates = predicates_of(scope, change, parameters, table)
    if few_values(predicates, table.schema.primary_keys, _KEYS_MAX) is None:
        return None
    snapshot = read_snapshot(table.paimon, snapshot_id) if snapshot_id else None
    found = _found(scope, change, parameters, table, snapshot)
    if found is None:
        return None
    assert snapshot is not None  # else nothing was found
    list_name = str(snapshot.delta_manifest_list)

    def again(newer_id: int) -> PreparedKeys | None:
        scope.tables.renew()
        newer = scope.load(change.target, change.text, change.target_position)
        if newer.schema != table.schema:
            return None  # rows without a new column's values would take those away
        return prepare_by_key(scope, change, parameters, newer, newer_id, merged)

    kind = DELETE if isinstance(change, Delete) else UPDATE_AFTER
    exact = _selected_by_key(scope, change, parameters, table, found)
    if exact is not None and isinstance(change, Update):
        exact = _with_plain_values(scope, change, parameters, table, exact)
    if exact is not None and _are_seen(exact, change, table, merged):
        return PreparedKeys(table, snapshot_id, list_name, lambda: _with_kind(exact, kind), again)
    values = _values(scope, change, parameters, table, snapshot_id, found, merged)

    def changed() -> pa.Table:
        return _changed(found, _fetched(scope, change, values), kind, merged)

    return PreparedKeys(table, snapshot_id, list_name, changed, again)


def _is_plain(schema: TableSchema) -> bool:
    """Whether rows of a kind are written as they come. VARIANT has no form outside of Spark's
    tasks; a column with the kinds, keys that move between partitions, and rows that wait for their
    bucket need more than that."""
    return (
        schema.bucket_mode in ("HASH_FIXED", "HASH_DYNAMIC")
        and schema.rowkind_field is None
        and set(schema.partition_keys) <= set(schema.primary_keys)
        and not schema.has_type("VARIANT")
    )


def _found(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot: Any,
) -> pa.Table | None:
    """All columns of the rows that the condition may select."""
    import pyarrow as pa

    query = change.selection.query
    filters = tuple(
        one
        for reference in query.references
        if reference.range.start == change.selection.target_position
        for one in reference.filters
    )
    bound = bind(query.parameters, parameters, change.text, scope.zone)
    with SnapshotLeases(scope.committer) as leases:
        if snapshot is None or not leases.hold(table.name, snapshot.id):
            return None
        read = plan_data_read(
            table,
            ReadRequest(zone=scope.zone, filters=filters, bound=bound),
            target=TableState(snapshot),
            manifests=scope.manifests(table),
            batch_rows=scope.settings.batch_rows,
        )
        if stored_bytes(read.planned.raw, read.planned.splits) > _FILES_BYTES_MAX:
            return None
        limits = LocalLimits(_KEYS_MAX, _ROWS_BYTES_MAX, len(splits_of(read)), by_key=True)
        batch = few_rows(read, splits_of(read), limits)
        return None if batch is None else pa.Table.from_batches([batch])


def _selected_by_key(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    found: pa.Table,
) -> pa.Table | None:
    """The rows among `found` that the condition selects; None if it is Spark's to evaluate."""
    import pyarrow as pa

    filters = plain_filters(change, table.schema.primary_keys)
    if filters is None:
        return None
    query = change.selection.query
    bound = bind(query.parameters, parameters, change.text, scope.zone)
    predicates = column_predicates(filters, table.schema.columns, bound)
    types = {one.name: one.type for one in found.schema}
    can_tell = all(can_have(predicate, types[predicate.column]) for predicate in predicates)
    if len(predicates) != len(filters) or not can_tell:
        return None
    for predicate in predicates:
        if found.num_rows:
            (values,) = found.column(predicate.column).chunks
            found = found.filter(pa.array(matching(predicate, values))).combine_chunks()
    return found


def _with_plain_values(
    scope: StatementScope,
    update: Update,
    parameters: Mapping[str, object],
    table: Table,
    rows: pa.Table,
) -> pa.Table | None:
    """The rows with the values that are assigned; None if those are Spark's to evaluate, or NULLs
    become a column's default."""
    import pyarrow as pa

    query = update.selection.query
    values = plain_values(update, table.schema.columns, paths_of(update, table.schema))
    if values is None or len(query.references) > 1 or is_strict(scope.spark):
        return None
    bound = bind(query.parameters, parameters, update.text, scope.zone)
    given = {name: rows.column(name).to_pylist() for value in values for name in value.sources}
    for value in values:
        column = computed(value, given, rows.num_rows, bound)
        if column is None or (value.column.default is not None and None in column):
            return None
        place = rows.column_names.index(value.column.name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.array(column, field.type))
    return rows


def _values(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
    found: pa.Table,
    merged: MergedUpdate | None,
) -> DataFrame:
    """The numbers of the rows that are selected, with the values of the assigned columns, and with
    their kinds where `merged` tells them."""
    paths = paths_of(change, table.schema)
    assigned = {path.column.name for path in paths}
    compared = () if merged is None else merged.compared
    names = used_names(change.text, change.selection.query)

    def selected(every: bool) -> DataFrame:
        columns = [
            column
            for column in table.schema.columns
            if every
            or names is None
            or column.name.lower() in names
            or column.name in assigned
            or column.name in compared
        ]
        frame = frame_of_batch(scope.spark, _numbered(found, columns), [*columns, _NUMBER])
        return selected_rows(scope, change, parameters, table, snapshot_id, frame)

    try:
        rows = selected(False)
    except UnknownNameError:
        rows = selected(True)  # then Spark's error can suggest the column that was meant
    written = [column for column in table.schema.columns if column.name in assigned]
    kind = None if merged is None or merged.is_plain else UPDATE_AFTER
    return new_values(scope, change, rows, [_NUMBER, *written], paths, kind, merged)


def _numbered(found: pa.Table, columns: Sequence[Column]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [found.column(column.name).combine_chunks() for column in columns]
    numbers = pa.array(range(found.num_rows), pa.int64())
    names = [*(column.name for column in columns), _NUMBER.name]
    return pa.RecordBatch.from_arrays([*arrays, numbers], names=names)


def _fetched(scope: StatementScope, change: RowChange, values: DataFrame) -> pa.Table:
    try:
        with cancellable(scope.spark):  # a subquery runs jobs
            return fetched(values)
    except Exception as error:
        raise translate(error, statement=change.text) from error


def _are_seen(rows: pa.Table, change: RowChange, table: Table, merged: MergedUpdate | None) -> bool:
    """Whether the merge engine takes plain values as they are."""
    if merged is None or merged.is_plain:
        return True
    assigned = {path.column.name for path in paths_of(change, table.schema)}
    nulls = sum(rows.column(name).null_count for name in assigned)
    return merged.loses_nulls_only and not nulls


def _changed(found: pa.Table, values: pa.Table, kind: int, merged: MergedUpdate | None) -> pa.Table:
    """The rows of `found` that `values` has the numbers of, with the other columns of `values`, and
    with their kinds: those of `values`, else `kind`."""
    import pyarrow as pa

    rows = found.take(values.column(_NUMBER.name))
    for name in values.column_names:
        if name not in (_NUMBER.name, KIND, LOSSES):
            rows = rows.set_column(rows.column_names.index(name), name, values.column(name))
    for one in () if merged is None else merged.blank:
        place = rows.column_names.index(one.name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))
    if LOSSES in values.column_names:
        rows = rows.append_column(LOSSES, values.column(LOSSES))
    if KIND not in values.column_names:
        return _with_kind(rows, kind)
    return rows.append_column(KIND, values.column(KIND))


def _with_kind(rows: pa.Table, kind: int) -> pa.Table:
    import pyarrow as pa

    return rows.append_column(KIND, pa.array([kind] * rows.num_rows, pa.int8()))


def commit_by_key(
    scope: StatementScope, change: RowChange, prepared: PreparedKeys, attempts: Attempts
) -> tuple[CommitReceipt, CompletedWrite] | None:
    """Write the rows and commit them, in one transaction. None where no row is selected.

    Raises OutdatedPlanError if others have changed the rows meanwhile.
    """
    rows = prepared.rows()
    if not rows.num_rows:
        return None
    table, base = prepared.table, prepared.base_snapshot_id
    in_turn = plans_in_turn(table.schema, reads=True)
    transaction = begun(scope, table.name, None if in_turn else base, attempts)
    base = transaction.base_snapshot_id

    def write() -> tuple[ToCommit, CompletedWrite]:
        current = prepared if base == prepared.base_snapshot_id else _prepared_on(prepared, base)
        made = rows if current is prepared else current.rows()
        written = _written(scope, table, made, transaction)
        check_losses(scope, table, written.losses)
        keys = read_keys(base, manifest_list=current.manifest_list)
        return ToCommit(
            written.messages,
            written.rows,
            written.files,
            operation_of(change, written.rows),
            read_set=keys,
        ), written

    return transact(scope, transaction, change.text, write)


def _prepared_on(prepared: PreparedKeys, snapshot_id: int) -> PreparedKeys:
    """The statement as planned on the snapshot that is there when its turn has come."""
    again = prepared.again(snapshot_id)
    if again is None:
        raise OutdatedPlanError(
            f"`{prepared.table.name}` was changed while this statement waited for its turn.",
            hint="Nothing was written. Run the statement again.",
        )
    return again


def _written(
    scope: StatementScope, table: Table, rows: pa.Table, transaction: Transaction
) -> CompletedWrite:
    task = write_spec(
        table,
        transaction,
        overwrite=False,
        slots=scope.slots,
        settings=scope.settings,
    )
    if not table.schema.postpones_buckets:
        task = task.with_kinds()
    manifests = scope.manifests(table)
    written = write_batches(task, rows.to_batches(), manifests=manifests)
    return completed(table, task, written, transaction.base_snapshot_id, manifests)
