"""Deletes the files that a transaction wrote and did not commit.

Attempts note the folders that they write in (module `attempts`), and names of files contain the
transaction's prefix and the attempt's id. So only these folders are listed. All folders of a table
are listed if tasks can't leave notes: in the remote store of a REST catalog, or if keys move
between partitions.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping

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
from paimon_magics.tables.writing.deletable import deletable
from paimon_magics.tables.writing.dynamic_buckets import INDEX_FOLDER
from paimon_magics.tables.writing.new_files import bucket_folder

_log = logging.getLogger(__name__)

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


LeftTo = Callable[[Callable[[], int]], object]
"""Has something be removed, now or later."""


def remove_uncommitted(
    table: Table,
    transaction: Transaction,
    keep: frozenset[str],
    wait_ms_max: int,
    since: int | None = None,
    left_to: LeftTo | None = None,
) -> int:
    """End a transaction and delete its files except those named in `keep`, with folders that become
    empty. Return the number of deleted files. What may be deleted is for `deletable` to decide,
    with this `since`; only a commit that just succeeded, with the files in `keep`, says so itself.
    `left_to` gets the removal of what other transactions have left, which may take long; None does
    it at once, and logs its failures.

    Waits up to `wait_ms_max` for tasks that were told to stop. A task that runs longer removes its
    files itself; if it dies, the end of a later transaction of this table removes them.
    """
    stem = transaction.attempts_folder
    if stem is None:
        time.sleep(wait_ms_max / 1000)
        return _delete_by_listing(table, transaction.file_prefix, keep, since)
    counted = {attempt_of_file(name, transaction.file_prefix) for name in keep}
    closed = close_attempts(table.store, stem, frozenset(id for id in counted if id))
    deleted = 0
    if closed.others:
        _wait(table, stem, closed.others, wait_ms_max)
        deleted += _remove(table, stem, closed.others, keep, since)
    if closed.left and left_to is not None:
        left_to(lambda: _remove_left(table, closed.left))
    elif closed.left:
        with failures_logged(table):
            deleted += _remove_left(table, closed.left)
    return deleted


def _remove_left(table: Table, left: Mapping[str, frozenset[str]]) -> int:
    """Delete the files that ended attempts of other transactions have left. What is wrong with
    those of one transaction keeps no others; it is raised at the end."""
    deleted = 0
    failed: Exception | None = None
    for stem, ids in left.items():
        try:
            deleted += _remove(table, stem, ids, frozenset())
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed
    return deleted


def tidy_up(table: Table, transaction: Transaction) -> None:
    """End a transaction that no task has written for; failures are logged."""
    if transaction.attempts_folder is not None:
        with failures_logged(table):
            remove_uncommitted(table, transaction, frozenset(), 0, left_to=lambda _: None)


@contextlib.contextmanager
def failures_logged(table: Table) -> Iterator[None]:
    """Log any exception of a clean-up. What lies in a table's folder, which others may write,
    breaks no statement."""
    try:
        yield
    except Exception as error:
        is_expected = isinstance(error, PaimonMagicsError | OSError)
        _log.warning(
            "Files beside `%s` are not cleaned up, which a later statement tries again: %s",
            table.name,
            error,
            exc_info=None if is_expected else error,
        )


def _wait(table: Table, stem: str, ids: frozenset[str], wait_ms_max: int) -> None:
    deadline = time.monotonic() + wait_ms_max / 1000
    pause = _POLL_SECONDS
    while running_attempts(table.store, stem, ids) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _POLL_SECONDS_MAX)


def _remove(
    table: Table, stem: str, ids: frozenset[str], keep: frozenset[str], since: int | None = None
) -> int:
    """Delete the files of attempts, and the notes of those that have ended."""
    store = table.store
    running = running_attempts(store, stem, ids)
    prefix = f"{stem.rpartition('/')[2]}-"
    files = {
        folder: [
            name
            for name in store.names(folder, prefix)
            if name not in keep and attempt_of_file(name, prefix) in ids
        ]
        for folder in _noted_places(table, stem, ids)
    }
    names = {name for in_folder in files.values() for name in in_folder}
    # A commit that kept some of its files knows them all.
    gone = names if keep else set(deletable(table, prefix, names, since))
    for folder, in_folder in files.items():
        table.paths.delete(f"{folder}/{name}" for name in in_folder if name in gone)
        for parent in _parents(folder, table.location):
            if not store.remove_if_empty(parent):
                break
    forget_attempts(store, stem, ids - running)
    return sum(name in gone for in_folder in files.values() for name in in_folder)


def _noted_places(table: Table, stem: str, ids: frozenset[str]) -> list[str]:
    """The paths of the folders that attempts have noted, inside the table's own folder."""
    places = set()
    for bucket, values in noted_folders(table.store, stem, ids):
        try:
            if bucket == INDEX_FOLDER:
                place = str(table.paimon.path_factory().index_path())
            else:
                place = bucket_folder(table.paimon, values, bucket)
        except Exception as error:  # values that are none of the table's partitions
            _log.warning("A note in %s names no folder of `%s`: %r", stem, table.name, error)
            continue
        if table.paths.allows(f"{place}/file"):
            places.add(place)
    return sorted(places)


def _parents(folder: str, location: str) -> Iterator[str]:
    """The folder and those above it, below the table's own folder."""
    root = (local_path(location) or location).rstrip("/")
    folder = local_path(folder) or folder
    while folder.startswith(f"{root}/"):
        yield folder
        folder = folder.rpartition("/")[0]


def _delete_by_listing(table: Table, prefix: str, keep: frozenset[str], since: int | None) -> int:
    files = [
        (path, name) for path, name in _listed(table, table.location, prefix) if name not in keep
    ]
    names = {name for _, name in files}
    gone = names if keep else set(deletable(table, prefix, names, since))
    paths = [path for path, name in files if name in gone]
    for path in paths:
        table.paimon.file_io.delete_quietly(path)
    return len(paths)


def _listed(table: Table, root: str, prefix: str) -> Iterator[tuple[str, str]]:
    """The paths and names of the files in bucket folders below one whose names have a prefix."""
    file_io = table.paimon.file_io
    for status in file_io.list_status(root):
        name = status.path.rstrip("/").rsplit("/", 1)[-1]
        path = f"{root.rstrip('/')}/{name}"
        if name.startswith(_BUCKET_FOLDER):
            for file in file_io.list_status(path):
                leaf = file.path.rsplit("/", 1)[-1]
                if leaf.startswith(prefix):
                    yield f"{path}/{leaf}", leaf
        elif "=" in name:
            yield from _listed(table, path, prefix)
