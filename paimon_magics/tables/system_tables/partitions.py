"""The system tables about where rows lie: `$partitions`, `$buckets` and `$table_indexes`.

As in Paimon, sums are over all entries of the manifests; deleted files are subtracted. The time of
the last update is that of the newest file, even if it was deleted. Sources: Paimon's
`PartitionsTable`, `BucketsTable`, `TableIndexesTable`, `PartitionEntry`, `BucketEntry`.
"""

from __future__ import annotations

import contextlib
import datetime
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.options.values import boolean_value
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.manifests.columns import entries
from paimon_magics.tables.system_tables.table_view import TableView, rows_of

_REQUIRED = False  # the nullability of a column that is always there
_TIME = pa.timestamp("us")
_PARTITIONS = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("record_count", pa.int64(), _REQUIRED),
        pa.field("file_size_in_bytes", pa.int64(), _REQUIRED),
        pa.field("file_count", pa.int64(), _REQUIRED),
        pa.field("last_update_time", _TIME),
        pa.field("created_at", _TIME),
        pa.field("created_by", pa.string()),
        pa.field("updated_by", pa.string()),
        pa.field("options", pa.string()),
        pa.field("total_buckets", pa.int32(), _REQUIRED),
        pa.field("done", pa.bool_(), _REQUIRED),
        pa.field("deleted_record_count", pa.int64()),
    ]
)
_BUCKETS = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), _REQUIRED),
        pa.field("record_count", pa.int64(), _REQUIRED),
        pa.field("file_size_in_bytes", pa.int64(), _REQUIRED),
        pa.field("file_count", pa.int64(), _REQUIRED),
        pa.field("last_update_time", _TIME),
    ]
)
_RANGE = pa.struct(
    [
        pa.field("f0", pa.string(), _REQUIRED),
        pa.field("f1", pa.int32(), _REQUIRED),
        pa.field("f2", pa.int32(), _REQUIRED),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
_INDEXES = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), _REQUIRED),
        pa.field("index_type", pa.string(), _REQUIRED),
        pa.field("file_name", pa.string(), _REQUIRED),
        pa.field("file_size", pa.int64(), _REQUIRED),
        pa.field("row_count", pa.int64(), _REQUIRED),
        pa.field("dv_ranges", pa.list_(_RANGE)),
        pa.field("row_range_start", pa.int64()),
        pa.field("row_range_end", pa.int64()),
        pa.field("index_field_id", pa.int32()),
        pa.field("index_field_name", pa.string()),
    ]
)
COLUMNS = {"buckets": _BUCKETS, "partitions": _PARTITIONS, "table_indexes": _INDEXES}
_EPOCH = datetime.date(1970, 1, 1)
_DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True)
class PartitionSum:
    """Rows, bytes and files of one partition. `stored` is the partition as serialised in manifests.
    `texts` are its values cast to STRING; `partition.default-name` stands for NULL and blank text.

    `last_creation` is the wall-clock time at which its newest file was made.
    """

    stored: bytes
    texts: tuple[str, ...]
    record_count: int
    file_size_in_bytes: int
    file_count: int
    last_creation: Any
    total_buckets: int

    def spec(self, view: TableView) -> dict[str, str]:
        """The partition as a spec of Paimon's catalogs. Dates are days since 1970 unless
        `partition.legacy-name` is false."""
        legacy = boolean_value(
            "partition.legacy-name", view.options.get("partition.legacy-name", "true")
        )
        found = {}
        for field, text in zip(view.partition_fields(), self.texts, strict=True):
            is_date = isinstance(field.type, AtomicType) and field.type.name == "DATE"
            with contextlib.suppress(ValueError):  # `partition.default-name` is no date
                if is_date and legacy:
                    text = str((datetime.date.fromisoformat(text) - _EPOCH).days)
            found[field.name] = text
        return found


def partitions(view: TableView) -> pa.Table:
    """`$partitions`: the partitions that have files. An unpartitioned table is one, named ''."""
    deleted = _deleted_records(view)
    rows = [
        (
            "/".join(
                f"{key}={text}"
                for key, text in zip(view.partition_keys, partition_sum.texts, strict=True)
            ),
            partition_sum.record_count,
            partition_sum.file_size_in_bytes,
            partition_sum.file_count,
            partition_sum.last_creation,
            None,
            None,
            None,
            None,
            partition_sum.total_buckets,
            False,
            deleted.get(partition_sum.stored, 0),
        )
        for partition_sum in partition_sums(view)
    ]
    return rows_of(_PARTITIONS, sorted(rows, key=lambda row: row[0]))


def partition_sums(view: TableView) -> list[PartitionSum]:
    """The sums of each partition that has files."""
    found = _sums(view, ["partition"], real_buckets=True)
    stored = found.column("partition").combine_chunks()
    texts = _partition_values(view, stored)
    return [
        PartitionSum(
            encoded,
            text,
            row["rows_sum"],
            row["bytes_sum"],
            row["files_sum"],
            row["creation_time_max"],
            row["total_buckets_last"],
        )
        for encoded, text, row in zip(stored.to_pylist(), texts, found.to_pylist(), strict=True)
    ]


