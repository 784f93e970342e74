"""Compacts what lies above the triggers of tables, a while after their commits.

Processes of their own do it (`ChildProcess`), as clients of this coordinator: a compaction is a
transaction like any other, and no commit waits for it. A thread for each process asks the schedule
what is next; one more takes note of commits. A pause of compactions, or of the coordinator, lets
what has begun end; that of compactions outlasts restarts.

If this process dies, what was due is forgotten: a table is known again after its next commits, and
those with recent commits are looked at after the next start.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from paimon_magics.coordinator.core import Pause
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.runtime.children import ChildDiedError, ChildProcess
from paimon_magics.coordinator.service.compaction_jobs import (
    OUT_OF_MEMORY,
    Budget,
    CompactionAnswer,
    CompactionJob,
)
from paimon_magics.coordinator.store.halts import HaltTable
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.compaction.schedule import (
    Next,
    Pressure,
    Schedule,
    State,
    Watched,
    Work,
)
from paimon_magics.planning.formatting import size_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

__all__ = ["CompactionScheduler", "Endpoint"]

_PURPOSE = "compacts tables"
_REST_SECONDS = 30.0  # a process without a job ends after so long
_PAUSED_SECONDS = 1.0
_PRESSURE_MS = 60_000  # a changed option is noticed after so long
_HINDERED = "Others compact or change the same buckets."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Endpoint:
    """Where the processes that compact find their coordinator, and the `module` that they run."""

    address: str
    token: str
    module: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


class CompactionScheduler:
    """Looks after the tables of a catalog: all but those whose options say otherwise if `is_auto`,
    else only those whose options say so.

    `paused` returns whether nothing new may begin, `pause` says who has paused compactions alone.
    `counts` has how many portions, buckets and bytes were compacted since the start, and how many
    jobs failed.
    """

    def __init__(
        self,
        catalog: Catalog,
        budget: Budget,
        endpoint: Endpoint,
        halts: HaltTable,
        *,
        is_auto: bool,
        settle_ms: int,
        paused: Callable[[], bool],
    ) -> None:
        self._catalog = catalog
        self._endpoint = endpoint
        self.is_auto = is_auto
        self._paused = paused
        self._schedule = Schedule(settle_ms)
        self._changed = threading.Condition()
        self._stopping = False
        self._children = [
            ChildProcess(endpoint.module, _PURPOSE) for _ in range(max(budget.workers, 0))
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(child,), name="compaction", daemon=True)
            for child in self._children
        ]
        self._threads.append(
            threading.Thread(target=self._listen, name="compaction-intake", daemon=True)
        )
        self._arrived: SimpleQueue[tuple[Publication, bool] | None] = SimpleQueue()
        self._pressures: dict[str, tuple[int, Pressure]] = {}
        self.budget = budget
        self._halts = halts
        self.pause = halts.compaction_pause()
        self.counts: Counter[str] = Counter()

    @property
    def has_work(self) -> bool:
        """Whether something is being compacted, or will be soon."""
        with self._changed:
            return self._schedule.has_work and self.pause is None

    def tables(self) -> list[tuple[State, Watched]]:
        """The tables that are known, each with what becomes of it."""
        with self._changed:
            found = [(one.state, replace(one)) for one in self._schedule.tables.values()]
        return sorted(found, key=lambda one: str(one[1].table))

    def start(self, recent: Sequence[Publication]) -> None:
        """Start the threads. `recent` are the last commits before the start."""
        for made in {_key(one.location, one.table): one for one in recent}.values():
            self._arrived.put((made, True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; what a process does is given up, and ends by its transaction's lease."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._arrived.put(None)
        for child in self._children:
            child.kill()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for child in self._children:
            child.close()

    def set_pause(self, by: str | None) -> Pause | None:
        """Let no compaction begin, or with None let them begin again; return the pause. An earlier
        one stays, with the name of whoever asked for it."""
        with self._changed:
            pause = None if by is None else self.pause or Pause(by, now_ms())
            self._halts.save_compaction_pause(pause)
            self.pause = pause
            self._changed.notify_all()
        return pause

    def committed(self, made: Publication) -> None:
        """Note a new snapshot of a table. It never waits."""
        self._arrived.put((made, False))

    def _listen(self) -> None:
        while True:
            arrived = self._arrived.get()
            if arrived is None:
                return
            made, is_first = arrived
            key = _key(made.location, made.table)
            pressure = self._pressure(key, made.table)
            if pressure is None:
                continue
            if is_first and pressure.commits:  # how much had come before is not known
                pressure = Pressure(1)
            compacts = made.commit_kind == "COMPACT" and not is_first
            with self._changed:
                self._schedule.committed(key, made.table, pressure, now_ms(), compacts=compacts)
                self._changed.notify()

    def _pressure(self, key: str, table: TableName) -> Pressure | None:
        """After how many commits a table is looked at; None if that can't be said. What was found
        counts for a while."""
        at_ms, found = self._pressures.get(key, (0, None))
        if found is not None and now_ms() - at_ms < _PRESSURE_MS:
            return found
        try:
            found = Pressure.of(self._catalog.load(table).schema, by_default=self.is_auto)
        except PaimonMagicsError:  # dropped meanwhile, or damaged: whoever uses it is told
            self._pressures.pop(key, None)
            return None
        self._pressures[key] = now_ms(), found
        return found

    def _work(self, child: ChildProcess) -> None:
        while True:
            found = self._next(child)
            if found is None:
                return
            step, table = found
            self._done(step, table, self._answer(child, step, table))

    def _next(self, child: ChildProcess) -> tuple[Next, TableName] | None:
        """Wait for the next thing to do; None when the coordinator stops."""
        with self._changed:
            while not self._stopping:
                if self.pause is not None or self._paused():
                    self._changed.wait(_PAUSED_SECONDS)
                    continue
                step = self._schedule.next(now_ms())
                if step is not None:
                    return step, self._schedule.tables[step.key].table
                wait_ms = self._schedule.wait_ms(now_ms())
                seconds = _REST_SECONDS if wait_ms is None else min(wait_ms / 1000, _REST_SECONDS)
                if not self._changed.wait(seconds) and seconds == _REST_SECONDS:
                    child.rest()
            return None

    def _answer(self, child: ChildProcess, step: Next, table: TableName) -> CompactionAnswer:
        job = CompactionJob(
            table,
            dict(self._catalog.options),
            self._endpoint.address,
            self._endpoint.token,
            self.budget,
            works=isinstance(step, Work),
        )
        try:
            answer = child.ask(job)
        except ChildDiedError as error:
            if error.code != OUT_OF_MEMORY:
                return CompactionAnswer(problem=str(error))
            limit = size_text(self.budget.memory_bytes)
            return CompactionAnswer(problem=f"It needs more than {limit} of memory.")
        assert isinstance(answer, CompactionAnswer)
        return answer

    def _done(self, step: Next, table: TableName, answer: CompactionAnswer) -> None:
        with self._changed:
            schedule = self._schedule
            if answer.is_gone:
                schedule.dropped(step.key)
            elif answer.problem:
                if not self._stopping:
                    self.counts["failures"] += 1
                    _log.warning("`%s` could not be compacted: %s", table, answer.problem)
                schedule.failed(step.key, answer.problem, now_ms())
            elif answer.hindered:
                schedule.failed(step.key, _HINDERED, now_ms())
            else:
                schedule.seen(step.key, answer.seen, now_ms())
            if answer.buckets:
                self.counts.update(portions=1, buckets=answer.buckets, read_bytes=answer.read_bytes)
            self._changed.notify()


def _key(location: str, table: TableName) -> str:
    return location if table.branch is None else f"{location}#{table.branch}"
