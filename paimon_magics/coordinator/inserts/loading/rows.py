"""Convert the payloads of records to Arrow batches in a table's present schema, and to changes of
rows.

A record was checked against the schema of its time. Its columns are matched by field id: an added
column is NULL, a dropped one is left out, a renamed one is the same column, and a changed type is
cast if no value is lost. A record that can't be converted is `Unfit`, and does not affect the
others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import is_bytes
from paimon_magics.coordinator.inserts.admission.json_values import (
    CALENDAR_SECONDS,
    column_reader,
    default_value,
)
from paimon_magics.coordinator.inserts.admission.key_changes import Value, is_change, key_change
from paimon_magics.coordinator.inserts.admission.validator import statement_columns, statements_of
from paimon_magics.coordinator.inserts.log.records import Format, Record
from paimon_magics.coordinator.protocol.errors import OversizedError
from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.reading.applied_changes import Change
from paimon_magics.tables.schema.types import arrow_schema, arrow_type

_NAME = TableName("table")
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_FAILURES = (PaimonMagicsError, pa.ArrowException, ValueError, KeyError, OverflowError, TypeError)


# The fields of FlatBuffers' tables by number: of a message, a dictionary and a batch of records.
_HEADER_TYPE, _HEADER = 1, 2
_DICTIONARY = 1
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3
_IS_DICTIONARY, _IS_BATCH = 2, 3
_PAIR = struct.Struct("<qq")  # a node's length and NULLs; a buffer's offset and length
_SIZE = struct.Struct("<q")
_VIEW_WORDS = 4  # of 32 bits in a view, of which the first is the length


@dataclass(frozen=True, slots=True)
class Unfit:
    """A record that can't be written any more, and why."""

    lsn: int
    why: str


def entries_of(
    records: Sequence[Record],
    definitions: Mapping[int, TableSchema],
    target: TableSchema,
) -> tuple[list[pa.RecordBatch | Change], list[Unfit]]:
    """The rows of all records in their order, in the columns and types of `target`, and between
    them the changes of rows; and the records that can't be converted.

    `definitions` has the table's schemas by their ids.
    """
    batches: list[pa.RecordBatch | Change] = []
    unfit: list[Unfit] = []
    for (schema_id, format, _), run in groupby(records, _kind):
        together = list(run)
        schema = definitions[schema_id]
        try:
            batches += _converted(together, format, schema, target)
        except (*_FAILURES, MemoryError):
            # At least one of them is unfit: convert each on its own to find out which.
            for record in together:
                try:
                    batches += _converted([record], format, schema, target)
                except MemoryError:  # it says nothing about the record
                    raise
                except _FAILURES as error:
                    unfit.append(Unfit(record.lsn, str(error)))
    return batches, unfit


def conformed_stream(
    name: TableName, body: bytes, table_schema: TableSchema, bytes_max: int | None = None
) -> tuple[int, bytes]:
    """Check an Arrow stream, whose columns are matched to the table's by name. Return the number of
    rows, and the rows as a stream in the table's exact types; columns that were left out stay out.

    Raises InvalidValueError for a body that is no Arrow stream, and for wrong columns; ValueError
    for values that don't fit; OversizedError for more than `bytes_max` bytes, unpacked.
    """
    try:
        if bytes_max is not None:
            check_unpacked(body, bytes_max)
        with pa.ipc.open_stream(body) as reader:
            names = tuple(reader.schema.names)
            table = reader.read_all()
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InvalidValueError(
            f"The body can't be read as an Arrow stream: {error}.",
            hint="Send what pyarrow.ipc.new_stream writes, or send JSON with another content type.",
        ) from error
    table.validate(full=True)
    if bytes_max is not None:
        check_spread(table, bytes_max)
    plan = statement_columns(name, table_schema, names, in_json=False)
    columns = [
        _conformed(column, table.column(number)) for number, column in enumerate(plan.columns)
    ]
    schema = pa.schema(
        [pa.field(c.name, arrow_type(c.type), nullable=c.type.nullable) for c in plan.columns]
    )
    conformed = pa.Table.from_arrays(columns, schema=schema)
    conformed.validate(full=True)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(conformed)
    return table.num_rows, sink.getvalue().to_pybytes()


