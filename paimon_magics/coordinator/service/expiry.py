"""Upkeep of the tables that are committed to: their snapshots expire by Paimon's options, and what
is left of overwritten ones goes.

Done in a thread of its own, a table at a time and a bounded number of snapshots at a time, some
seconds after a commit: no commit waits for it. What must stay is asked for right before the
decision: the bases of open transactions, read leases, and publications that have not been looked
at since. A failure is told, and tried again after the next commit.

If the process dies here: see `tables.expiry.expire_snapshots` and `overwritten_cleanup`. The
tables that it knew of are
known again after their next commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.service.overwritten_cleanup import Overwritten
from paimon_magics.coordinator.service.snapshot_leases import Leases
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.expiry import ExpiryRules
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.expire_snapshots import can_expire, carry_out, decide

__all__ = ["ExpiryGate", "Upkeep"]

_OVERWRITTEN = ""
_LEFT = "What is left of overwritten snapshots could not be removed"

_log = logging.getLogger(__name__)

_Key = str | tuple[str, str | None]
"""A table's location and branch, or _OVERWRITTEN."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What is done in the thread at a time; `run` gives the time when it is to be done again, None
    where it is not. `problem` is what it means when it fails."""

    problem: str
    run: Callable[[], int | None]
    due_ms: int


@dataclass(frozen=True, slots=True)
class ExpiryGate:
    """What is asked right before a snapshot goes.

    `floor_of` gives, for a table's location and branch, the first snapshot that transactions and
    publications need; `check` raises an error when another coordinator has taken over, which knows
    better who reads what. While it `waits` nothing goes: who has paused the coordinator may be
    about to copy the warehouse.
    """

    floor_of: Callable[[str, str | None], int]
    check: Callable[[], None]
    waits: Callable[[], bool]


class Upkeep:
    """Expires snapshots, and clears up after `overwritten` ones.

    `gate` says what must stay.

    `expired` is how many snapshots were removed since the start, `failures` how often it failed,
    `problem` why it did the last time, "" when it went well since.
    """

    def __init__(
        self,
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
        self._due: dict[_Key, _Job] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="upkeep", daemon=True)
        self.expired = 0
        self.failures = 0
        self.problem = ""

    def start(self) -> None:
        """Begin to work."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, now_ms()))
        self._thread.start()

    def stop(self) -> None:
        """End after what is under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def committed(self, table: TableName, location: str) -> None:
        """There is a new snapshot of a table."""
        problem = f"Snapshots of `{table}` could not expire"
        run = partial(self._expire, table)
        self._plan((location, table.branch), _Job(problem, run, now_ms() + self._every_ms))

    def wrote_over(self) -> None:
        """Somebody has written over a snapshot, which is going to be published again."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, now_ms() + self._every_ms))

    def _plan(self, key: _Key, job: _Job) -> None:
        with self._changed:
            if key not in self._due:
                self._due[key] = job
                self._changed.notify()

    def _work(self) -> None:
        while True:
            due = self._next()
            if due is None:
                return
            key, job = due
            if self._gate.waits():
                self._plan(key, replace(job, due_ms=now_ms() + self._every_ms))
                continue
            try:
                again_ms = job.run()
            except Exception as error:
                self.failures += 1
                self.problem = f"{job.problem}: {error}"
                _log.error("%s", self.problem)
                continue
            self.problem = ""
            if again_ms is not None:
                self._plan(key, replace(job, due_ms=again_ms))

    def _next(self) -> tuple[_Key, _Job] | None:
        """What is to be done next, when it is due; None when the coordinator ends."""
        with self._changed:
            while not self._stopping:
                at_ms = now_ms()
                key = min(self._due, key=lambda one: self._due[one].due_ms, default=None)
                if key is None:
                    self._changed.wait()
                    continue
                if self._due[key].due_ms <= at_ms:
                    return key, self._due.pop(key)
                self._changed.wait((self._due[key].due_ms - at_ms) / 1000)
            return None

    def _clear(self) -> int | None:
        """When there is more to remove of overwritten snapshots; None without any."""
        self._overwritten.clear(now_ms())
        due_ms = self._overwritten.due_ms()
        return None if due_ms is None else max(due_ms, now_ms() + self._every_ms)

    def _expire(self, name: TableName) -> int | None:
        """When there is more to do; None when there is nothing until the next commit."""
        try:
            table = self._catalog.load(name)
        except UnknownNameError:
            return None
        rules = ExpiryRules.of(table.schema)
        if rules is None or not can_expire(table):
            return None
        while not self._stopping:
            at_ms = now_ms()
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
