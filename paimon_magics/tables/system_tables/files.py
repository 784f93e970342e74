"""The system tables about files: `$files`, `$file_key_ranges` and `$manifests`.

A hundred thousand files take a second or two, because text is made column by column.
Sources: Paimon's `FilesTable`, `FileKeyRangesTable`, `ManifestsTable`, `SimpleStatsEvolution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds, decode_rows
from paimon_magics.columnar.java_text import bracketed, java_text, texts_map
from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES, manifest_files
from paimon_magics.tables.manifests.columns import entries as manifest_entries
from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.manifests.live_files import undeleted
from paimon_magics.tables.stores.paths import java_path
from paimon_magics.tables.system_tables.table_view import Field, Loaders, TableView

_REQUIRED = False  # the nullability of a column that is always there
_FILES = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32(), _REQUIRED),
        pa.field("file_path", pa.string(), _REQUIRED),
        pa.field("file_format", pa.string(), _REQUIRED),
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("level", pa.int32(), _REQUIRED),
        pa.field("record_count", pa.int64(), _REQUIRED),
        pa.field("file_size_in_bytes", pa.int64(), _REQUIRED),
        pa.field("min_key", pa.string()),
        pa.field("max_key", pa.string()),
        pa.field("null_value_counts", pa.string(), _REQUIRED),
        pa.field("min_value_stats", pa.string(), _REQUIRED),
        pa.field("max_value_stats", pa.string(), _REQUIRED),
        pa.field("min_sequence_number", pa.int64()),
        pa.field("max_sequence_number", pa.int64()),
        pa.field("creation_time", pa.timestamp("us")),
        pa.field("deleteRowCount", pa.int64()),
        pa.field("file_source", pa.string()),
        pa.field("first_row_id", pa.int64()),
        pa.field("write_cols", pa.list_(pa.string())),
    ]
)
_KEY_RANGES = pa.schema([*list(_FILES)[:10], _FILES.field("first_row_id")])
_MANIFESTS = pa.schema(
    [
        pa.field("file_name", pa.string(), _REQUIRED),
        pa.field("file_size", pa.int64(), _REQUIRED),
        pa.field("num_added_files", pa.int64(), _REQUIRED),
        pa.field("num_deleted_files", pa.int64(), _REQUIRED),
        pa.field("schema_id", pa.int64(), _REQUIRED),
        pa.field("min_partition_stats", pa.string()),
        pa.field("max_partition_stats", pa.string()),
        pa.field("min_row_id", pa.int64()),
        pa.field("max_row_id", pa.int64()),
    ]
)
_STORED_NAMES = {
    "record_count": "row_count",
    "file_size_in_bytes": "file_size",
    "deleteRowCount": "delete_row_count",
}
_SOURCES = pa.array(["APPEND", "COMPACT"])
_COMPRESSED = r"\.(gz|bz2|deflate|snappy|lz4|zst)$"  # Paimon's `HadoopCompressionType`


def files(view: TableView) -> pa.Table:
    """`$files`: the data files of the snapshot."""
    entries = _read(view)
    sources = {"file_source": _SOURCES.take(_array(entries, "file_source"))}
    return _table(entries, _FILES, _texts(view, entries) | _statistics(view, entries) | sources)


def file_key_ranges(view: TableView) -> pa.Table:
    """`$file_key_ranges`: the data files of the snapshot with their least and greatest keys."""
    entries = _read(view)
    return _table(entries, _KEY_RANGES, _texts(view, entries))


def manifests(view: TableView) -> pa.Table:
    """`$manifests`: the manifests of the snapshot, also those of its changelog."""
    if view.snapshot is None:
        return _MANIFESTS.empty_table()
    listed = manifest_files(view.folder.columns, view.snapshot, changelogs=True).combine_chunks()
    bounds = {
        f"{end}_partition_stats": view.partition_text(_array(listed, f"partition_{end}_values"))
        for end in ("min", "max")
    }
    return _table(listed, _MANIFESTS, bounds)


TABLES: Loaders = {
    "file_key_ranges": (file_key_ranges, _KEY_RANGES),
    "files": (files, _FILES),
    "manifests": (manifests, _MANIFESTS),
}


def _read(view: TableView) -> pa.Table:
    if view.snapshot is None:
        return MANIFEST_ENTRIES.empty_table()
    live = undeleted(manifest_entries(view.folder.columns, view.snapshot))
    return view.in_real_buckets(live).combine_chunks()


def _texts(view: TableView, entries: pa.Table) -> dict[str, Any]:
    """The columns of text that `$files` and `$file_key_ranges` share."""
    return {
        "partition": view.partition_text(_array(entries, "partition")),
        "file_path": _paths(view, entries),
        "file_format": _formats(_array(entries, "file_name")),
        "min_key": _keys(view, entries, "min_key"),
        "max_key": _keys(view, entries, "max_key"),
    }


def _paths(view: TableView, entries: pa.Table) -> pa.Array:
    """The full URI of each file."""
    factory = view.paimon.path_factory()

    def folder(partition: tuple[Any, ...]) -> str:
        return java_path(str(factory.bucket_path(partition, 0, canonical_partition=True)))

    return file_paths(entries, [f.stored_type for f in view.partition_fields()], folder)


def _formats(names: pa.Array) -> pa.Array:
    """The format of each file: the extension of its name, before that of a compression."""
    bare = pc.replace_substring_regex(names, _COMPRESSED, "")
    return pc.replace_substring_regex(bare, r"^.*\.", "")


def _keys(view: TableView, entries: pa.Table, column: str) -> pa.Array:
    """The key of each file as text, such as `[1, a]`; NULL for files without a key."""
    rows = _array(entries, column)
    texts = pa.nulls(len(rows), pa.string())
    lengths = pc.binary_length(rows)
    schema_ids = entries.column("schema_id")
    for schema_id in pc.unique(schema_ids).to_pylist():
        fields = view.key_fields(schema_id)
        # A row without fields is just a header.
        has_key = pc.greater_equal(lengths, 4 + 8 + 8 * len(fields))
        mask = pc.and_(pc.equal(schema_ids, schema_id), has_key).combine_chunks()
        values = decode_rows(rows.filter(mask), [f.stored_type for f in fields])
        if values and len(values[0]):
            text = bracketed([java_text(v) for v in values])
            texts = pc.replace_with_mask(texts, mask, text.cast(pa.string()))
    return texts


def _statistics(view: TableView, entries: pa.Table) -> dict[str, pa.Array]:
    """The texts of NULL counts and bounds of each file, by the table's column names, regardless of
    the file's schema."""
    names = {"null_value_counts": "nulls", "min_value_stats": "min", "max_value_stats": "max"}
    result = {name: pa.nulls(entries.num_rows, pa.string()) for name in names}
    for group, mask in _groups(entries):
        part = entries.filter(mask)
        texts = _group_texts(view, part, *group)
        for name, key in names.items():
            text = texts_map(texts[key]).cast(pa.string())
            result[name] = pc.replace_with_mask(result[name], mask, text)
    return result


