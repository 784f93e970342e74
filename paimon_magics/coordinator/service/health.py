"""The coordinator's health as one value: `/health/ready`, `/metrics`, the page and `doctor` show
it.

It is made of facts that threads have noted: nothing is read from a store or a disk for it, so it is
available even while these stand still. The owner of a part yields the facts about it; a part
without available facts is a problem itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from paimon_magics.coordinator.data_tokens.issuing import DataTokens
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.protocol.visibility import sees_location
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.statements.statement import TableName

NAMES = {
    "running": "1 while the coordinator takes requests, 0 after it has stopped.",
    "draining": "1 while it is about to end.",
    "store_seconds": "Since its own store last accepted a write.",
    "log_seconds": "Since the log of small inserts last accepted a write.",
    "lease_seconds": "Until its lease on the warehouse ends, unless it is renewed.",
    "disk_free_bytes": "Left on the disk of its state folder.",
    "thread_busy_seconds": "How long a thread has done its current piece of work, by thread.",
    "thread_waiting": "Items that wait for a thread, by thread.",
    "thread_failures": "Failures of a thread since the start, by thread.",
    "request_seconds": "How long the oldest request has been in a thread, by class.",
    "child_busy_seconds": "How long a process has had its current job, by process.",
    "insert_overdue_seconds": "How long acknowledged rows have waited beyond the table's interval.",
    "insert_closed": "1 while an administrator must check the table first, else 0.",
    "commit_retries": "How often a commit or check of a table was tried again without an outcome.",
    "table_stopped": "1 for a table that takes no commits until an administrator has checked it.",
    "upkeep": "1 while snapshots expire as they should, 0 after a failure.",
    "audit_waiting": "Entries of the audit log that are in the store but not in its table yet.",
    "compaction_failed": "Tables whose last compaction failed.",
    "certificate_seconds": "Until the certificate ends.",
    "takeover": "1 while this standby could take over, 0 while it could not.",
    "permissions": "How often the file of an issuer's permissions was read again.",
    "keys": "How often the file of catalog options was read again.",
    "store_keys": "1 while STS gives keys of the store, 0 after a failure.",
    "store_clock_seconds": "How far the store's clock is ahead of this machine's, by STS.",
    "other_store": "1 if its store was new, but the warehouse had been used with another one.",
    "part": "0 for a part whose facts are unavailable.",
}
"""The names of the facts, with help texts. `/metrics` has each as `paimon_coordinator_NAME`."""

_STANDS_STILL_SECONDS = 10.0
_OF_STORE = ("running", "store_seconds")
_AGAIN_MS = 1_000.0
_CLOCK_SECONDS_MAX = 30.0  # S3 refuses requests whose time is 15 minutes off
_LEASE_PART_MIN = 0.5
_RETRIES_MAX = 3
_OWNERS = ("coordinator", "group commit", "timers")  # nothing is answered while one stands still
_OWNER_BUSY_MS_MAX = 10_000.0
_BUSY_MS_MAX = 600_000.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, by a name in `NAMES`, with its value in the unit that the name ends with.

    `problem` says what is wrong, "" if nothing is. It `blocks` if no insert or commit is accepted.
    `subject` is the table, thread or process that it is about. `table` or `location` is set for a
    table, which not everybody may see.
    """

    name: str
    value: float
    problem: str = ""
    blocks: bool = False
    subject: str = ""
    table: TableName | None = None
    location: str = ""

    def is_seen_by(self, principal: Principal) -> bool:
        """Whether a principal may read the table that it is about, if any."""
        if self.table is not None:
            name = self.table.database or "", self.table.table
            return principal.may_on(Scope.READ, *name)
        return not self.location or sees_location(principal, self.location)


@dataclass(frozen=True, slots=True)
class Health:
    """All facts of one moment."""

    facts: tuple[Fact, ...]

    @property
    def is_ready(self) -> bool:
        """Whether inserts and commits are accepted."""
        return not any(fact.problem and fact.blocks for fact in self.facts)

    @property
    def is_store_readable(self) -> bool:
        """Whether its own store can be expected to answer at once."""
        return not any(fact.problem and fact.name in _OF_STORE for fact in self.facts)

    @property
    def problems(self) -> tuple[Fact, ...]:
        """The facts with a problem, blocking facts first."""
        wrong = (fact for fact in self.facts if fact.problem)
        return tuple(sorted(wrong, key=lambda fact: not fact.blocks))


Source = Callable[[], Iterable[Fact]]
"""Yields the facts about one part, without waiting for anything."""


