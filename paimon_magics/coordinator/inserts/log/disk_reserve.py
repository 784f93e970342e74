"""The space left on the disk that holds a log, noted once a second: no request waits for a disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from paimon_magics.coordinator.runtime import Runtime
from paimon_magics.coordinator.service.health import Fact, Noted

__all__ = ["DiskReserve"]

_LOOK_MS = 1_000.0


class DiskReserve:
    """Space on the disk of `folder`, of which `reserve_bytes` are kept for loading what waits.
    `holds_log` says whether inserts or commits are stored there. For any thread."""

    def __init__(
        self, runtime: Runtime, folder: Path, reserve_bytes: int, *, holds_log: bool = True
    ) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._holds_log = holds_log

        def free_bytes() -> int:
            return shutil.disk_usage(folder).free

        self._free = Noted(runtime, "disk", free_bytes, _LOOK_MS, free_bytes())

    def stop(self) -> None:
        """Look at it no more."""
        self._free.stop()

    @property
    def problem(self) -> str:
        """Why nothing may be written, "" where more may be."""
        if not self._holds_log:
            return ""
        if self._free.problem:
            return f"The disk of {self._folder} does not work: {self._free.problem}."
        free = self._free.value
        if free <= self._reserve_bytes:
            return f"The disk of {self._folder} is almost full: {free:,} bytes are free."
        return ""

    def fact(self) -> Fact:
        """The fact for the coordinator's health."""
        return Fact("disk_free_bytes", self._free.value, self.problem, blocks=True)
