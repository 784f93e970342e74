"""A data file as batches of the columns that are wanted, whatever schema and format it has.

Light to import: Spark's tasks load it. Files of a local disk are opened without pypaimon, whose
import takes a second; others by Paimon's own file IO, which is pickled into the task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.deletion_vectors import deleted_rows
from paimon_magics.columnar.fields import Field, evolved
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import TableDamagedError, UnsupportedStatementError
from paimon_magics.planning.splits import Deletions, StoredFile
from paimon_magics.planning.views import ROW_ID
from paimon_magics.tables.locations import local_path

__all__ = ["FileAccess", "FileReader"]

_LENGTHS_AND_CHECKSUM_BYTES = 8
_SYSTEM = {SEQUENCE: pa.int64(), KIND: pa.int8()}
_ROW_IDS = (ROW_ID, SEQUENCE)


@dataclass(frozen=True)
class FileAccess:
    """Opens files. `file_io` is pypaimon's, for files that are not on a local disk."""

    file_io: Any = None

    def open(self, path: str) -> Any:
        """A file to read from any place; raises OSError."""
        local = local_path(path)
        return pa.OSFile(local) if local is not None else self.file_io.new_input_stream(path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end; raises OSError."""
        with contextlib.closing(self.open(path)) as stream:
            stream.seek(offset)
            return bytes(stream.read(length))


@dataclass(frozen=True)
class FileReader:
    """Reads the columns `wanted`, as the table's schema has them, out of files.

    `schemas` are the fields of every schema that files have. `with_system` adds SEQUENCE and KIND
    of key-value files, `with_row_ids` ROW_ID and SEQUENCE of tables with row tracking. Batches have
    at most `batch_rows` rows.
    """

    access: FileAccess
    schemas: Mapping[int, tuple[Field, ...]]
    wanted: tuple[Field, ...]
    with_system: bool
    batch_rows: int
    with_row_ids: bool = False

    def holds(self, file: StoredFile, wanted: Field) -> bool:
        """Whether a file has a column, by the column's id."""
        stored = {one.id: one.name for one in self.schemas[file.schema_id]}
        written = file.write_columns
        return wanted.id in stored and (written is None or stored[wanted.id] in written)

    def batches(self, file: StoredFile) -> Iterator[pa.RecordBatch]:
        """The file's rows without deleted ones, in their order, as batches that are not empty.

        Raises TableDamagedError for a file that is gone or damaged.
        """
        deleted = self._deleted(file.deletions) if file.deletions else None
        start = 0
        for batch in self._evolved(file):
            stop = start + batch.num_rows
            if self.with_row_ids:
                batch = _numbered(batch, file, start)
            if deleted is not None:
                low, high = np.searchsorted(deleted, (start, stop))
                if high > low:
                    kept = np.ones(batch.num_rows, dtype=bool)
                    kept[deleted[low:high] - start] = False
                    batch = batch.filter(pa.array(kept))
            start = stop
            if batch.num_rows:
                yield batch
        if start != file.rows:
            raise TableDamagedError(
                f"The data file {file.path} has {start} rows, and the table's metadata says "
                f"{file.rows}.",
                hint="Restore the file, or go back to a snapshot that does not use it.",
            )

    def _deleted(self, deletions: Deletions) -> np.ndarray[Any, np.dtype[np.int64]]:
        length = deletions.length + _LENGTHS_AND_CHECKSUM_BYTES
        try:
            body = self.access.read(deletions.path, deletions.offset, length)
            return deleted_rows(body, deletions.length)
        except (OSError, ValueError) as error:
            raise TableDamagedError(
                f"The deletion vector in {deletions.path} can't be read: {error}.",
                hint="Restore the file, or go back to a snapshot that does not use it.",
            ) from error

    def _evolved(self, file: StoredFile) -> Iterator[pa.RecordBatch]:
        stored = {one.id: one for one in self.schemas[file.schema_id]}
        if file.write_columns is not None:
            written = set(file.write_columns)
            stored = {number: one for number, one in stored.items() if one.name in written}
        found = [stored.get(one.id) for one in self.wanted]
        system = dict(_SYSTEM) if self.with_system else {}
        columns = [one.name for one in found if one is not None] + list(system)
        if self.with_row_ids:
            columns += _ROW_IDS  # stored in files whose rows were moved from others
        schema = pa.schema(
            [pa.field(one.name, one.type) for one in self.wanted] + list(system.items())
        )
        for batch in self._stored(file, columns, [one for one in found if one is not None]):
            arrays = [
                evolved(
                    None if source is None else batch.column(source.name),
                    source,
                    one,
                    batch.num_rows,
                )
                for source, one in zip(found, self.wanted, strict=True)
            ]
            arrays += [batch.column(name).cast(kind) for name, kind in system.items()]
            evolved_batch = _batch(arrays, schema, batch.num_rows)
            for name in _ROW_IDS if self.with_row_ids else ():
                if name in batch.schema.names:
                    evolved_batch = evolved_batch.append_column(name, batch.column(name))
            yield evolved_batch

    def _stored(
        self, file: StoredFile, columns: Sequence[str], fields: Sequence[Field]
    ) -> Iterator[pa.RecordBatch]:
        if not columns:  # nothing of it is stored: the number of rows is known
            for start in range(0, file.rows, self.batch_rows):
                yield _without_columns(min(self.batch_rows, file.rows - start))
            return
        read = _FORMATS.get(file.format)
        if read is None:
            raise UnsupportedStatementError(
                f"The data file {file.path} has the format '{file.format}', which is not offered.",
                hint=f"These are: {', '.join(_FORMATS)}.",
            )
        try:
            with contextlib.closing(self.access.open(file.path)) as source:
                yield from read(source, columns, fields, self.batch_rows)
        except (OSError, ValueError, KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise TableDamagedError(
                f"The data file {file.path} can't be read: {e}.",
                hint="Restore the file, or go back to a snapshot that does not use it.",
            ) from e


def _numbered(batch: pa.RecordBatch, file: StoredFile, start: int) -> pa.RecordBatch:
    """With the rows' ids and sequence numbers: the stored ones, else those of their places."""
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


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not arrays:
        return _without_columns(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, type=pa.struct([])))


def _parquet(
    source: Any, columns: Sequence[str], fields: Sequence[Field], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as parquet:
        stored = set(parquet.schema_arrow.names)
        columns = [name for name in columns if name in stored or name not in _ROW_IDS]
        yield from parquet.iter_batches(batch_size=batch_rows, columns=columns)


def _orc(
    source: Any, columns: Sequence[str], fields: Sequence[Field], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(source)
    stored = set(file.schema.names)
    columns = [name for name in columns if name in stored or name not in _ROW_IDS]
    for stripe in range(file.nstripes):
        batch = file.read_stripe(stripe, columns=columns)
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def _avro(
    source: Any, columns: Sequence[str], fields: Sequence[Field], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    import fastavro

    types = {one.name: one.type for one in fields} | _SYSTEM
    pending: list[Any] = []
    for record in fastavro.reader(source):
        pending.append(record)
        if len(pending) >= batch_rows:
            yield _columns_of(pending, columns, types)
            pending = []
    if pending:
        yield _columns_of(pending, columns, types)


def _columns_of(
    records: Sequence[Mapping[str, Any]], columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> pa.RecordBatch:
    arrays = [
        pa.array([_arrow_value(record[name], types[name]) for record in records], type=types[name])
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _arrow_value(value: Any, data_type: pa.DataType) -> Any:
    """An Avro value as Arrow takes it: maps with other keys than texts are arrays of records."""
    if value is None:
        return None
    if pa.types.is_map(data_type):
        pairs = (
            value.items()
            if isinstance(value, dict)
            else ((entry["key"], entry["value"]) for entry in value)
        )
        return [
            (_arrow_value(k, data_type.key_type), _arrow_value(v, data_type.item_type))
            for k, v in pairs
        ]
    if pa.types.is_list(data_type):
        return [_arrow_value(item, data_type.value_type) for item in value]
    if pa.types.is_struct(data_type):
        return {f.name: _arrow_value(value[f.name], f.type) for f in data_type}
    return value


_FORMATS = {"parquet": _parquet, "orc": _orc, "avro": _avro}
