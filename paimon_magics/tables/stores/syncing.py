"""Making local files and their names durable. Files in other stores are durable already.

When a journaling file system syncs one file, it also makes durable all writes that were begun
before. So writing of all files is started first, and then several threads wait for them
concurrently: they share the file system's writes. A caller with other work to do calls `begin_sync`
early.

If the process dies here, each file may be on the disk or not. So nothing may refer to them before
`sync_files` has returned.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from paimon_magics.tables.stores.paths import local_path

# Writing a larger file takes longer than waiting for the journal. Its pages that are on the disk
# already would also be dropped from the cache, which slows the next read of the table.
_BEGUN_BYTES_MAX = 1 << 20
# A small commit has three files of metadata, a data file, and their folders; several may commit.
_THREADS_MAX = 32


def begin_sync(paths: Iterable[str]) -> None:
    """Start writing small files to the disk. This makes nothing durable.

    Raises FileNotFoundError for a local file that does not exist.
    """
    for path in filter(None, map(local_path, paths)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise") and os.fstat(descriptor).st_size <= _BEGUN_BYTES_MAX:
                # Pages that are declared unneeded are written out; meanwhile they stay cached.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Wait until the files and their names are on the disk.

    Raises FileNotFoundError for a local file that does not exist.
    """
    local = [path for path in map(local_path, paths) if path is not None]
    if not local:
        return
    begin_sync(local)
    all_paths = [*local, *dict.fromkeys(map(os.path.dirname, local))]
    for _ in _threads().map(sync_path, all_paths):
        pass


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The waiting threads, which are reused: starting them takes longer than waiting for a disk."""
    return ThreadPoolExecutor(_THREADS_MAX, "sync")


if hasattr(os, "register_at_fork"):  # a child of this process has none of its threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def sync_path(path: str | os.PathLike[str]) -> None:
    """Wait until a local file, or the names in a local folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
