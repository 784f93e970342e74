"""Time travel: the snapshots for a read point, whose state or changes are read.

The rules are those of Paimon's starting scanners for batch reads
(`StaticFromSnapshotStartingScanner` and its relatives, `IncrementalDeltaStartingScanner`,
`IncrementalDiffStartingScanner`) and of `TimeTravelUtil`. Times in text are local times of the zone
that the caller names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, assert_never

from paimon_magics.columnar.time_zones import clock_text, rules_of
from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest
from paimon_magics.planning.reads.read_points import (
    AtSnapshot,
    AtTag,
    AtTimestamp,
    AtVersion,
    AtWatermark,
    Between,
    BetweenTimestamps,
    Committed,
    CreatedAfter,
    CreatedFrom,
    Latest,
    ReadPoint,
    ScanMode,
    ToAutoTag,
)
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.tables.snapshots.latest import (
    earliest_snapshot_id,
    latest_snapshot,
    read_snapshot,
)
from paimon_magics.tables.snapshots.tagged import tag_snapshot
from paimon_magics.tables.snapshots.targets import (
    Difference,
    Resolved,
    SnapshotChanges,
    TableState,
    Target,
)
from paimon_magics.tables.table import Table

# Without quotes, 2026-01-31 is the number 1994, and 20260131 a number of seconds: times in 1970.
_HARDLY_MEANT_MS = 365 * 86_400_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MOMENT = re.compile(
    r"(\d{4,}-\d\d?-\d\d?)"
    r"(?:[ T](\d\d?:\d\d?)(?::(\d\d?)(\.\d{1,9})?)? ?(Z|[+-](?:0\d|1[0-8])(?::?[0-5]\d)?)?)?"
)
_NOTHING = SnapshotChanges((), ScanMode.DELTA)


_PERIODS = {
    "daily": ("%Y-%m-%d", "%Y%m%d", "%Y%m%d"),
    "hourly": ("%Y-%m-%d %H", "%Y%m%d %H", "%Y%m%d%H"),
    "two-hours": ("%Y-%m-%d %H", "%Y%m%d %H", "%Y%m%d%H"),
}
_FORMATTERS = ("with_dashes", "without_dashes", "without_dashes_and_spaces")


def find_target(table: Table, point: ReadPoint, zone: str) -> Resolved:
    """The target of a read point, with snapshots of the table, or of its branch.

    `zone` is the time zone of times in text. Raises UnknownNameError for a snapshot, tag, version
    or time that the table does not have, InvalidValueError for a range that makes no sense.
    """
    finder = _Finder(table, zone)
    return Resolved(finder.target(point), finder.by_tag)


def moment_ms(text: str, zone: str) -> int:
    """The milliseconds since 1970 UTC of a time in text: a date, or date and time to the minute or
    with up to nine digits of a second. It is in `zone`, unless an offset or `Z` follows. Raises
    InvalidValueError for any other text."""
    match = _MOMENT.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError(text)
        year, month, day = (int(part) for part in match[1].split("-"))
        hour, minute = (int(part) for part in (match[2] or "0:0").split(":"))
        second, millis = int(match[3] or 0), int((match[4] or ".0")[1:].ljust(3, "0")[:3])
        local = datetime.datetime(
            year, month, day, hour, minute, second, millis * 1000, rules_of(match[5] or zone)
        )
    except ValueError:
        raise InvalidValueError(
            f"'{text}' is not a time.",
            hint="Write it as '2026-01-31 23:59:59', '2026-01-31 23:59' or '2026-01-31'.",
        ) from None
    elapsed = local - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return elapsed // datetime.timedelta(milliseconds=1)


class _Finder:
    def __init__(self, table: Table, zone: str) -> None:
        self._table = table
        self._paimon = table.paimon
        self._zone = zone
        self.latest = latest_snapshot(table.paimon)
        self.by_tag = False  # whether tags keep all snapshots that were found

    def target(self, point: ReadPoint) -> Target:
        match point:
            case Latest():
                return TableState(self.latest)
            case CreatedAfter(time_ms=time_ms):
                return TableState(self.latest, created_after_ms=time_ms)
            case CreatedFrom(time_ms=time_ms):
                first = self._first(lambda snapshot: snapshot.time_millis >= time_ms)
                if first is None:
                    return TableState(self.latest, created_after_ms=time_ms)
                return TableState(first, is_past=True)
            case Between():
                return self._between(point)
            case BetweenTimestamps():
                return self._between_times(point)
            case Committed():
                return self._committed_at(point) if point.by_time else self._committed(point)
            case ToAutoTag(tag=tag):
                return self._to_auto_tag(tag)
            case AtSnapshot(snapshot_id=snapshot_id):
                snapshot = self._snapshot(snapshot_id)
            case AtTag(name=name):
                snapshot = self._tag(name) or self._unknown_tag(name)
                self.by_tag = True
            case AtVersion(version=version):
                snapshot = self._version(version)
            case AtTimestamp(time=time):
                snapshot = self._at_time(self._ms(time))
            case AtWatermark(watermark=watermark):
                snapshot = self._at_watermark(watermark)
            case _:
                assert_never(point)
        return TableState(snapshot, is_past=True)

    def _at_watermark(self, watermark: int) -> Any:
        first = self._first(lambda s: s.watermark is not None and s.watermark >= watermark)
        problem = f"has no snapshot with a watermark of {watermark} or later"
        return first or self._refuse(problem)

    def _version(self, version: str) -> Any:
        tagged = self._tag(version)
        if tagged is not None:
            self.by_tag = True
            return tagged
        if re.fullmatch(r"watermark-\d+", version):
            return self._at_watermark(int(version.removeprefix("watermark-")))
        return self._snapshot(int(version)) if version.isdigit() else self._unknown_tag(version)

    def _at_time(self, time_ms: int) -> Any:
        last = self._last(lambda snapshot: bool(snapshot.time_millis <= time_ms))
        if last is not None:
            return last
        earliest = self._earliest()
        since = (
            ""
            if earliest is None
            else f"; its first snapshot is from {self._time(earliest.time_millis)}"
        )
        if 0 <= time_ms < _HARDLY_MEANT_MS:
            raise UnknownNameError(
                f"`{self._table.name}` has no snapshot at or before {self._time(time_ms)}.",
                hint="Put the time in quotes: TIMESTAMP AS OF '2026-01-31'. Without quotes it is a "
                "subtraction, or a number of seconds since 1970.",
            )
        return self._refuse(f"has no snapshot at or before {self._time(time_ms)}{since}")

    def _between(self, point: Between) -> Target:
        start, end = self._tag(point.start), self._tag(point.end)
        if start is not None and end is not None:
            if not point.tags_are_snapshots:
                return self._between_tags(point, start, end)
            return self._between_ids(start.id, end.id, point.mode)
        if not (_is_number(point.start) and _is_number(point.end)):
            known = sorted(name for name in self._tag_names())
            unknown = point.start if start is None and not _is_number(point.start) else point.end
            raise UnknownNameError(
                f"'{point.start}' and '{point.end}' are neither two tags nor two snapshots of "
                f"`{self._table.name}`.",
                hint=nearest(unknown, known, what="tags") if known else "It has no tags.",
            )
        start_id, end_id = int(point.start), int(point.end)
        if end_id < start_id:
            raise InvalidValueError(
                f"The changes of `{self._table.name}` can't end at snapshot {end_id}, before their "
                f"start at {start_id}.",
                hint="Give the earlier snapshot first.",
            )
        if self.latest is None or start_id == end_id:
            return _NOTHING
        if point.mode is ScanMode.DIFF:
            return Difference(self._snapshot(start_id), self._snapshot(end_id))
        return self._between_ids(start_id, end_id, point.mode)

    def _between_tags(self, point: Between, start: Any, end: Any) -> Target:
        if end.id < start.id:
            raise InvalidValueError(
                f"The tag '{point.end}' of `{self._table.name}` (snapshot {end.id}) is older than "
                f"'{point.start}' (snapshot {start.id}).",
                hint="Give the older tag first.",
            )
        self.by_tag = True
        return _NOTHING if start.id == end.id else Difference(start, end)

    def _between_ids(self, start_id: int, end_id: int, mode: ScanMode) -> Target:
        earliest = self._earliest()
        if earliest is None:
            return _NOTHING
        # The start itself is not read, so the id before the first snapshot is allowed too.
        if start_id < earliest.id - 1 or end_id > self.latest.id:
            raise UnknownNameError(
                f"`{self._table.name}` does not have all changes from snapshot {start_id} to "
                f"{end_id}.",
                hint=f"It has the snapshots {earliest.id} to {self.latest.id}, so the start "
                f"can't be before {earliest.id - 1}.",
            )
        return self._changes(start_id, end_id, mode)

    def _between_times(self, point: BetweenTimestamps) -> Target:
        start, end = self._ms(point.start), self._ms(point.end)
        if isinstance(point.end, int) and 0 < end < _HARDLY_MEANT_MS:
            raise InvalidValueError(
                f"{end} is no time that changes could end at: a number counts milliseconds since "
                "1970.",
                hint="Give the changes between two snapshots with paimon_incremental_query, or "
                "'incremental-between'. Write a time as '2026-01-31 23:59:59'.",
            )
        earliest = self._earliest()
        if earliest is None:
            return _NOTHING
        if end < start:
            raise InvalidValueError(
                f"The changes of `{self._table.name}` can't end at {self._time(end)}, before "
                f"their start at {self._time(start)}.",
                hint="Give the earlier time first.",
            )
        if start == end or start > self.latest.time_millis or end < earliest.time_millis:
            return _NOTHING
        before = self._last(lambda snapshot: bool(snapshot.time_millis <= start))
        after = self._last(lambda snapshot: bool(snapshot.time_millis <= end)) or self.latest
        if point.mode is not ScanMode.DIFF:
            start_id = earliest.id - 1 if before is None else before.id
            return self._changes(start_id, after.id, point.mode)
        if before is None and earliest.id == 1:
            return TableState(after, is_past=True)
        return Difference(before or earliest, after)

    def _committed(self, point: Committed) -> Target:
        earliest = self._earliest()
        if earliest is None:
            return _NOTHING
        first = self._number(point.start)
        last = self.latest.id if point.end is None else self._number(point.end)
        if point.end is not None and last < first:
            raise InvalidValueError(
                f"The changes of `{self._table.name}` can't end at version {point.end}, before "
                f"their start at {point.start}.",
                hint="Give the earlier version first.",
            )
        # A start that is not read may be the one before the first snapshot.
        if not earliest.id - (not point.with_start) <= first <= self.latest.id >= last:
            raise UnknownNameError(
                f"`{self._table.name}` does not have all changes of the versions {first} to "
                f"{last}.",
                hint=f"It has the versions {earliest.id} to {self.latest.id}.",
            )
        first += not point.with_start
        last -= point.end is not None and not point.with_end
        return _NOTHING if last < first else self._changes(first - 1, last, point.mode)

    def _number(self, version: str) -> int:
        """The number of a snapshot, or of the one that a tag keeps."""
        tagged = self._tag(version)
        if tagged is None and not version.isdigit():
            self._unknown_tag(version)
        return int(version if tagged is None else tagged.id)

    def _committed_at(self, point: Committed) -> Target:
        # Commits have milliseconds, and the bounds microseconds.
        start = int(point.start)
        first_ms = -(-start // 1000) if point.with_start else start // 1000 + 1
        earliest, last = self._earliest(), self.latest
        if point.end is not None:
            end = int(point.end)
            if end < start:
                raise InvalidValueError(
                    f"The changes of `{self._table.name}` can't end at {self._time(end // 1000)}, "
                    f"before their start at {self._time(start // 1000)}.",
                    hint="Give the earlier time first.",
                )
            last_ms = end // 1000 if point.with_end else -(-end // 1000) - 1
            last = self._last(lambda snapshot: bool(snapshot.time_millis <= last_ms))
        first = self._first(lambda snapshot: bool(snapshot.time_millis >= first_ms))
        if earliest is None or first is None or last is None or last.id < first.id:
            return _NOTHING
        return self._changes(first.id - 1, last.id, point.mode)

    def _to_auto_tag(self, tag: str) -> Target:
        period = _auto_tag_pattern(self._table.schema.option)
        if period is None or _auto_tag_time(tag, period) is None:
            raise InvalidValueError(
                f"'{tag}' is not the name of an automatic tag of `{self._table.name}`.",
                hint="Check the table's options 'tag.creation-period' and 'tag.period-formatter'.",
            )
        end, time = self._tag(tag), _auto_tag_time(tag, period)
        assert time is not None
        earlier = [
            (tag_time, name)
            for name in self._tag_names()
            if (tag_time := _auto_tag_time(name, period)) is not None and tag_time < time
        ]
        if end is None or not earlier:
            return _NOTHING
        self.by_tag = True
        return Difference(self._tag(max(earlier)[1]), end)

    def _changes(self, start_id: int, end_id: int, mode: ScanMode) -> Target:
        if mode is ScanMode.AUTO:
            without = self._table.schema.changelog_producer == "none"
            mode = ScanMode.DELTA if without else ScanMode.CHANGELOG
        snapshots = [self._snapshot(number) for number in range(start_id + 1, end_id + 1)]
        # Overwrites are no change that a reader should see, nor are compactions in DELTA mode.
        changing = tuple(
            snapshot
            for snapshot in snapshots
            if snapshot.commit_kind == "APPEND"
            or (mode is ScanMode.CHANGELOG and snapshot.commit_kind != "OVERWRITE")
        )
        overwrites = tuple(each.id for each in snapshots if each.commit_kind == "OVERWRITE")
        return SnapshotChanges(changing, mode, snapshots[-1] if snapshots else None, overwrites)

    def _first(self, wanted: Callable[[Any], bool]) -> Any:
        """The first `wanted` snapshot, by a binary search: all later ones must be wanted too, as
        watermarks and times only grow."""
        earliest = self._earliest()
        if earliest is None:
            return None
        low, high, first = earliest.id, self.latest.id, None
        while low <= high:
            middle = (low + high) // 2
            snapshot = self._snapshot(middle)
            if wanted(snapshot):
                first, high = snapshot, middle - 1
            else:
                low = middle + 1
        return first

    def _last(self, wanted: Callable[[Any], bool]) -> Any:
        """The last `wanted` snapshot; all earlier ones must be wanted too."""
        refused = self._first(lambda snapshot: not wanted(snapshot))
        if refused is None:
            return self.latest
        earliest = self._earliest()
        return None if refused.id == earliest.id else self._snapshot(refused.id - 1)

    def _snapshot(self, snapshot_id: int) -> Any:
        snapshot = read_snapshot(self._paimon, snapshot_id)
        if snapshot is not None:
            return snapshot
        earliest = self._earliest()
        if earliest is None:
            return self._refuse("has no snapshots")
        return self._refuse(
            f"has no snapshot {snapshot_id}; it has {earliest.id} to {self.latest.id}"
        )

    def _earliest(self) -> Any:
        if self.latest is None:
            return None
        earliest_id = earliest_snapshot_id(self._paimon, self._table.store)
        earliest = None if earliest_id is None else read_snapshot(self._paimon, earliest_id)
        return earliest or self.latest

    def _tag(self, name: str) -> Any:
        """The snapshot that a tag keeps; None if there is no such tag."""
        if "/" in name or not name.strip():
            return None
        return tag_snapshot(self._paimon, name)

    def _tag_names(self) -> list[str]:
        return [str(name) for name in self._paimon.tag_manager().list_tags()]

    def _unknown_tag(self, name: str) -> Any:
        names = self._tag_names()
        raise UnknownNameError(
            f"`{self._table.name}` has no tag '{name}'.",
            hint=nearest(name, names, what="tags") if names else "It has no tags.",
        )

    def _refuse(self, problem: str) -> Any:
        raise UnknownNameError(
            f"`{self._table.name}` {problem}.",
            hint=f"SELECT * FROM {table_text(self._table.name, 'snapshots')} lists the snapshots.",
        )

    def _ms(self, time: int | str) -> int:
        return time if isinstance(time, int) else moment_ms(time, self._zone)

    def _time(self, time_ms: int) -> str:
        """A moment to the millisecond: where one decides, the second would contradict itself."""
        moment = _EPOCH + datetime.timedelta(milliseconds=time_ms)
        return f"{clock_text(moment.astimezone(rules_of(self._zone)))} {self._zone}"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+", text) is not None


# Names of the tags that Paimon creates automatically: formatted times (`TagPeriodHandler`).


def _auto_tag_pattern(option: Callable[[str], str | None]) -> str | None:
    """The `strftime` pattern for the names of a table's automatic tags; None if it has none.

    `option` gives the value of a table option.
    """
    patterns = _PERIODS.get((option("tag.creation-period") or "").lower())
    formatter = (option("tag.period-formatter") or "with_dashes").lower()
    if patterns is None or formatter not in _FORMATTERS:
        return None
    return patterns[_FORMATTERS.index(formatter)]


def _auto_tag_time(name: str, pattern: str) -> datetime.datetime | None:
    """The time in a tag's name; None for a name of another form."""
    try:
        time = datetime.datetime.strptime(name, pattern)
    except ValueError:
        return None
    return time if time.strftime(pattern) == name else None
