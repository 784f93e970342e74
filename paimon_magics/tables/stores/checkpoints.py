"""Checkpoints of streaming queries in which no batch has begun.

A query's first write into a new checkpoint is the offsets of its batch 0: a temporary file, which
is then renamed to `offsets/0`. A process that dies in between leaves the temporary file, and from
then on Spark refuses the checkpoint (`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`: it "should be
empty on batch 0"), though it holds nothing. Names as Spark's `CheckpointFileManager` and
`HDFSMetadataLog` give them.
"""

from __future__ import annotations

import re

from paimon_magics.tables.stores.store import Store

_LOGS = ("offsets", "commits")
_ENTRY = re.compile(r"\d+(\.compact)?")
_TEMPORARY = re.compile(r"\.{1,2}\d+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp(\.crc)?")
"""A temporary file of an entry, and its checksum on a local disk."""


def clear_unbegun(store: Store, checkpoint: str) -> list[str]:
    """Delete the temporary files that a query left which died before its first batch began; return
    their paths.

    Does nothing if a log has an entry, since a batch has begun then. Other files are left for Spark
    to check. Raises what the store raises.
    """
    root = checkpoint.rstrip("/")
    names = {f"{root}/{log}": store.names(f"{root}/{log}") for log in _LOGS}
    if any(_ENTRY.fullmatch(name) for in_log in names.values() for name in in_log):
        return []
    left = [
        f"{folder}/{name}"
        for folder, in_log in names.items()
        for name in in_log
        if _TEMPORARY.fullmatch(name)
    ]
    store.delete(left)
    return left