_Group = tuple[int, tuple[str, ...] | None, tuple[str, ...] | None]


def _groups(entries: pa.Table) -> list[tuple[_Group, pa.Array]]:
    """Group files by the fields of their statistics: (schema id, statistics columns, written
    columns) and a mask of the files for each group."""
    if not entries.num_rows:
        return []
    lists = [
        entries.column(name).cast(pa.list_(pa.string())).combine_chunks()
        for name in ("value_stats_cols", "write_cols")
    ]
    names = ([None if v is None else tuple(v) for v in column.to_pylist()] for column in lists)
    keys = list(zip(entries.column("schema_id").to_pylist(), *names, strict=True))
    distinct = {key: position for position, key in enumerate(dict.fromkeys(keys))}
    numbers = np.array([distinct[key] for key in keys])
    return [(key, pa.array(numbers == position)) for key, position in distinct.items()]


def _group_texts(
    view: TableView,
    part: pa.Table,
    schema_id: int,
    stats_columns: tuple[str, ...] | None,
    write_columns: tuple[str, ...] | None,
) -> dict[str, dict[str, pa.Array]]:
    """The texts of NULL counts and bounds for a group of files, by the table's column names."""
    own = view.fields(schema_id)
    if write_columns is not None:
        by_name = {f.name: f for f in own}
        own = tuple(by_name[name] for name in write_columns if name in by_name)
    positions = {f.id: f for f in own}
    stored = own if stats_columns is None else _named_fields(own, stats_columns)
    place = {f.name: position for position, f in enumerate(stored)}
    types = [f.stored_type for f in stored]
    bounds = {
        end: decode_bounds(_array(part, f"value_{end}_values"), types) if stored else []
        for end in ("min", "max")
    }
    counts = _array(part, "value_null_counts")
    texts: dict[str, dict[str, pa.Array]] = {"nulls": {}, "min": {}, "max": {}}
    for column in view.fields(view.schema["id"]):
        source = positions.get(column.id)
        index = None if source is None else place.get(source.name)
        if source is None:  # the column was added after the file was written: all NULL
            texts["nulls"][column.name] = _array(part, "row_count").cast(pa.string())
        else:
            texts["nulls"][column.name] = _count_text(counts, index)
        for end in ("min", "max"):
            values = pa.nulls(part.num_rows) if index is None else bounds[end][index]
            texts[end][column.name] = java_text(_converted(values, column))
    return texts


def _named_fields(fields: tuple[Field, ...], names: tuple[str, ...]) -> tuple[Field, ...]:
    by_name = {f.name: f for f in fields}
    return tuple(by_name.get(name) or Field(-1, name, None) for name in names)


def _count_text(counts: pa.Array, index: int | None) -> pa.Array:
    if index is None:
        return pa.nulls(len(counts), pa.string())
    long_enough = pc.greater(pc.fill_null(pc.list_value_length(counts), 0), index)
    if not pc.all(long_enough).as_py():
        values = [None if c is None or len(c) <= index else c[index] for c in counts.to_pylist()]
        return pa.array(values, type=pa.int64()).cast(pa.string())
    return pc.list_element(counts, index).cast(pa.string())


def _converted(values: pa.Array, column: Field) -> pa.Array:
    """Bounds cast to the column's current type; NULL if they can't be cast."""
    wanted = column.stored_type
    if values.type == wanted or pa.types.is_null(wanted):
        return values
    try:
        return values.cast(wanted, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), wanted)


def _array(entries: pa.Table, name: str) -> pa.Array:
    column = entries.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _table(entries: pa.Table, schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """A system table of `columns`, and of those of manifest entries that it shows as they are."""
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            column = entries.column(_STORED_NAMES.get(field.name, field.name))
        arrays.append(column.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
