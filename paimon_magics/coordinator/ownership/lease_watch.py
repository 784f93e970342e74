"""Watching the lease of a warehouse: whether somebody renews it, and whether it has run out."""

from __future__ import annotations

import time
from collections.abc import Callable

from paimon_magics.coordinator.ownership.lease import Lease, Watched, lease_of
from paimon_magics.coordinator.ownership.lease_folder import LeaseFolder
from paimon_magics.coordinator.runtime import Clock
from paimon_magics.tables.commits.fencing import NotOwnerError
from paimon_magics.tables.stores.store import Store

__all__ = [
    "RENEWALS_PER_LEASE",
    "LeaseWatch",
    "current_lease",
    "is_renewed",
    "look_seconds",
    "owned_elsewhere",
]

RENEWALS_PER_LEASE = 6
_LOOKS_PER_LEASE = 30
_LOOK_MS_MAX = 1_000


def look_seconds(lease_ms: int) -> float:
    """The pause between two looks at a lease of that length, in seconds."""
    return min(lease_ms / _LOOKS_PER_LEASE, _LOOK_MS_MAX) / 1000


def current_lease(store: Store, warehouse: str) -> Lease | None:
    """Return the lease of the highest epoch, which may have run out; None without one that can be
    read."""
    leases = LeaseFolder(store, warehouse)
    epoch = leases.highest()
    return leases.read(epoch) if epoch else None


def is_renewed(store: Store, warehouse: str, lease: Lease) -> bool:
    """Whether a coordinator at work renews a lease, or has succeeded it: its object is watched for
    two renewals. Clocks of two machines are not compared. Raises what the store raises."""
    watch = LeaseWatch(LeaseFolder(store, warehouse), Clock().steady_ms)
    watch.look()
    if watch.lease != lease:
        return True
    pause = look_seconds(lease.lease_ms)
    for _ in range(2 * _LOOKS_PER_LEASE // RENEWALS_PER_LEASE + 1):
        time.sleep(pause)
        if watch.look():
            return True
    return False


class LeaseWatch:
    """The lease of the highest epoch, as it is seen again and again. Not for several threads."""

    def __init__(self, leases: LeaseFolder, now_ms: Callable[[], float]) -> None:
        self._leases = leases
        self._now_ms = now_ms
        self._content: bytes | None = None
        self._looked_ms = 0.0
        self._watched: Watched | None = None
        self.epoch = -1

    @property
    def lease(self) -> Lease | None:
        """The lease that was seen; None without one, or where it can't be read."""
        return None if self._watched is None else self._watched.lease

    def look(self) -> bool:
        """Look, and return whether anything has changed since the last look. Raises errors of the
        store; then it is as if nobody had looked."""
        looked_ms = self._now_ms()
        epoch = self._leases.highest()
        content = self._leases.content(epoch) if epoch else None
        has_changed = (epoch, content) != (self.epoch, self._content)
        if has_changed:
            self.epoch, self._content = epoch, content
            self._watched = Watched(lease_of(content, epoch) if content else None, self._now_ms())
        self._looked_ms = looked_ms
        return has_changed

    def has_run_out(self, lease_ms: int) -> bool:
        """See `Watched.has_run_out`."""
        return self._watched is not None and self._watched.has_run_out(self._looked_ms, lease_ms)


def owned_elsewhere(lease: Lease | None) -> NotOwnerError:
    """Return the error for a coordinator that needs a warehouse which another one owns."""
    if lease is None:
        return NotOwnerError(
            "Another coordinator owns the warehouse's commits.",
            hint="Use that one, or stop it first.",
        )
    return NotOwnerError(
        f"The warehouse's commits are owned by the coordinator of {lease.who} at "
        f"{lease.address} (epoch {lease.epoch}).",
        hint=f"Connect with coordinator='{lease.address}' and its token. People with accounts of "
        "their own share a service. Start it with `paimon-coordinator --warehouse … --state …`. "
        "Make a token for each with `paimon-coordinator token add NAME --allow write --state …`. "
        "Everybody connects with coordinator='http://HOST:PORT' and the token. Or wait until that "
        f"one has stopped; {lease.lease_ms / 1000:.0f} s after it died another one takes over.",
        address=lease.address,
    )
