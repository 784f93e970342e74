"""Reports rows and bytes of our Python tasks while they run, in small files.

Spark reports little of Python tasks before they end. So each of ours writes its counts into a file
in a folder of the driver's, at most once a second, and once when it ends. The folder exists while
there is a listener. Without it, as on another machine, a task reports nothing, after one check for
the folder. That works wherever tasks run on the driver's machine: in threads of the driver's JVM,
in executors beside it, and behind Spark Connect. Tasks on other machines are not reported.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paimon_magics.temporary_folders import OwnedFolder

_EVERY_SECONDS = 1.0
_RECORD = struct.Struct("<qq?")


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The latest counts of one task; `writes` tells whether it writes or reads."""

    stage: int
    partition: int
    writes: bool
    rows: int
    size_bytes: int


class Reporter:
    """Writes a task's counts, in the task. `folder` is the driver's `reports_folder`."""

    def __init__(self, folder: str, *, writes: bool) -> None:
        from pyspark import TaskContext

        self._rows = self._bytes = 0
        self._file: str | None = None
        self._next = time.monotonic() + _EVERY_SECONDS
        context = TaskContext.get()
        # The file of a retried task replaces the file of the previous attempt.
        if context is not None and os.path.isdir(folder):
            name = f"{context.stageId()}-{context.partitionId()}-{'w' if writes else 'r'}"
            self._file = os.path.join(folder, name)

    def add(self, rows: int, size_bytes: int) -> None:
        """Add `rows` and `size_bytes` to what is done."""
        self._rows += rows
        self._bytes += size_bytes
        if self._file is not None and time.monotonic() >= self._next:
            self._write(is_over=False)
            self._next = time.monotonic() + _EVERY_SECONDS

    def end(self) -> None:
        """Report that the task is done."""
        if self._file is not None:
            self._write(is_over=True)

    def _write(self, *, is_over: bool) -> None:
        assert self._file is not None
        with suppress(OSError):  # there is no listener any more
            file = os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.pwrite(file, _RECORD.pack(self._rows, self._bytes, is_over), 0)
            finally:
                os.close(file)


@cache
def reports_folder() -> str:
    """The folder for the reports of this process's jobs. It exists only while they are `heard`."""
    return str(_owned().path / "reports")


@cache
def _owned() -> OwnedFolder:
    return OwnedFolder("tasks")


class _Listeners:
    """The listeners to this process's tasks. The folder for reports exists as long as there is a
    listener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def enter(self) -> None:
        with self._lock:
            self.count += 1
            with suppress(OSError):
                Path(reports_folder()).mkdir(mode=0o700, parents=True, exist_ok=True)

    def leave(self) -> None:
        with self._lock:
            self.count -= 1
            if not self.count:
                shutil.rmtree(reports_folder(), ignore_errors=True)


_LISTENERS = _Listeners()


@contextmanager
def heard() -> Iterator[None]:
    """Tasks that begin in the body report their counts."""
    _LISTENERS.enter()
    try:
        yield
    finally:
        _LISTENERS.leave()


def is_alone() -> bool:
    """Whether there is only one listener, so that all reports are for it."""
    return _LISTENERS.count == 1


def read_reports(ended: dict[tuple[int, int, bool], TaskCounts]) -> list[TaskCounts]:
    """The counts of all tasks. Those of ended tasks are put into `ended`, and not read again."""
    counts = list(ended.values())
    try:
        names = os.listdir(reports_folder())
    except OSError:
        return counts
    for name in names:
        stage, partition, kind = name.split("-")
        key = int(stage), int(partition), kind == "w"
        if key in ended:
            continue
        with suppress(OSError):
            record = (Path(reports_folder()) / name).read_bytes()
            if len(record) == _RECORD.size:
                rows, size_bytes, is_over = _RECORD.unpack(record)
                task_counts = TaskCounts(*key, rows, size_bytes)
                counts.append(task_counts)
                if is_over:
                    ended[key] = task_counts
    return counts