class HealthMonitor:
    """Knows the parts. `add` and `now` may be called from any thread."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}

    def add(self, part: str, source: Source) -> None:
        """Add the facts of a part."""
        self._sources = {**self._sources, part: source}

    def now(self) -> Health:
        """How the coordinator is at this moment."""
        facts: list[Fact] = []
        for part, source in self._sources.items():
            try:
                facts += source()
            except Exception as error:  # a part that can't be checked does not work
                _log.error("The facts about %s are unavailable: %r", part, error)
                problem = f"The facts about {part} are unavailable: {error!r}"
                facts.append(Fact("part", 0, problem, blocks=True, subject=part))
        return Health(tuple(facts))


class Noted(Generic[T]):
    """The last result of `look`; a separate thread calls it every `every_ms`, so that nobody else
    waits for it. `trouble` is why the last call failed, "" if it did not.
    """

    def __init__(
        self, runtime: Runtime, name: str, look: Callable[[], T], every_ms: float, first: T
    ) -> None:
        self._steady_ms = runtime.clock.steady_ms
        self._look = look
        self._every_ms = every_ms
        self._old_ms = _STANDS_STILL_SECONDS * 1000 + every_ms
        self._noted_ms = self._steady_ms()
        self.value = first
        self.trouble = ""
        self._is_stopped = False
        self._loop = runtime.loop(name, self._pause_ms, self._round)

    @property
    def seconds(self) -> float:
        """Seconds since the last success, or since the start."""
        return (self._steady_ms() - self._noted_ms) / 1000

    @property
    def problem(self) -> str:
        """Why the value is not reliable, "" if it is."""
        if self.trouble:
            return self.trouble
        if self._steady_ms() - self._noted_ms <= self._old_ms:  # each insert asks
            return ""
        return f"no answer for {self.seconds:.0f} s"

    def stop(self) -> None:
        """Stop looking, without waiting for a call that does not end. The observed object may be
        closed then: a later failure of a call is not a problem.
        """
        self._is_stopped = True
        self._loop.stop()

    def _pause_ms(self) -> float:
        return min(self._every_ms, _AGAIN_MS) if self.trouble else self._every_ms

    def _round(self) -> None:
        try:
            self.value = self._look()
        except Exception as error:
            if self._is_stopped:
                return
            self.trouble = str(error) or type(error).__name__
            raise
        self.trouble = ""
        self._noted_ms = self._steady_ms()


def store_fact(probe: Noted[object]) -> Fact:
    """The fact about the coordinator's store, which is written to repeatedly."""
    problem = f"The coordinator's store does not work: {probe.problem}" if probe.problem else ""
    return Fact("store_seconds", probe.seconds, problem, blocks=True)


def log_fact(probe: Noted[object], trouble: str) -> Fact:
    """The fact about the log of small inserts, which is written to repeatedly; `trouble` is why it
    did not accept the last records.
    """
    why = trouble or probe.problem
    problem = f"Inserts can't be logged: {why}" if why else ""
    return Fact("log_seconds", probe.seconds, problem, blocks=True)


def key_facts(keys: DataTokens) -> Iterator[Fact]:
    """The facts about the keys of the store that the coordinator hands out. Commits need none."""
    yield Fact("store_keys", int(not keys.trouble), keys.trouble)
    seconds = keys.ahead_ms / 1000
    problem = ""
    if abs(seconds) > _CLOCK_SECONDS_MAX:
        side = "ahead of" if seconds > 0 else "behind"
        problem = (
            f"The store's clock is {abs(seconds):,.0f} s {side} this machine's. Have both follow "
            "one time (NTP): S3 refuses requests of a clock that is 15 minutes off."
        )
    yield Fact("store_clock_seconds", seconds, problem)


def standard_monitor(
    coordinator: Coordinator,
    runtime: Runtime,
    ownership: Ownership | None = None,
    is_draining: Callable[[], bool] = lambda: False,
) -> HealthMonitor:
    """A monitor that knows the coordinator, its lease, and everything that `runtime` runs."""
    monitor = HealthMonitor()
    monitor.add("the coordinator", lambda: _of_coordinator(coordinator, is_draining))
    monitor.add("its threads", lambda: _of_threads(runtime))
    if ownership is not None:
        monitor.add("its lease", lambda: _of_lease(ownership))
    return monitor


def _of_coordinator(coordinator: Coordinator, is_draining: Callable[[], bool]) -> Iterator[Fact]:
    problem = coordinator.problem or ""
    yield Fact("running", int(not problem), problem, blocks=True)
    ends = is_draining()
    problem = (
        "The coordinator is about to end: ask another coordinator, or ask again when it is back."
        if ends
        else ""
    )
    yield Fact("draining", int(ends), problem, blocks=True)
    for location, stopped in coordinator.state.stopped.items():
        yield Fact("table_stopped", 1, stopped.reason, subject=location, location=location)
    transactions = coordinator.state.transactions
    for key, tries in list(coordinator.commits.retries.items()):
        location = transactions[key].location if key in transactions else key
        what = "A commit to" if key in transactions else "The check of earlier commits to"
        problem = f"{what} `{location}` has no outcome yet, after {tries} tries."
        shown = problem if tries > _RETRIES_MAX else ""
        yield Fact("commit_retries", tries, shown, subject=key, location=location)
    problem = coordinator.upkeep.problem
    yield Fact("upkeep", int(not problem), problem)


def _of_lease(ownership: Ownership) -> Iterator[Fact]:
    if not ownership.epoch:  # an embedded one takes the warehouse with its first write
        return
    left_ms, trouble = ownership.left_ms, ownership.trouble
    problem = f"The warehouse's store does not work: {trouble}" if trouble else ""
    if not problem and left_ms < ownership.lease_ms * _LEASE_PART_MIN:
        problem = "The warehouse's store does not answer: the lease could not be renewed."
    yield Fact("lease_seconds", left_ms / 1000, problem, blocks=True)


def _of_threads(runtime: Runtime) -> Iterator[Fact]:
    for work in runtime.progress():
        limit_ms = _OWNER_BUSY_MS_MAX if work.name in _OWNERS else _BUSY_MS_MAX
        problem = ""
        if work.ended:
            problem = f"The thread `{work.name}` has ended. {work.trouble}".rstrip()
        elif work.busy_ms > limit_ms:
            problem = f"The thread `{work.name}` has stood still for {work.busy_ms / 1000:.0f} s."
        blocks = work.ended or work.name in _OWNERS
        yield Fact("thread_busy_seconds", work.busy_ms / 1000, problem, blocks, work.name)
        yield Fact("thread_waiting", work.waiting, subject=work.name)
        yield Fact("thread_failures", work.failures, subject=work.name)
