"""Detects from a table's snapshots whether another engine compacts the table.

If two engines compact the same bucket, one of them loses its commit; a streaming job then restarts.
Such a job compacts the files that it writes, so its table is left to it while it runs. An engine
that compacted a table recently may do so again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.planning.commits.requests import BATCH_COMMIT_IDENTIFIER
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.table import Table

_AWAITED_MS = 3_600_000  # who has done nothing for so long is no longer awaited
_SNAPSHOTS_MAX = 50


_LOOKED_BACK = 100
_OURS = "paimon-magics-"


@dataclass(slots=True)
class _Noted:
    snapshot_id: int = 0
    last_ms: int = 0
    by: str = ""


class OtherEngines:
    """The activity of other engines, from snapshots. Caches what it has read, by table. For one
    thread."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str | None], _Noted] = {}

    def compacts(self, table: Table, now_ms: int) -> str:
        """The reason to leave a table's compaction to another engine; "" if there is none."""
        noted = self._noted.setdefault((table.location, table.name.branch), _Noted())
        self._read(table, noted, now_ms)
        return f"{noted.by} compacts it" if now_ms - noted.last_ms < _AWAITED_MS else ""

    def _read(self, table: Table, noted_: _Noted, now_ms: int) -> None:
        """Read the snapshots since the last time, from the newest on."""
        latest = latest_snapshot_id(table)
        first = max(noted_.snapshot_id, latest - _SNAPSHOTS_MAX)
        for id in range(latest, first, -1):
            snapshot = read_snapshot(table.paimon, id)
            if snapshot is None or now_ms - snapshot.time_millis > _AWAITED_MS:
                break
            if noted(snapshot.properties):
                continue
            is_stream = snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER
            if is_stream or snapshot.commit_kind == "COMPACT":
                noted_.last_ms = max(noted_.last_ms, int(snapshot.time_millis))
                noted_.by = f"another engine ({snapshot.commit_user})"
                break
        noted_.snapshot_id = latest


# The streaming jobs of other engines that write a table, derived from its snapshots.
#
# Such a job commits a checkpoint at a time, with the checkpoint's number as identifier. Paimon's
# batch jobs all have the identifier BATCH_COMMIT_IDENTIFIER, and so has the last commit of a
# finished stream. A job that only compacts adds no rows, and does not count.


@dataclass(frozen=True, slots=True)
class StreamingJob:
    """A job by its commit user, with its first and last snapshot among those examined; the last
    snapshot was created at `last_ms`."""

    user: str
    first_id: int
    last_id: int
    last_ms: int


def streaming_jobs(paimon: Any, latest_id: int, since_ms: int = 0) -> tuple[StreamingJob, ...]:
    """The jobs that committed rows among the last hundred snapshots, and not before `since_ms`; the
    most recent job first. Finished jobs are left out."""
    jobs: dict[str, StreamingJob] = {}
    ended: set[str] = set()
    for snapshot_id in range(latest_id, max(latest_id - _LOOKED_BACK, 0), -1):
        snapshot = read_snapshot(paimon, snapshot_id)
        if snapshot is None or snapshot.time_millis < since_ms:
            break
        user = str(snapshot.commit_user)
        if user.startswith(_OURS) or snapshot.commit_kind != "APPEND":
            continue
        if user in jobs:
            jobs[user] = replace(jobs[user], first_id=snapshot_id)
        elif snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER:
            ended.add(user)
        elif user not in ended:
            jobs[user] = StreamingJob(user, snapshot_id, snapshot_id, int(snapshot.time_millis))
    return tuple(jobs.values())
