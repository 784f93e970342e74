"""The partitions of a table, read from its manifests: values, texts, number and statistics.

Folders are never listed. A partition whose rows are all overwritten is gone, though its folder may
remain. A partition that is empty only by deletion vectors still exists.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.common.json_util import JSON
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.table.row.generic_row import GenericRowDeserializer

from paimon_magics.columnar.time_zones import UTC, clock_text, rules_of
from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.reports.partition_names import escaped
from paimon_magics.planning.schemas.table_schema import DEFAULT_PARTITION_NAME
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.tables.manifests.columns import (
    creation_instant_ms,
    creation_instants,
)
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.schema.history import schema_text
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import StoredTable, Table

_ENTRIES_MAX = 2000  # some milliseconds


_EPOCH = datetime.date(1970, 1, 1)


def list_partitions(table: Table) -> list[tuple[Any, ...]]:
    """The key values of each partition that has files, in a stable order.

    Raises InvalidTableError for a table without partition keys.
    """
    if not table.schema.partition_keys:
        raise InvalidTableError(
            f"The table `{table.name}` has no partitions.",
            hint="It was created without PARTITIONED BY.",
        )
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return []
    files = live_files(ManifestCache(table.paimon), snapshot, ())
    partitions, _ = partition_values(table.paimon, files)
    return sorted(partitions, key=lambda values: [(v is None, str(v)) for v in values])


def partition_name(table: Table, values: tuple[Any, ...], zone: str = UTC) -> str:
    """A partition as in Spark's SHOW PARTITIONS: `dt=2024-01-01/hh=1`, `dt=null`. TIMESTAMP_LTZ
    values are shown in `zone`."""
    keys = table.schema.partition_keys
    return "/".join(
        f"{escaped(key)}={escaped(_value_in_zone(value, table.schema.column(key).type, zone))}"
        for key, value in zip(keys, values, strict=True)
    )


def partition_text(keys: Sequence[str], values: Sequence[Any]) -> str:
    """The values of a partition for a message: `dt = 2024-01-01, hh = 1`; "" without keys."""
    return ", ".join(f"{key} = {value}" for key, value in zip(keys, values, strict=True))


def _value_in_zone(value: Any, data_type: DataType, zone: str) -> str:
    if getattr(data_type, "name", "") != "TIMESTAMP_LTZ" or value is None:
        return partition_value_text(value, data_type)
    if hasattr(value, "to_local_date_time"):
        value = value.to_local_date_time()
    return clock_text(value.replace(tzinfo=datetime.UTC).astimezone(rules_of(zone)))


def partition_value_text(value: Any, data_type: DataType) -> str:
    """A partition value as Spark casts it to text. NULL is `null`; times are in UTC."""
    if value is None:
        return "null"
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime.datetime():
            return clock_text(value.replace(tzinfo=None))
    if hasattr(value, "to_local_date_time"):
        return partition_value_text(value.to_local_date_time(), data_type)
    if isinstance(value, int) and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str(np.datetime64(value, "D"))  # years beyond 9999 too
    return str(value)


# The number of a table's partitions, if few manifest entries are enough to count them, and the
# limit for writing without a shuffle.


def partitions_max(table: Table, snapshot_id: int, manifests: ManifestCache) -> int | None:
    """The largest number of partitions for which rows are written without a shuffle: somewhat more
    than the table has at a snapshot. `manifests` is a cache of the table's manifests.

    None if the table has no partition keys, if buckets decide which task writes a row, or if the
    number of partitions is unknown.
    """
    schema = table.schema
    if schema.bucket_mode != "BUCKET_UNAWARE" or not schema.is_partitioned:
        return None
    known = _partition_count(table, snapshot_id, manifests)
    return None if not known else known + max(2, known // 2)


def _partition_count(table: Table, snapshot_id: int, manifests: ManifestCache) -> int | None:
    """The number of partitions with files at a snapshot; None if it would take reading more than
    `_ENTRIES_MAX` manifest entries, or if there is no such snapshot."""
    snapshot = read_snapshot(table.paimon, snapshot_id) if snapshot_id else None
    if snapshot is None:
        return None
    if manifests.count_entries(snapshot) > _ENTRIES_MAX:
        return None
    return len(pc.unique(live_files(manifests, snapshot).column("partition")))


# The partitions of a table as documents of Paimon's REST catalog, with their rows and files.
#
# Values are written as Paimon's Java library writes them into partition specs: NULL as
# `partition.default-name`, dates as days since 1970 unless `partition.legacy-name` is false.


def partition_documents(table: StoredTable) -> list[dict[str, Any]]:
    """A document for each partition that has files, sorted by spec; [] for an unpartitioned
    table."""
    snapshot = latest_snapshot(table.paimon)
    if not table.schema.get("partitionKeys") or snapshot is None:
        return []
    collected = _collect(table.schema, _stored_files(table.paimon, snapshot))
    return [json.loads(JSON.to_json(partition)) | {"done": False} for partition in collected]


def partition_statistics(paimon: Any, entries: Iterable[Any]) -> list[PartitionStatistics]:
    """The changes of a commit with these manifest entries, for each partition. An unpartitioned
    table is one partition with an empty spec. For the `statistics` of a REST catalog's commit."""
    return _collect(json.loads(schema_text(paimon.table_schema)), map(_changed_file, entries))


