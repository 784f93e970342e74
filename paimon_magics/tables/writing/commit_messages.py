"""Reads and writes commit messages as bytes (Java's `CommitMessageSerializer`, version 14).

The bytes are identical to those of pypaimon's own serializer, which takes ten times as long: a
compaction of 10,000 buckets has 10,000 messages. Rows of statistics stay bytes, and the values of
keys are read on demand.

The same goes for pypaimon's `DataFileMeta` of files that are known as manifest columns, or that
were just written: keys and bounds stay in their serialized form, so that they are neither lost nor
changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pypaimon.data.timestamp import Timestamp
from pypaimon.globalindex.global_index_meta import GlobalIndexMeta
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.table.row.generic_row import (
    GenericRow,
    GenericRowDeserializer,
    GenericRowSerializer,
)
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.manifests.names import ADD, APPENDED, COMPACTED, DELETE
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.new_files import NewFile, StoredBounds
from paimon_magics.tables.writing.row_layouts import (
    BYTES,
    INT,
    LONG,
    TEXT,
    TINY,
    RowLayout,
    ints_of,
    longs_of,
    packed_ints,
    packed_longs,
    packed_rows,
    packed_texts,
    rows_of,
    texts_of,
)
from paimon_magics.tables.writing.stored_rows import (
    StoredRow,
    StoredStatistics,
    packed_row,
    packed_statistics,
)

_Value = TypeVar("_Value")

# `DataFileMetaSerializer`, version 9: name, size, rows, keys, statistics, sequence numbers, schema,
# level and extra files; then what may be NULL.
_FILE_KINDS = (
    TEXT, LONG, LONG, BYTES, BYTES, BYTES, BYTES, LONG, LONG, LONG, INT, BYTES,
    LONG, LONG, BYTES, TINY, BYTES, TEXT, LONG, BYTES, BYTES,
)  # fmt: skip
_FILE = RowLayout(_FILE_KINDS, required=12)
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_NOTHING = _INT.pack(0)  # as the length of a list
_EMPTY_ROW = GenericRow([], [])


# The lists of a message, in their order: three of files, and two of index files, of new rows and
# of a compaction.
_LISTS = (
    ("new_files", "deleted_files", "changelog_files", "index_adds", "index_deletes"),
    (
        "compact_before",
        "compact_after",
        "compact_changelog_files",
        "compact_index_adds",
        "compact_index_deletes",
    ),
)

# Type, name, size and rows; then what may be NULL: vectors, external path, and the global index.
_INDEX = RowLayout((TEXT, TEXT, LONG, LONG, BYTES, TEXT, BYTES), required=4)
_VECTOR = RowLayout((TEXT, INT, INT, LONG), required=3)
_GLOBAL = RowLayout((LONG, LONG, INT, BYTES, BYTES, BYTES), required=3)


BucketKey = tuple[bytes, int]
"""A serialized partition, and a bucket of it."""


def read_messages(paimon: Any, bodies: Iterable[bytes]) -> Iterator[CommitMessage]:
    """Decode commit messages for `paimon`, pypaimon's table. Raises ValueError, or what pypaimon
    raises for a partition, for bytes that are no message."""
    reader = _MessageReader(paimon.partition_keys_fields, paimon.trimmed_primary_keys_fields)
    for body in bodies:
        try:
            message = reader.message(body)
        except (struct.error, LookupError) as error:
            raise ValueError(f"it ends too early: {error}") from error
        yield message


def bucket_of_message(body: bytes) -> tuple[bytes, int]:
    """The partition, as a serialized `BinaryRow`, and the bucket of a message."""
    stream = _Stream(body)
    return stream.framed(), stream.number()


def write_message(paimon: Any, message: CommitMessage) -> bytes:
    """Encode a commit message."""
    fields = paimon.partition_keys_fields
    if len(message.partition) != len(fields):
        raise ValueError(f"a partition has {len(message.partition)} values, not {len(fields)}")
    partition = packed_row(GenericRow(list(message.partition), fields) if fields else None)
    total, check = message.total_buckets, message.check_from_snapshot
    parts = [
        *_framed(partition),
        _INT.pack(message.bucket),
        b"\0" if total is None else b"\1" + _INT.pack(total),
    ]
    for names in _LISTS:
        for name in names[:3]:
            _add_list(parts, [_packed_file(file) for file in getattr(message, name)])
        for name in names[3:]:
            entries = getattr(message, name)
            _add_list(parts, [_packed_index(entry.index_file) for entry in entries])
    parts.append(b"\0" if check is None else b"\1" + _LONG.pack(check))
    return b"".join(parts)


def _add_list(parts: list[bytes], rows: Sequence[bytes]) -> None:
    if not rows:
        parts.append(_NOTHING)
        return
    parts.append(_INT.pack(len(rows)))
    for row in rows:
        parts += _framed(row)


def _framed(content: bytes) -> tuple[bytes, bytes]:
    return _INT.pack(len(content)), content


def _packed_file(file: DataFileMeta) -> bytes:
    created = file.creation_time
    cols, written, sequences = file.value_stats_cols, file.write_cols, file.write_cols_sequences
    return _FILE.packed(
        (
            file.file_name,
            file.file_size,
            file.row_count,
            packed_row(file.min_key),
            packed_row(file.max_key),
            packed_statistics(file.key_stats),
            packed_statistics(file.value_stats),
            file.min_sequence_number,
            file.max_sequence_number,
            file.schema_id,
            file.level,
            packed_texts(tuple(file.extra_files)),
            None if created is None else created.get_millisecond(),
            file.delete_row_count,
            file.embedded_index,
            file.file_source,
            None if cols is None else packed_texts(tuple(cols)),
            file.external_path,
            file.first_row_id,
            None if written is None else packed_texts(tuple(written)),
            None if sequences is None else packed_longs(tuple(sequences)),
        )
    )


class _MessageReader:
    """Reads the messages of one table. Partitions are decoded once."""

    def __init__(self, partition_fields: Sequence[Any], key_fields: Sequence[Any]) -> None:
        self._partition_fields = list(partition_fields)
        self._key_fields = list(key_fields)
        # A row of that many fields is no shorter: a word of NULL bits for 56 fields, and slots.
        count = len(self._key_fields)
        self._key_bytes_min = 4 + (count + 71) // 64 * 8 + 8 * count
        self._partitions: dict[bytes, tuple[Any, ...]] = {}

    def message(self, body: bytes) -> CommitMessage:
        """The message in some bytes. Raises ValueError if they are not a message."""
        stream = _Stream(body)
        partition = self._partition(stream.framed())
        bucket = stream.number()
        total_buckets = stream.number() if stream.flag() else None
        lists: dict[str, Any] = {}
        for names in _LISTS:
            lists |= {name: stream.rows(self._file) for name in names[:3]}
            lists |= zip(names[3:], self._indexes(stream, partition, bucket), strict=True)
        check = stream.number(_LONG) if stream.flag() else None
        stream.end()
        return CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            check_from_snapshot=check,
            **lists,
        )

    def _partition(self, row: bytes) -> tuple[Any, ...]:
        known = self._partitions.get(row)
        if known is None:
            fields = self._partition_fields
            if len(row) < _INT.size or _INT.unpack_from(row)[0] != len(fields):
                raise ValueError(f"its partition does not have {len(fields)} values")
            known = tuple(GenericRowDeserializer.from_bytes(row, fields).values)
            self._partitions[row] = known
        return known

    def _indexes(
        self, stream: _Stream, partition: tuple[Any, ...], bucket: int
    ) -> list[list[IndexManifestEntry]]:
        """The index files that a message adds, and those that it deletes."""
        return [
            [
                IndexManifestEntry(
                    kind, GenericRow(list(partition), self._partition_fields), bucket, meta
                )
                for meta in stream.rows(index_meta)
            ]
            for kind in (ADD, DELETE)
        ]

    def _file(self, row: bytes) -> DataFileMeta:
        values = _FILE.unpacked(row)
        created, bounded, written, sequences = (values[at] for at in (12, 16, 19, 20))
        return DataFileMeta(
            *values[:3],
            self._key(values[3]),
            self._key(values[4]),
            StoredStatistics(values[5]),
            StoredStatistics(values[6]),
            *values[7:11],
            extra_files=list(texts_of(values[11])),
            creation_time=None if created is None else Timestamp(created),
            delete_row_count=values[13],
            embedded_index=values[14],
            file_source=values[15],
            value_stats_cols=None if bounded is None else list(texts_of(bounded)),
            external_path=values[17],
            first_row_id=values[18],
            write_cols=None if written is None else list(texts_of(written)),
            write_cols_sequences=None if sequences is None else _numbers(sequences),
        )

    def _key(self, row: bytes) -> Any:
        fields = self._key_fields
        (count,) = _INT.unpack_from(row) if len(row) >= _INT.size else (-1,)
        if count != len(fields) or len(row) < self._key_bytes_min:
            raise ValueError(f"the key of a file does not have {len(fields)} values")
        return StoredRow(row, fields) if fields else _EMPTY_ROW


def _numbers(array: bytes) -> list[int]:
    values = [value for value in longs_of(array) if value is not None]
    if len(values) < len(longs_of(array)):
        raise ValueError("a number of an array is NULL")
    return values


class _Stream:
    """The bytes of a message, read one after the other; numbers in Java's order of bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self, form: struct.Struct = _INT) -> Any:
        """A number, an INT unless another form is given."""
        start = self._at
        self._at = start + form.size
        return form.unpack_from(self._body, start)[0]

    def flag(self) -> bool:
        self._at += 1
        return self._body[self._at - 1] != 0

    def framed(self) -> bytes:
        """Bytes that follow their number."""
        body, start = self._body, self._at + _INT.size
        end = start + _INT.unpack_from(body, self._at)[0]
        if not start <= end <= len(body):
            raise ValueError("it ends too early")
        self._at = end
        return body[start:end]

    def rows(self, decode: Callable[[bytes], _Value]) -> list[_Value]:
        """A list of rows, each decoded."""
        count = self.number()
        if count < 0:
            raise ValueError("a list of files has a negative length")
        return [decode(self.framed()) for _ in range(count)] if count else []

    def end(self) -> None:
        """Raise ValueError for bytes that were not read."""
        if self._at != len(self._body):
            raise ValueError(f"{len(self._body) - self._at} bytes follow it")


