"""Deletes the files that a transaction wrote and did not commit.

Attempts note the folders that they write in (module `attempts`), and names of files contain the
transaction's prefix and the attempt's id. So only these folders are listed. All folders of a table
are listed if tasks can't leave notes: in the remote store of a REST catalog, or if keys move
between partitions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.table import Table, publishes_itself
from paimon_magics.tables.writing.attempts import (
    attempt_of_file,
    attempts_stem,
    close_attempts,
    forget_attempts,
    noted_folders,
    running_attempts,
)
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.new_files import bucket_folder

_BUCKET_FOLDER = "bucket-"
_POLL_SECONDS = 0.02
_POLL_SECONDS_MAX = 0.5


def attempts_of(table: Table, prefix: str) -> str | None:
    """The stem of the notes of a transaction's attempts, None if its tasks can't leave notes.

    Only its catalog reaches the remote store of a REST catalog's table. A key that moves between
    partitions leaves a file in a folder that no task knows in advance.
    """
    if local_path(table.location) is None and publishes_itself(table):
        return None
    if table.schema.bucket_mode == "KEY_DYNAMIC":
        return None
    return attempts_stem(table.location, prefix)


def remove_uncommitted(
    table: Table, transaction: Transaction, keep: frozenset[str], wait_ms_max: int
) -> int:
    """End a transaction and delete its files except those named in `keep`, with folders that become
    empty. Return the number of deleted files.

    Waits up to `wait_ms_max` for tasks that were told to stop. A task that runs longer removes its
    files itself; if it dies, the end of a later transaction of this table removes them.
    """
    stem = transaction.attempts_folder
    if stem is None:
        time.sleep(wait_ms_max / 1000)
        return _delete_by_listing(table, table.location, transaction.file_prefix, keep)
    counted = {attempt_of_file(name, transaction.file_prefix) for name in keep}
    closed = close_attempts(table.store, stem, frozenset(id for id in counted if id))
    deleted = 0
    if closed.others:
        _wait(table, stem, closed.others, wait_ms_max)
        deleted += _remove(table, stem, closed.others, keep)
    for other_stem, ids in closed.left.items():
        deleted += _remove(table, other_stem, ids, frozenset())
    return deleted


def tidy_up(table: Table, transaction: Transaction, keep: frozenset[str]) -> None:
    """`remove_uncommitted` after a commit: without waiting, and failures are ignored.

    The end of a later transaction of this table removes the remaining files.
    """
    if transaction.attempts_folder is not None:
        with contextlib.suppress(PaimonMagicsError, OSError):
            remove_uncommitted(table, transaction, keep, wait_ms_max=0)


def _wait(table: Table, stem: str, ids: frozenset[str], wait_ms_max: int) -> None:
    deadline = time.monotonic() + wait_ms_max / 1000
    pause = _POLL_SECONDS
    while running_attempts(table.store, stem, ids) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _POLL_SECONDS_MAX)


def _remove(table: Table, stem: str, ids: frozenset[str], keep: frozenset[str]) -> int:
    """Delete the files of attempts, and the notes of those that have ended."""
    store = table.store
    running = running_attempts(store, stem, ids)
    prefix = f"{stem.rpartition('/')[2]}-"
    deleted = 0
    for bucket, values in sorted(noted_folders(store, stem, ids), key=repr):
        if bucket == INDEX_FOLDER:
            folder = str(table.paimon.path_factory().index_path())
        else:
            folder = bucket_folder(table.paimon, values, bucket)
        if not table.paths.allows(f"{folder}/file"):  # a note that no task of ours wrote
            continue
        names = [
            name
            for name in store.names(folder, prefix)
            if name not in keep and attempt_of_file(name, prefix) in ids
        ]
        table.paths.delete(f"{folder}/{name}" for name in names)
        deleted += len(names)
        for parent in _parents(folder, table.location):
            if not store.remove_if_empty(parent):
                break
    forget_attempts(store, stem, ids - running)
    return deleted


def _parents(folder: str, location: str) -> Iterator[str]:
    """The folder and those above it, below the table's own folder."""
    root = (local_path(location) or location).rstrip("/")
    folder = local_path(folder) or folder
    while folder.startswith(f"{root}/"):
        yield folder
        folder = folder.rpartition("/")[0]


def _delete_by_listing(table: Table, root: str, prefix: str, keep: frozenset[str]) -> int:
    file_io = table.paimon.file_io
    deleted = 0
    for status in file_io.list_status(root):
        name = status.path.rstrip("/").rsplit("/", 1)[-1]
        path = f"{root.rstrip('/')}/{name}"
        if name.startswith(_BUCKET_FOLDER):
            for file in file_io.list_status(path):
                leaf = file.path.rsplit("/", 1)[-1]
                if leaf.startswith(prefix) and leaf not in keep:
                    file_io.delete_quietly(f"{path}/{leaf}")
                    deleted += 1
        elif "=" in name:
            deleted += _delete_by_listing(table, path, prefix, keep)
    return deleted
