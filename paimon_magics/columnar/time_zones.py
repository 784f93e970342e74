"""Time zones: Spark's names as Arrow's, and a table's instants in a zone.

Spark names zones as Java's `ZoneId.of(id, ZoneId.SHORT_IDS)` does (`SparkDateTimeUtils.getZoneId`):
regions, offsets with and without `UTC` or `GMT` in front, and old names of three letters. Arrow,
pandas and Python know regions of the time zone database and offsets as `+05:30`.
"""

from __future__ import annotations

import datetime
import os
import re
from functools import lru_cache
from zoneinfo import ZoneInfo

import pyarrow as pa

from paimon_magics.columnar.zone_rules import JavaRules, java_rules

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
