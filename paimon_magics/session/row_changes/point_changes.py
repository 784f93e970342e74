"""A DELETE or UPDATE of few keys, run in this process.

A condition that fixes every key column needs few rows of few files: reading them takes some
milliseconds, where a Spark job takes hundreds. Spark evaluates the condition and the assigned
values over a local relation of the rows, which it does without a job; all other values are written
as they were read. A condition that only compares key columns needs no evaluation, and neither do
plain values (`planning/row_changes/plain_values.py`).

`session/writes/transactions.py` says what happens when this process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from paimon_magics.columnar.merging import KIND
from paimon_magics.columnar.value_bounds import can_have, matching
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.planning.reads.predicates import column_predicates, few_values
from paimon_magics.planning.reads.scans import LocalLimits, stored_bytes
from paimon_magics.planning.reads.views import UPDATE_AFTER
from paimon_magics.planning.row_changes.plain_values import computed, plain_filters, plain_values
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.inserts import plans_in_turn
from paimon_magics.planning.writes.losses import LOSSES
from paimon_magics.session.queries.snapshot_leases import SnapshotLeases
from paimon_magics.session.row_changes.selection import ChangeOnTable, operation_of
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.exactness import check_losses, is_strict
from paimon_magics.session.writes.transactions import ToCommit, append_spec, begun, transact
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_batch
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import RowChange, Update
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.reading.keyed_rows import few_rows, splits_of
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.targets import TableState
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite, completed
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
    table's then current state; None if that has to be done otherwise. `manifest_list` names the
    delta manifest list of the snapshot that was read."""

    table: Table
    base_snapshot_id: int
    manifest_list: str
    rows: Callable[[], pa.Table]
    again: Callable[[int], PreparedKeys | None]


def prepare_by_key(on: ChangeOnTable) -> PreparedKeys | None:
    """Plan a change of the rows of a snapshot, and read those with the keys that the condition
    names. None if it does not fix the whole key, or if too much has to be read.

    Raises TableDamagedError for files that can't be read, and what planning the statement raises.
    """
    table, schema = on.table, on.table.schema
    if not _is_plain(schema) or few_values(on.predicates, schema.primary_keys, _KEYS_MAX) is None:
        return None
    snapshot = read_snapshot(table.paimon, on.snapshot_id) if on.snapshot_id else None
    stored = None if snapshot is None else _rows_with_keys(on, snapshot)
    if snapshot is None or stored is None:
        return None
    list_name = str(snapshot.delta_manifest_list)

    def again(newer_id: int) -> PreparedKeys | None:
        on.scope.tables.renew()
        newer = on.scope.load(on.change.target, *on.place)
        if newer.schema != schema:
            return None  # rows without a new column's values would delete those
        return prepare_by_key(replace(on, table=newer, snapshot_id=newer_id))

    exact = _selected_by_key(on, stored)
    if exact is not None and isinstance(on.change, Update):
        exact = _with_plain_values(on, on.change, exact)
    if exact is not None and _are_seen(on, exact):
        rows = partial(_with_kind, exact, on.row_kind)
    else:
        rows = partial(_changed, on, stored, _values(on, stored))
    return PreparedKeys(table, on.snapshot_id, list_name, rows, again)


def _is_plain(schema: TableSchema) -> bool:
    """Whether rows of a kind are written unchanged. VARIANT has no form outside of Spark's
    tasks; a column with the kinds, keys that move between partitions, and rows that wait for their
    bucket need more than that."""
    return (
        schema.bucket_mode in ("HASH_FIXED", "HASH_DYNAMIC")
        and schema.rowkind_field is None
        and set(schema.partition_keys) <= set(schema.primary_keys)
        and not schema.has_type("VARIANT")
    )


def _rows_with_keys(on: ChangeOnTable, snapshot: Any) -> pa.Table | None:
    """All columns of the rows that the condition may select."""
    import pyarrow as pa

    scope, table = on.scope, on.table
    with SnapshotLeases(scope.committer) as leases:
        if not leases.hold(table.name, snapshot.id):
            return None
        read = plan_data_read(
            table,
            ReadRequest(zone=scope.zone, filters=on.filters, bound=on.bound),
            target=TableState(snapshot),
            manifests=scope.manifests(table),
            batch_rows=scope.settings.batch_rows,
        )
        if stored_bytes(read.planned.raw, read.planned.splits) > _FILES_BYTES_MAX:
            return None
        limits = LocalLimits(_KEYS_MAX, _ROWS_BYTES_MAX, len(splits_of(read)), by_key=True)
        batch = few_rows(read, splits_of(read), limits)
        return None if batch is None else pa.Table.from_batches([batch])


