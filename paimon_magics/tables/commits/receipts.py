"""Finds the snapshot of a committed transaction, and makes its receipt."""

from __future__ import annotations

from typing import Any

from paimon_magics.errors import UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table

__all__ = ["find_commit", "find_snapshot", "receipt_of"]


def find_commit(table: Table, transaction: Transaction) -> CommitReceipt | None:
    """The receipt of the transaction's snapshot, or None if it certainly has none.

    Reads each snapshot since the transaction's base. Raises UnknownOutcomeError if one of them has
    expired, so that the answer is unknown.
    """
    latest = latest_snapshot(table.paimon)
    found = find_snapshot(table, transaction, latest, transaction.base_snapshot_id)
    return None if found is None else receipt_of(found)


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
