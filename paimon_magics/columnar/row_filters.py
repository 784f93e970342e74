"""Sorts and filters the rows of an Arrow table by a user's `RowFilter`, with Spark's rules: NaN is
equal to itself and greater than every other number.

Finds rows that are older than `record-level.expire-time` allows, too. Source: `RecordLevelExpire`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.planning.reads.row_filters import (
    ColumnKind,
    Condition,
    Kind,
    Order,
    RowFilter,
    value_of,
)

_COMPARED = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def kinds_of(schema: pa.Schema) -> dict[str, ColumnKind]:
    """The kind of each column, which determines its possible conditions."""
    return {field.name: _kind(field.type) for field in schema}


def filtered(rows: pa.Table, row_filter: RowFilter, kinds: Mapping[str, ColumnKind]) -> pa.Table:
    """The rows that meet the conditions, sorted; equal rows keep their order. As in SQL, NULL meets
    no comparison. Raises InvalidValueError for a value that does not fit its column."""
    for condition in row_filter.conditions:
        rows = rows.filter(_meets(rows.column(condition.column), condition, kinds))
    if not row_filter.orders:
        return rows
    columns: list[Any] = []
    keys: list[tuple[str, str]] = []
    for order in row_filter.orders:
        for column in _ranked(rows.column(order.column), order):
            keys.append((str(len(keys)), "descending" if order.descending else "ascending"))
            columns.append(column)
    ranks = pa.table(columns, names=[name for name, _ in keys])
    return rows.take(pc.sort_indices(ranks, sort_keys=keys, null_placement="at_end"))


def _ranked(column: pa.ChunkedArray, order: Order) -> list[pa.ChunkedArray]:
    """The sort keys for a column: Arrow alone puts NaN last in both directions."""
    if pa.types.is_floating(column.type) and order.descending:
        return [pc.is_nan(column), column]
    return [column]


def _meets(
    column: pa.ChunkedArray, condition: Condition, kinds: Mapping[str, ColumnKind]
) -> object:
    match condition.operator:
        case "is null":
            return pc.is_null(column)
        case "is not null":
            return pc.is_valid(column)
        case operator:
            value: Any = value_of(condition, kinds[condition.column])
            if operator == "contains":
                return pc.match_substring(column, str(value))
            if pa.types.is_floating(column.type):
                return _float_meets(column, operator, value)
            return _COMPARED[operator](*_alike(column, value))


def _float_meets(column: pa.ChunkedArray, operator: str, value: float) -> object:
    """Compare in the column's own type, in which a FLOAT of 1.1 is equal to 1.1."""
    is_nan = pc.is_nan(column)
    if math.isnan(value):
        if operator in ("=", ">="):
            return is_nan
        if operator in ("<", "<>"):
            return pc.invert(is_nan)
        return pc.is_valid(column) if operator == "<=" else pc.and_(is_nan, False)
    with np.errstate(over="ignore"):  # beyond FLOAT's range it is infinity, as in Spark's cast
        number = float(np.float32(value)) if pa.types.is_float32(column.type) else value
    met = _COMPARED[operator](column, pa.scalar(number, column.type))
    return pc.or_(met, is_nan) if operator in (">", ">=") else met


def _alike(column: pa.ChunkedArray, value: Any) -> tuple[pa.ChunkedArray, pa.Scalar]:
    """The column and the value in types that Arrow can compare."""
    if pa.types.is_timestamp(column.type):
        finest = pa.timestamp("us", column.type.tz)
        return column, pa.scalar(value, finest)
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(20, 0))
    return column, pa.scalar(value)


def _kind(data_type: pa.DataType) -> ColumnKind:
    types = pa.types
    if types.is_timestamp(data_type):
        if data_type.tz:
            return ColumnKind(Kind.INSTANT, rules_of(data_type.tz))
        return ColumnKind(Kind.WALL_CLOCK)
    tests = (
        (types.is_integer, Kind.INTEGER),
        (types.is_decimal, Kind.DECIMAL),
        (types.is_float32, Kind.FLOAT),
        (types.is_floating, Kind.DOUBLE),
        (types.is_string, Kind.TEXT),
        (types.is_large_string, Kind.TEXT),
        (types.is_boolean, Kind.BOOLEAN),
        (types.is_date, Kind.DATE),
    )
    kinds = (kind for is_such, kind in tests if is_such(data_type))
    return ColumnKind(next(kinds, Kind.OTHER))


_MILLIS_FROM = 1_000_000_000_000  # a BIGINT from here on counts milliseconds, else seconds
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Rows whose time in the column `field` is before `before_seconds` (since 1970) are expired;
    rows without a time never expire."""

    field: str
    before_seconds: int

    def expired(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Marks the expired rows."""
        return self.too_old(rows.column(self.field))

    def too_old(self, times: pa.Array) -> npt.NDArray[np.bool_]:
        """Marks the times of expired rows: an INT or BIGINT, or timestamps."""
        unit = times.type.unit if pa.types.is_timestamp(times.type) else None
        numbers = np.asarray(pc.fill_null(times.cast(pa.int64()), 0))
        if unit is not None:
            # Java divides milliseconds toward zero, and drops finer digits before that.
            millis = numbers * 1000 // _PER_SECOND[unit]
            numbers = np.sign(millis) * (np.abs(millis) // 1000)
        elif times.type == pa.int64():
            numbers = np.where(numbers >= _MILLIS_FROM, numbers // 1000, numbers)
        is_old: npt.NDArray[np.bool_] = (numbers < self.before_seconds) & np.asarray(
            times.is_valid()
        )
        return is_old
