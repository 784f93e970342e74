"""Index files in commit messages: Paimon's `IndexFileMetaSerializer`."""

from __future__ import annotations

from pypaimon.globalindex.global_index_meta import GlobalIndexMeta
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta

from paimon_magics.tables.writing.row_layouts import (
    BYTES,
    INT,
    LONG,
    TEXT,
    RowLayout,
    ints_of,
    packed_ints,
    packed_rows,
    rows_of,
)

__all__ = ["index_meta", "packed_index"]

# Type, name, size and rows; then what may be NULL: vectors, external path, and the global index.
_INDEX = RowLayout((TEXT, TEXT, LONG, LONG, BYTES, TEXT, BYTES), required=4)
_VECTOR = RowLayout((TEXT, INT, INT, LONG), required=3)
_GLOBAL = RowLayout((LONG, LONG, INT, BYTES, BYTES, BYTES), required=3)


def packed_index(meta: IndexFileMeta) -> bytes:
    """The row of an index file."""
    vectors = meta.dv_ranges
    return _INDEX.packed(
        (
            meta.index_type,
            meta.file_name,
            meta.file_size,
            meta.row_count,
            None if vectors is None else packed_rows([_vector(one) for one in vectors.values()]),
            meta.external_path,
            None if meta.global_index_meta is None else _packed_global(meta.global_index_meta),
        )
    )


def index_meta(row: bytes) -> IndexFileMeta:
    """The index file of a row. Raises ValueError for bytes that are no such row."""
    *found, vectors, external_path, whole = _INDEX.unpacked(row)
    ranges = None
    if vectors is not None:
        metas = [DeletionVectorMeta(*_VECTOR.unpacked(one)) for one in rows_of(vectors)]
        ranges = {meta.data_file_name: meta for meta in metas}
    return IndexFileMeta(*found, ranges, external_path, None if whole is None else _global(whole))


def _vector(meta: DeletionVectorMeta) -> bytes:
    return _VECTOR.packed((meta.data_file_name, meta.offset, meta.length, meta.cardinality))


def _packed_global(meta: GlobalIndexMeta) -> bytes:
    fields = meta.extra_field_ids
    return _GLOBAL.packed(
        (
            meta.row_range_start,
            meta.row_range_end,
            meta.index_field_id,
            None if fields is None else packed_ints(fields),
            meta.index_meta,
            meta.source_meta,
        )
    )


def _global(row: bytes) -> GlobalIndexMeta:
    start, end, field_id, fields, *metas = _GLOBAL.unpacked(row)
    return GlobalIndexMeta(
        start, end, field_id, None if fields is None else ints_of(fields), *metas
    )
