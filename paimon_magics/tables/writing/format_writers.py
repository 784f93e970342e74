"""Writes Arrow tables into one open file: Parquet, ORC and Avro as Paimon's Java library reads
them.

Light to import, because Spark's tasks load it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.fields import whole_structs
from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from paimon_magics.planning.writes.file_rules import FileRules

_PARQUET_CODECS = {"none": "none", "uncompressed": "none", "null": "none"}
_ORC_CODECS = {"none": "uncompressed", "null": "uncompressed"}
_AVRO_CODECS = {"none": "null", "uncompressed": "null", "zstd": "zstandard"}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_MAX = 2**63 // 10**9  # what fits into 64 bits of nanoseconds
_LEVELLED = ("zstd", "zstandard")


DICTIONARY_OPTION = "parquet.enable.dictionary"

_ROWS_MIN = 8_192
_ROWS_MAX = 16_384
_REPEATED_SHARE = 4  # how often a value occurs on average, at least


class FormatWriter(ABC):
    """Writes the rows of one file."""

    _writer: Any

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Write rows; in Parquet they become row groups, in ORC at least a stripe's part."""

    def close(self) -> None:
        """Write what the format needs at the end. The file itself stays open."""
        self._writer.close()

    def ends(self, column: str, parts: int | None) -> list[pa.Array] | None:
        """After `close`: the least and the greatest value of a column of texts or binaries in each
        part, as far as it has values, of the first `parts` calls of `write`, or of all of them.
        None if not known."""
        return None


def open_format_writer(
    sink: Any, rows: pa.Table, rules: FileRules, odd_floats: Collection[str]
) -> FormatWriter:
    """A writer into `sink` for rows like `rows`, which are the first ones.

    `odd_floats` are columns with NaN or -0.0: the file gets no bounds of them. Raises
    UnsupportedStatementError for a format that is not offered.
    """
    make = FORMAT_WRITERS.get(rules.format)
    if make is None:
        raise UnsupportedStatementError(
            f"Writing files in the format '{rules.format}' is not supported.",
            hint=f"The formats offered are {', '.join(FORMAT_WRITERS)}: set 'file.format'.",
        )
    return make(sink, rows, rules, odd_floats)


