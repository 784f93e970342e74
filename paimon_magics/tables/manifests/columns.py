"""Manifests as Arrow columns: 100,000 entries in about a second, without an object for each.

`avro_columns` decodes the files. A manifest never changes, so a manifest that was read is cached,
up to a number of bytes.

Fields: `ManifestEntrySerializer`, `DataFileMeta` and `ManifestFileMeta` of Paimon.
"""

from __future__ import annotations

import datetime
import io
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import UTC, process_zone, rules_of
from paimon_magics.planning.reports.view_queries import NATIVE_NAME
from paimon_magics.tables.manifests.avro_columns import avro_columns, avro_parts
from paimon_magics.tables.pypaimon_internals import manifest_record
from paimon_magics.tables.stores.corruption import MANIFEST_VERSION, check_version, damaged

_STATS = ("_MIN_VALUES", "_MAX_VALUES", "_NULL_COUNTS")

# The columns of `ManifestColumns.entries`: Paimon's names in lower case, nested fields flattened.
MANIFEST_ENTRIES = pa.schema(
    [
        ("kind", pa.int32()),
        ("partition", pa.large_binary()),
        ("bucket", pa.int32()),
        ("total_buckets", pa.int32()),
        ("file_name", pa.large_string()),
        ("file_size", pa.int64()),
        ("row_count", pa.int64()),
        ("min_key", pa.large_binary()),
        ("max_key", pa.large_binary()),
        ("key_min_values", pa.large_binary()),
        ("key_max_values", pa.large_binary()),
        ("key_null_counts", pa.large_list(pa.int64())),
        ("value_min_values", pa.large_binary()),
        ("value_max_values", pa.large_binary()),
        ("value_null_counts", pa.large_list(pa.int64())),
        ("min_sequence_number", pa.int64()),
        ("max_sequence_number", pa.int64()),
        ("schema_id", pa.int64()),
        ("level", pa.int32()),
        ("extra_files", pa.large_list(pa.large_string())),
        ("creation_time", pa.timestamp("ms")),
        ("delete_row_count", pa.int64()),
        ("embedded_file_index", pa.large_binary()),
        ("file_source", pa.int32()),
        ("value_stats_cols", pa.large_list(pa.large_string())),
        ("external_path", pa.large_string()),
        ("first_row_id", pa.int64()),
        ("write_cols", pa.large_list(pa.large_string())),
    ]
)
# The columns of `ManifestColumns.files`: a manifest list's entry for each manifest.
MANIFEST_FILES = pa.schema(
    [
        ("file_name", pa.large_string()),
        ("file_size", pa.int64()),
        ("num_added_files", pa.int64()),
        ("num_deleted_files", pa.int64()),
        ("partition_min_values", pa.large_binary()),
        ("partition_max_values", pa.large_binary()),
        ("partition_null_counts", pa.large_list(pa.int64())),
        ("schema_id", pa.int64()),
        ("min_bucket", pa.int32()),
        ("max_bucket", pa.int32()),
        ("min_level", pa.int32()),
        ("max_level", pa.int32()),
        ("min_row_id", pa.int64()),
        ("max_row_id", pa.int64()),
    ]
)
# What the objects of a cached table take beside its values. Most tables are small: the manifest of
# one commit has 500 bytes of values and takes 35 KB.
_TABLE_BYTES = 40_000
_NESTED = {"key": "_KEY_STATS", "value": "_VALUE_STATS", "partition": "_PARTITION_STATS"}


_LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")