class _File(NamedTuple):
    """A file in a partition; `sign` is 1 for an added file, -1 for a deleted one."""

    partition: tuple[Any, ...]
    sign: int
    rows: int
    size_bytes: int
    total_buckets: int
    created_ms: int | None


def _changed_file(entry: Any) -> _File:
    file = entry.file
    return _File(
        tuple(entry.partition.values),
        1 if entry.kind == ADD else -1,
        file.row_count,
        file.file_size,
        entry.total_buckets,
        None
        if file.creation_time is None
        else creation_instant_ms(int(file.creation_time.get_millisecond()), file.file_name),
    )


def _stored_files(paimon: Any, snapshot: Any) -> Iterator[_File]:
    names = ("row_count", "file_size", "total_buckets")
    wanted = (*names, "creation_time", "file_name")
    files = live_files(ManifestCache(paimon), snapshot, wanted)
    partitions, of_files = partition_values(paimon, files)
    columns = [*(files[name] for name in names), creation_instants(files)]
    for at, *values in zip(of_files, *(column.to_pylist() for column in columns), strict=True):
        yield _File(partitions[at], 1, *values)


def _collect(schema: Mapping[str, Any], files: Iterable[_File]) -> list[PartitionStatistics]:
    """The sums of `files` for each partition; deleted files are subtracted. Partitions of blank
    and missing values are apart, with equal specs."""
    keys = schema.get("partitionKeys") or []
    types = {
        field["name"]: from_paimon(field["type"])
        for field in schema["fields"]
        if field["name"] in keys
    }
    options = schema.get("options") or {}
    null = options.get("partition.default-name", DEFAULT_PARTITION_NAME)
    legacy = options.get("partition.legacy-name", "true").lower() == "true"
    sums: dict[tuple[Any, ...], PartitionStatistics] = {}
    for file in files:
        spec = {
            key: _text(value, types[key], null, legacy)
            for key, value in zip(keys, file.partition, strict=True)
        }
        partition = sums.setdefault(
            file.partition, PartitionStatistics(spec=spec, last_file_creation_time=0)
        )
        partition.record_count += file.sign * file.rows
        partition.file_size_in_bytes += file.sign * file.size_bytes
        partition.file_count += file.sign
        partition.total_buckets = max(partition.total_buckets, file.total_buckets)
        created_ms = max(partition.last_file_creation_time, file.created_ms or 0)
        partition.last_file_creation_time = created_ms
    return sorted(sums.values(), key=lambda partition: tuple(partition.spec.values()))


def _text(value: Any, data_type: DataType, null: str, legacy: bool) -> str:
    """`InternalRowPartitionComputer.generatePartValues`: a blank text has the name of NULL."""
    if value is None:
        return null
    if legacy and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str((value - _EPOCH).days if isinstance(value, datetime.date) else value)
    text = partition_value_text(value, data_type)
    return text if text.strip() else null


# The partition values of data files; each partition is decoded once.


def partition_values(
    paimon: Any, files: pa.Table
) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.int64]]:
    """The partition values of `files` (columns of MANIFEST_ENTRIES), each partition once, in the
    order of first appearance; and for each file the position of its partition among them."""
    encoded = files.column("partition").combine_chunks().dictionary_encode()
    fields = paimon.partition_keys_fields
    values = [
        tuple(GenericRowDeserializer.from_bytes(row, fields).values)
        for row in encoded.dictionary.to_pylist()
    ]
    return values, np.asarray(encoded.indices).astype(np.int64)
