"""Putting files and their names on this machine's disks; files in other stores are there already.

A journalling file system makes everything durable that was begun before, each time that it is asked
for one file. So the writing of all files is begun first, and only then is any of them waited for:
the first wait pays for most of the others. Whoever has something else to do meanwhile begins early.

If the process dies here, any of the files may be on the disk or not: nothing may name them before
`sync_files` has returned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from paimon_magics.tables.stores.paths import local_path

__all__ = ["begin_sync", "sync_files"]

# Writing a larger file takes longer than waiting for the journal, and of those the pages that are
# on the disk already would be dropped from the cache, which who reads the table next would notice.
_BEGUN_BYTES_MAX = 1 << 20


def begin_sync(paths: Iterable[str]) -> None:
    """Have the system begin to write small files to the disk. Nothing is durable for that.

    Raises FileNotFoundError for a local file that does not exist.
    """
    for path in filter(None, map(local_path, paths)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise") and os.fstat(descriptor).st_size <= _BEGUN_BYTES_MAX:
                # What is not needed is written out; pages under way stay in the cache.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Return when the files, and their names, are on the disk.

    Raises FileNotFoundError for a local file that does not exist.
    """
    local = [path for path in map(local_path, paths) if path is not None]
    begin_sync(local)
    for path in [*local, *dict.fromkeys(map(os.path.dirname, local))]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
