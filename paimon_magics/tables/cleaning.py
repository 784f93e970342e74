"""Deleting the files of a transaction by their prefix.

Only data and changelog files carry the prefix, in the bucket folders below the partition folders;
metadata folders are not entered. The cost is a listing of the table's partition and bucket folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from paimon_magics.tables.catalog import Table
from paimon_magics.tables.locations import local_path

__all__ = ["delete_files"]

_BUCKET_FOLDER = "bucket-"


def delete_files(table: Table, prefix: str, keep: frozenset[str]) -> int:
    """Delete files whose leaf name starts with `prefix` and is not in `keep`; return how many.

    Bucket and partition folders that this leaves empty are removed too.
    """
    if len(prefix) < 8:
        raise ValueError(f"{prefix!r} is too short to be a transaction's prefix")
    root = local_path(table.location)
    if root is None:
        return _delete_remote(table, table.location, prefix, keep)
    deleted = 0
    for folder in list(_bucket_folders(root)):
        found = 0
        for name in _names(folder):
            if name.startswith(prefix) and name not in keep:
                os.unlink(os.path.join(folder, name))
                found += 1
        if found:
            _remove_empty(folder, root)
        deleted += found
    return deleted


def _bucket_folders(root: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(root))
    except FileNotFoundError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            continue
        if entry.name.startswith(_BUCKET_FOLDER):
            yield entry.path
        elif "=" in entry.name:
            yield from _bucket_folders(entry.path)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove_empty(folder: str, root: str) -> None:
    while folder != root:
        try:
            os.rmdir(folder)
        except OSError:  # not empty, or another writer was faster
            return
        folder = os.path.dirname(folder)


def _delete_remote(table: Table, root: str, prefix: str, keep: frozenset[str]) -> int:
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
            deleted += _delete_remote(table, path, prefix, keep)
    return deleted
