"""Whether another engine compacts a table, as its snapshots tell.

A bucket that two engines compact costs one of them its commit; a streaming job restarts then. Such
a job compacts what it writes, so its table is left to it while it runs; and whoever has compacted a
table of late may do so again.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.planning.commits.requests import BATCH_COMMIT_IDENTIFIER
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.provenance import noted
from paimon_magics.tables.table import Table

__all__ = ["OtherEngines"]

_AWAITED_MS = 3_600_000  # who has done nothing for so long is no longer awaited
_SNAPSHOTS_MAX = 50


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
