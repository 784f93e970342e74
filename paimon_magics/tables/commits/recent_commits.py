"""A cache of who committed the last snapshots of tables, which saves reading them again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from paimon_magics.tables.snapshots.chain import snapshot_by_id
from paimon_magics.tables.table import StoredTable

__all__ = ["RecentCommits"]

Document = Mapping[str, Any]


class RecentCommits:
    """Caches who committed the last `snapshots` snapshots of each table, for the `tables` most
    recently used tables. Each snapshot that it finds is read again before it is returned."""

    def __init__(self, *, tables: int = 1000, snapshots: int = 128) -> None:
        self._tables = tables
        self._snapshots = snapshots
        self._known: OrderedDict[str, dict[int, tuple[Any, ...]]] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, table: StoredTable, latest_id: int, commit: Document) -> list[Document]:
        """The last snapshots that have the user, identifier and kind of `commit`."""
        key = f"{table.location}@{table.name.branch or ''}@{table.table_id}"
        with self._guard:
            known = self._known.pop(key, {})
        first = max(1, latest_id - self._snapshots + 1)
        seen = {}
        for snapshot_id in range(latest_id, first - 1, -1):
            who = known.get(snapshot_id)
            if who is None:
                document = snapshot_by_id(table, snapshot_id)
                if document is None:  # expired, and so are those before it
                    break
                who = _who(document)
            seen[snapshot_id] = who
        with self._guard:
            self._known[key] = seen
            while len(self._known) > self._tables:
                self._known.popitem(last=False)
        ids = [snapshot_id for snapshot_id, who in seen.items() if who == _who(commit)]
        found = (snapshot_by_id(table, snapshot_id) for snapshot_id in ids)
        return [s for s in found if s is not None and _who(s) == _who(commit)]

    def forget(self, location: str) -> None:
        """Drop a table whose snapshots were changed by a roll-back."""
        prefix = f"{location}@"
        with self._guard:
            for key in [key for key in self._known if key.startswith(prefix)]:
                del self._known[key]


def _who(snapshot: Document) -> tuple[Any, ...]:
    return snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["commitKind"]
