"""The buckets of rows: how many each partition of a table was written with, which of them each row
of a batch is in, and the batch grouped by partition and bucket.

The option `bucket` can change, but a partition keeps its number until it is overwritten. If rows
were added with another number of buckets, keys would appear twice. In tables with postponed buckets
each partition gets its number when it is first written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.bucket_hash import default_bucket, hive_bucket, mod_bucket
from paimon_magics.errors import (
    CommitConflictError,
    LayoutChangedError,
    StatementError,
    UnsupportedStatementError,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.merging import may_hold
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.snapshots.latest import has_state, latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table

Partition = tuple[Any, ...]
"""Partition values as Python values, as both engines give them."""

Rows = npt.NDArray[np.int64]
"""Positions of rows in a batch, ascending."""


_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How a row's bucket follows from its key columns. `function` is default, mod or hive.

    `by_partition` has the number of buckets of the partitions where it is not `buckets`.
    """

    keys: tuple[str, ...]
    buckets: int
    function: str = "default"
    by_partition: tuple[tuple[Partition, int], ...] = ()

    def owners(self, batch: pa.RecordBatch, partition_keys: Sequence[str]) -> npt.NDArray[np.int32]:
        """The bucket of each row. All rows of a bucket must go to the same task."""
        if not self.by_partition:
            return self._of(batch, self.buckets)
        counts = dict(self.by_partition)
        partitions = [batch.column(key) for key in partition_keys]
        if not partitions:
            return self._of(batch, counts.get((), self.buckets))
        owners = np.empty(batch.num_rows, dtype=np.int32)
        for rows in row_groups(partitions):
            count = counts.get(values_at(partitions, rows[0]), self.buckets)
            owners[rows] = self._of(batch.take(pa.array(rows)), count)
        return owners

    def _of(self, batch: pa.RecordBatch, buckets: int) -> npt.NDArray[np.int32]:
        if not self.keys:
            # An append table that Paimon 0.7 or before created. It has one bucket by default, and
            # needs no bucket key: its rows may be in any bucket.
            return np.zeros(batch.num_rows, dtype=np.int32)
        columns = [batch.column(key) for key in self.keys]
        if self.function == "mod":
            return mod_bucket(columns[0], buckets)
        if self.function == "hive":
            return hive_bucket(columns, buckets)
        return default_bucket(columns, buckets)


def row_groups(columns: Sequence[pa.Array]) -> list[Rows]:
    """Group rows by their values: the positions of the rows of each group, ascending."""
    if not len(columns[0]):
        return []
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, count_of_more = _codes(column)
        codes, count = codes * count_of_more + more, count * count_of_more
        if count > _SMALL:  # number them without gaps, so that products of many columns fit
            values, codes = np.unique(codes, return_inverse=True)
            count = len(values)
    if count <= _SMALL:
        codes = codes.astype(np.uint16)  # NumPy sorts them by radix
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, edges)


