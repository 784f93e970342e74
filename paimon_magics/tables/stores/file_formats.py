"""Reads columns of Parquet, ORC and Avro files as Arrow batches.

Each batch comes with the number of its first row in the file. Row groups of Parquet are skipped
where statistics show that no row of theirs meets the conditions; then an empty batch at the end
gives the file's row count. Memory is bounded by the batch: Parquet is read through a buffer instead
of whole column chunks. Errors of damaged files pass to the caller unchanged. Light to import,
because Spark's tasks load it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.file_footers import (
    LENGTH_AND_MAGIC_BYTES,
    file_of_footer,
    map_field,
    orc_times,
    with_listed_maps,
    with_maps,
)
from paimon_magics.columnar.orc_zones import has_times, has_wall_clocks, in_zone, is_utc
from paimon_magics.columnar.time_zones import UTC
from paimon_magics.columnar.value_bounds import may_match
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate

_PARQUET_BUFFER_BYTES = 1024 * 1024
_NULLABLE_KEYS = "Map keys must be annotated as required"  # Arrow's words
_NANOSECONDS_MS = 2**63 // 1_000_000  # the milliseconds that fit into 64 bits of nanoseconds


@dataclass(frozen=True)
class StoredColumns:
    """The columns to read, by their names in the file, and their types. The `optional` columns are
    left out where the file lacks them. `legacy_zone`: see `orc_legacy_zone`. Rows that don't
    meet the `conditions` may be left out. `in_threads`: see FileReader."""

    names: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    optional: tuple[str, ...] = ()
    legacy_zone: str | None = UTC
    conditions: tuple[StoredCondition, ...] = ()
    in_threads: bool = False

    def of(self, stored: Sequence[str]) -> list[str]:
        """The names to read from a file with the columns `stored`."""
        return [name for name in self.names if name in stored or name not in self.optional]


_Placed = tuple[int, pa.RecordBatch]  # a batch, and the number of its first row in the file
Reader = Callable[[Any, StoredColumns, int], Iterator[_Placed]]


def parquet_file(source: Any) -> Any:
    """pyarrow's reader of a Parquet file, which does not read ahead."""
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source, buffer_size=_PARQUET_BUFFER_BYTES)
    except pa.ArrowInvalid as error:
        if _NULLABLE_KEYS not in str(error):
            raise
    return _ParquetWithListedMaps(source)


class _ParquetWithListedMaps:
    """A Parquet file of Paimon 0.8 or before with maps, as pyarrow's reader of other files."""

    def __init__(self, source: Any) -> None:
        import pyarrow.parquet as pq

        source.seek(-LENGTH_AND_MAGIC_BYTES, io.SEEK_END)
        footer_bytes = int.from_bytes(source.read(4), "little")
        source.seek(-LENGTH_AND_MAGIC_BYTES - footer_bytes, io.SEEK_END)
        footer = with_listed_maps(bytes(source.read(footer_bytes)))
        self.metadata = pq.read_metadata(io.BytesIO(file_of_footer(footer)))
        self._file = pq.ParquetFile(
            source, metadata=self.metadata, buffer_size=_PARQUET_BUFFER_BYTES
        )
        self.schema_arrow = pa.schema([map_field(field) for field in self._file.schema_arrow])

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """As ParquetFile does it."""
        return map(with_maps, self._file.iter_batches(*args, **options))

    def __enter__(self) -> _ParquetWithListedMaps:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _parquet(source: Any, columns: StoredColumns, batch_rows: int) -> Iterator[_Placed]:
    with parquet_file(source) as parquet:
        names = columns.of(parquet.schema_arrow.names)
        read = partial(parquet.iter_batches, columns=names, use_threads=columns.in_threads)
        if not columns.conditions:
            yield from _placed(read(batch_rows))
            return
        for groups in useful_row_groups(parquet.metadata, columns.conditions):
            batches = read(batch_rows, row_groups=list(groups.numbers))
            yield from _placed(batches, groups.first_row)
        schema = pa.schema([parquet.schema_arrow.field(name) for name in names])
        nothing = [pa.array([], field.type) for field in schema]
        yield parquet.metadata.num_rows, pa.RecordBatch.from_arrays(nothing, schema=schema)


