"""The space left on the disk that holds a log, checked once a second at most."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

__all__ = ["Room"]

_LOOK_SECONDS = 1.0


class Room:
    """Space on the disk of `folder`, of which `reserve_bytes` are kept for loading what waits.
    Without a folder (the log is not on a local disk) there always is space. For one thread."""

    def __init__(self, folder: Path | None, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes
        self._looked = float("-inf")
        self._is_left = True

    def is_left(self) -> bool:
        """Whether more may be written; as of a second ago."""
        now = time.monotonic()
        if self._folder is not None and now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._is_left = shutil.disk_usage(self._folder).free > self._reserve_bytes
        return self._is_left