# Index files in commit messages: Paimon's `IndexFileMetaSerializer`.


def _packed_index(meta: IndexFileMeta) -> bytes:
    """The row of an index file."""
    vectors = meta.dv_ranges
    return _INDEX.packed(
        (
            meta.index_type,
            meta.file_name,
            meta.file_size,
            meta.row_count,
            None
            if vectors is None
            else packed_rows([_vector(vector) for vector in vectors.values()]),
            meta.external_path,
            None if meta.global_index_meta is None else _packed_global(meta.global_index_meta),
        )
    )


def index_meta(row: bytes) -> IndexFileMeta:
    """The index file of a row. Raises ValueError for bytes that are no such row."""
    *values, vectors, external_path, whole = _INDEX.unpacked(row)
    ranges = None
    if vectors is not None:
        metas = [DeletionVectorMeta(*_VECTOR.unpacked(vector)) for vector in rows_of(vectors)]
        ranges = {meta.data_file_name: meta for meta in metas}
    return IndexFileMeta(*values, ranges, external_path, None if whole is None else _global(whole))


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


# The buckets that commit messages are about.


def written_buckets(table: Table, messages: Iterable[CommitMessage]) -> frozenset[BucketKey]:
    """The partition and the bucket of each message."""
    return frozenset(
        bucket_key(table, tuple(message.partition), message.bucket) for message in messages
    )