def column_names(name: str, source: Any) -> Sequence[str] | None:
    """The columns of a Parquet or ORC file, as its footer names them; None for other formats. The
    extension of the `name` says which format it has."""
    match name.rpartition(".")[2]:
        case "parquet":
            return list(parquet_file(source).schema_arrow.names)
        case "orc":
            from pyarrow import orc

            return list(orc.ORCFile(source).schema.names)
        case _:
            return None


def _placed(batches: Iterable[pa.RecordBatch], place: int = 0) -> Iterator[_Placed]:
    for batch in batches:
        yield place, batch
        place += batch.num_rows


def _orc(source: Any, columns: StoredColumns, batch_rows: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(source)
    names = columns.of(file.schema.names)
    if not names:  # a stripe read without columns has no rows
        for start in range(0, file.nrows, batch_rows):
            yield without_columns(min(batch_rows, file.nrows - start))
        return
    with_times = [name for name in names if has_times(file.schema.field(name).type)]
    zones = _zones(source, names=with_times)
    types = file.schema.types
    if columns.legacy_zone and not any(map(has_wall_clocks, types)):
        zones = [columns.legacy_zone] * len(zones)  # the file does not record its writer's
    for stripe in range(file.nstripes):
        batch = file.read_stripe(stripe, columns=names)
        if with_times and not is_utc(zones[stripe]):
            batch = _in_zone(batch, zones[stripe], columns.legacy_zone is not None)
        for start in range(0, batch.num_rows, batch_rows):
            yield batch.slice(start, batch_rows)


def without_columns(rows: int) -> pa.RecordBatch:
    """So many rows without any column."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, type=pa.struct([])))


def batch_of(
    arrays: Sequence[pa.Array], names: Sequence[str] | pa.Schema, rows: int
) -> pa.RecordBatch:
    """A batch of columns, of which there may be none."""
    if not arrays:
        return without_columns(rows)
    if isinstance(names, pa.Schema):
        return pa.RecordBatch.from_arrays(list(arrays), schema=names)
    return pa.RecordBatch.from_arrays(list(arrays), names=list(names))


def _zones(source: Any, names: Sequence[str]) -> Sequence[str]:
    """The time zone of each stripe. Raises UnsupportedStatementError for times that don't fit into
    64 bits of nanoseconds."""
    if not names:
        return ()

    def read(offset: int, length: int) -> bytes:
        source.seek(offset)
        return bytes(source.read(length))

    source.seek(0, 2)
    times = orc_times(read, source.tell())
    for end in (times.least_ms, times.greatest_ms):
        if end is not None and not -_NANOSECONDS_MS < end < _NANOSECONDS_MS:
            raise UnsupportedStatementError(
                f"An ORC file has times in {' or '.join(f'`{name}`' for name in names)} that are "
                "before 1677 or after 2262, which the ORC reader can't represent.",
                hint="Leave the column out, or rewrite the table as Parquet.",
            )
    return times.zones


def _in_zone(batch: pa.RecordBatch, zone: str, legacy_instants: bool) -> pa.RecordBatch:
    arrays = [in_zone(column, zone, legacy_instants=legacy_instants) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _avro(source: Any, columns: StoredColumns, batch_rows: int) -> Iterator[pa.RecordBatch]:
    import fastavro

    pending: list[Any] = []
    for record in fastavro.reader(source):
        pending.append(record)
        if len(pending) >= batch_rows:
            yield _columns_of(pending, columns)
            pending = []
    if pending:
        yield _columns_of(pending, columns)


def _columns_of(records: Sequence[Mapping[str, Any]], columns: StoredColumns) -> pa.RecordBatch:
    names = columns.of(list(records[0]))
    arrays = [
        pa.array(
            [_arrow_value(record[name], columns.types[name]) for record in records],
            type=columns.types[name],
        )
        for name in names
    ]
    return batch_of(arrays, names, len(records))


def _arrow_value(value: Any, data_type: pa.DataType) -> Any:
    """An Avro value as Arrow takes it. Avro stores maps whose keys are no texts as arrays of
    records."""
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


def _counted(read: Callable[[Any, StoredColumns, int], Iterator[pa.RecordBatch]]) -> Reader:
    return lambda source, columns, batch_rows: _placed(read(source, columns, batch_rows))


FORMATS: Mapping[str, Reader] = {
    "parquet": _parquet,
    "orc": _counted(_orc),
    "avro": _counted(_avro),
}
"""The reader of each format, by the extension of a file's name."""


# Which row groups of a Parquet file can hold rows that meet conditions, by their statistics.
#
# A group without statistics is kept. Light to import, because Spark's tasks load it.


@dataclass(frozen=True)
class StoredCondition:
    """A condition on the column `name` of a file; its values have the type `type`."""

    name: str
    type: pa.DataType
    predicate: ColumnPredicate


@dataclass(frozen=True)
class RowGroups:
    """Adjacent row groups. `first_row` is the number of their first row in the file, `rows` the
    number of their rows."""

    numbers: tuple[int, ...]
    first_row: int
    rows: int


def useful_row_groups(metadata: Any, conditions: Sequence[StoredCondition]) -> list[RowGroups]:
    """The row groups that can hold rows that meet all conditions; adjacent groups are joined.

    `metadata` is pyarrow's metadata of the file.
    """
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    is_useful = np.ones(len(rows), dtype=bool)
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for condition in conditions:
        place = places.get(condition.name)
        if place is not None and is_useful.any():
            columns = [metadata.row_group(i).column(place) for i in range(len(rows))]
            is_useful &= _matching(condition, columns, rows)
    groups: list[RowGroups] = []
    first = 0
    for number, count in enumerate(rows):
        if is_useful[number]:
            last = groups[-1] if groups else None
            if last is not None and last.first_row + last.rows == first:
                groups[-1] = RowGroups((*last.numbers, number), last.first_row, last.rows + count)
            else:
                groups.append(RowGroups((number,), first, count))
        first += count
    return groups


def _matching(
    condition: StoredCondition, chunks: Sequence[Any], rows: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    least: list[Any] = []
    greatest: list[Any] = []
    nulls = np.ones(len(chunks), dtype=bool)
    all_null = np.zeros(len(chunks), dtype=bool)
    for i, chunk in enumerate(chunks):
        known = chunk.statistics if chunk.is_stats_set else None
        low, high = _bounds(known, condition.type) if known is not None else (None, None)
        least.append(low)
        greatest.append(high)
        if known is not None and known.has_null_count:
            nulls[i] = known.null_count > 0
            all_null[i] = known.null_count >= rows[i]
    try:
        bounds = pa.array(least, condition.type), pa.array(greatest, condition.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        return np.ones(len(chunks), dtype=bool)  # bounds of another type than the column's
    return may_match(condition.predicate, *bounds, nulls, all_null)


def _bounds(known: Any, data_type: pa.DataType) -> tuple[Any, Any]:
    """The least and greatest value in the statistics; None if they have none."""
    if not known.has_min_max:
        return None, None
    if pa.types.is_decimal(data_type) and known.physical_type in ("INT32", "INT64"):
        # Java stores short decimals as integers, and pyarrow has no bounds but these integers.
        scale = data_type.scale
        return Decimal(known.min_raw).scaleb(-scale), Decimal(known.max_raw).scaleb(-scale)
    try:
        return known.min, known.max
    except (pa.ArrowNotImplementedError, OverflowError):  # such as days beyond Python's years
        return None, None