class ManifestColumns:
    """Reads manifests and manifest lists, and caches them. Safe for several threads.

    `read_bytes` reads a file of the table's manifest folder by name. `cached_bytes_max` is the size
    of the cache.
    """

    def __init__(self, read_bytes: Callable[[str], bytes], cached_bytes_max: int) -> None:
        self._read_bytes = read_bytes
        self._cache = ReadCache[pa.Table](cached_bytes_max, _TABLE_BYTES)

    def files(self, manifest_list: str) -> pa.Table:
        """The manifests in a manifest list; columns as in MANIFEST_FILES. Raises TableDamagedError
        if the file can't be read."""
        return self._of(manifest_list, MANIFEST_FILES)

    def entries(
        self, manifests: Iterable[str], columns: Sequence[str] = MANIFEST_ENTRIES.names
    ) -> pa.Table:
        """The entries of manifests, in their order; these columns of MANIFEST_ENTRIES, others are
        not held. Raises TableDamagedError if a file can't be read."""
        names = list(columns)
        tables = [only(self._of(name, MANIFEST_ENTRIES), names) for name in manifests]
        return pa.concat_tables(tables or [MANIFEST_ENTRIES.empty_table().select(names)])

    def _of(self, name: str, schema: pa.Schema) -> pa.Table:
        return self._cache.get(name, lambda: self._read(name, schema))

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        try:
            parts = []
            for part in avro_parts(self._read_bytes(name)):
                _check_version(name, part)
                parts.append(_flat(part, schema))
            return pa.concat_tables(parts)
        except (ValueError, KeyError, pa.ArrowInvalid) as error:
            raise damaged(f"The manifest `{name}`", error) from error


