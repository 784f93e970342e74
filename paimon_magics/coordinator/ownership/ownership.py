"""Owning a warehouse's commits: a lease in the warehouse, taken, renewed, lost, given back.

`<warehouse>/.paimon-magics/owner-E.json` is the lease of epoch E. Taking over is creating the one
of epoch E + 1, possible for one coordinator only, and done only when that of E was released, has
run out, or is this coordinator's own of a former life. The owner alone rewrites its own object. It
knows that it owns while its lease has not run out by its own clock and no higher epoch is there; a
clock that it does not share with anybody is enough for that, because others wait until they have
seen the object unchanged for a whole lease.

If the process dies its lease runs out, or the next process on the same state folder succeeds it at
once. If it was stopped for longer than the lease and nobody came, it takes the next epoch itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from paimon_magics.coordinator.ownership.lease import Lease, Owner, Watched, lease_of
from paimon_magics.coordinator.ownership.lease_folder import LeaseFolder
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.tables.commits.fencing import DeposedError, Fence, NotOwnerError
from paimon_magics.tables.stores.store import Store

__all__ = ["Ownership", "current_lease", "owned_elsewhere"]

_RENEWALS_PER_LEASE = 6
_LOOKS_PER_LEASE = 30
_LOOK_MS_MAX = 1_000
# How much earlier than others the owner takes its own lease for run out: clocks tick unevenly.
_MARGIN = 0.1


def current_lease(store: Store, warehouse: str) -> Lease | None:
    """Who owns the warehouse's commits, as far as its lease says; it may have run out."""
    leases = LeaseFolder(store, warehouse)
    epoch = leases.highest()
    return leases.read(epoch) if epoch else None


