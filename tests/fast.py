"""The fast tests: those that start no Spark, no JVM and no other process.

Which ones these are is not listed anywhere. A file that took long when it was last recorded is not
even imported. A test that says by a mark or a fixture that it is none of them is left out. Any
other is skipped when it, or what it calls, starts a process.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

__all__ = ["Fast"]

_SECONDS_MAX = 5
"""What a file may take: there are hundreds, and they should take less than a minute together."""

_MARKS = ("spark", "cluster", "java", "browser", "slow", "soak")
_FIXTURES = {"spark", "postgres"}
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn")
_REASON = "starts a process"


def _is_slow(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in _MARKS)
    return marked or not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


class Fast:
    """A plugin that leaves out what is slow, and lets no test start a process."""

    def __init__(self, root: Path, seconds: Mapping[str, float]) -> None:
        self._dear = {root / name for name, took in seconds.items() if took > _SECONDS_MAX}
        self._is_running = False
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGUSR2, self._end)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in self._dear else None

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [item for item in items if _is_slow(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_slow(item)]

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from self._watched())

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from self._watched())

    def _watched(self) -> Iterator[None]:
        self._is_running = True
        try:
            return (yield)
        finally:
            self._is_running = False

    def _audit(self, event: str, _: object) -> None:
        if not self._is_running or event not in _STARTS:
            return
        if threading.current_thread() is threading.main_thread():
            pytest.skip(_REASON)
        # The test waits for what another thread does: it is told by a signal, and waits no longer.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        raise PermissionError(_REASON)

    def _end(self, *_: object) -> None:
        if self._is_running:
            pytest.skip(_REASON)
