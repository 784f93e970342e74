"""The streaming jobs of other engines that write a table, as its snapshots tell.

Such a job commits a checkpoint at a time, with the checkpoint's number as identifier. Paimon's
batch jobs all have the identifier BATCH_COMMIT_IDENTIFIER, and so has the last commit of a stream
that has come to its end. A job that only compacts brings no rows, and is none of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.planning.commits.requests import BATCH_COMMIT_IDENTIFIER
from paimon_magics.tables.snapshots.latest import read_snapshot

__all__ = ["StreamingJob", "streaming_jobs"]

_LOOKED_BACK = 100
_OURS = "paimon-magics-"


@dataclass(frozen=True, slots=True)
class StreamingJob:
    """A job by its commit user, with the first and the last snapshot of its that were looked at;
    the last one was made at `last_ms`."""

    user: str
    first_id: int
    last_id: int
    last_ms: int


def streaming_jobs(paimon: Any, latest_id: int, since_ms: int = 0) -> tuple[StreamingJob, ...]:
    """The jobs that committed rows among the last hundred snapshots, and not before `since_ms`; the
    one that did so last comes first. Those that have come to their end are left out."""
    found: dict[str, StreamingJob] = {}
    ended: set[str] = set()
    for snapshot_id in range(latest_id, max(latest_id - _LOOKED_BACK, 0), -1):
        snapshot = read_snapshot(paimon, snapshot_id)
        if snapshot is None or snapshot.time_millis < since_ms:
            break
        user = str(snapshot.commit_user)
        if user.startswith(_OURS) or snapshot.commit_kind != "APPEND":
            continue
        if user in found:
            found[user] = replace(found[user], first_id=snapshot_id)
        elif snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
            ended.add(user)
        elif user not in ended:
            found[user] = StreamingJob(user, snapshot_id, snapshot_id, int(snapshot.time_millis))
    return tuple(found.values())
