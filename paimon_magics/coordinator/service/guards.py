"""Who decides what of a table may be removed, and the decision of a process on its own."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.turns import Turns
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.tables.expiry.expire_snapshots import Expiry, decide
from paimon_magics.tables.expiry.holders import Holder
from paimon_magics.tables.expiry.orphan_files import Moment, moment_of
from paimon_magics.tables.table import Table


class Guard(Protocol):
    """Decides what of a table may be removed. For any thread."""

    cleaning: Turns
    """One removal of a table's files at a time has its location."""

    def ready(self) -> Future[None]:
        """Has a result once readers have had the time to say what they read."""

    def own(self) -> None:
        """Take the warehouse, as a commit does. Raises SetupError if another one has it."""

    def turn(self, location: str) -> AbstractContextManager[None]:
        """Keeps changes of the table at a location apart."""

    def check(self) -> None:
        """Raise where nothing may be removed (any more)."""

    def decided(
        self, table: Table, rules: ExpiryRules, *, is_trial: bool = False
    ) -> tuple[bool, Expiry | None]:
        """Whether anything may expire now, and the decision which snapshots do (`decide`)."""

    def moment(self, table: Table) -> Moment:
        """What is true of a table now; see `moment_of`."""

    def holders(self, table: Table) -> list[Holder]:
        """The open transactions and leases of a table."""

    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""


class LoneGuard:
    """A `Guard` of a process without a coordinator: it knows what it does itself, and the notes of
    attempts beside the table."""

    def __init__(self) -> None:
        self.cleaning = Turns()

    def ready(self) -> Future[None]:
        """See `Guard.ready`: no reader leases anything."""
        future = Future[None]()
        future.set_result(None)
        return future

    def turn(self, location: str) -> AbstractContextManager[None]:
        """See `Guard.turn`: the caller has it."""
        return nullcontext()

    def check(self) -> None:
        """See `Guard.check`."""

    def own(self) -> None:
        """There is nothing to take."""

    def decided(
        self, table: Table, rules: ExpiryRules, *, is_trial: bool = False
    ) -> tuple[bool, Expiry | None]:
        """See `Guard.decided`."""
        return True, decide(table, rules, NO_FLOOR, now_ms(), is_trial=is_trial)

    def now_ms(self) -> int:
        """See `Guard.now_ms`."""
        return now_ms()

    def moment(self, table: Table) -> Moment:
        """See `Guard.moment`."""
        return moment_of(table, (), ())

    def holders(self, table: Table) -> list[Holder]:
        """See `Guard.holders`."""
        return []
