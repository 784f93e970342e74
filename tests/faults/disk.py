"""A disk of a few megabytes that a test can fill."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A small file system, mounted as a warehouse."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        folder.mkdir()
        self.folder = folder
        self._ballast = folder / "ballast"
        self._mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))

    def fill(self, room_bytes: int = 0) -> None:
        """Leave no more than so much room."""
        with self._ballast.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            file.truncate(file.tell() - room_bytes)

    def write_protect(self) -> None:
        self._mount("-o", "remount,ro", str(self.folder))

    def mend(self) -> None:
        self._mount("-o", "remount,rw", str(self.folder))
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def mounted_disk(folder: Path, megabytes: int = 2) -> Iterator[Disk]:
    """A disk at `folder`; the test is skipped where nothing can be mounted."""
    try:
        disk = Disk(folder, megabytes)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system can't be mounted here: {error}")
    try:
        yield disk
    finally:
        disk.close()
