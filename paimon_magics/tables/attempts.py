"""Who is still writing for a transaction: one locked marker file per running task attempt.

A task that Spark was told to stop goes on for seconds, and may create a file after those of the
transaction were removed. So each attempt holds a lock on a marker in the transaction's folder
while it writes, and ending the transaction moves the folder away first (no attempt can begin any
more) and then waits for the locks. A process that dies gives its lock up by dying.

For tables on local disks of a POSIX system; elsewhere there is no folder, and the caller must wait.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator

from paimon_magics.errors import JobError
from paimon_magics.tables.locations import local_path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["attempt", "attempts_folder", "close_attempts", "open_attempts"]

_POLL_SECONDS = 0.02


def attempts_folder(location: str, prefix: str) -> str | None:
    """Where the transaction with that file prefix keeps its markers; None where it can't."""
    root = local_path(location)
    if root is None or fcntl is None:
        return None
    return os.path.join(root, f".{prefix}attempts")


def open_attempts(folder: str | None) -> None:
    """Let attempts begin."""
    if folder is not None:
        os.makedirs(folder, exist_ok=True)


@contextlib.contextmanager
def attempt(folder: str | None) -> Iterator[None]:
    """Run the body as an attempt; raises JobError when the transaction has ended."""
    if folder is None:
        yield
        return
    path = os.path.join(folder, uuid.uuid4().hex)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileNotFoundError:
        raise _ended() from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        # Between the two calls the folder may have been moved and this marker passed over.
        if not os.path.exists(path):
            raise _ended()
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.close(descriptor)


def close_attempts(folder: str | None, wait_ms_max: int) -> bool:
    """Let no attempt begin any more and wait for the running ones.

    Returns whether all have ended within `wait_ms_max`; the folder is gone then. Calling it again
    is harmless.
    """
    if folder is None:
        return False
    closed = f"{folder}.closed"
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, closed)
    deadline = time.monotonic() + wait_ms_max / 1000
    try:
        markers = [os.path.join(closed, name) for name in os.listdir(closed)]
    except FileNotFoundError:
        return True
    for marker in markers:
        while not _has_ended(marker):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
    shutil.rmtree(closed, ignore_errors=True)
    return True


def _has_ended(marker: str) -> bool:
    try:
        descriptor = os.open(marker, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _ended() -> JobError:
    return JobError("The statement that this task writes for has ended; it writes nothing.")
