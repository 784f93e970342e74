"""Rows of an Arrow table in a person's order, and those that meet their conditions."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.planning.looks import Condition, Kind, Look, value_of

__all__ = ["kinds_of", "looked_at"]

_COMPARED = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "contains": pc.match_substring,
}


def kinds_of(schema: pa.Schema) -> dict[str, Kind]:
    """What can be asked of each column."""
    return {field.name: _kind(field.type) for field in schema}


def looked_at(rows: pa.Table, look: Look, kinds: Mapping[str, Kind]) -> pa.Table:
    """The rows that meet the conditions, in order; rows of equal rank keep theirs. As in SQL, a row
    without a value meets no comparison. Raises InvalidValueError."""
    for condition in look.conditions:
        rows = rows.filter(_meets(rows.column(condition.column), condition, kinds))
    if look.orders:
        keys = [
            (one.column, "descending" if one.descending else "ascending") for one in look.orders
        ]
        rows = rows.take(pc.sort_indices(rows, sort_keys=keys, null_placement="at_end"))
    return rows


def _meets(column: pa.ChunkedArray, condition: Condition, kinds: Mapping[str, Kind]) -> object:
    match condition.operator:
        case "is null":
            return pc.is_null(column)
        case "is not null":
            return pc.is_valid(column)
        case operator:
            value = value_of(condition, kinds[condition.column])
            if operator == "contains":
                return pc.match_substring(column, str(value))
            return _COMPARED[operator](*_alike(column, value))


def _alike(column: pa.ChunkedArray, value: object) -> tuple[pa.ChunkedArray, pa.Scalar]:
    """Both in one type in which they can be compared."""
    if pa.types.is_timestamp(column.type):
        # Shown is the wall clock of the column's zone, and that is what was typed.
        return pc.local_timestamp(column) if column.type.tz else column, pa.scalar(
            value, pa.timestamp("us")
        )
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    return column, pa.scalar(float(value) if pa.types.is_floating(column.type) else value)  # type: ignore[arg-type]


def _kind(data_type: pa.DataType) -> Kind:
    types = pa.types
    if types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type):
        return Kind.NUMBER
    if types.is_string(data_type) or types.is_large_string(data_type):
        return Kind.TEXT
    if types.is_boolean(data_type):
        return Kind.BOOLEAN
    if types.is_date(data_type):
        return Kind.DATE
    return Kind.TIME if types.is_timestamp(data_type) else Kind.OTHER
