"""The rows given to `session.insert`, converted to an Arrow table with the table's columns.

A value that does not fit is refused here; the error names row and column, and what the column
takes.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.errors import InvalidValueError, value_text
from paimon_magics.planning.formatting import count_text, shortened
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.given_times import columns_in_zone, value_in_zone
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

__all__ = ["given_table"]

_SHOWN_MAX = 40
_CUT = "something in it would be cut off"
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_TAKEN = {
    "BOOLEAN": "True or False",
    "FLOAT": "a number of at most 3.4e38",
    "DOUBLE": "a number that a float of Python's holds",
    "STRING": "a text",
    "CHAR": "a text",
    "VARCHAR": "a text",
    "BINARY": "bytes",
    "VARBINARY": "bytes",
    "BYTES": "bytes",
    "DATE": "a datetime.date",
    "TIME": "a datetime.time of whole milliseconds",
    "TIMESTAMP": "a datetime.datetime",
    "TIMESTAMP_LTZ": "a datetime.datetime",
}
_FLOAT_MAX = 3.4028234663852886e38


def given_table(rows: Any, table_schema: TableSchema, zone: str) -> Any:
    """Return the rows as an Arrow table with the table's columns that they name; rows in tuples or
    lists have all columns. Times are those of a session of `zone` (`given_times`).

    Raises InvalidValueError, and UnknownNameError for a key that is no column.
    """
    import pyarrow as pa

    module = type(rows).__module__.partition(".")[0]
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif module == "pandas" and hasattr(rows, "columns"):
        rows = pa.Table.from_pandas(rows, preserve_index=False)
    elif module == "polars" and hasattr(rows, "to_arrow"):
        rows = rows.to_arrow()
    if isinstance(rows, pa.Table):
        return columns_in_zone(rows, arrow_schema(table_schema), zone)
    if isinstance(rows, Mapping):
        rows = [rows]
    if not _is_row(rows):
        raise InvalidValueError(
            f"{value_text(rows, begins=True)} can't be inserted.",
            hint="Give a list of rows (tuples, or dictionaries), an Arrow table, a DataFrame of "
            "pandas or polars.",
        )
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = [table_schema.column(str(key)).name for key in _keys(rows)]
        columns = [[row.get(key) for row in rows] for key in _keys(rows)]
    else:
        names = list(table_schema.column_names)
        _check_widths(rows, table_schema)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    # The coordinator checks nullability: its error names the column.
    schema = arrow_schema(table_schema)
    fields = [schema.field(name).with_nullable(True) for name in names]
    arrays = [
        _array([value_in_zone(value, field.type, zone) for value in values], field, table_schema)
        for values, field in zip(columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _is_row(row: object) -> bool:
    return isinstance(row, Sequence) and not isinstance(row, str | bytes)


def _keys(rows: Sequence[Mapping[Any, Any]]) -> list[Any]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _check_widths(rows: Sequence[Any], schema: TableSchema) -> None:
    """Raise InvalidValueError unless each row has a value for each column."""
    wanted = len(schema.column_names)
    for number, row in enumerate(rows, 1):
        if not _is_row(row):
            raise InvalidValueError(
                f"Row {number} is not a tuple of {count_text(wanted, 'value')}: {_shown(row)}",
                hint=f"The columns are {_wanted(schema)}. Give a list of tuples, or a list "
                "of dictionaries.",
            )
        if len(row) != wanted:
            raise InvalidValueError(
                f"Row {number} has {count_text(len(row), 'value')}, but the table has "
                f"{count_text(wanted, 'column')}.",
                hint=f"The columns are {_wanted(schema)}. Give dictionaries for some of them.",
            )


def _array(values: list[Any], field: Any, schema: TableSchema) -> Any:
    import pyarrow as pa

    try:
        array = pa.array(values, type=field.type)
        if any(_is_cut(value, field.type) for value in values):
            raise ValueError(_CUT)
        return array
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        number, why = _unfit(values, field.type) or (0, "")
        data_type = schema.column(field.name).type
        wanted = to_spark_sql(data_type)
        where = f"of row {number} " if number else ""
        value = f"{_shown(values[number - 1])} " if number else "a value "
        raise InvalidValueError(
            f"Column `{field.name}` takes {wanted}; {value}{where}does not fit{why}.",
            hint=f"Nothing was written. Give {_taken(data_type)}.",
        ) from error


def _unfit(values: list[Any], kind: Any) -> tuple[int, str] | None:
    """Return the number of the first value that does not fit the type, with a text on what would be
    cut ("" if it can't be converted at all); None if all values fit."""
    import pyarrow as pa

    for number, value in enumerate(values, 1):
        try:
            pa.array([value], type=kind)
            if _is_cut(value, kind):
                return number, f": {_CUT}"
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return number, ""
    return None


def _taken(data_type: DataType) -> str:
    """The Python types that a column of that type takes, in words."""
    match data_type:
        case AtomicType(name=name) if name in _BITS:
            most = 2 ** (_BITS[name] - 1)
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
            inner = ", ".join(f"'{one.name}' ({to_spark_sql(one.type)})" for one in fields)
            return f"a dictionary with the keys {inner}"
        case MultisetType() | VectorType():
            return f"a value of the type {to_spark_sql(data_type)}"


def _is_cut(value: Any, kind: Any) -> bool:
    """Whether Arrow would silently cut a value: a fraction, digits of a second, the time of day, or
    digits of a number that is too large for a float."""
    import pyarrow as pa

    match value:
        case float() if pa.types.is_integer(kind):
            return not value.is_integer()
        case float() if pa.types.is_float32(kind):
            return math.isfinite(value) and abs(value) > _FLOAT_MAX
        case decimal.Decimal() if pa.types.is_integer(kind):
            return value.is_finite() and value != value.to_integral_value()
        case datetime.datetime() if pa.types.is_date(kind):
            return value.time() != datetime.time()
        case datetime.datetime() | datetime.time() if pa.types.is_temporal(kind):
            return value.microsecond % {"s": 1_000_000, "ms": 1_000}.get(_unit(kind), 1) != 0
        case Mapping() if pa.types.is_struct(kind):
            # Arrow ignores keys that are no field of the struct.
            if not value.keys() <= {field.name for field in kind}:
                return True
            return any(_is_cut(value.get(field.name), field.type) for field in kind)
        case _ if pa.types.is_map(kind) and value is not None:
            pairs = value.items() if isinstance(value, Mapping) else value
            return any(_is_cut(k, kind.key_type) or _is_cut(v, kind.item_type) for k, v in pairs)
        case list() | tuple() if pa.types.is_list(kind):
            return any(_is_cut(one, kind.value_type) for one in value)
        case _:
            return False


def _unit(kind: Any) -> str:
    return getattr(kind, "unit", "us")


def _shown(value: object) -> str:
    return shortened(repr(value), _SHOWN_MAX)


def _wanted(schema: TableSchema) -> str:
    return ", ".join(
        f"`{one.name}` {to_spark_sql(one.type)}{'' if one.type.nullable else ' NOT NULL'}"
        for one in schema.columns
    )
