"""In which order the files of tests run, and how long each took.

The dearest files start first, so that no process is left alone with a long one at the end. What a
file costs stands in `durations.json`, in seconds of one process; `make durations` writes it anew.
`make test PYTEST_ARGS=--write-durations` does so for the files that it runs whole, new ones among
them. Files that are not in it took less than a second, or are new: they come last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

__all__ = [
    "DURATIONS",
    "FileTimes",
    "as_json",
    "dearest_first",
    "file_of",
    "recorded_seconds",
    "slowest",
]

DURATIONS = Path(__file__).parent / "durations.json"
_SECONDS_MIN = 1.0


def file_of(node_id: str) -> str:
    """The path of the file, below the root of the repository."""
    return node_id.partition("::")[0]


def recorded_seconds() -> dict[str, float]:
    """What each file took when it was last recorded."""
    result: dict[str, float] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return result


def dearest_first(items: list[pytest.Item], seconds: Mapping[str, float]) -> None:
    """Sort the files; the tests of a file keep their order."""
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))


class FileTimes:
    """A plugin that adds up what the files of a run take.

    It prints the slowest ones, and writes `DURATIONS` where it is told to. `in_part` are the
    recorded times of files that this run has only a part of: they stay.
    """

    def __init__(self, shown: int, writes: bool, in_part: Mapping[str, float]) -> None:
        self._shown = shown
        self._writes = writes
        self._in_part = in_part
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._shown:
            terminalreporter.section(f"the {self._shown} slowest files")
            for line in slowest(self._seconds, self._shown):
                terminalreporter.write_line(line)
        if self._writes:
            DURATIONS.write_text(as_json({**self._seconds, **self._in_part}), encoding="utf-8")


def slowest(seconds: Mapping[str, float], number: int) -> list[str]:
    """Lines of the files that took longest."""
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return [f"{took:7.1f}s {name}" for name, took in ordered[:number]]


def as_json(seconds: Mapping[str, float]) -> str:
    """The text of `DURATIONS`: whole seconds, the dearest first."""
    kept = [(name, round(took)) for name, took in seconds.items() if took >= _SECONDS_MIN]
    return json.dumps(dict(sorted(kept, key=lambda item: (-item[1], item[0]))), indent=0) + "\n"
