"""Ownership of a warehouse's commits: a lease in the warehouse that is taken, renewed, lost and
released.

`<warehouse>/.paimon-magics/owner-E.json` is the lease of epoch E. A coordinator takes over by
creating the object of epoch E + 1, which only one coordinator can do. It does so only when the
lease of E was released, has expired, or belongs to the same state folder. Only the owner rewrites
its object. It is the owner while its lease has not expired by its own clock and no higher epoch
exists. The clocks of machines need not agree for that: others wait until they have seen the object
unchanged for a whole lease.

If the process dies, its lease expires, or the next process on the same state folder succeeds it at
once. A process that stood still for longer than the lease takes the next epoch itself, unless
another coordinator has taken it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from paimon_magics.coordinator.ownership.binding import WarehouseBinding
from paimon_magics.coordinator.ownership.lease import (
    RENEWALS_PER_LEASE,
    Lease,
    LeaseFolder,
    LeaseWatch,
    Owner,
    look_seconds,
    owned_elsewhere,
)
from paimon_magics.coordinator.runtime.threads import Loop, Runtime
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import DeposedError, Fence
from paimon_magics.tables.stores.store import Store, UnreachableError

# The fraction by which a lease ends earlier for its owner than for others: clocks tick unevenly.
_MARGIN = 0.1

Saw = Callable[[Lease | None], None]
"""Gets a lease that was seen."""


class Ownership:
    """This coordinator's side of the lease. Safe for several threads.

    `binding` is that of the state folder; without a binding any warehouse will do.
    """

    def __init__(
        self,
        store: Store,
        warehouse: str,
        owner: Owner,
        lease_ms: int,
        now_ms: Callable[[], float] | None = None,
        binding: WarehouseBinding | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.runtime = runtime or Runtime()
        self._store = store
        self._leases = LeaseFolder(store, warehouse)
        self._mine = owner.lease(uuid.uuid4().hex, lease_ms)
        self._when_lost: list[Callable[[DeposedError], None]] = []
        self._now_ms = now_ms or self.runtime.clock.steady_ms
        self._binding = binding
        self._turn = threading.RLock()
        self._until_ms = 0.0
        self._lost: DeposedError | None = None
        self._looked_to: dict[str, int] = {}
        self._closing = threading.Event()
        self._renewer: Loop | None = None
        self.misplaced: SetupError | None = None
        """Why the warehouse is not in its place: it was moved, or its disk is not mounted."""
        self.trouble = ""
        """Why the last renewal of the lease failed; "" when it succeeded."""
        self.succeeded_another = False
        """Whether a coordinator with another state folder owned the warehouse before this one."""

    def when_lost(self, tell: Callable[[DeposedError], None]) -> None:
        """Call `tell` once, from any thread, when another coordinator has taken over; at once if
        that has happened already. The callbacks run in the order of registration.
        """
        with self._turn:
            if self._lost is None:
                self._when_lost.append(tell)
                return
        tell(self._lost)

    @property
    def is_lost(self) -> bool:
        """Whether another coordinator has taken over, or the lease was released."""
        return self._lost is not None

    @property
    def lost(self) -> DeposedError | None:
        """Who has taken over, None if nobody has."""
        return self._lost

    @property
    def epoch(self) -> int:
        """The epoch that this coordinator owns or last owned, 0 before the first."""
        return self._mine.epoch

    @property
    def instance(self) -> str:
        """The id of this process, drawn at random."""
        return self._mine.instance

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts after a renewal."""
        return self._mine.lease_ms

    @property
    def left_ms(self) -> float:
        """How long the present lease lasts unless it is renewed."""
        return self._until_ms - self._now_ms()

    def acquire(self) -> int:
        """Own the warehouse's commits, and return the epoch; wait for a lease to expire if needed.

        Raises NotOwnerError, which names the owner, when another coordinator renews its lease;
        DeposedError when another coordinator has taken over from this coordinator; and errors of
        the store.
        """
        with self._turn:
            self._check_known()
            if self.epoch == 0:
                self._mine = replace(self._mine, warehouse=self._settled())
                self._store.check()
                while not self._begin(*self._free()):
                    pass  # another coordinator was faster: look again
            return self.epoch

    def stand_by(
        self, may_take: Callable[[], bool] = lambda: True, saw: Saw = lambda lease: None
    ) -> int:
        """Wait as long as other coordinators own the warehouse's commits, then own them, and return
        the epoch. `saw` gets each observed lease, None if there is no readable lease. The lease and
        its expiry are checked 30 times per lease.

        `may_take` is called each time before a free lease is taken. Errors of the store are in
        `trouble`; it waits until they end. Raises SetupError after `release`.
        """
        pause = look_seconds(self._mine.lease_ms)
        watch = LeaseWatch(self._leases, self._now_ms)

        def look() -> None:
            if watch.look():
                saw(watch.lease)
            if self._is_free(watch) and may_take():
                id = self._settled()
                self._store.check()
                with self._turn:
                    self._mine = replace(self._mine, warehouse=id)
                    self._begin(watch.epoch, watch.lease)

        while not self._closing.is_set():
            self.trouble = self._trouble_of("looking at the lease", look)
            if self._renewer is not None:
                return self.epoch
            self._closing.wait(pause)
        raise SetupError("The coordinator is stopping.")

    def fence(self) -> Fence:
        """Return the fence of the present epoch, which a publication needs."""
        return Fence(self.acquire(), self.check, self.outrank, self._looked_to)

    def outrank(self, epoch: int) -> Fence:
        """Continue with an epoch above `epoch`, which was found in a table but has no lease.

        Raises DeposedError when another coordinator has a lease above this one's epoch.
        """
        with self._turn:
            self.check()
            if epoch >= self.epoch:
                self._advance(epoch + 1)
        return self.fence()

    def check(self) -> None:
        """Raise DeposedError unless this coordinator owns the warehouse's commits right now.

        Reads from the store; raises SetupError when it can't be reached, and while this coordinator
        has not taken the warehouse yet.
        """
        self.check_time()
        if not self.epoch:
            raise SetupError("The coordinator has not taken the warehouse yet.")
        highest = self._leases.highest()
        if highest < self.epoch:
            self._look_at_place()
        if highest > self.epoch:
            with self._turn:  # this coordinator may have gone on to the next epoch in between
                highest = self._leases.highest()
                if highest > self.epoch:
                    self._lose(highest)

    def check_time(self) -> None:
        """Like `check`, but without reading from the store while the lease runs. When the lease has
        expired, take the next epoch or raise DeposedError.
        """
        self._check_known()
        if self.epoch and self._now_ms() >= self._until_ms:
            with self._turn:
                self._take_again()

    def check_lease(self) -> None:
        """Like `check_time`, but never access the store: raise SetupError while the lease has
        expired and the renewal has not taken it again yet.
        """
        self._check_known()
        if self.epoch and self._now_ms() >= self._until_ms:
            raise SetupError(
                f"The coordinator's lease of the warehouse has expired. {self.trouble}".strip(),
                hint=(
                    "The coordinator takes it again as soon as the warehouse's store answers. "
                    "Send the request again."
                ),
            )

    def _check_known(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self.misplaced is not None:
            raise self.misplaced

    def _settled(self) -> str:
        return "" if self._binding is None else self._binding.settle()

    def _look_at_place(self) -> None:
        """Raise SetupError unless the warehouse is in its place."""
        try:
            if self._binding is not None:
                self._binding.look()
        except UnreachableError:
            raise
        except SetupError as error:
            self.misplaced = error
            raise
        self.misplaced = None

    def has_written(self, lease: Lease) -> bool:
        """Whether this very process has written a lease."""
        return lease.instance == self._mine.instance

    def release(self) -> None:
        """Release the lease, so that the next coordinator need not wait. A lease that was lost or
        never taken is left alone."""
        self._closing.set()
        if self._renewer is not None:
            self._renewer.end()
        with self._turn:
            if self._lost is None and self.epoch:
                self.runtime.attempt("releasing the lease", self._write_release)
            self._lost = self._lost or DeposedError("The coordinator has stopped.")

    def _write_release(self) -> None:
        if self._leases.highest() == self.epoch:
            self._leases.write(replace(self._mine, released=True))

    # ---- taking ----

    def _begin(self, epoch: int, before: Lease | None) -> bool:
        """Create the lease of the epoch after `epoch`, and keep it. Return False when another
        coordinator was faster."""
        if not self._create(epoch + 1):
            return False
        self.succeeded_another = bool(epoch) and not self._is_own(before)
        pause_ms = self._mine.lease_ms / RENEWALS_PER_LEASE
        self._renewer = self.runtime.loop("lease", lambda: pause_ms, self._renew)
        return True

    def _take_again(self) -> None:
        """Take the next epoch, unless another coordinator has, after the lease expired while this
        process stood still or could not write. The lease can't be renewed: others may have seen it
        expire. An epoch that this process wrote although the store reported a failure has expired
        as well.
        """
        if self._lost is not None:
            raise self._lost
        if self._now_ms() < self._until_ms:
            return
        self._look_at_place()
        highest = self._leases.highest()
        if highest > self.epoch:
            lease = self._leases.read(highest)
            if lease is None or not self.has_written(lease):
                self._lose(highest)
        self._advance(max(highest, self.epoch) + 1)

    def _advance(self, epoch: int) -> None:
        """Create the lease of a higher epoch. Raises DeposedError when another coordinator did."""
        if not self._create(epoch):
            self._lose(self._leases.highest())

    def _create(self, epoch: int) -> bool:
        """Create the lease of an epoch. Return False when another coordinator was faster."""
        started_ms = self._now_ms()
        lease = replace(self._mine, epoch=epoch, expires_at_ms=self._end_ms())
        if not self._leases.create(lease) or self._is_outdated(epoch):
            return False
        self._mine = lease
        self._until_ms = started_ms + lease.lease_ms * (1 - _MARGIN)
        self._remove_older(epoch)
        return True

    def _is_outdated(self, epoch: int) -> bool:
        """Whether the new lease came too late: another coordinator has a higher epoch, and has
        removed the object that would have prevented this lease.
        """
        highest = self._leases.highest()
        if highest > epoch:
            self._remove_older(highest)
        return highest > epoch

    def _remove_older(self, epoch: int) -> None:
        self.runtime.attempt("removing leases", lambda: self._leases.remove_older(epoch))

    def _is_free(self, watch: LeaseWatch) -> bool:
        """Whether the observed lease may be succeeded now."""
        lease = watch.lease
        if not watch.epoch or (lease is not None and (lease.released or self._is_own(lease))):
            return True
        return watch.has_run_out(self._mine.lease_ms)

    def _is_own(self, lease: Lease | None) -> bool:
        return lease is not None and lease.home == self._mine.home

    def _free(self) -> tuple[int, Lease | None]:
        """Wait until the present lease may be succeeded. Return its epoch, 0 for none, and the
        lease. Raises NotOwnerError as soon as its owner renews it.
        """
        watch = LeaseWatch(self._leases, self._now_ms)
        watch.look()
        epoch = watch.epoch
        length_ms = watch.lease.lease_ms if watch.lease else self._mine.lease_ms
        pause = look_seconds(length_ms)
        while not self._is_free(watch):
            if self._closing.wait(pause):
                raise SetupError("The coordinator is stopping.")
            is_renewed = watch.look() and watch.epoch == epoch
            epoch = watch.epoch
            if is_renewed and not self._is_free(watch):
                raise owned_elsewhere(watch.lease)
        return watch.epoch, watch.lease

    # ---- keeping ----

    def _renew(self) -> None:
        """Renew the lease. It retries after any error; the lease may expire meanwhile."""
        if self._lost is not None or self._closing.is_set():
            if self._renewer is not None:
                self._renewer.stop()
            return
        self.trouble = self._trouble_of("renewing the lease", self._renew_once)

    def _trouble_of(self, label: str, work: Callable[[], None]) -> str:
        error = self.runtime.attempt(label, work)
        return "" if error is None else str(error) or type(error).__name__

    def _renew_once(self) -> None:
        self._look_at_place()
        with self._turn:
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
            + (owner.who if owner else "another coordinator")
            + f" (epoch {epoch}).",
            hint="Connect to the newer coordinator" + (f" at {owner.address}." if owner else "."),
            address=owner.address if owner else "",
        )
        self._closing.set()
        for tell in self._when_lost:
            tell(self._lost)
        raise self._lost

    def _end_ms(self) -> int:
        return int(time.time() * 1000) + self._mine.lease_ms
