"""Keeps a batch from bringing keys to a table with dynamic buckets that a streaming job writes,
where the keys could not be moved for the job.

A streaming job reads the hash indexes when it starts, and can't prepare a commit anew. Where it
brings a key that a batch has added before, the coordinator moves the key to the job's bucket,
unless the table's options forbid it (`planning.compaction.key_moves`). Then the job's commit is
refused, and so is every repetition. A batch can be started again, so it is the one to be refused.

Batches of small inserts are not: their rows were acknowledged before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.compaction.key_moves import obstacle_to_moves
from paimon_magics.tables.commits.index_union import hash_entries
from paimon_magics.tables.commits.log_positions import is_of_log
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.snapshots.streaming_jobs import streaming_jobs
from paimon_magics.tables.table import Table

__all__ = ["StreamedKeysError", "check_streamed_keys", "streamed_keys_check"]

_AWAITED_MS = 3_600_000  # a job that has committed nothing for so long is taken to have ended


class StreamedKeysError(CommitConflictError):
    """A batch brings keys to a table whose streaming job could never commit them any more."""


def streamed_keys_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[Any], None]:
    """Return a check of the latest snapshot (None for none), on which the commit will be published.
    It raises StreamedKeysError."""
    is_batch = isinstance(request.change, Append | OverwritePartitions | OverwriteTouched)
    added = [entry for message in messages for entry in message.index_adds]
    if not is_batch or not added or is_of_log(dict(request.properties)):
        return lambda latest: None
    indexes = HashIndexes()

    def check(latest: Any) -> None:
        if latest is not None:
            before = hash_entries(table, latest.index_manifest)
            check_streamed_keys(table, latest.id, before, added, indexes)

    return check


def check_streamed_keys(
    table: Table,
    latest_id: int,
    before: Sequence[Any],
    after: Sequence[Any],
    indexes: HashIndexes,
    by: str = "",
) -> None:
    """Raise StreamedKeysError if a batch of the commit user `by` may not bring its keys.

    `before` are the entries of the index of the latest snapshot, `after` those that the batch
    replaces them by.
    """
    obstacle = obstacle_to_moves(table.schema)
    if obstacle is None:
        return
    count = indexes.count_new(table, before, after)
    since_ms = int(time.time() * 1000) - _AWAITED_MS
    jobs = streaming_jobs(table.paimon, latest_id, since_ms) if count else ()
    if not jobs or by in {job.user for job in jobs}:
        return
    job = jobs[0]
    raise StreamedKeysError(
        f"This commit brings {count:,} new keys to buckets of `{table.name}`, and the streaming "
        f"job {job.user} writes the table (its last commit is snapshot {job.last_id}). When the "
        "job brings one of these keys too, it has another bucket for it and could not commit any "
        f"more: in a table with {obstacle} keys stay in their buckets. Nothing was committed.",
        hint="Let the streaming job write these rows, or stop it: an hour after its last commit it "
        "is no longer awaited. Rows of keys that the table has may be written at any time. In a "
        f"table without {obstacle} new keys may too.",
    )
