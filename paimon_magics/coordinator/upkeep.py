"""Upkeep of the tables that are committed to: their snapshots expire by Paimon's options.

Done in a thread of its own, a table at a time and a bounded number of snapshots at a time, some
seconds after a commit: no commit waits for it. What must stay is asked for right before the
decision: the bases of open transactions, read leases, and publications that have not been looked
at since. A failure is told, and tried again after the next commit.

If the process dies here: see `tables.expiring`. The tables that it knew of are known again after
their next commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from paimon_magics.coordinator.leases import Leases
from paimon_magics.coordinator.rest_context import Turns
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.expiry import ExpiryRules
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog import Catalog
from paimon_magics.tables.expiring import can_expire, carry_out, decide

__all__ = ["Upkeep"]

_log = logging.getLogger(__name__)


class Upkeep:
    """Expires snapshots. `floor_of` gives, for a table's location, the first snapshot that
    transactions and publications need; `check` raises an error when another coordinator has taken
    over, which knows better who reads what. While it `waits` nothing expires: who has paused the
    coordinator may be about to copy the warehouse.

    `expired` is how many snapshots were removed since the start, `failures` how often it failed,
    `problem` why it did the last time, "" when it went well since.
    """

    def __init__(
        self,
        catalog: Catalog,
        turns: Turns,
        leases: Leases,
        floor_of: Callable[[str], int],
        every_ms: int,
        check: Callable[[], None] | None = None,
        waits: Callable[[], bool] | None = None,
    ) -> None:
        self._catalog = catalog
        self._turns = turns
        self._leases = leases
        self._floor_of = floor_of
        self._every_ms = every_ms
        self._check = check or (lambda: None)
        self._waits = waits or (lambda: False)
        self._due: dict[str, tuple[TableName, int]] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="upkeep", daemon=True)
        self.expired = 0
        self.failures = 0
        self.problem = ""

    def start(self) -> None:
        """Begin to work."""
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
        with self._changed:
            if location not in self._due:
                self._due[location] = table, _now_ms() + self._every_ms
                self._changed.notify()

    def _work(self) -> None:
        while True:
            due = self._next()
            if due is None:
                return
            location, table = due
            if self._waits():
                self.committed(table, location)
                continue
            try:
                is_done = self._expire(table)
            except Exception as error:
                self.failures += 1
                self.problem = f"Snapshots of `{table}` could not expire: {error}"
                _log.error("%s", self.problem)
                continue
            self.problem = ""
            if not is_done:
                self.committed(table, location)

    def _next(self) -> tuple[str, TableName] | None:
        """The next table, when it is due; None when the coordinator ends."""
        with self._changed:
            while not self._stopping:
                now_ms = _now_ms()
                location = min(self._due, key=lambda one: self._due[one][1], default=None)
                if location is None:
                    self._changed.wait()
                    continue
                table, due_ms = self._due[location]
                if due_ms <= now_ms:
                    del self._due[location]
                    return location, table
                self._changed.wait((due_ms - now_ms) / 1000)
            return None

    def _expire(self, name: TableName) -> bool:
        """Whether nothing is left to do until the next commit."""
        try:
            table = self._catalog.load(name)
        except UnknownNameError:
            return True
        rules = ExpiryRules.of(table.definition)
        if rules is None or not can_expire(table):
            return True
        while not self._stopping:
            now_ms = _now_ms()
            with self._turns(table.location), self._leases.closing(table.location, now_ms) as floor:
                if floor is None:
                    return False
                floor = min(floor, self._floor_of(table.location))
                self._check()
                expiry = decide(table, rules, floor, now_ms)
            if expiry is None:
                return True
            removed = carry_out(expiry, self._turns(table.location))
            self.expired += removed
            if removed < rules.limit:
                return True
        return True


def _now_ms() -> int:
    return int(time.time() * 1000)