def _kind(record: Record) -> tuple[int, Format, int]:
    """The key of a group of records that are converted together; a stream is alone."""
    alone = record.lsn if record.format is Format.ARROW else 0
    return record.schema_id, record.format, alone


def _converted(
    records: Sequence[Record], format: Format, table_schema: TableSchema, target: TableSchema
) -> list[pa.RecordBatch | Change]:
    if format is Format.ARROW:
        return _batches(_of_stream(records[0].payload, table_schema), table_schema, target)
    statements = [
        statement for record in records for statement in statements_of(json.loads(record.payload))
    ]
    if format is Format.JSON:
        return _batches(_of_json(statements, table_schema), table_schema, target)
    entries: list[pa.RecordBatch | Change] = []
    for kind, run in groupby(statements, _kind_of_change):
        if kind is None:
            entries += _batches(_of_json(list(run), table_schema), table_schema, target)
        else:
            entries.append(_change(list(run), table_schema, target))
    return entries


def _batches(
    parts: Iterable[tuple[Sequence[Column], Sequence[Any], int]],
    table_schema: TableSchema,
    target: TableSchema,
) -> list[pa.RecordBatch | Change]:
    schema = arrow_schema(target)
    batches: list[pa.RecordBatch | Change] = []
    for columns, values, rows in parts:
        by_id = {column.id: (column, value) for column, value in zip(columns, values, strict=True)}
        arrays = [_target_array(column, table_schema, by_id, rows) for column in target.columns]
        table = pa.Table.from_arrays(arrays, schema=schema)
        batches += table.combine_chunks().to_batches()
    return batches


def _kind_of_change(statement: Any) -> str | None:
    """What changes must have in common to be carried out together, regardless of their keys; None
    for rows. Carrying out a change twice in a row has the same effect as once.
    """
    if not is_change(statement):
        return None
    ((verb, change),) = statement.items()
    return json.dumps([verb, [change.get(member) for member in ("columns", "where", "set")]])


def _change(statements: Sequence[Any], table_schema: TableSchema, target: TableSchema) -> Change:
    """The combined change of statements of one kind."""
    checked = [key_change(_NAME, table_schema, statement) for statement in statements]
    keys = {
        value.column.id: pa.concat_arrays([_stored(change.keys[at], target) for change in checked])
        for at, value in enumerate(checked[0].keys)
    }
    first = checked[0]
    primary = [target.column(key) for key in target.primary_keys]
    return Change(
        pa.table(
            [keys[column.id] for column in primary], names=[column.name for column in primary]
        ),
        tuple(
            ColumnPredicate(
                _present(condition.value.column, target).name,
                condition.operator,
                tuple(_cast_value(condition.value, target).to_pylist()),
            )
            for condition in first.conditions
        ),
        None
        if first.assigned is None
        else {
            _present(change.column, target).name: _stored(change, target)
            for change in first.assigned
        },
    )


def _present(column: Column, target: TableSchema) -> Column:
    """The column in the present schema."""
    for candidate in target.columns:
        if candidate.id == column.id:
            return candidate
    raise ValueError(f"column `{column.name}`, which it names, was dropped")


def _cast_value(value: Value, target: TableSchema) -> pa.Array:
    """Values in the present type of their column."""
    column = _present(value.column, target)
    return _cast(_array(value.read(), arrow_type(value.column.type)), arrow_type(column.type))


def _stored(value: Value, target: TableSchema) -> pa.Array:
    """Values in a form that their column can hold. Raises ValueError for other values."""
    column, values = _present(value.column, target), _cast_value(value, target)
    if not column.type.nullable and values.null_count:
        raise ValueError(f"column `{column.name}` is NOT NULL now")
    _check_length(column, values)
    return values