def buckets(view: TableView) -> pa.Table:
    """`$buckets`: the buckets that have files."""
    found = _sums(view, ["partition", "bucket"])
    texts = view.partition_text(_flat(found.column("partition"))).to_pylist()
    rows = [
        (
            text,
            row["bucket"],
            row["rows_sum"],
            row["bytes_sum"],
            row["files_sum"],
            row["creation_time_max"],
        )
        for text, row in zip(texts, found.to_pylist(), strict=True)
    ]
    return rows_of(_BUCKETS, sorted(rows, key=lambda row: (row[0], row[1])))


def table_indexes(view: TableView) -> pa.Table:
    """`$table_indexes`: the index files of the snapshot."""
    records = _index_records(view)
    texts = view.partition_text(pa.array([r["_PARTITION"] for r in records], type=pa.binary()))
    names = {f.id: f.name for f in view.fields(view.schema["id"])}
    rows = []
    for text, record in zip(texts.to_pylist(), records, strict=True):
        index = record.get("_GLOBAL_INDEX") or {}
        field_ids = [index.get("_INDEX_FIELD_ID"), *(index.get("_EXTRA_FIELD_IDS") or [])]
        known = bool(index) and all(id in names for id in field_ids)
        rows.append(
            (
                text,
                record["_BUCKET"],
                record["_INDEX_TYPE"],
                record["_FILE_NAME"],
                record["_FILE_SIZE"],
                record["_ROW_COUNT"],
                record.get("_DELETIONS_VECTORS_RANGES"),
                index.get("_ROW_RANGE_START"),
                index.get("_ROW_RANGE_END"),
                index.get("_INDEX_FIELD_ID"),
                ",".join(names[id] for id in field_ids) if known else None,
            )
        )
    return rows_of(_INDEXES, rows)


def _sums(view: TableView, keys: Sequence[str], *, real_buckets: bool = False) -> pa.Table:
    """Rows, bytes and files grouped by `keys`, without groups that have no files left. With
    `real_buckets` files that wait for their bucket are not counted."""
    columns = ["kind", "bucket", "partition", "row_count", "file_size", "creation_time"]
    names = [*columns, "total_buckets"]
    if view.snapshot is None:
        found = pa.table({name: pa.array([], _TYPES[name]) for name in names})
    else:
        found = entries(view.folder.columns, view.snapshot, names)
    if real_buckets:
        found = view.in_real_buckets(found)
    sign = pc.if_else(pc.equal(found.column("kind"), 0), 1, -1).cast(pa.int64())
    counted = pa.table(
        {
            "partition": found.column("partition"),
            "bucket": found.column("bucket"),
            "rows": pc.multiply(found.column("row_count"), sign),
            "bytes": pc.multiply(found.column("file_size"), sign),
            "files": sign,
            "creation_time": found.column("creation_time"),
            "total_buckets": found.column("total_buckets"),
        }
    )
    grouped = counted.group_by(list(keys), use_threads=False).aggregate(
        [
            ("rows", "sum"),
            ("bytes", "sum"),
            ("files", "sum"),
            ("creation_time", "max"),
            ("total_buckets", "last"),
        ]
    )
    return grouped.filter(pc.greater(grouped.column("files_sum"), 0))


_TYPES = {
    "kind": pa.int32(),
    "bucket": pa.int32(),
    "partition": pa.large_binary(),
    "row_count": pa.int64(),
    "file_size": pa.int64(),
    "creation_time": pa.timestamp("ms"),
    "total_buckets": pa.int32(),
}


def _partition_values(view: TableView, stored: Any) -> list[tuple[str, ...]]:
    columns = [texts.to_pylist() for texts in view.partition_values(_flat(stored))]
    return list(zip(*columns, strict=True)) if columns else [()] * len(stored)


def _deleted_records(view: TableView) -> dict[bytes, int | None]:
    """The number of rows that deletion vectors delete in each partition; None if one of them does
    not say how many."""
    if not boolean_value(
        "deletion-vectors.enabled", view.options.get("deletion-vectors.enabled", "false")
    ):
        return {}
    found: dict[bytes, int | None] = {}
    for record in _index_records(view):
        if record["_INDEX_TYPE"] != _DELETION_VECTORS:
            continue
        partition = record["_PARTITION"]
        for one in record.get("_DELETIONS_VECTORS_RANGES") or ():
            before, more = found.get(partition, 0), one.get("_CARDINALITY")
            found[partition] = None if before is None or more is None else before + more
    return found


def _index_records(view: TableView) -> list[dict[str, Any]]:
    name = (view.snapshot or {}).get("indexManifest")
    if not name:
        return []
    content = view.folder.read(name)
    return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]


def _flat(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