def _selected_by_key(on: ChangeOnTable, rows: pa.Table) -> pa.Table | None:
    """The rows that the condition selects; None if it is Spark's to evaluate."""
    import pyarrow as pa

    filters = plain_filters(on.change, on.table.schema.primary_keys)
    if filters is None:
        return None
    predicates = column_predicates(filters, on.table.schema.columns, on.bound)
    types = {field.name: field.type for field in rows.schema}
    are_comparable = all(can_have(predicate, types[predicate.column]) for predicate in predicates)
    if len(predicates) != len(filters) or not are_comparable:
        return None
    for predicate in predicates:
        if rows.num_rows:
            (values,) = rows.column(predicate.column).chunks
            rows = rows.filter(pa.array(matching(predicate, values))).combine_chunks()
    return rows


def _with_plain_values(on: ChangeOnTable, update: Update, rows: pa.Table) -> pa.Table | None:
    """The rows with the values that are assigned; None if those are Spark's to evaluate, or NULLs
    become a column's default."""
    import pyarrow as pa

    values = plain_values(update, on.table.schema.columns, on.paths)
    if values is None or len(update.selection.query.references) > 1 or is_strict(on.scope.spark):
        return None
    inputs = {name: rows.column(name).to_pylist() for value in values for name in value.sources}
    for value in values:
        column = computed(value, inputs, rows.num_rows, on.bound)
        if column is None or (value.column.default is not None and None in column):
            return None
        place = rows.column_names.index(value.column.name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.array(column, field.type))
    return rows


def _values(on: ChangeOnTable, stored: pa.Table) -> DataFrame:
    """The numbers of the rows that are selected, with the values of the assigned columns, and with
    their kinds where the merge engine decides them."""
    merged = on.merged
    compared = () if merged is None else merged.compared

    def read(columns: Sequence[Column]) -> DataFrame:
        return frame_of_batch(on.scope.spark, _numbered(stored, columns), [*columns, _NUMBER])

    rows = on.selected_of(read, {*on.assigned, *compared})
    written = [column for column in on.table.schema.columns if column.name in on.assigned]
    kind = None if merged is None or merged.is_plain else UPDATE_AFTER
    return on.new_values(rows, [_NUMBER, *written], kind)


def _numbered(rows: pa.Table, columns: Sequence[Column]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [rows.column(column.name).combine_chunks() for column in columns]
    numbers = pa.array(range(rows.num_rows), pa.int64())
    names = [*(column.name for column in columns), _NUMBER.name]
    return pa.RecordBatch.from_arrays([*arrays, numbers], names=names)


def _are_seen(on: ChangeOnTable, rows: pa.Table) -> bool:
    """Whether the merge engine takes plain values as they are."""
    merged = on.merged
    if merged is None or merged.is_plain:
        return True
    nulls = sum(rows.column(name).null_count for name in on.assigned)
    return merged.loses_nulls_only and not nulls


def _changed(on: ChangeOnTable, stored: pa.Table, selected: DataFrame) -> pa.Table:
    """The stored rows that are selected, with their new values and their kinds."""
    import pyarrow as pa

    scope = on.scope
    # A subquery in the statement runs jobs.
    with errors_translated(on.change.text), cancellable(scope.spark):
        values = fetched(selected)
    rows = stored.take(values.column(_NUMBER.name))
    for name in values.column_names:
        if name not in (_NUMBER.name, KIND, LOSSES):
            rows = rows.set_column(rows.column_names.index(name), name, values.column(name))
    for column in () if on.merged is None else on.merged.blank:
        place = rows.column_names.index(column.name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.nulls(rows.num_rows, field.type))
    if LOSSES in values.column_names:
        rows = rows.append_column(LOSSES, values.column(LOSSES))
    if KIND not in values.column_names:
        return _with_kind(rows, on.row_kind)
    return rows.append_column(KIND, values.column(KIND))


def _with_kind(rows: pa.Table, kind: int) -> pa.Table:
    import pyarrow as pa

    return rows.append_column(KIND, pa.array([kind] * rows.num_rows, pa.int8()))


def commit_by_key(
    scope: StatementScope, change: RowChange, prepared: PreparedKeys, attempts: Attempts
) -> tuple[CommitReceipt, CompletedWrite] | None:
    """Write the rows and commit them, in one transaction. None if no row is selected.

    Raises OutdatedPlanError if others have changed the rows meanwhile.
    """
    rows = prepared.rows()
    if not rows.num_rows:
        return None
    table, planned = prepared.table, (prepared.base_snapshot_id, prepared.manifest_list)
    in_turn = plans_in_turn(table.schema, reads=True)
    transaction = begun(scope, table.name, None if in_turn else planned, attempts)
    base = transaction.base_snapshot_id

    def write() -> tuple[ToCommit, CompletedWrite]:
        current = prepared if transaction.is_on(planned) else _prepared_on(prepared, base)
        changed = rows if current is prepared else current.rows()
        written = _written(scope, table, changed, transaction)
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
    task = append_spec(scope, table, transaction)
    if not table.schema.postpones_buckets:
        task = task.with_kinds()
    manifests = scope.manifests(table)
    written = write_batches(task, rows.to_batches(), manifests=manifests)
    return completed(table, task, written, transaction.base_snapshot_id, manifests)
