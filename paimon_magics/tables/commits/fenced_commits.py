"""Commits that only the coordinator that owns the warehouse can publish.

The snapshot carries the coordinator's epoch. Right before it is published, the snapshots since the
transaction's base are searched for a higher epoch, and the coordinator checks that it is the owner.
"""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import DecodedRequest
from paimon_magics.tables.commits.fencing import EPOCH, Fence, epoch_of
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import Table


class _CommittedBeforeError(PaimonMagicsError):
    """Ends a commit that is already in the chain. It is not an error for the caller."""


class _OutrankedError(PaimonMagicsError):
    """Ends a commit that would follow a snapshot of a higher `epoch`."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"There is a snapshot of epoch {epoch}.")
        self.epoch = epoch


def commit_fenced(
    decoded: DecodedRequest,
    publish: Publish,
    fence: Fence | None,
    *,
    token: str | None = None,
    only_here: bool = True,
) -> CommitReceipt:
    """Commit a request with the checks of the fence; without a fence, just commit it.

    `only_here`: the caller has not found the commit in the table, and no other coordinator can
    publish it. Otherwise the commit is searched for up to the last moment. Raises what `commit`
    raises, and DeposedError if the fence forbids it.
    """
    if fence is None:
        return commit(decoded, publish, token=token, is_first_run=only_here)
    try:
        return commit(
            decoded,
            publish,
            token=token,
            is_first_run=only_here,
            properties={EPOCH: str(fence.epoch)},
            check_before=_check(decoded.table, decoded.request.transaction, fence, only_here),
        )
    except _OutrankedError as error:
        above = fence.above(error.epoch)
        return commit_fenced(decoded, publish, above, token=token, only_here=only_here)
    except _CommittedBeforeError as error:
        receipt = find_commit(decoded.table, decoded.request.transaction)
        if receipt is None:
            raise _unknown(decoded.table, str(error)) from error
        return receipt


def is_fenced(table: Table, epoch: int) -> bool:
    """Whether the coordinator of that epoch published the table's latest snapshot. If so, snapshots
    prepared by an earlier coordinator can no longer be published."""
    latest = latest_snapshot(table.paimon)
    return latest is not None and epoch_of(latest.properties) == epoch


def _check(
    table: Table, transaction: Transaction, fence: Fence, only_here: bool
) -> Callable[[int], None]:
    """Return the check before snapshot N is published; the fence is checked last of all."""
    # The base is searched too: an earlier coordinator may have opened the transaction.
    searched_to = max(transaction.base_snapshot_id - 1, 0)

    def check(snapshot_id: int) -> None:
        nonlocal searched_to
        known_to = fence.looked_to.get(table.location, 0)
        # After a rollback, unchecked snapshots have the ids of earlier snapshots.
        looked_to = max(searched_to, known_to if known_to < snapshot_id else 0)
        for newer in range((looked_to if only_here else searched_to) + 1, snapshot_id):
            snapshot = read_snapshot(table.paimon, newer)
            if snapshot is None and only_here:
                continue
            if snapshot is None:
                raise _unknown(table, f"Snapshot {newer} has expired.")
            who = snapshot.commit_user, snapshot.commit_identifier
            if who == (transaction.commit_user, transaction.commit_identifier):
                raise _CommittedBeforeError(f"It is snapshot {newer}.")
            if epoch_of(snapshot.properties) > fence.epoch:
                raise _OutrankedError(epoch_of(snapshot.properties))
        searched_to = snapshot_id - 1
        fence.looked_to[table.location] = snapshot_id - 1
        fence.check()

    return check


def _unknown(table: Table, why: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"Whether this statement was committed to `{table.name}` is unknown. {why}",
        hint=f"Look for its rows in `{table.name}` before running it again.",
    )
