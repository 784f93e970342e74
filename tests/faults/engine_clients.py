"""Engines' clients that commit for as long as a test lasts, through a REST catalog.

Each is a process of pypaimon or of Paimon's Java library, which prints each key when its commit was
answered, and ends where a commit fails. Another process then goes on behind that key.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["COUNT", "EngineClient", "start_pypaimon"]

ROOT = Path(__file__).parents[2]
COUNT = 1_000_000
"""More commits than a client comes to."""


class EngineClient:
    """A client that commits the keys from `first` on until `end`; `start` begins its process.

    `written` has the keys whose commits were answered, `doubtful` those whose commits were not:
    each of these is in the table once or not at all. `said` is the rest of what it printed.
    """

    def __init__(self, start: Callable[[int], subprocess.Popen[str]], first: int) -> None:
        self.written: list[int] = []
        self.doubtful: list[int] = []
        self.said: list[str] = []
        self._start = start
        self._next = first
        self._ending = False
        self._lock = threading.Lock()
        self._process = start(first)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Kill its process, in the middle of a commit perhaps."""
        with self._lock:
            self._ending = True
            self._process.kill()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if line.strip().isdigit():
                    self.written.append(int(line))
                    self._next = int(line) + 1
                else:
                    self.said.append(line)
            self._process.wait()
            self.doubtful.append(self._next)
            with self._lock:
                if self._ending:
                    return
                self._next += 1
                self._process = self._start(self._next)


def start_pypaimon(
    url: str, warehouse: str, token: str, table: str, first: int
) -> subprocess.Popen[str]:
    """Start a process that commits with pypaimon, through the REST catalog at `url`."""
    arguments = [url, warehouse, token, table, str(first), str(COUNT)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.coordinator.rest_writer", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