def only(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Some columns, without the memory of the others: columns that were decoded together are freed
    together, so the columns are copied."""
    if list(names) == table.column_names:
        return table
    return table.select(list(names)).take(pa.array(np.arange(table.num_rows)))


def columns_of_entries(entries: Iterable[Any]) -> pa.Table:
    """pypaimon's manifest entries as a manifest of them would give them; columns as in
    MANIFEST_ENTRIES."""
    import fastavro
    from pypaimon.manifest.schema.manifest_entry import MANIFEST_ENTRY_SCHEMA

    body = io.BytesIO()
    fastavro.writer(body, MANIFEST_ENTRY_SCHEMA, map(manifest_record, entries))
    return _flat(avro_columns(body.getvalue()), MANIFEST_ENTRIES)


def _check_version(name: str, part: pa.Table) -> None:
    if "_VERSION" not in part.column_names:
        return
    newest = pc.max(part.column("_VERSION")).as_py()
    check_version(f"The manifest `{name}`", newest, MANIFEST_VERSION)


def _flat(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Records as the columns of `schema`; a field that is missing in the file becomes NULL."""
    fields = {name: table.column(name) for name in table.column_names}
    nested = fields.pop("_FILE", None)
    if nested is not None:
        fields |= _members(nested)
    for group, inner in _NESTED.items():
        if f"{group}_min_values" in schema.names:
            of_group = _members(fields[inner])
            fields |= {f"_{group.upper()}{name}": of_group[name] for name in _STATS}
    columns = []
    for field in schema:
        column = fields.get(f"_{field.name.upper()}")
        columns.append(
            pa.chunked_array([pa.nulls(table.num_rows, field.type)])
            if column is None
            else _cast(column, field.type)
        )
    return pa.Table.from_arrays(columns, schema=schema).combine_chunks()


def _cast(column: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    if column.type == data_type:
        return column
    if pa.types.is_timestamp(data_type):
        column = pc.cast(column, pa.timestamp(column.type.unit))  # drops Avro's zone
    return column.cast(data_type)


def _members(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    chunks = [chunk.flatten() for chunk in column.chunks]
    names = [field.name for field in column.type]
    return {
        name: pa.chunked_array([chunk[i] for chunk in chunks], type=column.type[i].type)
        for i, name in enumerate(names)
    }


# The manifest entries of a snapshot as Arrow columns.
#
# `entries` has additions and deletions; `live_files.undeleted` takes off the deleted files. The
# columns are those of `columns.MANIFEST_ENTRIES`. Folders are never listed.


def manifest_files(
    manifests: ManifestColumns, snapshot: Mapping[str, Any], *, changelogs: bool = False
) -> pa.Table:
    """The manifests of a snapshot (`columns.MANIFEST_FILES`), with `changelogs` also those of its
    changelog."""
    lists = [snapshot.get(key) for key in (_LISTS if changelogs else _LISTS[:2])]
    return pa.concat_tables([manifests.files(name) for name in lists if name])


def entries(
    manifests: ManifestColumns,
    snapshot: Mapping[str, Any],
    columns: Sequence[str] = MANIFEST_ENTRIES.names,
) -> pa.Table:
    """These columns of all entries of the snapshot's manifests, in order; without its changelog."""
    names = manifest_files(manifests, snapshot).column("file_name").to_pylist()
    return manifests.entries(names, columns)


# A cache of values from files that never change, limited by bytes.


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_V = TypeVar("_V", bound=_Sized)


class ReadCache(Generic[_V]):
    """Keeps the most recently used values up to `bytes_max` in total, and always the newest value.
    A value counts `each_bytes` beside its own: what its objects take in memory.

    Safe for several threads. Two threads that ask for a new value at once both read it.
    """

    def __init__(self, bytes_max: int, each_bytes: int = 0) -> None:
        self._bytes_max = bytes_max
        self._each_bytes = each_bytes
        self._values: OrderedDict[str, _V] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: str, read: Callable[[], _V]) -> _V:
        """The value of this name; `read` is called if it is not in the cache."""
        with self._lock:
            if name in self._values:
                self._values.move_to_end(name)
                return self._values[name]
        value = read()
        with self._lock:
            if name not in self._values:
                self._values[name] = value
                self._bytes += value.nbytes + self._each_bytes
            while self._bytes > self._bytes_max and len(self._values) > 1:
                dropped = self._values.popitem(last=False)[1]
                self._bytes -= dropped.nbytes + self._each_bytes
        return value


# The instants at which data files were made.
#
# Manifests have wall-clock times without a zone, those of the writer's process. Files of the native
# writer, which are recognized by name, have theirs in UTC. Those of others are read in the zone of
# this process, as in Java's `DataFileMeta.creationTimeEpochMillis`: they are right for files that
# were written in this zone. Where a time does not occur or occurs twice, the offset before the
# change counts, as in Java.

_MINUTE_MS = 60_000
_EPOCH = datetime.datetime(1970, 1, 1)
_IS_NATIVE = re.compile(NATIVE_NAME)


def creation_instants(files: pa.Table) -> pa.ChunkedArray:
    """When each of the files was made, in milliseconds since 1970 UTC; null where no time is
    stored. `files` has the columns `creation_time` and `file_name`."""
    clocks = files.column("creation_time").cast(pa.int64())
    zone = process_zone()
    if zone == UTC:
        return clocks
    is_native = _are_native(files)
    if pc.all(is_native, min_count=0).as_py():
        return clocks
    filled = np.asarray(pc.fill_null(clocks, 0))
    local = pa.chunked_array([pc.subtract(pa.array(filled), pa.array(_ahead_ms(filled, zone)))])
    return pc.if_else(pc.or_(is_native, clocks.is_null()), clocks, local)


def all_native(files: pa.Table) -> bool:
    """Whether the native writer wrote all files, so that their times need no zone. `files` has the
    column `file_name`."""
    return bool(pc.all(_are_native(files), min_count=0).as_py())


def _are_native(files: pa.Table) -> pa.ChunkedArray:
    return pc.match_substring_regex(files.column("file_name"), f"^{NATIVE_NAME}")


def creation_instant_ms(clock_ms: int, file_name: str) -> int:
    """As `creation_instants`, for one file; `clock_ms` is its wall-clock time as if it were UTC."""
    if _IS_NATIVE.match(file_name):
        return clock_ms
    return clock_ms - _offset_ms(clock_ms // _MINUTE_MS, process_zone())


def _ahead_ms(clocks: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    # Many files share a minute, and no offset changes within one.
    minutes, places = np.unique(clocks // _MINUTE_MS, return_inverse=True)
    offsets = [_offset_ms(minute, zone) for minute in minutes.tolist()]
    return np.array(offsets, dtype=np.int64)[places]


@lru_cache(maxsize=10_000)
def _offset_ms(minute: int, zone: str) -> int:
    clock = (_EPOCH + datetime.timedelta(minutes=minute)).replace(tzinfo=rules_of(zone))
    ahead = clock.utcoffset()
    assert ahead is not None
    return ahead // datetime.timedelta(milliseconds=1)