class _Parquet(FormatWriter):
    def __init__(
        self, sink: Any, rows: pa.Table, rules: FileRules, odd_floats: Collection[str]
    ) -> None:
        import pyarrow.parquet as pq

        codec = _PARQUET_CODECS.get(rules.compression.lower(), rules.compression.lower())
        self._row_group_rows = rules.row_group_rows
        self._schema = rows.schema
        self._footers: list[Any] = []
        self._row_groups: list[int] = []
        schema = rows.schema
        dictionaries: list[str] | bool | None = rules.dictionaries
        if dictionaries is None:
            dictionaries = _repeating_columns(rows)
        if dictionaries is True and odd_floats:
            dictionaries = [path for field in schema for path in _leaves(field)]
        if isinstance(dictionaries, list):
            # Java looks for a value in a dictionary, and there takes -0.0 for less than 0.0.
            dictionaries = [path for path in dictionaries if path.split(".")[0] not in odd_floats]
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression=codec,
            compression_level=rules.zstd_level if codec in _LEVELLED else None,
            use_dictionary=dictionaries,
            write_statistics=[
                path for field in schema if field.name not in odd_floats for path in _leaves(field)
            ]
            if odd_floats
            else True,
            write_page_index=True,
            store_schema=False,
            metadata_collector=self._footers,
            store_decimal_as_integer=True,  # up to 18 digits, as Java: smaller, and faster to read
        )

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(with_required_parts(rows), row_group_size=self._row_group_rows)
        self._row_groups.append(-(-rows.num_rows // self._row_group_rows))

    def ends(self, column: str, parts: int | None) -> list[pa.Array] | None:
        (footer,) = self._footers
        place = self._schema.get_field_index(column)
        data_type = self._schema.field(place).type
        leaf = sum(1 for field in list(self._schema)[:place] for _ in _leaves(field))
        ends = []
        for group in range(sum(self._row_groups[:parts])):
            chunk = footer.row_group(group).column(leaf)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_null_count:
                return None
            if statistics.null_count == footer.row_group(group).num_rows:
                continue
            if not statistics.has_min_max:
                return None
            ends.append(pa.array([statistics.min, statistics.max], data_type))
        return ends


def _leaves(field: pa.Field, prefix: str = "") -> Iterator[str]:
    """The paths of a column's values in a Parquet file."""
    path = f"{prefix}{field.name}"
    if pa.types.is_struct(field.type):
        for part in field.type:
            yield from _leaves(part, f"{path}.")
    elif pa.types.is_map(field.type):
        yield from _leaves(field.type.key_field.with_name("key"), f"{path}.key_value.")
        yield from _leaves(field.type.item_field.with_name("value"), f"{path}.key_value.")
    elif pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field.with_name("element"), f"{path}.list.")
    else:
        yield path


class _Orc(FormatWriter):
    def __init__(self, sink: Any, rows: pa.Table, rules: FileRules, _: Collection[str]) -> None:
        from pyarrow import orc

        codec = rules.compression.lower()
        self._writer = orc.ORCWriter(sink, compression=_ORC_CODECS.get(codec, codec))

    def write(self, rows: pa.Table) -> None:
        check_orc_times(rows)
        self._writer.write(whole_structs(_without_times_of_day(rows)))


def check_orc_times(rows: pa.Table | pa.RecordBatch) -> None:
    """Raise InvalidValueError for a timestamp that nobody can read from an ORC file any more.

    Java's reader or the native one fails where the writer rounds seconds in the other direction;
    the native one counts nanoseconds, which end in 1677 and 2262.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not pa.types.is_timestamp(field.type):
            continue
        numbers = column.cast(pa.int64())
        unit = _PER_SECOND[field.type.unit]
        bounds = pc.min_max(numbers).as_py().values()
        if any(bound is not None and abs(bound) // unit >= _SECONDS_MAX for bound in bounds):
            raise InvalidValueError(
                f"The column `{field.name}` has a timestamp before 1677 or after 2262, which could "
                "not be read from an ORC file again.",
                hint="Nothing was written. Write NULL or another time in its place, or create the "
                "table with 'file.format' = 'parquet'.",
            )
        whole = pc.multiply(pc.divide(numbers, unit), unit)
        odd = pc.and_(pc.less(numbers, 0), pc.not_equal(numbers, whole))
        if pc.any(odd).as_py():
            raise InvalidValueError(
                f"The column `{field.name}` has a timestamp before 1970 with a fraction of a "
                "second, which other engines can't read from an ORC file.",
                hint="Nothing was written. Cut it by date_trunc('SECOND', …), or create the table "
                "with 'file.format' = 'parquet'.",
            )


def _without_times_of_day(rows: pa.Table) -> pa.Table:
    """Times of day as the milliseconds that Java stores in an INT."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_time32(field.type):
            numbers = rows.column(place).cast(pa.int32())
            rows = rows.set_column(place, field.with_type(pa.int32()), numbers)
    return rows


class _Avro(FormatWriter):
    def __init__(self, sink: Any, rows: pa.Table, rules: FileRules, _: Collection[str]) -> None:
        import fastavro.write

        codec = rules.compression.lower()
        self._writer = fastavro.write.Writer(
            sink,
            fastavro.parse_schema(avro_record(rows.schema, _AVRO_RECORD)),
            codec=_AVRO_CODECS.get(codec, codec),
            compression_level=rules.zstd_level if codec in _LEVELLED else None,
        )
        self._fields = [(field.name, _avro_value_of(field.type)) for field in rows.schema]

    def write(self, rows: pa.Table) -> None:
        for record in rows.to_pylist():
            self._writer.write({name: value(record[name]) for name, value in self._fields})

    def close(self) -> None:
        self._writer.flush()


_AVRO_RECORD = "org.apache.paimon.avro.generated.record"


def avro_record(fields: Iterable[pa.Field], name: str) -> dict[str, Any]:
    """The Avro schema of a record with these fields, as Java's `AvroSchemaConverter` makes it.

    Raises UnsupportedStatementError for a type that Avro files can't hold.
    """
    members: list[dict[str, Any]] = []
    for field in fields:
        member = {"name": field.name, "type": _avro_type(field, f"{name}_{field.name}")}
        members.append(member | ({"default": None} if field.nullable else {}))
    return {"type": "record", "name": name, "fields": members}


def _avro_type(field: pa.Field, name: str) -> Any:
    """The Avro type of a field's values; `name` is for the record that it needs."""
    data_type = field.type
    stored: Any
    if pa.types.is_struct(data_type):
        stored = avro_record(data_type, name)
    elif pa.types.is_list(data_type):
        stored = {"type": "array", "items": _avro_type(data_type.value_field, name)}
    elif pa.types.is_map(data_type) and pa.types.is_string(data_type.key_type):
        stored = {"type": "map", "values": _avro_type(data_type.item_field, name)}
    elif pa.types.is_map(data_type):  # Avro's own maps have texts as keys
        entry = [data_type.key_field.with_name("key"), data_type.item_field.with_name("value")]
        stored = {"type": "array", "items": avro_record(entry, name), "logicalType": "map"}
    else:
        stored = _avro_atom(data_type)
    return ["null", stored] if field.nullable else stored


def _avro_atom(data_type: pa.DataType) -> Any:
    if pa.types.is_timestamp(data_type) and data_type.unit != "ns":
        # Paimon's names of the kinds are the wrong way round.
        kind = "timestamp" if data_type.tz is None else "local-timestamp"
        unit = "micros" if data_type.unit == "us" else "millis"
        return {"type": "long", "logicalType": f"{kind}-{unit}"}
    if pa.types.is_decimal(data_type):
        digits = {"precision": data_type.precision, "scale": data_type.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    for is_kind, stored in _AVRO_ATOMS:
        if is_kind(data_type):
            return stored
    raise UnsupportedStatementError(
        f"Avro files can't hold values of the type {data_type}.",
        hint="Set 'file.format' = 'parquet'.",
    )


_AVRO_ATOMS: Sequence[tuple[Callable[[pa.DataType], bool], Any]] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (pa.types.is_time32, {"type": "int", "logicalType": "time-millis"}),
)


def _avro_value_of(data_type: pa.DataType) -> Callable[[Any], Any]:
    """The function from Arrow's Python value of a type to the value that fastavro stores."""
    if pa.types.is_timestamp(data_type) and data_type.tz is None:
        # fastavro stores the number of the instant that this wall-clock time is in UTC.
        return lambda value: None if value is None else value.replace(tzinfo=UTC)
    if pa.types.is_struct(data_type):
        parts = [(part.name, _avro_value_of(part.type)) for part in data_type]
        return lambda value: value and {name: part(value[name]) for name, part in parts}
    if pa.types.is_list(data_type):
        item = _avro_value_of(data_type.value_type)
        return lambda value: None if value is None else [item(each) for each in value]
    if pa.types.is_map(data_type):
        key, item = _avro_value_of(data_type.key_type), _avro_value_of(data_type.item_type)
        if pa.types.is_string(data_type.key_type):
            return lambda value: None if value is None else {k: item(v) for k, v in value}
        return lambda value: (
            None if value is None else [{"key": key(k), "value": item(v)} for k, v in value]
        )
    return _same


def _same(value: Any) -> Any:
    return value


FORMAT_WRITERS: Mapping[str, Callable[[Any, pa.Table, FileRules, Collection[str]], FormatWriter]]
FORMAT_WRITERS = {"parquet": _Parquet, "orc": _Orc, "avro": _Avro}
"""The writer of each format, by Paimon's name."""


# Parts of a nested column that must not be NULL, below a value that is.
#
# A NULL of a VARIANT, or of a STRUCT with a NOT NULL field, has parts without a value in Arrow.
# Arrow's Parquet writer takes them for missing values of the required parts, though they are never
# stored.


def with_required_parts(rows: pa.Table) -> pa.Table:
    """The rows, in which required parts below a NULL have some value."""
    for place, field in enumerate(rows.schema):
        if _has_required_part(field.type):
            chunks = [_filled(chunk, field.type) for chunk in rows.column(place).chunks]
            rows = rows.set_column(place, field, pa.chunked_array(chunks, field.type))
    return rows


def _has_required_part(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return any(not part.nullable or _has_required_part(part.type) for part in data_type)
    if pa.types.is_list(data_type):
        return _has_required_part(data_type.value_type)
    return False


def _filled(
    array: pa.Array, data_type: pa.DataType, absent: pa.BooleanArray | None = None
) -> pa.Array:
    """`absent` tells where a NULL is above. Other missing values stay, and are an error."""
    if not _has_required_part(data_type) or not len(array):
        return array
    if pa.types.is_list(data_type):
        whole = array.take(pa.array(np.arange(len(array))))  # from its first value on
        values = _filled(whole.values, data_type.value_type)
        return pa.ListArray.from_arrays(whole.offsets, values, data_type, mask=whole.is_null())
    none = array.is_null()
    gone = none if absent is None else pc.or_(none, absent)
    parts = []
    for number, part in enumerate(data_type):
        values = _filled(array.field(number), part.type, gone)
        if not part.nullable and values.null_count:
            some = pa.scalar(_some(part.type), part.type)
            values = pc.if_else(pc.and_(gone, values.is_null()), some, values)
        parts.append(values)
    return pa.StructArray.from_arrays(parts, fields=list(data_type), mask=none)


def _some(data_type: pa.DataType) -> Any:
    """A value of a type."""
    if pa.types.is_struct(data_type):
        return {part.name: _some(part.type) for part in data_type}
    if pa.types.is_list(data_type) or pa.types.is_map(data_type):
        return []
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return ""
    if pa.types.is_boolean(data_type):
        return False
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return 0
    if pa.types.is_decimal(data_type):
        return Decimal(0)
    if pa.types.is_temporal(data_type):
        number = pa.int64() if data_type.bit_width == 64 else pa.int32()
        return pa.scalar(0, number).cast(data_type).as_py()
    return b"\0" * data_type.byte_width if pa.types.is_fixed_size_binary(data_type) else b""


# Decides whether a statement's Parquet files get dictionaries.
#
# The native writer collects the values of each column in a dictionary of up to a megabyte before it
# writes values plainly. For columns whose values don't repeat that is half of its work, and makes
# files larger. Its option holds for all columns together.


def repeats_values(rows: pa.RecordBatch) -> bool:
    """Whether the values of `rows`, the first of many, repeat so that dictionaries pay: those of a
    text or bytes column, or of columns with half of all bytes. True for nested columns and too few
    rows, where that is unknown."""
    if rows.num_rows < _ROWS_MIN:
        return True
    sample = rows.slice(0, _ROWS_MAX)
    repeated_bytes = 0
    for column in sample.columns:
        if pa.types.is_nested(column.type):
            return True
        if _repeats(column):
            if _has_own_lengths(column.type):
                return True
            repeated_bytes += column.nbytes
    return bool(repeated_bytes * 2 >= sample.nbytes)


def _repeating_columns(rows: pa.Table) -> list[str] | bool:
    """The columns that get dictionaries in a file whose first rows are `rows`; True for all of
    them: where few rows tell nothing, and with nested columns, whose parts have names of their own.
    """
    if rows.num_rows < _ROWS_MIN or any(pa.types.is_nested(field.type) for field in rows.schema):
        return True
    sample = rows.slice(0, _ROWS_MAX)
    return [name for name in sample.column_names if _repeats(sample.column(name))]


def _repeats(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether each value occurs `_REPEATED_SHARE` times on average."""
    distinct_max = len(values) // _REPEATED_SHARE
    # The first values alone may be too many different ones.
    return all(
        pc.count_distinct(some, mode="all").as_py() <= distinct_max
        for some in (values.slice(0, distinct_max + 1), values)
    )


def _has_own_lengths(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
