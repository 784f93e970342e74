"""Writes data files and changelog files.

Rows of a primary-key table have kinds and sequence numbers, and come in the order of their keys.
Rows of an append table may have ids, or only some of the columns. Like those of the native writer,
files have no `_KEY_` columns (`data-file.thin-mode`): Java takes the keys from the columns
themselves. Memory is bounded by the rows that are encoded at once, whatever the size of a file.
Light to import, because Spark's tasks load it. Sources: `KeyValueDataFileWriter`,
`KeyValueFileWriterFactory`, `RollingFileWriter`.
"""

from __future__ import annotations

import calendar
import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import encode_row, encode_values
from paimon_magics.columnar.merging import KIND, SEQUENCE, is_retract
from paimon_magics.columnar.value_bounds import BoundsCollector, odd_float_columns
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.scans import floating_columns
from paimon_magics.planning.reads.views import ROW_ID, UPDATE_BEFORE
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.file_rules import (
    KEY_STATISTICS,
    NO_STATISTICS,
    FileRules,
    Statistics,
    changelog_file_rules,
    data_file_rules,
)
from paimon_magics.planning.writes.index_rules import FileIndexes, file_indexes_of
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.writing.file_indexes import FileIndexWriter, StoredIndex
from paimon_magics.tables.writing.format_writers import FormatWriter, open_format_writer
from paimon_magics.tables.writing.new_files import NewFile, StoredBounds

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table


_log = logging.getLogger(__name__)
_GROUP_ROWS_MAX = 512 * 1024
_GROUP_BYTES_MAX = 64 * 2**20  # in memory, before encoding
_FIELD_ID = b"PARQUET:field_id"
SYSTEM_FIELDS = (
    pa.field(SEQUENCE, pa.int64(), nullable=False, metadata={_FIELD_ID: b"2147483646"}),
    pa.field(KIND, pa.int8(), nullable=False, metadata={_FIELD_ID: b"2147483645"}),
)
"""The columns before those of a primary-key table."""
ROW_FIELDS = (
    pa.field(ROW_ID, pa.int64(), nullable=False, metadata={_FIELD_ID: b"2147483642"}),
    SYSTEM_FIELDS[0],
)
"""The columns behind those of a table whose rows have ids (`SpecialFields`)."""

System = Literal["kinds", "row ids", "none"]
"""The system columns of a file: SYSTEM_FIELDS, ROW_FIELDS or none."""


_FOOTER_VALUE_BYTES_MAX = 4000  # Arrow leaves out more than 4,096


_TARGET_BYTES = 128 << 20  # Paimon's default of target-file-size for tables with a primary key


@dataclass(frozen=True)
class KeyValueFiles:
    """How files of one level are written; small and picklable.

    `schema` is the Arrow schema of the table's columns with their ids, serialized. `keys` are the
    key columns, `floats` the columns with floating-point values, also nested ones. A file is
    finished at about `target_bytes`. With `is_changelog` the files are changelog files, which have
    no `indexes`. `system` names their system columns; "row ids" and "none" are for append tables.
    With `is_single` all rows go into one file without bounds of `floats`, since later rows may have
    a NaN or -0.0. With `may_lack_numbers` a row with an id may have no sequence number of its own;
    it then has the file's.
    """

    creation: FileCreation
    schema: bytes
    keys: tuple[str, ...]
    floats: tuple[str, ...]
    rules: FileRules
    target_bytes: int
    schema_id: int
    level: int
    is_changelog: bool = False
    indexes: FileIndexes | None = None
    system: System = "kinds"
    is_single: bool = False
    may_lack_numbers: bool = False

    def stored_schema(self) -> pa.Schema:
        """The columns of a file."""
        columns = pa.ipc.read_schema(pa.py_buffer(self.schema))
        match self.system:
            case "kinds":
                return pa.schema([*SYSTEM_FIELDS, *columns])
            case "row ids":
                ids, numbers = ROW_FIELDS
                return pa.schema([*columns, ids, numbers.with_nullable(self.may_lack_numbers)])
            case "none":
                return columns


