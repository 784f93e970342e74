"""The system tables about the location of rows: `$partitions`, `$buckets` and `$table_indexes`.

As in Paimon, sums are over all entries of the manifests; deleted files are subtracted. The time of
the last update is that of the newest file, even if it was deleted. Sources: Paimon's
`PartitionsTable`, `BucketsTable`, `TableIndexesTable`, `PartitionEntry`, `BucketEntry`.

The layout of a table comes from here, too: the files of a snapshot as columns, from which
`columnar.layouts` makes cells. All of it reads manifests only; no folder is listed, nothing is
written.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.layouts import FILES
from paimon_magics.columnar.time_zones import process_zone
from paimon_magics.planning.options.values import boolean_value
from paimon_magics.planning.reports.partition_names import KeyKind, key_kind
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.manifests.columns import all_native, creation_instants, entries
from paimon_magics.tables.manifests.live_files import undeleted
from paimon_magics.tables.system_tables.table_view import (
    Column,
    Loaders,
    TableView,
    schema_of,
    table_of,
)

_REQUIRED = True  # the column is never NULL
_TIME = pa.timestamp("us")


def _no_value(_: object) -> None:
    return None


def _clock(epoch_ms: int | None) -> datetime.datetime | None:
    """The wall-clock time of this process, as Paimon shows when a file was made."""
    if epoch_ms is None:
        return None
    moment = datetime.datetime.fromtimestamp(epoch_ms // 1000)
    return moment.replace(microsecond=epoch_ms % 1000 * 1000)


_PARTITIONS = (
    Column("partition", pa.string(), "name"),
    Column("record_count", pa.int64(), "record_count", _REQUIRED),
    Column("file_size_in_bytes", pa.int64(), "file_size_in_bytes", _REQUIRED),
    Column("file_count", pa.int64(), "file_count", _REQUIRED),
    Column("last_update_time", _TIME, lambda row: _clock(row["last_creation_ms"])),
    Column("created_at", _TIME, _no_value),
    Column("created_by", pa.string(), _no_value),
    Column("updated_by", pa.string(), _no_value),
    Column("options", pa.string(), _no_value),
    Column("total_buckets", pa.int32(), "total_buckets", _REQUIRED),
    Column("done", pa.bool_(), lambda _: False, _REQUIRED),
    Column("deleted_record_count", pa.int64(), "deleted_record_count"),
)
_BUCKETS = (
    Column("partition", pa.string(), "partition_text"),
    Column("bucket", pa.int32(), "bucket", _REQUIRED),
    Column("record_count", pa.int64(), "rows_sum", _REQUIRED),
    Column("file_size_in_bytes", pa.int64(), "bytes_sum", _REQUIRED),
    Column("file_count", pa.int64(), "files_sum", _REQUIRED),
    Column("last_update_time", _TIME, lambda row: _clock(row["created_ms_max"])),
)
_RANGE = pa.struct(
    [
        pa.field("f0", pa.string(), nullable=False),
        pa.field("f1", pa.int32(), nullable=False),
        pa.field("f2", pa.int32(), nullable=False),
        pa.field("_CARDINALITY", pa.int64()),
    ]
)
_INDEXES = (
    Column("partition", pa.string(), "partition"),
    Column("bucket", pa.int32(), "_BUCKET", _REQUIRED),
    Column("index_type", pa.string(), "_INDEX_TYPE", _REQUIRED),
    Column("file_name", pa.string(), "_FILE_NAME", _REQUIRED),
    Column("file_size", pa.int64(), "_FILE_SIZE", _REQUIRED),
    Column("row_count", pa.int64(), "_ROW_COUNT", _REQUIRED),
    Column("dv_ranges", pa.list_(_RANGE), "_DELETIONS_VECTORS_RANGES"),
    Column("row_range_start", pa.int64(), "_ROW_RANGE_START"),
    Column("row_range_end", pa.int64(), "_ROW_RANGE_END"),
    Column("index_field_id", pa.int32(), "_INDEX_FIELD_ID"),
    Column("index_field_name", pa.string(), "field_name"),
)
_EPOCH = datetime.date(1970, 1, 1)
_DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True)
class PartitionSum:
    """Rows, bytes and files of one partition. `stored` is the partition as serialized in manifests.
    `texts` are its values cast to STRING; `partition.default-name` stands for NULL and blank text.

    `last_creation_ms` is when its newest file was made, in milliseconds since 1970 UTC.
    """

    stored: bytes
    texts: tuple[str, ...]
    record_count: int
    file_size_in_bytes: int
    file_count: int
    last_creation_ms: int | None
    total_buckets: int

    def spec(self, view: TableView) -> dict[str, str]:
        """The partition as a spec of Paimon's catalogs. Dates are days since 1970 unless
        `partition.legacy-name` is false."""
        legacy = boolean_value(
            "partition.legacy-name", view.options.get("partition.legacy-name", "true")
        )
        spec = {}
        for field, text in zip(view.partition_fields(), self.texts, strict=True):
            is_date = isinstance(field.type, AtomicType) and field.type.name == "DATE"
            with contextlib.suppress(ValueError):  # `partition.default-name` is no date
                if is_date and legacy:
                    text = str((datetime.date.fromisoformat(text) - _EPOCH).days)
            spec[field.name] = text
        return spec


def partitions(view: TableView) -> pa.Table:
    """`$partitions`: the partitions that have files. An unpartitioned table is one, named ''."""
    deleted = _deleted_records(view)
    rows = [
        {
            **asdict(each),
            "name": "/".join(map("=".join, zip(view.partition_keys, each.texts, strict=True))),
            "deleted_record_count": deleted.get(each.stored, 0),
        }
        for each in partition_sums(view)
    ]
    return table_of(_PARTITIONS, sorted(rows, key=lambda row: row["name"]))


def partition_sums(view: TableView) -> list[PartitionSum]:
    """The sums of each partition that has files."""
    sums = _sums(view, ["partition"], real_buckets=True)
    stored = sums.column("partition").combine_chunks()
    columns = [texts.to_pylist() for texts in view.partition_values(stored)]
    texts = list(zip(*columns, strict=True)) if columns else [()] * len(stored)
    return [
        PartitionSum(
            encoded,
            text,
            row["rows_sum"],
            row["bytes_sum"],
            row["files_sum"],
            row["created_ms_max"],
            row["total_buckets_last"],
        )
        for encoded, text, row in zip(stored.to_pylist(), texts, sums.to_pylist(), strict=True)
    ]


def buckets(view: TableView) -> pa.Table:
    """`$buckets`: the buckets that have files."""
    sums = _sums(view, ["partition", "bucket"])
    texts = view.partition_text(sums.column("partition").combine_chunks())
    rows = sums.append_column("partition_text", texts).to_pylist()
    return table_of(_BUCKETS, sorted(rows, key=lambda row: (row["partition_text"], row["bucket"])))


def table_indexes(view: TableView) -> pa.Table:
    """`$table_indexes`: the index files of the snapshot."""
    records = _index_records(view)
    texts = view.partition_text(pa.array([r["_PARTITION"] for r in records], type=pa.binary()))
    names = {f.id: f.name for f in view.fields(view.schema["id"])}
    rows = []
    for text, record in zip(texts.to_pylist(), records, strict=True):
        index = record.get("_GLOBAL_INDEX") or {}
        ids = [index.get("_INDEX_FIELD_ID"), *(index.get("_EXTRA_FIELD_IDS") or [])]
        is_known = bool(index) and all(id in names for id in ids)
        field_name = ",".join(names[id] for id in ids) if is_known else None
        rows.append({**record, **index, "partition": text, "field_name": field_name})
    return table_of(_INDEXES, rows)


TABLES: Loaders = {
    "buckets": (buckets, schema_of(_BUCKETS)),
    "partitions": (partitions, schema_of(_PARTITIONS)),
    "table_indexes": (table_indexes, schema_of(_INDEXES)),
}


def _sums(view: TableView, keys: Sequence[str], *, real_buckets: bool = False) -> pa.Table:
    """Rows, bytes and files grouped by `keys`, without groups that have no files left. With
    `real_buckets` files that wait for their bucket are not counted."""
    if view.snapshot is None:
        files = _TYPES.empty_table()
    else:
        files = entries(view.folder.columns, view.snapshot, _TYPES.names)
    if real_buckets:
        files = view.in_real_buckets(files)
    sign = pc.if_else(pc.equal(files.column("kind"), 0), 1, -1).cast(pa.int64())
    columns = {
        "rows": pc.multiply(files.column("row_count"), sign),
        "bytes": pc.multiply(files.column("file_size"), sign),
        "files": sign,
        "created_ms": creation_instants(files),
    }
    for name in ("partition", "bucket", "total_buckets"):
        columns[name] = files.column(name)
    counted = pa.table(columns)
    grouped = counted.group_by(list(keys), use_threads=False).aggregate(
        [
            ("rows", "sum"),
            ("bytes", "sum"),
            ("files", "sum"),
            ("created_ms", "max"),
            ("total_buckets", "last"),
        ]
    )
    return grouped.filter(pc.greater(grouped.column("files_sum"), 0))


_TYPES = pa.schema(
    {
        "kind": pa.int32(),
        "bucket": pa.int32(),
        "partition": pa.large_binary(),
        "row_count": pa.int64(),
        "file_name": pa.large_string(),
        "file_size": pa.int64(),
        "creation_time": pa.timestamp("ms"),
        "total_buckets": pa.int32(),
    }
)


def _deleted_records(view: TableView) -> dict[bytes, int | None]:
    """The number of rows that deletion vectors delete in each partition; None if one of them does
    not say how many."""
    if not boolean_value(
        "deletion-vectors.enabled", view.options.get("deletion-vectors.enabled", "false")
    ):
        return {}
    counts: dict[bytes, int | None] = {}
    for record in _index_records(view):
        if record["_INDEX_TYPE"] != _DELETION_VECTORS:
            continue
        partition = record["_PARTITION"]
        for vector in record.get("_DELETIONS_VECTORS_RANGES") or ():
            before, more = counts.get(partition, 0), vector.get("_CARDINALITY")
            counts[partition] = None if before is None or more is None else before + more
    return counts


def _index_records(view: TableView) -> list[dict[str, Any]]:
    name = (view.snapshot or {}).get("indexManifest")
    if not name:
        return []
    content = view.folder.read(name)
    return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]


_COLUMNS = ["kind", "partition", "bucket", "level", "file_name", "row_count", "file_size",
            "creation_time"]  # fmt: skip
_WITH_OFFSET = re.compile(r".*\d\d:\d\d[\d:.]*[+-]\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """`files` with the columns of FILES. `twice` are instants in their partitions' names whose
    wall-clock time occurs twice in the zone, so that they are shown with an offset. `clocks_in` is
    the zone that the writers' wall clocks were taken for, "" if every file has its instant."""

    files: pa.Table
    twice: tuple[str, ...] = ()
    clocks_in: str = ""


