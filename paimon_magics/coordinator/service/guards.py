"""What must stay when files of a table are removed, according to its coordinator.

Expiry and the cleaning of orphans of one table take turns (`cleaning`): each decides by what the
other may be changing. Commits wait only while it is decided what goes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.requests import prefix_of
from paimon_magics.tables.expiry.expire_snapshots import Expiry, decide
from paimon_magics.tables.expiry.holders import Holder
from paimon_magics.tables.expiry.orphan_files import Moment, moment_of
from paimon_magics.tables.table import Table

if TYPE_CHECKING:  # a session that commits in its own process loads none of them
    from paimon_magics.coordinator.ownership.ownership import Ownership
    from paimon_magics.coordinator.service.snapshot_leases import Leases
    from paimon_magics.coordinator.service.state_thread import StateThread


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


class TableGuard:
    """A `Guard` by all that a coordinator knows. In a pause nothing is removed."""

    def __init__(
        self,
        turns: Turns,
        leases: Leases,
        state_thread: StateThread,
        ownership: Ownership | None,
        own: Callable[[], object],
    ) -> None:
        self._turns = turns
        self._leases = leases
        self._state_thread = state_thread
        self._ownership = ownership
        self._own = own
        self._alarms = state_thread.runtime.pool("quiet", 1)
        self.now_ms = state_thread.now_ms
        self.cleaning = Turns()

    def ready(self) -> Future[None]:
        """See `Guard.ready`."""
        future = Future[None]()
        left_ms = self._leases.quiet_until_ms - self.now_ms()
        if left_ms <= 0:
            future.set_result(None)
        else:
            self._alarms.run("quiet", lambda: future.set_result(None), after_ms=left_ms + 1)
        return future

    def turn(self, location: str) -> AbstractContextManager[None]:
        """See `Guard.turn`."""
        return self._turns(location)

    def check(self) -> None:
        """Raise DeposedError when another coordinator has taken over."""
        if self._ownership is not None:
            self._ownership.check()

    def own(self) -> None:
        """Take the warehouse, as a commit does. Raises SetupError if another one has it."""
        self._own()

    def decided(
        self, table: Table, rules: ExpiryRules, *, is_trial: bool = False
    ) -> tuple[bool, Expiry | None]:
        """See `Guard.decided`."""
        at_ms = self.now_ms()
        with self._turns(table.location), self._leases.closing(table, at_ms) as floor:
            if floor is None and not is_trial:
                return False, None
            needed = self._state_thread.stored.first_needed(table.location, table.name.branch)
            self.check()
            floor = needed if floor is None else min(floor, needed)
            return True, decide(table, rules, floor, at_ms, is_trial=is_trial)

    def moment(self, table: Table) -> Moment:
        """See `Guard.moment`. Raises SetupError for a table whose commits are stopped."""
        with self._turns(table.location):
            stopped = self._state_thread.state.stopped.get(table.location)
            if stopped is not None:
                raise SetupError(
                    f"`{table.name}` takes no commits: {stopped.reason} So it is unknown which of "
                    "its files are in use.",
                    hint="Nothing was deleted. First do what `%paimon coordinator` says of it.",
                )
            opened, published = self._state_thread.stored.unsettled(table.location)
            prefixes = {transaction.file_prefix for transaction in opened}
            prefixes |= {prefix for p in published if (prefix := prefix_of(p.commit_user))}
            return moment_of(table, prefixes, published)

    def holders(self, table: Table) -> list[Holder]:
        """See `Guard.holders`."""
        opened, _ = self._state_thread.stored.unsettled(table.location)
        state = self._state_thread.state.transactions
        described = {
            each.commit_user: known.who
            for id, known in state.items()
            if (each := self._state_thread.opened.get(id)) is not None
        }
        return [
            *(
                Holder("transaction", described.get(t.commit_user, ""), t.base_snapshot_id)
                for t in opened
                if t.table.branch == table.name.branch
            ),
            *self._leases.holders(table, self.now_ms()),
        ]
