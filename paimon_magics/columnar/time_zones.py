"""Time zones: Spark's names as Arrow's, and a table's instants in a zone.

Spark names zones as Java's `ZoneId.of(id, ZoneId.SHORT_IDS)` does (`SparkDateTimeUtils.getZoneId`):
regions, offsets with and without `UTC` or `GMT` in front, and old names of three letters. Arrow,
pandas and Python know regions of the time zone database and offsets as `+05:30`.
"""

from __future__ import annotations

import datetime
import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

UTC = "UTC"

# A moment between quotes is a user's value and stays; in HTML a quote ends with `;`.
_MOMENT = re.compile(r"(?<!['\"`;\w])(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC\b(?!['\"`&])")

_UTC_NAMES = frozenset(
    ("utc", "gmt", "ut", "z", "zulu", "uct", "universal", "greenwich", "gmt0",
     *(f"etc/{name}" for name in ("utc", "gmt", "uct", "zulu", "universal", "greenwich", "gmt0")))
)  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d?)(?::?(\d\d))?)?")
_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's `ZoneId.SHORT_IDS`."""

SECOND_OF_UNIT = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of each unit of Arrow's timestamps a second has."""

# In seconds since 1970. No zone has had seconds in its offset since January 1972 (Africa/Monrovia).
_WHOLE_MINUTES_S = 759 * 86_400


@lru_cache(maxsize=64)
def arrow_zone(name: str) -> str:
    """The name in Arrow, pandas and Python for the zone that Spark calls `name`. All names of UTC
    become `UTC`. A zone that Python does not know becomes UTC, too: instants are then shown in UTC,
    and the line beside them states this."""
    return known_zone(name) or UTC


def known_zone(name: str) -> str | None:
    """The name of `arrow_zone`; None for a zone that Python does not know."""
    name = _SHORT_IDS.get(name.strip(), name.strip())
    if name.lower() in _UTC_NAMES:
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes = offset[1], int(offset[2]), int(offset[3] or 0)
        if offset[4] in (None, "00"):
            return f"{sign}{hours:02}:{minutes:02}" if hours or minutes else UTC
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError
        return None
    return name


_JAVA_RULES: dict[str, JavaRules | None] = {}


def is_learned(zone: str) -> bool:
    """Whether Java's rules of a zone are known, by the name of `arrow_zone`; an offset has none."""
    return zone == UTC or zone in _JAVA_RULES or _OFFSET.fullmatch(zone) is not None


def learn(zone: str, transitions_text: str) -> None:
    """Let this process follow Java's rules of a zone, by the text of Java's
    `ZoneRules.getTransitions()`."""
    _JAVA_RULES[zone] = java_rules(zone, transitions_text)


def common_from_s(zone: str) -> int:
    """The moment, in seconds since 1970, from which all libraries show the same clock in a zone:
    offsets are whole minutes, and Java's rules are Python's."""
    java = _JAVA_RULES.get(arrow_zone(zone))
    return _WHOLE_MINUTES_S if java is None else max(java.until_s, _WHOLE_MINUTES_S)


def rules_of(zone: str) -> datetime.tzinfo:
    """The rules of a zone, by the name of `arrow_zone` or any name that Spark takes: those of the
    Java that Spark runs on, if it differs from Python and a session of this process has it."""
    zone = arrow_zone(zone)
    return _JAVA_RULES.get(zone) or _python_rules(zone)


@lru_cache(maxsize=64)
def _python_rules(zone: str) -> datetime.tzinfo:
    if zone == UTC:
        return datetime.UTC
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        return ZoneInfo(zone)
    ahead = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    return datetime.timezone(ahead if offset[1] == "+" else -ahead)