class KeyValueFileWriter:
    """Writes sorted rows into files of the folder `folder`, named `stem` and a number."""

    def __init__(self, files: KeyValueFiles, folder: str, stem: str) -> None:
        self._files = files
        self._folder = folder
        self._stem = stem
        self._schema = files.stored_schema()
        self._open: _OpenFile | None = None
        self._finished: list[NewFile] = []
        self._created: list[str] = []
        self._count = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows whose keys follow those of earlier rows. Columns may be in any order."""
        if not rows.num_rows:
            return
        arrays = [rows.column(field.name) for field in self._schema]
        ordered = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        floats = self._files.floats
        odd = set(floats if self._files.is_single else odd_float_columns(ordered, floats))
        if self._open is not None and self._open.forbids(odd):
            self._roll()
        for part in self._parts(ordered):
            if self._open is None:
                self._open = self._begun(odd)
            self._open.add(part, odd)
            if self._open.is_full() and not (self._files.is_single or _ends_within_update(part)):
                self._roll()

    @property
    def waiting_bytes(self) -> int:
        """The size in memory of the rows that wait to be encoded."""
        return 0 if self._open is None else self._open.pending_bytes

    def write_waiting(self) -> None:
        """Write the rows that wait to be encoded, few as they may be."""
        if self._open is not None:
            self._open.write_pending()

    def finish(self) -> tuple[NewFile, ...]:
        """Finish the open file and return all files that were written so far. Rows that are written
        after it begin a new file, with any keys."""
        self._roll()
        return tuple(self._finished)

    def abort(self) -> None:
        """Delete all files that were written."""
        if self._open is not None:
            self._open.discard()
            self._open = None
        for path in self._created:
            self._files.creation.delete(path)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in pieces small enough for the size of files to be kept. The two rows of an
        update stay together: `$binlog` packs the rows of each file."""
        bytes_max = max(self._files.target_bytes // 4, 1)
        count = max(1, rows.num_rows * bytes_max // max(rows.nbytes, 1))
        start = 0
        while start < rows.num_rows:
            part = rows.slice(start, count)
            if _ends_within_update(part):
                part = rows.slice(start, count + 1)
            yield part
            start += part.num_rows

    def _begun(self, odd: set[str]) -> _OpenFile:
        name = f"{self._stem}-{self._count}.{self._files.rules.format}"
        self._count += 1
        path = f"{self._folder}/{name}"
        self._created.append(path)
        return _OpenFile(self._files, self._files.creation.open(path), name, odd, self._put_beside)

    def _put_beside(self, name: str, body: bytes) -> None:
        path = f"{self._folder}/{name}"
        self._created.append(path)
        with contextlib.closing(self._files.creation.open(path)) as sink:
            sink.write(body)

    def _roll(self) -> None:
        if self._open is not None:
            self._finished.append(self._open.finish())
            self._open = None


def _ends_within_update(rows: pa.RecordBatch) -> bool:
    """Whether the last row is the first one, -U, of an update."""
    if KIND not in rows.schema.names:
        return False
    return bool(rows.column(KIND)[-1].as_py() == UPDATE_BEFORE)


class _OpenFile:
    """A file that is written, some row groups at a time. `put_beside` gets the name and the content
    of a file beside it."""

    def __init__(
        self,
        files: KeyValueFiles,
        sink: Any,
        name: str,
        odd: set[str],
        put_beside: Callable[[str, bytes], None],
    ) -> None:
        self._files = files
        self._sink = sink
        self._name = name
        self._odd = odd
        self._writer: FormatWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self.pending_bytes = 0
        self._raw_bytes = 0
        self._rows = 0
        self._deleted = 0
        self._sequences: tuple[int, int] | None = None
        self._ends: tuple[bytes, bytes] | None = None
        self._parts = 0
        schema = pa.ipc.read_schema(pa.py_buffer(files.schema))
        has_footer = files.rules.format == "parquet"
        self._keys = _FileBounds(schema, dict.fromkeys(files.keys, KEY_STATISTICS), has_footer)
        self._put_beside = put_beside
        self._index = (
            FileIndexWriter(files.indexes, schema.names)
            if files.indexes is not None and not files.is_changelog
            else None
        )
        self._values = _FileBounds(
            schema, {name: files.rules.statistics[name] for name in schema.names}, has_footer
        )

    def forbids(self, odd: set[str]) -> bool:
        """Whether rows with odd floats in these columns can't follow: bounds were written."""
        return self._writer is not None and not odd <= self._odd

    def add(self, rows: pa.RecordBatch, odd: set[str]) -> None:
        """Add rows; write them when there are enough."""
        if self._writer is None:
            self._odd |= odd
        self._note(rows)
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self.pending_bytes += rows.nbytes
        if (
            self._pending_rows >= _GROUP_ROWS_MAX
            or self.pending_bytes >= _GROUP_BYTES_MAX
            or self._expected_bytes() >= self._files.target_bytes
        ):
            self.write_pending()

    def is_full(self) -> bool:
        """Whether the file has reached its target size."""
        return not self._pending and bool(self._sink.tell() >= self._files.target_bytes)

    def finish(self) -> NewFile:
        """Close the file and return its metadata."""
        self.write_pending()
        assert self._writer is not None and self._ends is not None and self._sequences is not None
        self._writer.close()
        for bounds in (self._keys, self._values):
            bounds.take_from_footer(self._writer)
        size_bytes = int(self._sink.tell())
        self._sink.close()
        index = StoredIndex()
        if self._index is not None:
            index = self._index.finish(self._name, self._put_beside)
        return NewFile(
            name=self._name,
            size_bytes=size_bytes,
            rows=self._rows,
            least_key=self._ends[0],
            greatest_key=self._ends[1],
            key_bounds=self._keys.bounds(),
            value_bounds=self._values.bounds(),
            bounded_columns=self._values.bounded_columns(),
            min_sequence_number=self._sequences[0],
            max_sequence_number=self._sequences[1],
            schema_id=self._files.schema_id,
            level=self._files.level,
            deleted_rows=self._deleted,
            created_ms=wall_clock_ms(),
            is_compacted=not self._files.is_changelog,
            extra_files=() if index.file_name is None else (index.file_name,),
            embedded_index=index.embedded,
        )

    def discard(self) -> None:
        """Close the file, which is deleted next."""
        for resource in (self._writer, self._sink):
            try:
                if resource is not None:
                    resource.close()
            except Exception:  # the failure that the caller reports may have caused it
                _log.debug("The file %s could not be closed.", self._name, exc_info=True)

    def _expected_bytes(self) -> int:
        """The size of the file with the waiting rows, estimated from the rows already written."""
        written = int(self._sink.tell())
        ratio = written / self._raw_bytes if self._raw_bytes else 1.0
        return written + int(self.pending_bytes * ratio)

    def write_pending(self) -> None:
        """Write the rows that are not written yet."""
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending)
        if self._writer is None:
            self._writer = open_format_writer(self._sink, rows, self._files.rules, self._odd)
        self._writer.write(rows)
        self._parts += 1
        self._raw_bytes += self.pending_bytes
        self._pending, self._pending_rows, self.pending_bytes = [], 0, 0

    def _note(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        if self._files.system == "kinds":
            self._deleted += int(np.count_nonzero(is_retract(np.asarray(rows.column(KIND)))))
        self._sequences = self._sequences_with(rows)
        keys = [rows.column(key) for key in self._files.keys]
        last = encode_row([column[-1] for column in keys])
        first = encode_row([column[0] for column in keys]) if self._ends is None else self._ends[0]
        self._ends = first, last
        for bounds in (self._keys, self._values):
            bounds.add(rows, self._pending, self._parts)
        if self._index is not None:
            self._index.add(rows)

    def _sequences_with(self, rows: pa.RecordBatch) -> tuple[int, int]:
        """The least and greatest sequence number so far; (0, 0), which a commit replaces, where
        the rows have none."""
        if self._files.system == "none":
            return 0, 0
        bounds = pc.min_max(rows.column(SEQUENCE))
        least, greatest = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
        if self._sequences is not None:
            least, greatest = min(least, self._sequences[0]), max(greatest, self._sequences[1])
        return least, greatest


def unsliced(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, copied if they are a small slice, which would keep its whole batch in memory."""
    if rows.get_total_buffer_size() > 2 * rows.nbytes:
        return rows.take(pa.array(np.arange(rows.num_rows)))
    return rows


def wall_clock_ms() -> int:
    """The wall-clock time here as if it were UTC: Paimon stores creation times so."""
    now = datetime.now()
    return calendar.timegm(now.timetuple()) * 1000 + now.microsecond // 1000


# Collects the bounds of a file's columns while the file is written.
#
# The Parquet writer compares all values for its footer. Comparing texts and binaries again would
# take a tenth of a file's time, so their bounds come from the footer, as in Java
# (`ParquetSimpleStatsExtractor`). The footer omits bounds of long values. From the first of these
# on, values are compared here.


class _FileBounds:
    """The bounds of the columns `wanted` of a file whose columns are `schema`. `has_footer` tells
    that the file is Parquet."""

    def __init__(self, schema: pa.Schema, wanted: dict[str, Statistics], has_footer: bool) -> None:
        self._all = len(wanted)
        self._types = {n: schema.field(n).type for n, r in wanted.items() if r != NO_STATISTICS}
        self._collectors = {
            name: BoundsCollector(
                data_type, length=wanted[name].length, wants_values=wanted[name].wants_values
            )
            for name, data_type in self._types.items()
        }
        # The parts of the file for which the footer has a column's bounds; None for all parts.
        self._footer_parts: dict[str, int | None] = {
            name: None
            for name, data_type in self._types.items()
            if has_footer and data_type in (pa.string(), pa.binary())
        }

    def add(self, rows: pa.RecordBatch, waiting: Sequence[pa.RecordBatch], parts: int) -> None:
        """Take rows into account. Before them, `waiting` came after the `parts` of the file that
        are written."""
        for name, collector in self._collectors.items():
            values = rows.column(name)
            if name not in self._footer_parts:
                collector.add(values)
                continue
            if self._footer_parts[name] is None and _has_long_value(values):
                self._footer_parts[name] = parts
                for earlier in waiting:
                    collector.add_ends(earlier.column(name))
            if self._footer_parts[name] is None:
                collector.add_nulls(values)
            else:
                collector.add(values)

    def take_from_footer(self, writer: FormatWriter) -> None:
        """Take the bounds from the footer; call this once the file is written."""
        for name, parts in self._footer_parts.items():
            known = writer.ends(name, parts)
            if known is None:
                self._collectors[name].forget_ends()
                continue
            for ends in known:
                self._collectors[name].add_ends(ends)

    def bounded_columns(self) -> tuple[str, ...] | None:
        """The columns that have bounds; None for all of them."""
        return None if len(self._collectors) == self._all else tuple(self._collectors)

    def bounds(self) -> StoredBounds:
        """The bounds of all values."""
        bounds = [collector.bounds() for collector in self._collectors.values()]
        types: Sequence[pa.DataType] = list(self._types.values())
        return StoredBounds(
            least=encode_values([each.least for each in bounds], types),
            greatest=encode_values([each.greatest for each in bounds], types),
            null_counts=tuple(each.null_count for each in bounds),
        )


def _has_long_value(values: pa.Array) -> bool:
    """Whether some text or binary may be too long for the footer."""
    if not len(values):
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    return bool((offsets[1:] - offsets[:-1]).max() > _FOOTER_VALUE_BYTES_MAX)


# Creates files: on a local disk without pypaimon, elsewhere by its file IO.


@dataclass(frozen=True)
class FileCreation:
    """Creates and deletes files. `file_io` is pypaimon's, for files that are not on a local disk.
    Picklable."""

    file_io: Any = None

    def __repr__(self) -> str:
        return "FileCreation()"  # the file IO may hold credentials

    def open(self, path: str) -> Any:
        """A new file to write, in a folder that need not exist; raises OSError."""
        local = local_path(path)
        if local is None:
            return self.file_io.new_output_stream(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return pa.OSFile(local, "wb")

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        local = local_path(path)
        if local is None:
            self.file_io.delete_quietly(path)
        elif os.path.exists(local):
            os.remove(local)


# How the data files of a primary-key table are written on each level, by the table's options.


def level_files(table: Table, level: int) -> KeyValueFiles:
    """How data files of a level are written. Raises InvalidTableError for an option's value that
    can't be read."""
    schema = table.schema
    columns = [
        field.with_metadata({_FIELD_ID: str(column.id).encode()})
        for field, column in zip(arrow_schema(schema), schema.columns, strict=True)
    ]
    is_local = local_path(table.location) is not None
    return KeyValueFiles(
        creation=FileCreation(None if is_local else table.paimon.file_io),
        schema=pa.schema(columns).serialize().to_pybytes(),
        keys=schema.trimmed_primary_keys,
        floats=floating_columns(schema.columns),
        rules=data_file_rules(schema, level),
        target_bytes=target_bytes(schema),
        schema_id=int(table.paimon.table_schema.id),
        level=level,
        indexes=file_indexes_of(schema),
    )


def changelog_files(table: Table, level: int) -> KeyValueFiles:
    """How changelog files beside data files of a level are written. Raises as `level_files`."""
    rules = changelog_file_rules(table.schema, level)
    return replace(level_files(table, level), rules=rules, is_changelog=True)


def target_bytes(schema: TableSchema) -> int:
    """The size at which a file of a primary-key table is finished: `target-file-size`."""
    text = schema.option("target-file-size")
    return _TARGET_BYTES if text is None else memory_size_bytes("target-file-size", text)
