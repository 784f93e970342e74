"""Which automatic tags a table gets, and which of them go: Paimon's `TagAutoCreation`.

A tag is made of the first snapshot whose time is at least the end of the tag's period and its
delay. It is named by the time at which its period began.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.options.values import (
    boolean_value,
    duration_ms,
    integer_value,
    retention_ms,
    tag_period_ms,
    zone_value,
)
from paimon_magics.planning.schemas.table_schema import TableSchema

_EPOCH = datetime.datetime(1970, 1, 1)
_HOURLY = ("%Y-%m-%d %H", "%Y%m%d %H", "%Y%m%d%H")
_PERIODS = {
    "daily": (datetime.timedelta(days=1), ("%Y-%m-%d", "%Y%m%d", "%Y%m%d")),
    "hourly": (datetime.timedelta(hours=1), _HOURLY),
    # Whatever the formatter is, as in `TwoHoursTagPeriodHandler`.
    "two-hours": (datetime.timedelta(hours=2), (_HOURLY[0],) * 3),
}
_FORMATTERS = ("with_dashes", "without_dashes", "without_dashes_and_spaces")
_OF_DURATION = "%Y%m%d%H%M"
_NO_WATERMARK = -(2**63)


@dataclass(frozen=True, slots=True)
class TaggedTime:
    """A snapshot that may get a tag: its id, when it was committed (milliseconds since 1970), and
    its watermark (likewise; None if it has none)."""

    snapshot_id: int
    time_ms: int
    watermark: int | None


@dataclass(frozen=True, slots=True)
class AutomaticTags:
    """A table's rules for automatic tags.

    `pattern` is that of `strftime` for their names. `by_watermark` tells which time of a snapshot
    counts, `zone` in which zone ("" is the zone of the process). `kept_max` is the number of
    snapshots with automatic tags that are kept, `retained` how long such a tag lives, as Paimon
    writes durations; None is for ever.
    """

    period: datetime.timedelta
    pattern: str
    by_watermark: bool
    zone: str
    delay: datetime.timedelta
    completes: bool
    kept_max: int | None
    retained: str | None

    @classmethod
    def of(cls, schema: TableSchema) -> AutomaticTags | None:
        """The rules of a table; None if it creates no tags by itself. Raises InvalidTableError for
        options that can't be read, and for a delay that is not shorter than the period."""
        mode = (schema.option("tag.automatic-creation") or "none").lower()
        if mode not in ("process-time", "watermark"):
            return None
        period, pattern = _period(schema)
        delay_ms = schema.parsed("tag.creation-delay", duration_ms, 0.0)
        delay = datetime.timedelta(milliseconds=delay_ms)
        if delay >= period:
            raise InvalidTableError(
                f"'tag.creation-delay' is {schema.option('tag.creation-delay')}, which is not "
                "shorter than the period of the automatic tags.",
                hint="Set it to less than 'tag.creation-period'.",
            )
        by_watermark = mode == "watermark"
        key = "sink.watermark-time-zone" if by_watermark else _PROCESS_ZONE
        zone = schema.option(key)
        retained = schema.stored_option("tag.default-time-retained")
        if retained is not None:
            retention_ms("tag.default-time-retained", retained)
        return cls(
            period,
            pattern,
            by_watermark,
            zone_value(key, zone) if zone else "",
            delay,
            schema.parsed("tag.automatic-completion", boolean_value, False),
            schema.parsed("tag.num-retained-max", integer_value, None),
            retained,
        )

    def time_of(self, tag: str) -> datetime.datetime | None:
        """The time in a tag's name; None for a tag that is not automatic."""
        text = tag.split(" ")[0] if self.pattern in _PERIODS["daily"][1] else tag
        try:
            time = datetime.datetime.strptime(text, self.pattern)
        except ValueError:
            return None
        return time if time.strftime(self.pattern) == text else None

    def first_snapshot(self, tags: Mapping[str, int]) -> int:
        """The first snapshot that may get a tag: the one after the last that has one. `tags` are
        all tags, with the ids of their snapshots."""
        last = self._last(tags)
        return 1 if last is None else tags[last[1]] + 1

    def created(
        self,
        tags: Mapping[str, int],
        snapshots: Iterable[TaggedTime],
        local: Callable[[int], datetime.datetime],
    ) -> list[tuple[str, int]]:
        """The tags to create with the ids of their snapshots. `snapshots` are those from
        `first_snapshot` on, in order; `local` gives a moment (milliseconds since 1970) by the clock
        of the rules' zone."""
        last = self._last(tags)
        following = None if last is None else last[0] + self.period
        new: list[tuple[str, int]] = []
        for snapshot in snapshots:
            moment_ms = snapshot.watermark if self.by_watermark else snapshot.time_ms
            if moment_ms is None or moment_ms == _NO_WATERMARK:
                continue
            time = local(moment_ms)
            if following is not None and time - self.delay < following + self.period:
                continue
            whole = (time - _EPOCH) // self.period
            tagged = _EPOCH + whole * self.period - self.period
            if self.completes and following is not None:
                tagged = following
            name = tagged.strftime(self.pattern)
            if name not in tags:
                new.append((name, snapshot.snapshot_id))
            following = tagged + self.period
        return new

    def surplus(self, tags: Mapping[str, int]) -> list[str]:
        """The automatic tags that are more than the rules keep, the oldest first. `tags` as in
        `first_snapshot`."""
        if self.kept_max is None:
            return []
        automatic = [(id, tag) for tag, id in tags.items() if self.time_of(tag) is not None]
        ids = sorted({id for id, _ in automatic})
        gone = set(islice(ids, max(len(ids) - self.kept_max, 0)))
        return [tag for id, tag in sorted(automatic) if id in gone]

    def _last(self, tags: Iterable[str]) -> tuple[datetime.datetime, str] | None:
        times = ((self.time_of(tag), tag) for tag in tags)
        return max(((time, tag) for time, tag in times if time is not None), default=None)


_PROCESS_ZONE = "sink.process-time-zone"


def _period(schema: TableSchema) -> tuple[datetime.timedelta, str]:
    key = "tag.creation-period-duration"
    if schema.stored_option(key) is not None:
        period_ms = schema.parsed(key, tag_period_ms, 0.0)
        return datetime.timedelta(milliseconds=period_ms), _OF_DURATION
    chosen = (schema.option("tag.creation-period") or "daily").lower()
    formatter = (schema.option("tag.period-formatter") or _FORMATTERS[0]).lower()
    if chosen not in _PERIODS or formatter not in _FORMATTERS:
        raise InvalidTableError(
            f"'tag.creation-period' = '{chosen}' and 'tag.period-formatter' = '{formatter}' name "
            "no automatic tags.",
            hint=f"Periods are {', '.join(_PERIODS)}; formatters are {', '.join(_FORMATTERS)}.",
        )
    period, patterns = _PERIODS[chosen]
    return period, patterns[_FORMATTERS.index(formatter)]