def _of_json(
    statements: Sequence[Any], schema: TableSchema
) -> Iterator[tuple[Sequence[Column], list[pa.Array], int]]:
    """Yield runs of statements that give the same columns: columns, arrays, number of rows."""
    for key, run in groupby(statements, _columns_of):
        plan = statement_columns(_NAME, schema, key)
        rows = [row for statement in run for row in statement["rows"]]
        arrays = []
        for position, (column, reader) in enumerate(zip(plan.columns, plan.readers, strict=True)):
            values = [row[position] for row in rows]
            if reader.read is not None:
                values = [reader.read(value) for value in values]
            arrays.append(_with_default(_array(values, arrow_type(column.type)), column))
        yield plan.columns, arrays, len(rows)


def _columns_of(statement: Any) -> tuple[str, ...] | None:
    names = statement.get("columns")
    return None if names is None else tuple(names)


def _of_stream(
    payload: bytes, schema: TableSchema
) -> Iterator[tuple[Sequence[Column], list[pa.ChunkedArray], int]]:
    with pa.ipc.open_stream(payload) as reader:
        table = reader.read_all()
    columns = [schema.column(name) for name in table.schema.names]
    yield columns, list(table.columns), table.num_rows


def _target_array(
    column: Column,
    schema: TableSchema,
    by_id: Mapping[int, tuple[Column, Any]],
    rows: int,
) -> pa.Array | pa.ChunkedArray:
    """The values of one column of the present schema."""
    wanted = arrow_type(column.type)
    values: Any
    if column.id in by_id:
        values = by_id[column.id][1]
    else:
        before = next(
            (candidate for candidate in schema.columns if candidate.id == column.id), None
        )
        if before is None or before.default is None:
            values = pa.nulls(rows, wanted)
        else:
            values = _constant(before, rows)
    values = _cast(values, wanted)
    if not column.type.nullable and values.null_count:
        raise ValueError(f"column `{column.name}` is NOT NULL now, and has no value here")
    _check_length(column, values)
    return values


def _constant(column: Column, rows: int) -> pa.Array:
    reader = column_reader(column.type)
    assert reader is not None and column.default is not None
    value = reader.check(default_value(column.type, column.default))
    return _array([value] * rows, arrow_type(column.type))


def _array(values: list[Any], wanted: pa.DataType) -> pa.Array:
    return pa.array(values, type=wanted)


def _cast(values: Any, wanted: pa.DataType) -> Any:
    if values.type == wanted:
        return values
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(values.type):
        if (values.type.tz is None) != (wanted.tz is None):
            raise ValueError(
                f"{values.type} can't become {wanted}: only one of them has a time zone"
            )
        if values.type.tz is not None and values.type.unit == wanted.unit:
            return values.cast(wanted)
    if pa.types.is_dictionary(values.type):
        return _cast(values.cast(values.type.value_type), wanted)
    if pa.types.is_date(wanted) and pa.types.is_timestamp(values.type):
        return _dates(values, wanted)
    cast = values.cast(wanted, safe=True)
    if _infinities(cast) > _infinities(values):
        raise ValueError(f"a number of {values.type} does not fit into {wanted}")
    return cast


def _dates(values: Any, wanted: pa.DataType) -> Any:
    """Times as dates, if none has a time of day, which Arrow would cut off."""
    if values.type.tz is not None:
        raise ValueError(f"{values.type} can't become {wanted}: an instant has no date")
    dates = values.cast(wanted)
    if not dates.cast(values.type).equals(values):
        raise ValueError("the time of day of a value would be cut off")
    return dates


def _with_default(values: Any, column: Column) -> Any:
    """The values with NULLs replaced by the column's default, as Paimon's writers do."""
    if column.default is None or not values.null_count:
        return values
    return pc.fill_null(values, _constant(column, 1)[0])