def _codes(column: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """A code for each value, equal for equal values and for NULLs, and the number of codes."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def values_at(columns: Sequence[pa.Array], row: int) -> Partition:
    """The values of one row as Python values."""
    return tuple(column[int(row)].as_py() for column in columns)


def bucket_counts(table: Table, snapshot_id: int) -> dict[Partition, int]:
    """The number of buckets of each partition that has files in real buckets at a snapshot.

    Reads all manifests of the snapshot.
    """
    paimon = table.paimon
    snapshot = read_snapshot(paimon, snapshot_id) if snapshot_id else None
    if snapshot is None:
        return {}
    files = live_files(ManifestCache(paimon), snapshot)
    return _last_counts(paimon, files.filter(pc.greater_equal(files["bucket"], 0)))


def own_bucket_counts(table: Table, messages: Iterable[CommitMessage]) -> None:
    """Set the number of buckets of messages whose files were written with another number than the
    table's, because the option changed after the statement was planned."""
    table_schema = table.schema
    if table_schema.bucket_mode != "HASH_FIXED" or table_schema.schema_id == 0:
        return
    for message in messages:
        schema_ids = {file.schema_id for file in message.new_files} - {table_schema.schema_id}
        if message.total_buckets is None and schema_ids:
            schema = table.paimon.schema_manager.get_schema(schema_ids.pop())
            count = table_schema.bucket if schema is None else schema_of(schema).bucket
            if count != table_schema.bucket:
                message.total_buckets = count


def compacted_bucket_counts(table: Table, messages: Iterable[CommitMessage]) -> None:
    """Set the number of buckets of each message of a compaction that has none to that of its
    partition. Reads no manifests if every partition has the table's number."""
    schema = table.schema
    mode = schema.bucket_mode
    if mode != "POSTPONE_MODE" and (mode != "HASH_FIXED" or not _was_changed(table, schema)):
        return
    without = [message for message in messages if message.total_buckets is None]
    latest = latest_snapshot(table.paimon) if without else None
    if latest is not None:
        put_bucket_counts(without, bucket_counts(table, latest.id), schema.bucket)


def newer_bucket_counts(
    table: Table, messages: Sequence[CommitMessage], base: tuple[int, str]
) -> Callable[[Any], None]:
    """Return a check of the latest snapshot (None for none) for a commit that adds rows.

    The check raises LayoutChangedError if, since the snapshot that the statement was planned on,
    others wrote one of its partitions with another number of buckets, or the option changed and a
    partition has no files yet. `base` is that snapshot, as `state_of` returns it.
    """
    schema = table.schema
    if schema.bucket_mode != "HASH_FIXED":
        return lambda latest: None
    own = {tuple(m.partition): m.total_buckets or schema.bucket for m in messages if m.new_files}
    is_outdated = any(count != schema.bucket for count in own.values())

    def check(latest: Any) -> None:
        counts: Mapping[Partition, int] = {}
        if not is_outdated:
            if latest is None or (latest.id <= base[0] and has_state(table, base, latest)):
                return
            if not (_was_changed(table, schema) or _is_rescaled(table, messages, latest)):
                return
        if latest is not None:
            counts = bucket_counts(table, latest.id)
        for partition, count in own.items():
            _check_count(table, partition, counts, count, LayoutChangedError)

    return check


def check_prepared_counts(
    table: Table, latest_id: int, added: pa.Table, deleted: pa.Table, *, adds_rows: bool
) -> None:
    """Raise LayoutChangedError if a commit that an engine has prepared leaves a partition with
    files for several numbers of buckets. If it `adds_rows` to a partition without files, they must
    be for the table's number. `added` and `deleted` have columns of MANIFEST_ENTRIES.

    Paimon's engines check the number of their partitions (`ConflictDetection.checkBucketKeepSame`),
    pypaimon does not.
    """
    schema = table.schema
    if schema.bucket_mode != "HASH_FIXED" or not added.num_rows:
        return
    own = _last_counts(table.paimon, added)
    is_outdated = any(count != schema.bucket for count in own.values())
    if not (is_outdated or _was_changed(table, schema)):
        return
    snapshot = read_snapshot(table.paimon, latest_id) if latest_id else None
    counts: Mapping[Partition, int] = {}
    if snapshot is not None:
        files = live_files(ManifestCache(table.paimon), snapshot)
        gone = pc.is_in(files["file_name"], deleted["file_name"].combine_chunks())
        counts = _last_counts(table.paimon, files.filter(pc.invert(gone)))
        adds_rows = adds_rows and not deleted.num_rows
    for partition, count in own.items():
        if adds_rows or partition in counts:
            _check_count(table, partition, counts, count, LayoutChangedError)


def check_altered_count(table: Table, altered: TableSchema) -> None:
    """Raise StatementError for a change of the schema after which small inserts would be accepted
    that can't be loaded: their partitions have another number of buckets."""
    schema = table.schema
    accepts = altered.flag("auto_batch_load") and altered.bucket_mode == "HASH_FIXED"
    is_same = (schema.flag("auto_batch_load"), schema.bucket) == (True, altered.bucket)
    latest = None if is_same or not accepts else latest_snapshot(table.paimon)
    if latest is None:
        return
    others = set(bucket_counts(table, latest.id).values()) - {altered.bucket}
    if others:
        number = count_text(altered.bucket, "bucket")
        raise StatementError(
            f"`{table.name}` has rows in {count_text(min(others), 'bucket')} and accepts small "
            f"inserts, which could not be loaded into {number}.",
            hint=f"Move the rows first: CALL sys.rescale(table => '{table_text(table.name)}', "
            f"bucket_num => {altered.bucket}). Then run the statement again.",
        )


def check_bucket_counts(
    table: Table,
    messages: Iterable[CommitMessage],
    base_snapshot_id: int,
    manifests: ManifestCache | None = None,
) -> None:
    """Raise CommitConflictError if rows would be added to a partition whose number of buckets is
    not the table's current one.

    Paimon's engines check only the written buckets, so keys in a new bucket appear twice. Reads
    only the newest manifests of the partitions if the table's option never changed. `manifests` is
    a cache of the table's manifests.
    """
    schema = table.schema
    if schema.bucket_mode != "HASH_FIXED" or not base_snapshot_id:
        return
    messages = list(messages)
    if not _was_changed(table, schema):
        base = read_snapshot(table.paimon, base_snapshot_id)
        if base is None or not _is_rescaled(table, messages, base, manifests):
            return
    counts = bucket_counts(table, base_snapshot_id)
    for message in messages:
        _check_count(table, tuple(message.partition), counts, schema.bucket)


def _check_count(
    table: Table,
    partition: Partition,
    counts: Mapping[Partition, int],
    own: int,
    kind: type[CommitConflictError] = CommitConflictError,
) -> None:
    count = counts.get(partition, table.schema.bucket)
    if count == own:
        return
    keys = table.schema.partition_keys
    where = ", ".join(f"{key} = {value}" for key, value in zip(keys, partition, strict=True))
    has = "was written with" if partition in counts else "is empty, and will have"
    raise kind(
        (f"The partition {where} of `{table.name}`" if where else f"`{table.name}`")
        + f" {has} {count_text(count, 'bucket')}, but these rows are for {own}: the table would "
        "contain keys twice.",
        hint="Nothing was written. Run the statement again. If it fails again, move the rows into "
        f"the new buckets by CALL sys.rescale(table => '{table_text(table.name)}'), or set the "
        "option 'bucket' to the old number.",
    )


def check_cross_partition_size(table: Table, rows_max: int) -> None:
    """Raise UnsupportedStatementError if keys of the table can move between partitions and it has
    more than `rows_max` rows: one writer has to know the partition of each key."""
    if table.schema.bucket_mode != "KEY_DYNAMIC":
        return
    latest = latest_snapshot(table.paimon)
    stored = 0 if latest is None else latest.total_record_count or 0
    if stored > rows_max:
        raise UnsupportedStatementError(
            f"The primary key of `{table.name}` lacks partition columns, so one writer must know "
            f"the partition of each of its {stored:,} rows. The limit is {rows_max:,} rows.",
            hint="Raise the setting cross_partition_rows_max if the driver's or executor's memory "
            "allows, or make the partition columns part of the primary key.",
        )


def put_bucket_counts(
    messages: Iterable[CommitMessage], counts: Mapping[Partition, int], default: int
) -> None:
    """Set the number of buckets of each message to that of its partition."""
    for message in messages:
        message.total_buckets = counts.get(tuple(message.partition), default)


def _is_rescaled(
    table: Table,
    messages: Iterable[CommitMessage],
    snapshot: Any,
    manifests: ManifestCache | None = None,
) -> bool:
    """Whether a partition of the messages seems to have another number of buckets than the table,
    by the file that was last added to it. Unless the snapshot's files are known, reads manifests
    from the newest on, until each partition was met."""
    paimon, count = table.paimon, table.schema.bucket
    left = {tuple(message.partition) for message in messages if message.new_files}
    manifests = manifests or ManifestCache(paimon)
    files = manifests.files_at_hand(snapshot)
    if files is not None:
        last = _added_counts(paimon, files)
        return any(last.get(values, count) != count for values in left)
    for meta in reversed(ManifestListManager(paimon).read_all(snapshot)):
        if not left:
            break
        if not meta.num_added_files or not any(may_hold(meta, values) for values in left):
            continue
        last = _added_counts(paimon, manifests.columns.entries([meta.file_name]))
        if any(last.get(values, count) != count for values in left):
            return True
        left -= last.keys()
    return False


def _added_counts(paimon: Any, entries: pa.Table) -> dict[Partition, int]:
    """The number of buckets that the last added file of each partition was written for."""
    return _last_counts(paimon, entries.filter(pc.equal(entries["kind"], ADD)))


def _last_counts(paimon: Any, entries: pa.Table) -> dict[Partition, int]:
    """The number of buckets that the last of the files of each partition names, if one does."""
    named = entries.filter(pc.greater(entries["total_buckets"], 0))
    partitions, of_files = partition_values(paimon, named)
    counts = named.column("total_buckets").to_pylist()
    return {partitions[at]: count for at, count in zip(of_files, counts, strict=True)}


def _was_changed(table: Table, table_schema: TableSchema) -> bool:
    manager = table.paimon.schema_manager
    for schema_id in range(table_schema.schema_id):
        schema = manager.get_schema(schema_id)
        if schema is not None and schema_of(schema).bucket != table_schema.bucket:
            return True
    return False