def process_zone() -> str:
    """The zone of this process, in which `datetime.fromtimestamp` returns times: its name, else its
    offset; `UTC` if neither is known."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        named = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    dates = [datetime.datetime(2026, month, 1, 12) for month in (1, 7)]
    offsets = [date.astimezone().utcoffset() for date in dates]
    zone = arrow_zone(named)
    if offsets == [date.replace(tzinfo=rules_of(zone)).utcoffset() for date in dates]:
        return zone
    return arrow_zone(f"{dates[0].astimezone():%z}") if offsets[0] == offsets[1] else UTC


def is_ambiguous(value: datetime.datetime) -> bool:
    """Whether an instant's wall-clock time occurs twice in its zone, for example when summer time
    ends."""
    return value.replace(fold=0).utcoffset() != value.replace(fold=1).utcoffset()


def clock_text(value: datetime.datetime) -> str:
    """A time as text, as the wall-clock time of its zone if it has one. In the hour that occurs
    twice when summer time ends, the offset follows, so that two instants never look alike."""
    text = value.replace(tzinfo=None).isoformat(sep=" ")
    offset = value.isoformat(sep=" ")[len(text) :] if is_ambiguous(value) else ""
    return (text.rstrip("0").rstrip(".") if "." in text else text) + offset


def moment_text(epoch_ms: int, zone: str) -> str:
    """A moment, in milliseconds since 1970, for a message: its wall-clock time in `zone` to the
    second, followed by the zone's name."""
    moment = datetime.datetime.fromtimestamp(epoch_ms // 1000, rules_of(zone))
    return f"{clock_text(moment)} {zone}"


def has_moment(text: str) -> bool:
    """Whether `moments_in_zone` finds a moment in the text."""
    return _MOMENT.search(text) is not None


def moments_in_zone(text: str, zone: str) -> str:
    """Return the text with its moments in `zone`, each followed by the zone's name."""
    rules = rules_of(zone)

    def moved(match: re.Match[str]) -> str:
        try:
            moment = datetime.datetime.fromisoformat(f"{match[1]}+00:00").astimezone(rules)
        except (ValueError, OverflowError):
            return match[0]
        return f"{clock_text(moment)} {zone}"

    return text if zone == UTC else _MOMENT.sub(moved, text)


def in_zone(rows: pa.Table, zone: str) -> pa.Table:
    """The rows with their instants, nested ones too, in `zone`. The instants stay the same; times
    without a zone are not changed."""
    for place, field in enumerate(rows.schema):
        wanted = _zoned(field.type, zone)
        if wanted != field.type:
            rows = rows.set_column(place, field.with_type(wanted), rows.column(place).cast(wanted))
    return rows


def zones_of(schema: pa.Schema) -> dict[str, list[str]]:
    """The names of the columns with instants, by the zone that those are in."""
    columns: dict[str, list[str]] = {}
    for field in schema:
        for zone in _zones(field.type):
            names = columns.setdefault(zone, [])
            if field.name not in names:
                names.append(field.name)
    return columns


def _zones(data_type: pa.DataType) -> list[str]:
    if pa.types.is_timestamp(data_type):
        return [data_type.tz] if data_type.tz else []
    inner = [data_type.field(place).type for place in range(data_type.num_fields)]
    return [zone for part in inner for zone in _zones(part)]


def _zoned(data_type: pa.DataType, zone: str) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(data_type) and data_type.tz:
        return pa.timestamp(data_type.unit, zone)
    if types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(_zoned_field(key, zone), _zoned_field(item, zone))
    if types.is_large_list(data_type):
        return pa.large_list(_zoned_field(data_type.value_field, zone))
    if types.is_list(data_type):
        return pa.list_(_zoned_field(data_type.value_field, zone))
    if types.is_struct(data_type):
        return pa.struct([_zoned_field(part, zone) for part in data_type])
    return data_type


def _zoned_field(field: pa.Field, zone: str) -> pa.Field:
    return field.with_type(_zoned(field.type, zone))


# Rules of a zone as Java has them.
#
# Java and the machine each have a time zone database of their own, and before 1970 those differ for
# many zones: `Europe/Amsterdam` is 20 minutes ahead of UTC in 1930 in one, on UTC in another. Spark
# reads and casts times by Java's, so a clock that we show must follow Java's too.


_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)
# Less than a summer time has ever lasted.
_STEP_S = 16 * 86_400
_JAVA_OFFSET = r"Z|[+-]\d\d:\d\d(?::\d\d)?"
_TRANSITION = re.compile(
    rf"Transition\[\w+ at (-?\d+-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)"
    rf"({_JAVA_OFFSET}) to ({_JAVA_OFFSET})\]"
)


