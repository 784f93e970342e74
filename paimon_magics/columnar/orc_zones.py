"""Corrects timestamps that pyarrow reads from ORC files of Java's writers to the values that Java
reads, whatever the zones of writer and reader are.

A TIMESTAMP is stored as a wall-clock time in the writer's zone. pyarrow's reader converts it, with
two errors. First, to correct fractions of a second before 1970, it uses the sign of the wall-clock
time instead of the sign of the instant, which Java uses. Second, for times before 1900 it uses the
zone's old local times, unlike Java.

A TIMESTAMP_LTZ is stored as an instant; but by Paimon's default (`orc.timestamp-ltz.legacy.type`)
its wall-clock time in UTC is stored as if it were one in the writer's zone. A file that has a
TIMESTAMP names that zone in its footer. A file without one names UTC, whatever the writer's zone
was; Java then uses the zone of its own machine. Sources: `OrcTimestampColumnVector`,
`FieldWriterFactory`, ORC's `WriterImpl`, `TreeReaderFactory` and `TimestampColumnReader`.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.buffers import with_parts
from paimon_magics.columnar.time_zones import rules_of

_SECOND_NS = 1_000_000_000
_YEAR_1900_S = -2_208_988_800
_MILLISECOND_NS = 999_999
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UTC = {"UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "Zulu", "Universal", "UCT", "Etc/UCT"}

_Ints = npt.NDArray[np.int64]


def is_utc(zone: str) -> bool:
    """Whether the zone is UTC, so that its times need no correction."""
    return zone in _UTC


def has_times(data_type: pa.DataType) -> bool:
    """Whether the type is a timestamp, or has timestamps in it at any level."""
    return any(True for _ in _timestamps(data_type))


def has_wall_clocks(data_type: pa.DataType) -> bool:
    """Whether the type is a timestamp without a zone, or has some in it at any level."""
    return any(kind.tz is None for kind in _timestamps(data_type))


def _timestamps(data_type: pa.DataType) -> Iterator[pa.TimestampType]:
    if pa.types.is_timestamp(data_type):
        yield data_type
    for place in range(data_type.num_fields):
        yield from _timestamps(data_type.field(place).type)


def in_zone(array: pa.Array, zone: str, *, legacy_instants: bool) -> pa.Array:
    """A column of a stripe that was written in `zone`, as Java reads it.

    `legacy_instants` tells that instants were written as their wall-clock times in UTC.
    """
    data_type = array.type
    if not has_times(data_type):
        return array
    if pa.types.is_timestamp(data_type):
        values = np.asarray(pc.fill_null(array.view(pa.int64()), 0))
        if data_type.tz is None:
            values = _wall_clock(values, zone)
        elif legacy_instants:
            values = _from_legacy(values, zone)
        mask = np.asarray(array.is_null()) if array.null_count else None
        return pa.array(values, mask=mask).view(data_type)
    return with_parts(
        array, data_type, lambda part, _: in_zone(part, zone, legacy_instants=legacy_instants)
    )


def _wall_clock(values: _Ints, zone: str) -> _Ints:
    seconds, nanos = np.divmod(values, _SECOND_NS)
    cut = nanos > _MILLISECOND_NS
    # The seconds in the file. They are cut toward 1970, which pyarrow corrected by their sign.
    stored = seconds + (cut & (seconds < -1))
    instants = _instants(stored, zone)
    old = instants < _YEAR_1900_S
    wall = np.where(old, instants + _present_offset(zone), stored) if old.any() else stored
    corrected: _Ints = (wall - (cut & (instants < 0))) * _SECOND_NS + nanos
    return corrected


def _from_legacy(values: _Ints, zone: str) -> _Ints:
    rules = rules_of(zone)
    if isinstance(rules, datetime.timezone):  # an offset: Arrow has no rules for it
        ahead = rules.utcoffset(None)
        return values + int(ahead.total_seconds()) * _SECOND_NS
    seconds, nanos = np.divmod(values, _SECOND_NS)
    local = pc.local_timestamp(pa.array(seconds).view(pa.timestamp("s", zone)))
    wall = np.asarray(local.view(pa.int64()))
    old = seconds < _YEAR_1900_S
    if old.any():
        wall = np.where(old, seconds + _present_offset(zone), wall)
    corrected: _Ints = wall * _SECOND_NS + nanos
    return corrected


def _instants(wall: _Ints, zone: str) -> _Ints:
    zoned = pc.assume_timezone(
        pa.array(wall).view(pa.timestamp("s")), zone, ambiguous="earliest", nonexistent="earliest"
    )
    instants: _Ints = np.asarray(zoned.view(pa.int64()))
    first, offset = _first_change(zone)
    ancient = instants < first
    return np.where(ancient, wall - offset, instants) if ancient.any() else instants


@functools.cache
def _first_change(zone: str) -> tuple[int, int]:
    """The first change of the zone's offset from UTC: when, in seconds since 1970, and the new
    offset in seconds. pyarrow's reader also uses that offset for all earlier times."""
    rules = ZoneInfo(zone)

    def offset(instant: int) -> int:
        ahead = (_EPOCH + datetime.timedelta(seconds=instant)).astimezone(rules).utcoffset()
        assert ahead is not None
        return int(ahead.total_seconds())

    year_s = 31_556_952
    low = -300 * year_s
    first = offset(low)
    high = next((at for at in range(low, 60 * year_s, year_s) if offset(at) != first), None)
    if high is None:
        return low, first
    low = high - year_s
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == first else (low, middle)
    return high, offset(high)


def _present_offset(zone: str) -> int:
    """The zone's present offset from UTC without summer time, in seconds. Java uses it for times
    before 1900."""
    moment = datetime.datetime(2024, 1, 1, tzinfo=ZoneInfo(zone))
    offset, summer = moment.utcoffset(), moment.dst()
    assert offset is not None
    return int((offset - (summer or datetime.timedelta())).total_seconds())