class Ownership:
    """This coordinator's side of the lease. Safe for several threads."""

    def __init__(
        self,
        store: Store,
        warehouse: str,
        owner: Owner,
        lease_ms: int,
        now_ms: Callable[[], float] | None = None,
    ) -> None:
        self._leases = LeaseFolder(store, warehouse)
        self._mine = owner.lease(uuid.uuid4().hex, lease_ms)
        self._when_lost: list[Callable[[DeposedError], None]] = []
        self._now_ms = now_ms or _steady_ms
        self._turn = threading.RLock()
        self._until_ms = 0.0
        self._lost: DeposedError | None = None
        self._looked_to: dict[str, int] = {}
        self._closing = threading.Event()
        self._renewer: threading.Thread | None = None
        self.trouble = ""
        """Why the lease could not be renewed the last time; "" while it could."""
        self.succeeded_another = False
        """Whether a coordinator with another home owned the warehouse before this one."""

    def when_lost(self, tell: Callable[[DeposedError], None]) -> None:
        """Have `tell` called once, from any thread, when another coordinator has taken over; after
        those that were given before. To be given before the warehouse is acquired."""
        self._when_lost.append(tell)

    @property
    def epoch(self) -> int:
        """The epoch that this coordinator owns or owned last, 0 for none yet."""
        return self._mine.epoch

    def acquire(self) -> int:
        """Own the warehouse's commits, if need be by waiting for a lease to run out; the epoch.

        Raises SetupError, which names the owner, when another coordinator renews its lease, and
        DeposedError when one has taken over from this one; errors of the store.
        """
        with self._turn:
            if self._lost is not None:
                raise self._lost
            if self.epoch == 0:
                self._leases.check()
                self._take()
                self._renewer = threading.Thread(target=self._renew, name="owner", daemon=True)
                self._renewer.start()
            return self.epoch

    def fence(self) -> Fence:
        """What a publish needs, at the present epoch."""
        return Fence(self.acquire(), self.check, self.outrank, self._looked_to)

    def outrank(self, epoch: int) -> Fence:
        """Go on with an epoch above that one, which is in a table but among no leases.

        Raises DeposedError when it is, or any higher one than this coordinator's.
        """
        with self._turn:
            self.check()
            if epoch >= self.epoch:
                self._advance(epoch + 1)
        return self.fence()

    def check(self) -> None:
        """Raise DeposedError unless this coordinator owns the warehouse's commits right now.

        Looks at the store; one that can't be reached raises SetupError.
        """
        self.check_time()
        if self._leases.highest() > self.epoch:
            with self._turn:  # this one may have gone on to the next epoch between the two
                highest = self._leases.highest()
                if highest > self.epoch:
                    self._lose(highest)

    def check_time(self) -> None:
        """The same by this process's own knowledge, which costs nothing while the lease runs."""
        if self._lost is not None:
            raise self._lost
        if self.epoch and self._now_ms() >= self._until_ms:
            with self._turn:
                self._take_again()

    def has_written(self, lease: Lease) -> bool:
        """Whether a lease that was found is one of this very process."""
        return lease.instance == self._mine.instance

    def release(self) -> None:
        """Give the ownership back, so that the next coordinator need not wait. Nothing happens
        when it was lost, or never taken."""
        self._closing.set()
        if self._renewer is not None:
            self._renewer.join()
        with self._turn, contextlib.suppress(PaimonMagicsError, OSError):
            if self._lost is None and self.epoch and self._leases.highest() == self.epoch:
                self._leases.write(replace(self._mine, released=True))
            self._lost = self._lost or DeposedError("The coordinator has stopped.")

    # ---- taking ----

    def _take(self) -> None:
        """Create the lease of the next epoch, once the present one may be succeeded."""
        while True:
            highest = self._leases.highest()
            before = self._leases.read(highest) if highest else None
            if highest and not self._may_succeed(before):
                before = self._wait_for(highest)
            started_ms = self._now_ms()
            wanted = replace(self._mine, epoch=highest + 1, expires_at_ms=self._end_ms())
            if self._leases.create(wanted):
                break
        self._mine = wanted
        self._until_ms = started_ms + wanted.lease_ms * (1 - _MARGIN)
        self.succeeded_another = bool(highest) and not self._is_own(before)
        self._leases.remove_older(self.epoch)

    def _take_again(self) -> None:
        """The lease ran out while this process was held up: go on with the next epoch if nobody
        came. (The object may have been seen unchanged for long: it can't simply be renewed.)"""
        if self._lost is not None:
            raise self._lost
        if self._now_ms() < self._until_ms:
            return
        highest = self._leases.highest()
        if highest > self.epoch:
            self._lose(highest)
        self._advance(self.epoch + 1)

    def _advance(self, epoch: int) -> None:
        """Go on with a higher epoch, or find that another coordinator has."""
        started_ms = self._now_ms()
        wanted = replace(self._mine, epoch=epoch, expires_at_ms=self._end_ms())
        if not self._leases.create(wanted):
            self._lose(self._leases.highest())
        self._mine = wanted
        self._until_ms = started_ms + wanted.lease_ms * (1 - _MARGIN)
        self._leases.remove_older(self.epoch)

    def _may_succeed(self, lease: Lease | None) -> bool:
        return lease is not None and (lease.released or self._is_own(lease))

    def _is_own(self, lease: Lease | None) -> bool:
        return lease is not None and lease.home == self._mine.home

    def _wait_for(self, epoch: int) -> Lease | None:
        """Watch another's lease until it has run out or was released; the lease, or SetupError as
        soon as it is renewed."""
        content = self._leases.content(epoch)
        watched = Watched(lease_of(content, epoch) if content else None, self._now_ms())
        lease_ms = watched.lease.lease_ms if watched.lease else self._mine.lease_ms
        pause = min(lease_ms / _LOOKS_PER_LEASE, _LOOK_MS_MAX) / 1000
        while not watched.has_run_out(self._now_ms(), time.time() * 1000, lease_ms):
            if self._closing.wait(pause):
                raise SetupError("The coordinator is stopping.")
            if self._leases.highest() != epoch:
                return watched.lease  # another was faster; whoever comes next is looked at anew
            seen = self._leases.content(epoch)
            if seen != content:
                lease = lease_of(seen, epoch) if seen else None
                if self._may_succeed(lease):
                    return lease
                raise owned_elsewhere(lease)
        return watched.lease

    # ---- keeping ----

    def _renew(self) -> None:
        pause = self._mine.lease_ms / _RENEWALS_PER_LEASE / 1000
        while not self._closing.wait(pause):
            # A store that does not answer is asked again; meanwhile the lease may run out.
            try:
                with self._turn:
                    self._renew_once()
                self.trouble = ""
            except (PaimonMagicsError, OSError) as error:
                self.trouble = str(error)
            if self._lost is not None:
                return

    def _renew_once(self) -> None:
        self.check_time()
        started_ms = self._now_ms()
        self._leases.write(replace(self._mine, expires_at_ms=self._end_ms()))
        highest = self._leases.highest()
        if highest > self.epoch:
            self._lose(highest)
        self._until_ms = started_ms + self._mine.lease_ms * (1 - _MARGIN)

    def _lose(self, epoch: int) -> None:
        owner = self._leases.read(epoch)
        self._lost = DeposedError(
            "This coordinator no longer owns the warehouse's commits: they were taken over by "
            + (owner.who if owner else "another one")
            + f" (epoch {epoch}).",
            hint="Ask the newer coordinator" + (f" at {owner.address}." if owner else "."),
            address=owner.address if owner else "",
        )
        self._closing.set()
        for tell in self._when_lost:
            tell(self._lost)
        raise self._lost

    def _end_ms(self) -> int:
        return int(time.time() * 1000) + self._mine.lease_ms


def owned_elsewhere(lease: Lease | None) -> NotOwnerError:
    """The error for who needs a warehouse that the coordinator of that lease owns."""
    if lease is None:
        return NotOwnerError(
            "Another coordinator owns the warehouse's commits.",
            hint="Use that one, or stop it first.",
        )
    return NotOwnerError(
        f"The warehouse's commits are owned by the coordinator of {lease.who} at "
        f"{lease.address} (epoch {lease.epoch}).",
        hint=f"Connect with coordinator='{lease.address}' and its token, or wait until it has "
        f"stopped; {lease.lease_ms / 1000:.0f} s after it died another one can take over.",
        address=lease.address,
    )


def _steady_ms() -> float:
    """A clock that never goes back and, where the system has one, runs on while it sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if clock is None else time.clock_gettime(clock)) * 1000
