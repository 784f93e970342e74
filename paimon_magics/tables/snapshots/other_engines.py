"""Whether another engine compacts a table, as its snapshots tell.

A bucket that two engines compact costs one of them its commit; a streaming job restarts then. Such
a job compacts what it writes (`CoreOptions.WRITE_ONLY`), so its table is left to it while it runs.
A table that a job of its own compacts is left to that job.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.planning.commits.requests import BATCH_COMMIT_IDENTIFIER
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.table import Table

__all__ = ["OtherEngines"]

_WRITER_MS = 3_600_000  # a job that has not written for so long is no longer awaited
_COMPACTOR_MS = 86_400_000  # a job for compaction may run once a day
_SNAPSHOTS_MAX = 50


@dataclass(slots=True)
class _Noted:
    snapshot_id: int = 0
    streamed_ms: int = 0
    compacted_ms: int = 0
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
        if table.schema.write_only:
            is_left = now_ms - noted.compacted_ms < _COMPACTOR_MS
        else:
            is_left = now_ms - max(noted.streamed_ms, noted.compacted_ms) < _WRITER_MS
        return f"{noted.by} compacts it" if is_left else ""

    def _read(self, table: Table, noted_: _Noted, now_ms: int) -> None:
        """Read the snapshots since the last time, from the newest on."""
        latest = latest_snapshot_id(table)
        first = max(noted_.snapshot_id, latest - _SNAPSHOTS_MAX)
        for id in range(latest, first, -1):
            snapshot = read_snapshot(table.paimon, id)
            if snapshot is None or now_ms - snapshot.time_millis > _COMPACTOR_MS:
                break
            if noted(snapshot.properties):
                continue
            at_ms = int(snapshot.time_millis)
            if snapshot.commit_kind == "COMPACT":
                noted_.compacted_ms = max(noted_.compacted_ms, at_ms)
            elif snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
                noted_.streamed_ms = max(noted_.streamed_ms, at_ms)
            else:
                continue
            noted_.by = f"another engine ({snapshot.commit_user})"
        noted_.snapshot_id = latest
