"""The rows given to `session.insert`, converted to an Arrow table with the table's columns.

A value that does not fit is refused here; the error names row and column, and the values that the
column accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from paimon_magics.errors import InvalidValueError, value_text
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.options.traits import INTEGER_BITS
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.python_frames import arrow_of, frame_kind, frame_text, is_own, stream_of
from paimon_magics.session.times import columns_in_zone, value_in_zone
from paimon_magics.session.value_inputs import (
    CutValueError,
    columns_of,
    kind_of,
    misfit,
    plain,
    shown,
)
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.schema.types import arrow_schema

_TAKEN = {
    "BOOLEAN": "True or False",
    "FLOAT": "a number of at most 3.4e38",
    "DOUBLE": "a number that a Python float can hold",
    "STRING": "a string",
    "CHAR": "a string",
    "VARCHAR": "a string",
    "BINARY": "bytes",
    "VARBINARY": "bytes",
    "BYTES": "bytes",
    "DATE": "a datetime.date",
    "TIME": "a datetime.time of whole milliseconds",
    "TIMESTAMP": "a datetime.datetime",
    "TIMESTAMP_LTZ": "a datetime.datetime",
}


def given_table(rows: Any, table_schema: TableSchema, zone: str) -> pa.Table:
    """Return the rows as an Arrow table with the table's columns that they name; rows in tuples or
    lists have all columns. Times are those of a session of `zone` (`times`).

    Raises InvalidValueError, and UnknownNameError for a name that is not a column.
    """
    schema = arrow_schema(table_schema)
    if frame_kind(rows) is not None:
        return columns_in_zone(_rows_of(rows), schema, zone)
    if isinstance(rows, Mapping):
        rows = [rows]
    if not _is_row(rows):
        raise InvalidValueError(
            f"{value_text(rows, begins=True)} can't be inserted.",
            hint="Give a list of rows (tuples, or dictionaries), an Arrow table, or a pandas or "
            "polars DataFrame.",
        )
    columns = columns_of(rows) if rows and kind_of(rows[0]) == "row" else None
    if columns is None:
        _check_widths(rows, table_schema)
        values = list(zip(*rows, strict=True)) or [()] * len(table_schema.columns)
        columns = dict(zip(table_schema.column_names, map(list, values), strict=True))
    # The coordinator checks nullability: its error names the column.
    fields = [schema.field(table_schema.column(name).name).with_nullable(True) for name in columns]
    arrays = [
        _array(values, field, table_schema, zone)
        for values, field in zip(columns.values(), fields, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _rows_of(frame: Any) -> pa.Table:
    """The rows of a frame with its own types. Raises InvalidValueError for a frame of Spark's."""
    stream = stream_of(frame)
    if stream is not None:
        return stream.read_all()
    if not is_own(frame):
        raise InvalidValueError(
            f"{frame_text(frame)[:1].upper()}{frame_text(frame)[1:]} is not inserted row by row.",
            hint="Use session.write(frame, table).",
        )
    return arrow_of(frame)


def _is_row(row: object) -> bool:
    return isinstance(row, Sequence) and not isinstance(row, str | bytes)


def _check_widths(rows: Sequence[Any], schema: TableSchema) -> None:
    """Raise InvalidValueError unless each row has a value for each column."""
    wanted = len(schema.column_names)
    for number, row in enumerate(rows, 1):
        if not _is_row(row) or kind_of(row) == "row":
            raise InvalidValueError(
                f"Row {number} is not a tuple of {count_text(wanted, 'value')}: {shown(row)}",
                hint=f"The columns are {_wanted(schema)}. Give a list of tuples, or a list "
                "of dictionaries.",
            )
        if len(row) != wanted:
            raise InvalidValueError(
                f"Row {number} has {count_text(len(row), 'value')}, but the table has "
                f"{count_text(wanted, 'column')}.",
                hint=f"The columns are {_wanted(schema)}. To give only some, use dictionaries.",
            )


def _array(values: list[Any], field: pa.Field, schema: TableSchema, zone: str) -> pa.Array:
    """The values in the type of their column. Raises InvalidValueError for the first that does not
    fit."""
    converted = []
    for number, value in enumerate(values, 1):
        try:
            own = value_in_zone(plain(value), field.type, zone)
            why = misfit(own, field.type)
        except CutValueError as error:
            why = str(error)
        if why is not None:
            raise _unfit(value, number, schema.column(field.name), why)
        if isinstance(own, Decimal) and pa.types.is_floating(field.type):
            own = float(own)  # the nearest one, which is what these types have
        converted.append(own)
    try:
        return pa.array(converted, type=field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        # A kind that the column takes, but too large for it.
        for number, value in enumerate(converted, 1):
            try:
                pa.array([value], type=field.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError):
                raise _unfit(values[number - 1], number, schema.column(field.name), "") from error
        raise


def _unfit(value: object, number: int, column: Column, why: str) -> InvalidValueError:
    because = f": {why}" if why else ""
    return InvalidValueError(
        f"Column `{column.name}` takes {to_spark_sql(column.type)}; {shown(value)} of row {number} "
        f"does not fit{because}.",
        hint=f"Nothing was written. Give {_taken(column.type)}.",
    )


def _taken(data_type: DataType) -> str:
    """The Python types that a column of that type takes, in words."""
    match data_type:
        case AtomicType(name=name) if name in INTEGER_BITS:
            most = 2 ** (INTEGER_BITS[name] - 1)
            return f"a whole number from {-most} to {most - 1}"
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            before = count_text(precision - scale, "digit")
            return f"a Decimal of at most {before} before the decimal point and {scale} after it"
        case AtomicType(name=name):
            return _TAKEN.get(name, f"a value of the type {name}")
        case ArrayType(element=element):
            return f"a list of {to_spark_sql(element)}"
        case MapType(key=key, value=value):
            return f"a dictionary from {to_spark_sql(key)} to {to_spark_sql(value)}"
        case RowType(fields=fields):
            inner = ", ".join(f"'{field.name}' ({to_spark_sql(field.type)})" for field in fields)
            return f"a dictionary with the keys {inner}"
        case MultisetType() | VectorType():
            return f"a value of the type {to_spark_sql(data_type)}"


def _wanted(schema: TableSchema) -> str:
    return ", ".join(
        f"`{column.name}` {to_spark_sql(column.type)}{'' if column.type.nullable else ' NOT NULL'}"
        for column in schema.columns
    )
