"""Fencing: the epoch in a coordinator's snapshots, and the check before each publication.

Of two coordinators of one warehouse the newer has the higher epoch. A snapshot is published only by
creating the file of the next id. So an older coordinator that stalls after its check can publish
only while the newer one has published nothing on the table. From the newer one's first snapshot on,
it finds the higher epoch and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitReceipt, Transaction
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import DecodedRequest
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import Table

EPOCH = PREFIX + "epoch"
"""The property of a snapshot that holds the epoch of the coordinator that published it."""


class NotOwnerError(SetupError):
    """Another coordinator owns the warehouse; `address` is its address, "" if unknown."""

    def __init__(self, message: str, *, hint: str = "", address: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class DeposedError(NotOwnerError):
    """Another coordinator has taken over, so this coordinator may no longer publish."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch that a coordinator publishes with, and `check`, which raises DeposedError unless
    the coordinator still owns the warehouse.

    `outrank` returns a fence whose epoch is above its argument, or raises DeposedError. `looked_to`
    has, by table location, the last snapshot up to which no higher epoch was found.
    """

    epoch: int
    check: Callable[[], None]
    outrank: Callable[[int], Fence]
    looked_to: dict[str, int] = field(default_factory=dict)

    def above(self, epoch: int) -> Fence:
        """The fence to publish with after a snapshot of that epoch.

        Raises DeposedError if the epoch is higher than this one and a newer coordinator has a lease
        for it. Without such a lease, the table came from another warehouse or the leases were
        removed; then `outrank` takes an epoch above it.
        """
        return self if epoch <= self.epoch else self.outrank(epoch)


def epoch_of(properties: Mapping[str, Any] | None) -> int:
    """The epoch among a snapshot's properties; 0 where it has none."""
    text = str((properties or {}).get(EPOCH, ""))
    return int(text) if text.isascii() and text.isdigit() else 0


# A commit that only the coordinator that owns the warehouse can publish. The snapshot carries the
# coordinator's epoch. Right before it is published, the snapshots since the transaction's base are
# searched for a higher epoch, and the coordinator checks that it is the owner.


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
