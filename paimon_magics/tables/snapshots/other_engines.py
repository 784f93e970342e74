"""Whether another engine compacts a table, as its snapshots tell.

A bucket that two engines compact costs one of them its commit; a streaming job restarts then. Such
a job compacts what it writes, so its table is left to it while it runs; and whoever has compacted a
table of late may do so again.
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
    """What snapshots tell of other engines. It remembers what it has read, by table. For one
    thread."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str | None], _Noted] = {}

    def compacts(self, table: Table, now_ms: int) -> str:
        """Why a table is to be left to another engine's compactions; "" if there is none."""
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


# The streaming jobs of other engines that write a table, as its snapshots tell.
#
# Such a job commits a checkpoint at a time, with the checkpoint's number as identifier. Paimon's
# batch jobs all have the identifier BATCH_COMMIT_IDENTIFIER, and so has the last commit of a stream
# that has come to its end. A job that only compacts brings no rows, and is none of these.


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