class Transition(NamedTuple):
    """A change of a zone's offset from UTC, in seconds; `at_s` is in seconds since 1970 UTC."""

    at_s: int
    before_s: int
    after_s: int


class JavaRules(ZoneInfo):
    """A zone by Java's transitions, and by Python's rules after `until_s`, the last moment at which
    they differ. Arrow and pandas take it for Python's zone of its name."""

    until_s: int
    _transitions: Sequence[Transition]
    _ats: Sequence[int]

    @classmethod
    def of(cls, name: str, transitions: Sequence[Transition], until_s: int) -> JavaRules:
        """The zone of that name. Raises what ZoneInfo raises for one that Python does not know."""
        rules = cls.no_cache(name)
        rules.until_s, rules._transitions = until_s, transitions
        rules._ats = [each.at_s for each in transitions]
        return rules

    def __reduce__(self) -> tuple[object, ...]:
        return JavaRules.of, (self.key, self._transitions, self.until_s)

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta | None:
        """The offset at a wall-clock time; `fold` chooses where one occurs twice or never."""
        if moment is None:
            return None
        clock = _seconds(moment)
        if clock - 86_400 > self.until_s:
            return super().utcoffset(moment)
        first = max(0, bisect_right(self._ats, clock - 86_400) - 1)
        for place in range(first, len(self._transitions)):
            each = self._transitions[place]
            edges = each.at_s + each.before_s, each.at_s + each.after_s
            # Where the time occurs twice or never, the first answer is the offset before.
            if clock < (min(edges) if moment.fold else max(edges)):
                return each.before_s * _SECOND
        return self._transitions[-1].after_s * _SECOND

    def fromutc(self, moment: datetime.datetime) -> datetime.datetime:
        """The wall-clock time at a moment, with its `fold`."""
        at = _seconds(moment)
        if at > self.until_s:
            return super().fromutc(moment)
        place = bisect_right(self._ats, at)
        if not place:
            return moment + self._transitions[0].before_s * _SECOND
        last = self._transitions[place - 1]
        clock = moment + last.after_s * _SECOND
        return clock.replace(fold=int(at + last.after_s < last.at_s + last.before_s))


def java_rules(name: str, transitions_text: str) -> JavaRules | None:
    """The rules of a zone by the text of Java's `ZoneRules.getTransitions()`; None where Python's
    are the same, or the text lists none."""
    zone, until_s = ZoneInfo(name), None
    transitions = _read(transitions_text)
    for each, following in zip(transitions, [*transitions[1:], None], strict=False):
        if _ahead_s(zone, each.at_s - 1) != each.before_s:
            until_s = each.at_s + _STEP_S
        # Python may know changes where Java knows none.
        end = each.at_s + 1 if following is None else following.at_s
        for at_s in range(each.at_s, end, _STEP_S):
            if _ahead_s(zone, at_s) != each.after_s:
                until_s = at_s + _STEP_S
    return None if until_s is None else JavaRules.of(name, transitions, until_s)


def _read(text: str) -> list[Transition]:
    transitions = []
    for local, before, after in _TRANSITION.findall(text):
        before_s = _offset_s(before)
        at_s = _seconds(datetime.datetime.fromisoformat(local)) - before_s
        transitions.append(Transition(at_s, before_s, _offset_s(after)))
    return transitions


def _offset_s(text: str) -> int:
    if text == "Z":
        return 0
    hours, minutes, *seconds = (int(part) for part in text[1:].split(":"))
    ahead = hours * 3600 + minutes * 60 + sum(seconds)
    return ahead if text[0] == "+" else -ahead


def _ahead_s(zone: ZoneInfo, at_s: int) -> int:
    moment = (_EPOCH + at_s * _SECOND).replace(tzinfo=datetime.UTC)
    ahead = moment.astimezone(zone).utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())


def _seconds(moment: datetime.datetime) -> int:
    return (moment.replace(tzinfo=None, fold=0) - _EPOCH) // _SECOND
