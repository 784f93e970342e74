"""Temporary folders that are removed with their process, however it ends.

A process holds a lock on a file in each of its folders. The system releases the lock when the
process ends. So a folder whose lock is free belongs to nobody, and `remove_left` removes it: a
kernel that was killed could not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

from paimon_magics.forks import renew_after_fork

_PREFIX = "paimon-magics-"
_OWNER = ".owner"
# A folder younger than that may not have its lock yet.
_NEW_SECONDS = 60


class OwnedFolder:
    """A new temporary folder at `path`, for this user alone. It is removed when nothing refers to
    this object any more, when Python ends, or before. A forked child leaves it to its parent."""

    def __init__(self, purpose: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        lock = os.open(self.path / _OWNER, os.O_CREAT | os.O_RDWR, 0o600)
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the folder, and its lock, stay the parent's."""
        detached = self._finalizer.detach()
        if detached is not None:
            os.close(detached[2][1])

    def remove(self) -> None:
        """Remove the folder."""
        self._finalizer()


def remove_left() -> int:
    """Remove this user's folders whose processes have ended; return how many there were."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                status = os.fstat(lock)
                if status.st_uid != os.getuid() or time.time() - status.st_mtime < _NEW_SECONDS:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(lock)
