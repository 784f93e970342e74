"""Finds the snapshot of a committed transaction, and makes its receipt."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from paimon_magics.errors import UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.tables.snapshots.chain import snapshot_by_id
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import StoredTable, Table

Document = Mapping[str, Any]


def find_commit(table: Table, transaction: Transaction) -> CommitReceipt | None:
    """The receipt of the transaction's snapshot, or None if it certainly has none.

    Reads each snapshot since the transaction's base. Raises UnknownOutcomeError if one of them has
    expired, because the answer is then unknown.
    """
    latest = latest_snapshot(table.paimon)
    snapshot = find_snapshot(table, transaction, latest, transaction.base_snapshot_id)
    return None if snapshot is None else receipt_of(snapshot)


def find_snapshot(table: Table, transaction: Transaction, latest: Any, searched_to: int) -> Any:
    """The transaction's snapshot among those after `searched_to`, None if there is none.

    Raises UnknownOutcomeError if one of them has expired.
    """
    for snapshot_id in range(0 if latest is None else latest.id, searched_to, -1):
        snapshot = latest if snapshot_id == latest.id else read_snapshot(table.paimon, snapshot_id)
        if snapshot is None:
            raise UnknownOutcomeError(
                f"Snapshot {snapshot_id} of `{table.name}` has expired, so whether this statement "
                "was committed is unknown.",
                hint=f"Look for its rows in `{table.name}` before running it again.",
            )
        if (
            snapshot.commit_user == transaction.commit_user
            and snapshot.commit_identifier == transaction.commit_identifier
        ):
            return snapshot
    return None


def receipt_of(snapshot: Any) -> CommitReceipt:
    """The receipt of the commit that made one of pypaimon's snapshots."""
    return CommitReceipt(
        snapshot_id=snapshot.id,
        commit_kind=snapshot.commit_kind,
        total_rows=snapshot.total_record_count,
        delta_rows=snapshot.delta_record_count or 0,
        manifest_list=snapshot.delta_manifest_list,
    )


# A cache of who committed the last snapshots of tables, which saves reading them again.


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
        documents = (snapshot_by_id(table, snapshot_id) for snapshot_id in ids)
        return [s for s in documents if s is not None and _who(s) == _who(commit)]

    def forget(self, location: str) -> None:
        """Drop a table whose snapshots were changed by a roll-back."""
        prefix = f"{location}@"
        with self._guard:
            for key in [key for key in self._known if key.startswith(prefix)]:
                del self._known[key]


def _who(snapshot: Document) -> tuple[Any, ...]:
    return snapshot["commitUser"], snapshot["commitIdentifier"], snapshot["commitKind"]
