"""Rules of a time zone as Java has them, where Python's time zone database has others.

Java and the machine each have a time zone database of their own, and before 1970 those differ for
many zones: `Europe/Amsterdam` is 20 minutes ahead of UTC in 1930 in one, on UTC in another. Spark
reads and casts times by Java's, so a clock that we show must follow Java's too.
"""

from __future__ import annotations

import datetime
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = datetime.timedelta(seconds=1)
# Less than a summer time has ever lasted.
_STEP_S = 16 * 86_400
_OFFSET = r"Z|[+-]\d\d:\d\d(?::\d\d)?"
_TRANSITION = re.compile(
    rf"Transition\[\w+ at (-?\d+-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)({_OFFSET}) to ({_OFFSET})\]"
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
    found = []
    for local, before, after in _TRANSITION.findall(text):
        before_s = _offset_s(before)
        at_s = _seconds(datetime.datetime.fromisoformat(local)) - before_s
        found.append(Transition(at_s, before_s, _offset_s(after)))
    return found


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