def bucket_key(table: Table, partition: tuple[Any, ...], bucket: int) -> BucketKey:
    """The key of a bucket of the partition with these values."""
    fields = table.paimon.partition_keys_fields
    return GenericRowSerializer.to_bytes(GenericRow(list(partition), fields)), bucket


_SAME_NAMES = (
    *("file_name", "file_size", "row_count", "min_sequence_number", "max_sequence_number"),
    *("schema_id", "level", "delete_row_count", "file_source", "value_stats_cols"),
    *("external_path", "first_row_id", "write_cols"),
)


def stored_metas(paimon: Any, files: pa.Table) -> list[DataFileMeta]:
    """The metas of stored files; `files` has the columns of `columns.MANIFEST_ENTRIES`.

    `paimon` is pypaimon's table.
    """
    keys = paimon.trimmed_primary_keys_fields
    by_name = {field.name: field for field in paimon.table_schema.fields}
    return [_stored_meta(row, keys, by_name) for row in files.to_pylist()]


def meta_of_new_file(paimon: Any, file: NewFile) -> DataFileMeta:
    """The meta of a file that a task has written."""
    keys = paimon.trimmed_primary_keys_fields
    fields = paimon.table_schema.fields
    if file.bounded_columns is not None:
        by_name = {field.name: field for field in fields}
        fields = [by_name[name] for name in file.bounded_columns]
    return DataFileMeta(
        file_name=file.name,
        file_size=file.size_bytes,
        row_count=file.rows,
        min_key=StoredRow(file.least_key, keys),
        max_key=StoredRow(file.greatest_key, keys),
        key_stats=_statistics(file.key_bounds, keys),
        value_stats=_statistics(file.value_bounds, fields),
        min_sequence_number=file.min_sequence_number,
        max_sequence_number=file.max_sequence_number,
        schema_id=file.schema_id,
        level=file.level,
        extra_files=list(file.extra_files),
        creation_time=Timestamp.from_epoch_millis(file.created_ms),
        delete_row_count=file.deleted_rows,
        embedded_index=file.embedded_index,
        file_source=COMPACTED if file.is_compacted else APPENDED,
        value_stats_cols=None if file.bounded_columns is None else list(file.bounded_columns),
    )


def _statistics(bounds: StoredBounds, fields: Sequence[Any]) -> StoredStatistics:
    return StoredStatistics.of(bounds.least, bounds.greatest, bounds.null_counts, fields)


def _stored_meta(row: dict[str, Any], keys: list[Any], by_name: dict[str, Any]) -> DataFileMeta:
    bounded = row["value_stats_cols"]
    names = list(by_name) if bounded is None else bounded
    # The schema of the file may lack columns of today: only the bytes of bounds are used.
    values = [by_name[name] for name in names if name in by_name]
    created = row["creation_time"]
    return DataFileMeta(
        **{name: row[name] for name in _SAME_NAMES},
        min_key=StoredRow(row["min_key"], keys),
        max_key=StoredRow(row["max_key"], keys),
        key_stats=StoredStatistics.of(
            row["key_min_values"], row["key_max_values"], row["key_null_counts"], keys
        ),
        value_stats=StoredStatistics.of(
            row["value_min_values"], row["value_max_values"], row["value_null_counts"], values
        ),
        extra_files=list(row["extra_files"] or ()),
        creation_time=None if created is None else Timestamp.from_local_date_time(created),
        embedded_index=row["embedded_file_index"],
    )
