"""Reads a data file as batches of the wanted columns, whatever its schema and format.

Light to import, because Spark's tasks load it. Files on a local disk are opened without pypaimon,
whose import takes a second; others by pypaimon's file IO, which is pickled into the task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.casts import UnreadableValueError
from paimon_magics.columnar.deletion_vectors import deleted_rows
from paimon_magics.columnar.fields import Field, evolved
from paimon_magics.columnar.merging import KIND, PLACE, SEQUENCE
from paimon_magics.columnar.time_zones import UTC
from paimon_magics.columnar.value_bounds import matching
from paimon_magics.errors import TableDamagedError, UnsupportedStatementError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import Deletions, StoredFile
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.tables.stores.corruption import RESTORE, damaged
from paimon_magics.tables.stores.file_formats import (
    FORMATS,
    StoredColumns,
    StoredCondition,
    batch_of,
    without_columns,
)
from paimon_magics.tables.stores.paths import local_path

_LENGTHS_AND_CHECKSUM_BYTES = 8
_SYSTEM = {SEQUENCE: pa.int64(), KIND: pa.int8(), ROW_ID: pa.int64()}
_ROW_IDS = (ROW_ID, SEQUENCE)


_PARTS = ("value", "metadata")


@dataclass(frozen=True)
class FileAccess:
    """Opens files. `file_io` is pypaimon's, for files that are not on a local disk."""

    file_io: Any = None

    def open(self, path: str) -> Any:
        """Open a file for random reads; raises OSError."""
        local = local_path(path)
        return pa.OSFile(local) if local is not None else self.file_io.new_input_stream(path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read `length` bytes of a file, fewer at its end; raises OSError."""
        with contextlib.closing(self.open(path)) as stream:
            stream.seek(offset)
            return bytes(stream.read(length))


@dataclass(frozen=True)
class FileColumns:
    """The columns to read from one file. `stored` has the stored field for each wanted field, None
    if the file lacks it; `names` are all columns to read, system columns among them.
    `sequence_number` is that of all rows, None if the stored ones count."""

    names: tuple[str, ...]
    stored: tuple[Field | None, ...]
    sequence_number: int | None = None


@dataclass(frozen=True)
class FileReader:
    """Reads the columns `wanted` from files, with the types of the table's schema.

    `schemas` are the fields of each schema id that files have. `system` are the columns among
    SEQUENCE and KIND to read from key-value files. `with_row_ids` adds ROW_ID and SEQUENCE of
    tables with row tracking. `first_place` adds PLACE: the rows' numbers in their file, plus
    `first_place`. Batches have at most `batch_rows` rows. `legacy_zone`: see `orc_legacy_zone`.
    Rows that don't meet the `conditions` may be left out. With `leaves_out`, all rows that don't
    meet a condition on a wanted column are left out. Arrow's threads decode the columns of Parquet
    files `in_threads`; tasks have one core and don't use them. `table` is the table's name in SQL,
    for errors.
    """

    access: FileAccess
    schemas: Mapping[int, tuple[Field, ...]]
    wanted: tuple[Field, ...]
    system: tuple[str, ...]
    batch_rows: int
    table: str
    with_row_ids: bool = False
    first_place: int | None = None
    legacy_zone: str | None = UTC
    conditions: tuple[tuple[Field, ColumnPredicate], ...] = ()
    leaves_out: bool = False
    in_threads: bool = False

    def holds(self, file: StoredFile, wanted: Field) -> bool:
        """Whether a file has a column, by the column's id."""
        return wanted.id in self._fields(file)

    def _fields(self, file: StoredFile) -> dict[int, Field]:
        """The fields that a file has, by id."""
        written = file.write_columns
        return {
            field.id: field
            for field in self.schemas[file.schema_id]
            if written is None or field.name in written
        }

    def batches(self, file: StoredFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file without deleted ones, in file order. No batch is empty.

        Raises TableDamagedError for a file that is missing or damaged.
        """
        deleted = self._deleted(file.deletions) if file.deletions else None
        start = 0
        for start, batch in self._evolved(file):
            stop = start + batch.num_rows
            if self.with_row_ids:
                batch = _numbered(batch, file, start)
            if self.first_place is not None:
                places = self.first_place + np.arange(start, stop, dtype=np.int64)
                batch = batch.append_column(PLACE, pa.array(places))
            if deleted is not None:
                low, high = np.searchsorted(deleted, (start, stop))
                if high > low:
                    alive = np.ones(batch.num_rows, dtype=bool)
                    alive[deleted[low:high] - start] = False
                    batch = batch.filter(pa.array(alive))
            start = stop
            if self.leaves_out and batch.num_rows:
                batch = self._meeting(batch)
            if batch.num_rows:
                yield batch
        if start != file.rows:
            raise TableDamagedError(
                f"The data file {file.path} has {count_text(start, 'row')}, but the table's "
                f"metadata says {file.rows:,}.",
                hint=RESTORE,
            )

    def _meeting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that meet the conditions on wanted columns."""
        meets = np.ones(batch.num_rows, dtype=bool)
        for wanted, predicate in self.conditions:
            if wanted in self.wanted:
                meets &= matching(predicate, batch.column(wanted.name))
        return batch if meets.all() else batch.filter(pa.array(meets))

    def _deleted(self, deletions: Deletions) -> np.ndarray[Any, np.dtype[np.int64]]:
        length = deletions.length + _LENGTHS_AND_CHECKSUM_BYTES
        try:
            body = self.access.read(deletions.path, deletions.offset, length)
            return deleted_rows(body)
        except (OSError, ValueError) as error:
            raise damaged(f"The deletion vector in {deletions.path}", error) from error

    def mapping(self, file: StoredFile) -> FileColumns:
        """The columns to read from a file."""
        stored = self._fields(file)
        fields = tuple(stored.get(field.id) for field in self.wanted)
        constant = () if file.sequence_number is None else (SEQUENCE,)
        names = [field.name for field in fields if field is not None]
        names += [name for name in self.system if name not in constant]
        if self.with_row_ids:
            names += _ROW_IDS  # stored in files whose rows were moved from others
        return FileColumns(tuple(names), fields, file.sequence_number)

    def evolved(self, batch: pa.RecordBatch, columns: FileColumns) -> pa.RecordBatch:
        """Cast stored rows to the wanted columns; columns that the file lacks are NULL."""
        arrays = []
        for source, field in zip(columns.stored, self.wanted, strict=True):
            array = None
            if source is not None:
                array = whole_variants(batch.column(source.name), source)
            arrays.append(evolved(array, source, field, batch.num_rows))
        fields = [pa.field(field.name, field.type) for field in self.wanted]
        for name in self.system:
            if name == SEQUENCE and columns.sequence_number is not None:
                number = pa.scalar(columns.sequence_number, _SYSTEM[name])
                arrays.append(pa.repeat(number, batch.num_rows))
            else:
                arrays.append(batch.column(name).cast(_SYSTEM[name]))
            fields.append(pa.field(name, _SYSTEM[name]))
        for name in _ROW_IDS if self.with_row_ids else ():
            if name in batch.schema.names:
                arrays.append(batch.column(name))
                fields.append(batch.schema.field(name))
        return batch_of(arrays, pa.schema(fields), batch.num_rows)

    @contextlib.contextmanager
    def telling(self, file: StoredFile) -> Iterator[None]:
        """Raise failures of the body as TableDamagedError that names the file. For a value that
        can't be read as its column's type, add the file to the error."""
        try:
            yield
        except UnreadableValueError as error:
            raise error.of_file(file.path, self.table) from error
        except (OSError, ValueError, KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise damaged(f"The data file {file.path}", e) from e

    def _evolved(self, file: StoredFile) -> Iterator[tuple[int, pa.RecordBatch]]:
        columns = self.mapping(file)
        for place, batch in self._stored(file, columns):
            try:
                rows = self.evolved(batch, columns)
            except UnreadableValueError as error:
                raise error.of_file(file.path, self.table) from error
            yield place, rows

    def _stored(
        self, file: StoredFile, columns: FileColumns
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not columns.names:  # the file has none of the columns, but its row count is known
            for start in range(0, file.rows, self.batch_rows):
                yield start, without_columns(min(self.batch_rows, file.rows - start))
            return
        read = FORMATS.get(file.format)
        if read is None:
            raise UnsupportedStatementError(
                f"The data file {file.path} has the format '{file.format}', which is not offered.",
                hint=f"The formats offered are {', '.join(FORMATS)}.",
            )
        types = {field.name: field.type for field in columns.stored if field is not None} | _SYSTEM
        optional = _ROW_IDS if self.with_row_ids else ()
        conditions = tuple(self._conditions(file))
        stored = StoredColumns(
            columns.names, types, optional, self.legacy_zone, conditions, self.in_threads
        )
        with self.telling(file), contextlib.closing(self.access.open(file.path)) as source:
            yield from read(source, stored, self.batch_rows)

    def _conditions(self, file: StoredFile) -> Iterator[StoredCondition]:
        """The conditions on columns that the file stores with the current type."""
        stored = self._fields(file) if self.conditions else {}
        for wanted, predicate in self.conditions:
            field = stored.get(wanted.id)
            if field is not None and field.type == wanted.type:
                yield StoredCondition(field.name, field.type, predicate)


def _numbered(batch: pa.RecordBatch, file: StoredFile, start: int) -> pa.RecordBatch:
    """Add row ids and sequence numbers: the stored ones, else the first row id plus the row's
    position, and the file's sequence number."""
    first = (file.first_row_id or 0) + start
    computed = {
        ROW_ID: pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64)),
        SEQUENCE: pa.array(np.full(batch.num_rows, file.max_sequence_number, dtype=np.int64)),
    }
    for name, values in computed.items():
        place = batch.schema.get_field_index(name)
        if place < 0:
            batch = batch.append_column(name, values)
        else:
            batch = batch.set_column(place, name, pc.coalesce(batch.column(place), values))
    return batch


# Reassembles shredded VARIANT columns of Parquet files.
#
# A shredded VARIANT has parts of its values in a column `typed_value` beside `metadata` and
# `value`. pypaimon joins them value by value. It is imported only then, because that takes a
# second.


def _holds(field: Field) -> bool:
    """Whether a column is a VARIANT or has one nested inside."""
    if field.atomic is not None:
        return field.atomic.name == "VARIANT"
    return any(_holds(part) for part in field.parts)


def whole_variants(array: pa.Array, stored: Field) -> pa.Array:
    """The column with every VARIANT in it as a struct of `value` and `metadata`. `stored` is its
    field in the file.

    Raises ValueError for values that are no VARIANT.
    """
    if not _holds(stored):
        return array
    if stored.atomic is not None:
        return _whole(array)
    if pa.types.is_struct(array.type):
        children = [
            whole_variants(child, part)
            for child, part in zip(_children(array), stored.parts, strict=True)
        ]
        fields = [
            field.with_type(child.type) for field, child in zip(array.type, children, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_mask(array))
    validity, offsets = array.buffers()[:2]
    if pa.types.is_map(array.type):
        items = whole_variants(array.items, stored.parts[1])
        key, item = array.type.key_field, array.type.item_field.with_type(items.type)
        inside = pa.StructArray.from_arrays([array.keys, items], fields=[key, item])
        data_type: pa.DataType = pa.map_(key, item)
    else:
        inside = whole_variants(array.values, stored.parts[0])
        data_type = pa.list_(array.type.value_field.with_type(inside.type))
    return pa.Array.from_buffers(
        data_type, len(array), [validity, offsets], array.null_count, array.offset, [inside]
    )


def _whole(array: pa.Array) -> pa.Array:
    names = [field.name for field in array.type]
    if "typed_value" in names:
        from pypaimon.data.variant_shredding import assemble_shredded_column, build_variant_schema

        return assemble_shredded_column(array, build_variant_schema(array.type))
    if names == [*_PARTS]:
        return array
    children = dict(zip(names, _children(array), strict=True))
    fields = [pa.field(name, pa.binary(), nullable=False) for name in _PARTS]
    return pa.StructArray.from_arrays(
        [children[name] for name in _PARTS], fields=fields, mask=_mask(array)
    )


def _children(array: pa.StructArray) -> list[pa.Array]:
    return [array.field(index) for index in range(array.type.num_fields)]


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