def _padded(values: Any, column: Column) -> Any:
    if getattr(column.type, "name", "") != "CHAR":
        return values
    return pc.utf8_rpad(values, width=column.type.parameters[0])  # type: ignore[union-attr]


def _conformed(column: Column, values: Any) -> Any:
    """Values converted to the column's type, and checked for constraints that Arrow's types don't
    express: NOT NULL and lengths. Arrow checks nested NULLs.
    """
    try:
        values = _with_default(_padded(_cast(values, arrow_type(column.type)), column), column)
    except MemoryError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"column `{column.name}`: {error}") from error
    if not column.type.nullable and values.null_count:
        rows = count_text(values.null_count, "row")
        raise ValueError(f"column `{column.name}` is NOT NULL, but NULL in {rows}")
    _check_length(column, values)
    _check_calendar(column, values)
    return values


def _check_calendar(column: Column, values: Any) -> None:
    """Raise ValueError for a date or time outside the years 1 to 9999, at any depth."""
    for leaf in _leaves(values):
        kind = leaf.type
        if pa.types.is_date32(kind):
            numbers, digits, seconds = leaf.cast(pa.int32()), 0, 86_400
        elif pa.types.is_timestamp(kind):
            numbers, digits, seconds = leaf.cast(pa.int64()), _DIGITS[kind.unit], 1
        else:
            continue
        first, end = (second * 10**digits // seconds for second in CALENDAR_SECONDS)
        span = pc.min_max(numbers).as_py()
        if span["min"] is not None and not first <= span["min"] <= span["max"] < end:
            raise ValueError(f"column `{column.name}` has a time outside the years 1 to 9999")


def _leaves(values: Any) -> Iterator[pa.Array]:
    """The arrays of the innermost values."""
    for array in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        yield from leaves(array)


def _infinities(values: Any) -> int:
    """How many numbers are infinite, at any depth."""
    floats = [leaf for leaf in _leaves(values) if pa.types.is_floating(leaf.type)]
    return sum(pc.sum(pc.is_inf(leaf)).as_py() or 0 for leaf in floats)


def _check_length(column: Column, values: Any) -> None:
    name = getattr(column.type, "name", "")
    if name in ("CHAR", "VARCHAR"):
        lengths, limit = pc.utf8_length(values), column.type.parameters[0]  # type: ignore[union-attr]
    elif name in ("BINARY", "VARBINARY"):
        lengths, limit = pc.binary_length(values), column.type.parameters[0]  # type: ignore[union-attr]
    else:
        return
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > limit:
        raise ValueError(
            f"column `{column.name}` has a value of length {longest}, more than {limit}"
        )


# How large an Arrow stream becomes when it is unpacked, read from its headers.
#
# A few kilobytes of a stream can stand for gigabytes: buffers are compressed, values of the null
# type and lists of a fixed size need no buffer, and a dictionary or a view names one long value
# many times. So sizes are checked before anything is unpacked, and before values are copied.
#
# A message's header is a FlatBuffer (Message.fbs and Schema.fbs of Arrow's format). Arrow has
# checked it when a message is read, so that its offsets are inside it.


def check_unpacked(body: bytes, bytes_max: int) -> None:
    """Raise OversizedError for a stream whose unpacked buffers have more bytes than that, or whose
    arrays have more values, including nested values.

    Raises Arrow's errors for a body that is not a stream.
    """
    size_bytes = values = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        header = message.metadata.to_pybytes()
        content = message.body
        for number, is_values in _sizes(header, memoryview(content or b"")):
            if is_values:
                values += number
            else:
                size_bytes += number
            if size_bytes > bytes_max:
                raise OversizedError(f"more than {bytes_max:,} bytes when it is unpacked")
            if values > bytes_max:
                raise OversizedError(f"more than {count_text(bytes_max, 'value')}")


def check_spread(table: pa.Table, bytes_max: int) -> None:
    """Raise OversizedError for a table whose strings and bytes need more bytes than that if each
    row has its own copy: values of dictionaries and views stand for many rows.
    """
    size_bytes = 0
    for column in table.columns:
        for array in column.chunks:
            size_bytes += sum(map(_spread_bytes, leaves(array)))
    if size_bytes > bytes_max:
        raise OversizedError(
            f"texts of {size_bytes:,} bytes when each row has its own copy, more than {bytes_max:,}"
        )


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of the innermost values of an array. Raises ValueError for views of lists, which
    Arrow does not cast to lists."""
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        raise ValueError(f"{array.type} is not supported: send lists")
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif pa.types.is_nested(array.type):
        parts = [array.flatten()]
    else:
        yield array
        return
    for part in parts:
        yield from leaves(part)


def _sizes(header: bytes, content: memoryview) -> Iterator[tuple[int, bool]]:
    """Yield the unpacked sizes of a message's buffers; and with True the lengths of its arrays,
    including nested arrays.
    """
    message = _target(header, 0)
    kind = header[_field(header, message, _HEADER_TYPE)]
    if kind not in (_IS_DICTIONARY, _IS_BATCH):
        return
    batch = _target(header, _field(header, message, _HEADER))
    if kind == _IS_DICTIONARY:
        batch = _target(header, _field(header, batch, _DICTIONARY))
    for length, _ in _pairs(header, batch, _NODES):
        yield length, True
    is_packed = _field(header, batch, _COMPRESSION)
    for offset, size in _pairs(header, batch, _BUFFERS):
        if is_packed and size >= _SIZE.size and 0 <= offset <= len(content) - size:
            # A buffer begins with its unpacked size; -1 says that it is not packed.
            (unpacked,) = _SIZE.unpack_from(content, offset)
            size = max(size, unpacked)
        yield size, False


def _field(buffer: bytes, table: int, number: int) -> int:
    """The position of a table's field; 0 if it is absent."""
    vtable = table - int.from_bytes(buffer[table : table + 4], "little", signed=True)
    size = int.from_bytes(buffer[vtable : vtable + 2], "little")
    at = 4 + 2 * number
    if at + 2 > size:
        return 0
    offset = int.from_bytes(buffer[vtable + at : vtable + at + 2], "little")
    return table + offset if offset else 0


def _target(buffer: bytes, at: int) -> int:
    """The position that the offset at a position leads to."""
    return at + int.from_bytes(buffer[at : at + 4], "little")


def _pairs(buffer: bytes, table: int, number: int) -> Iterator[tuple[int, int]]:
    """The pairs of numbers in a vector of a table."""
    at = _field(buffer, table, number)
    if not at:
        return iter(())
    vector = _target(buffer, at)
    count = int.from_bytes(buffer[vector : vector + 4], "little")
    first = vector + 4
    return _PAIR.iter_unpack(buffer[first : first + count * _PAIR.size])


def _spread_bytes(leaf: pa.Array) -> int:
    """The bytes of strings if each row has its own copy."""
    if pa.types.is_dictionary(leaf.type) or _is_view(leaf.type):
        return int(pc.sum(_lengths(leaf)).as_py() or 0)
    return 0


def _lengths(leaf: pa.Array) -> pa.Array:
    """The number of bytes of each value of a variable-length type; else NULLs."""
    kind = leaf.type
    if pa.types.is_dictionary(kind):
        return _lengths(leaf.dictionary).take(leaf.indices)
    if _is_view(kind):
        if not len(leaf):
            return pa.nulls(0, pa.int32())
        words = np.frombuffer(leaf.buffers()[1], dtype="<i4")
        first = leaf.offset * _VIEW_WORDS
        lengths = words[first : first + len(leaf) * _VIEW_WORDS : _VIEW_WORDS]
        return pa.array(lengths, mask=leaf.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind) or not is_bytes(kind):
        return pa.nulls(len(leaf), pa.int64())
    return pc.binary_length(leaf)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
