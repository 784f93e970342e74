"""Times between a session's zone and its caller: those that a program gives, and those in messages.

A committer or a coordinator in another process knows no session, so its messages write a moment as
`2026-11-20 08:00:00 UTC`. Before an error, an outcome or a report leaves a session, the moments in
its texts are converted to the zone that the user's cells show.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import (
    SECOND_OF_UNIT,
    common_from_s,
    has_moment,
    moments_in_zone,
    rules_of,
)
from paimon_magics.errors import PaimonMagicsError


def told_in_zone(texts: Iterable[str], zone: Callable[[], str]) -> tuple[str, ...]:
    """Return the texts with their moments in the zone that `zone` returns. It is called only if one
    has a moment."""
    shown = tuple(texts)
    if not any(map(has_moment, shown)):
        return shown
    now = zone()
    return tuple(moments_in_zone(text, now) for text in shown)


def tell_moments(error: PaimonMagicsError, zone: str) -> None:
    """Convert the moments in an error that leaves a session to the session's zone."""
    error.message = moments_in_zone(error.message, zone)
    error.hint = moments_in_zone(error.hint, zone)
    error.args = (error.message, *error.args[1:])


# Times that a Python caller gives, converted for the session's time zone.
#
# A `datetime` without a zone is a wall clock time in the session's zone, like a text without one in
# SQL. A `datetime` with a zone is an instant; a TIMESTAMP_NTZ takes its wall clock time in the
# session's zone.


def instant(value: datetime.datetime, zone: str) -> datetime.datetime:
    """Return the instant that a `datetime` means in a session of `zone`."""
    if value.tzinfo is not None:
        return value
    return plain_datetime(value).replace(tzinfo=rules_of(zone))


def plain_datetime(value: datetime.datetime) -> datetime.datetime:
    """The value as Python's own, to the microsecond. A pandas Timestamp refuses times that summer
    time skips, and has other arguments."""
    if hasattr(value, "to_pydatetime"):
        plain: datetime.datetime = value.to_pydatetime(warn=False)
        return plain
    return value


def value_in_zone(value: Any, data_type: pa.DataType, zone: str) -> Any:
    """Return the value for a column of that type, its `datetime`s converted for `zone`."""
    types = pa.types
    match value:
        case datetime.datetime() if types.is_timestamp(data_type):
            if data_type.tz is not None:
                return instant(value, zone)
            if value.tzinfo is None:
                return value
            return value.astimezone(rules_of(zone)).replace(tzinfo=None)
        case dict() if types.is_struct(data_type):
            kinds = {field.name: field.type for field in data_type}
            return {
                name: value_in_zone(part, kinds[name], zone) if name in kinds else part
                for name, part in value.items()
            }
        case list() | tuple() if types.is_list(data_type):
            return [value_in_zone(part, data_type.value_type, zone) for part in value]
        case list() | tuple() | dict() if types.is_map(data_type):
            pairs = value.items() if isinstance(value, dict) else value
            key, item = data_type.key_type, data_type.item_type
            return [
                (value_in_zone(left, key, zone), value_in_zone(right, item, zone))
                for left, right in pairs
            ]
    return value


def columns_in_zone(rows: pa.Table, schema: pa.Schema, zone: str) -> pa.Table:
    """Return the rows with times as the columns of `schema` take them: instants for TIMESTAMP, wall
    clock times of `zone` for TIMESTAMP_NTZ."""
    for place, field in enumerate(rows.schema):
        known = schema.get_field_index(field.name)
        if known < 0 or not pa.types.is_timestamp(field.type):
            continue
        wanted = schema.field(known).type
        if not pa.types.is_timestamp(wanted) or bool(wanted.tz) == bool(field.type.tz):
            continue
        moved = _moved(rows.column(place), wanted, zone)
        rows = rows.set_column(place, field.with_type(moved.type), moved)
    return rows


def _is_old(column: pa.ChunkedArray, zone: str) -> bool:
    first = pc.min(column.cast(pa.int64())).as_py()
    second = SECOND_OF_UNIT[column.type.unit]
    return first is not None and first < (common_from_s(zone) + 86_400) * second


def _moved(column: pa.ChunkedArray, wanted: pa.TimestampType, zone: str) -> pa.ChunkedArray:
    try:
        if _is_old(column, zone):
            raise ValueError("Arrow may have other rules than Java")
        if wanted.tz is None:
            return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))
        return pc.assume_timezone(column, zone)
    except (pa.ArrowException, ValueError):
        # Arrow knows no rules for offsets, and refuses times that DST repeats or skips.
        values = [
            value_in_zone(value, pa.timestamp("us", wanted.tz), zone)
            for value in column.cast(pa.timestamp("us", column.type.tz)).to_pylist()
        ]
        return pa.chunked_array([pa.array(values, pa.timestamp("us", wanted.tz))])
