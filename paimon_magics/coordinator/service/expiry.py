"""Upkeep of tables after commits: snapshots expire by Paimon's options, and the files that
overwritten snapshots leave are removed. At the start dropped tables are deleted whose drop died.

A thread of its own does it some seconds after a commit, one table and a bounded number of snapshots
at a time, so that no commit waits for it. Right before the decision it asks what must stay: the
bases of open transactions, leased snapshots, and publications that have not been checked since.
After a failure it is tried again a minute later.

If the process dies here, see `tables.expiry.expire_snapshots` and `overwritten_cleanup`. A table is
known again after its next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paimon_magics.coordinator.runtime.interface import Loop, Runtime
from paimon_magics.coordinator.service.snapshot_leases import Leases
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.expiry import ExpiryRules
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.expire_snapshots import can_expire, carry_out, decide
from paimon_magics.tables.expiry.expired_files import remove_overwritten

_OVERWRITTEN = ""
_DROPPED = "dropped"
_LEFT = "Files of overwritten snapshots could not be removed"
_DROPPED_LEFT = "Files of dropped tables could not be removed"
_AGAIN_MS = 60_000  # after a failure
_DROPS_EVERY_MS = 600_000

_Key = str | tuple[str, str | None]
"""A table's location and branch, _OVERWRITTEN or _DROPPED."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    """One piece of work. `run` returns the time of the next run, None without one. `problem` says
    what a failure means."""

    problem: str
    run: Callable[[], int | None]
    due_ms: int


@dataclass(frozen=True, slots=True)
class ExpiryGate:
    """The checks right before a snapshot is removed.

    `floor_of` returns, for a table's location and branch, the first snapshot that transactions and
    publications need. `check` raises DeposedError when another coordinator has taken over, which
    alone knows what is being read now; `owns` tells whether this one has taken the warehouse. While
    `waits` is true nothing is removed: an administrator who has paused the coordinator may be
    copying the warehouse.
    """

    floor_of: Callable[[str, str | None], int]
    check: Callable[[], None]
    owns: Callable[[], bool]
    waits: Callable[[], bool]


class Upkeep:
    """Expires snapshots, and removes the files of `overwritten` ones. `gate` says what must stay.

    `expired` counts the snapshots that were removed since the start, `failures` the failed runs.
    `problem` is the reason of the last failure, "" after a success.
    """

    def __init__(
        self,
        runtime: Runtime,
        catalog: Catalog,
        turns: Turns,
        leases: Leases,
        overwritten: Overwritten,
        gate: ExpiryGate,
        every_ms: int,
    ) -> None:
        self._catalog = catalog
        self._turns = turns
        self._leases = leases
        self._overwritten = overwritten
        self._gate = gate
        self._every_ms = every_ms
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._turn = runtime.lock()
        self._due: dict[_Key, _Job] = {}
        self._loop: Loop | None = None
        self._stopping = False
        self.expired = 0
        self.failures = 0
        self.problem = ""

    def start(self) -> None:
        """Start the thread."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, self._now_ms()))
        self._plan(_DROPPED, _Job(_DROPPED_LEFT, self._finish_drops, self._now_ms()))
        self._loop = self._runtime.loop("upkeep", self._pause_ms, self._run_due)

    def stop(self) -> None:
        """Stop after the work under way."""
        self._stopping = True
        if self._loop is not None:
            self._loop.end()

    def committed(self, table: TableName, location: str) -> None:
        """Plan the expiry of a table that has a new snapshot."""
        problem = f"Snapshots of `{table}` could not expire"
        run = partial(self._expire, table)
        self._plan((location, table.branch), _Job(problem, run, self._now_ms() + self._every_ms))

    def wrote_over(self) -> None:
        """Plan the clean-up after an overwritten snapshot, which is about to be published again."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, self._now_ms() + self._every_ms))

    def _plan(self, key: _Key, job: _Job) -> None:
        with self._turn:
            if key in self._due:
                return
            self._due[key] = job
        if self._loop is not None:
            self._loop.wake()

    def _pause_ms(self) -> float | None:
        """The time until the next job is due; None without any."""
        with self._turn:
            due_ms = min((job.due_ms for job in self._due.values()), default=None)
        return None if due_ms is None else max(0.0, due_ms - self._now_ms())

    def _run_due(self) -> None:
        """Run the jobs that are due."""
        while not self._stopping and (due := self._next()) is not None:
            key, job = due
            if self._gate.waits():
                self._plan(key, replace(job, due_ms=self._now_ms() + self._every_ms))
                continue
            error = self._runtime.attempt(job.problem, partial(self._run, key, job))
            self.problem = "" if error is None else f"{job.problem}: {error}"
            if error is not None:
                self.failures += 1
                self._plan(key, replace(job, due_ms=self._now_ms() + _AGAIN_MS))

    def _run(self, key: _Key, job: _Job) -> None:
        again_ms = job.run()
        if again_ms is not None:
            self._plan(key, replace(job, due_ms=again_ms))

    def _next(self) -> tuple[_Key, _Job] | None:
        """Take the next job that is due; None without one."""
        with self._turn:
            key = min(self._due, key=lambda one: self._due[one].due_ms, default=None)
            if key is None or self._due[key].due_ms > self._now_ms():
                return None
            return key, self._due.pop(key)

    def _clear(self) -> int | None:
        """Remove what overwritten snapshots left; return when to run again, None without any
        left."""
        self._overwritten.clear(self._now_ms())
        due_ms = self._overwritten.due_ms()
        return None if due_ms is None else max(due_ms, self._now_ms() + self._every_ms)

    def _finish_drops(self) -> int:
        """Delete what drops have left that failed or whose process died; return when to run
        again."""
        if not self._gate.owns():  # an embedded coordinator takes the warehouse when it writes
            return self._now_ms() + self._every_ms
        self._gate.check()
        return self._now_ms() + (_AGAIN_MS if self._catalog.finish_drops() else _DROPS_EVERY_MS)

    def _expire(self, name: TableName) -> int | None:
        """Expire snapshots of a table; return when to run again, None for after the next commit."""
        try:
            table = self._catalog.load(name)
        except UnknownNameError:
            return None
        rules = ExpiryRules.of(table.schema)
        if rules is None or not can_expire(table):
            return None
        while not self._stopping:
            at_ms = self._now_ms()
            with self._turns(table.location), self._leases.closing(table, at_ms) as floor:
                if floor is None:
                    return at_ms + self._every_ms
                floor = min(floor, self._gate.floor_of(table.location, name.branch))
                self._gate.check()
                expiry = decide(table, rules, floor, at_ms)
            if expiry is None:
                return None
            removed = carry_out(expiry, self._turns(table.location))
            self.expired += removed
            if removed < rules.limit:
                return None
        return None


# Cleaning up after overwritten snapshots, once their commits are in the table again.
#
# Before a commit is published again, the store notes it, with the number of the run that names the
# files. The files that the overwritten snapshot and interrupted runs leave are removed after a
# grace period: a writer that goes around the coordinator may have begun to build on them.
#
# If the process dies here, the removal is done again after the next start.


class Overwritten:
    """Removes the files that overwritten snapshots leave. `watched` returns the publications that
    may still be published again; `check` raises DeposedError when another coordinator has taken
    over."""

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        turns: Turns,
        grace_ms: int,
        watched: Callable[[], Mapping[str, Sequence[Publication]]],
        check: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._turns = turns
        self._grace_ms = grace_ms
        self._watched = watched
        self._check = check

    def due_ms(self) -> int | None:
        """When the next removal is due, in milliseconds of the epoch; None without any."""
        begun = [begun_ms for _, _, begun_ms in self._store.publications.repetitions()]
        return min(begun) + self._grace_ms if begun else None

    def clear(self, now_ms: int) -> int:
        """Remove what is due; return how many snapshots are left for later. Raises errors of
        stores."""
        later = 0
        for p, runs, begun_ms in self._store.publications.repetitions():
            with self._turns(p.location):
                if begun_ms + self._grace_ms > now_ms or self._is_awaited(p):
                    later += 1
                    continue
                self._check()
                try:
                    removed = remove_overwritten(self._catalog, p, runs)
                except UnknownNameError:  # the table itself is gone
                    removed = 0
                self._store.publications.drop_repetition(p)
            if removed:
                _log.info("%d files of an overwritten snapshot of %s removed", removed, p.table)
        return later

    def _is_awaited(self, p: Publication) -> bool:
        """Whether it is unknown yet if the commit is in the table again."""
        there = self._watched().get(p.location, ())
        return any((q.id, q.snapshot_id) == (p.id, p.snapshot_id) for q in there)