def layout_files(view: TableView, zone: str) -> NamedFiles:
    """The data files of `view` with the columns of FILES. A partition is written as
    `day=2026-11-20/region=eu`, "" in a table without partitions. Instants in it are in `zone`;
    `partition.default-name` stands for NULL and blank text."""
    named = named_files(view, zone)
    return replace(named, files=named.files.select(FILES.names))


def named_files(view: TableView, zone: str) -> NamedFiles:
    """As `layout_files`, with the column `file_name` too."""
    schema = FILES.append(pa.field("file_name", pa.string()))
    if view.snapshot is None:
        return NamedFiles(schema.empty_table())
    live = undeleted(entries(view.folder.columns, view.snapshot, _COLUMNS))
    live = view.in_real_buckets(live)
    partitions, twice = _partitions(view, live.column("partition").combine_chunks(), zone)
    names = live.column("file_name")
    columns = {
        "file_name": names,
        "partition": partitions,
        "bucket": live.column("bucket"),
        "level": live.column("level"),
        "record_count": live.column("row_count"),
        "file_size_in_bytes": live.column("file_size"),
        "creation_time": creation_instants(live),
    }
    files = pa.table([columns[f.name].cast(f.type) for f in schema], schema)
    return NamedFiles(files, twice, "" if all_native(live) else process_zone())


def _partitions(view: TableView, stored: pa.Array, zone: str) -> tuple[pa.Array, tuple[str, ...]]:
    encoded = stored.dictionary_encode()
    values = view.partition_values(encoded.dictionary, zone)
    if not values:
        return pa.array([""] * len(stored), type=pa.string()), ()
    twice = {
        text
        for field, texts in zip(view.partition_fields(), values, strict=True)
        if field.type is not None and key_kind(field.type) is KeyKind.INSTANT
        for text in pc.unique(texts).to_pylist()
        if _WITH_OFFSET.fullmatch(text)
    }
    parts = [
        pc.binary_join_element_wise(key, texts, "=")
        for key, texts in zip(view.partition_keys, values, strict=True)
    ]
    whole = pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]
    return whole.take(encoded.indices), tuple(sorted(twice))
