"""Compacts buckets above the triggers of tables, a while after their commits.

Processes of their own do it (`ChildProcess`), as clients of this coordinator: a compaction is a
transaction like any other, and no commit waits for it. A thread for each process asks the schedule
for the next job; one more thread notes commits. In a pause of compactions, or of the coordinator,
running compactions end normally; a pause of compactions outlasts restarts.

If this process dies, due work is forgotten: a table is known again after its next commits, and
tables with recent commits are checked after the next start.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paimon_magics.coordinator.core.values import Pause
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.errors import about
from paimon_magics.coordinator.runtime.children import ChildDiedError, ChildProcess
from paimon_magics.coordinator.runtime.threads import Loop, Owner, Runtime
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.coordinator.store.tables import HaltTable
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.compaction.schedule import (
    Next,
    Pressure,
    Schedule,
    Seen,
    State,
    Watched,
    Work,
)
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

_PURPOSE = "compacts tables"
_REST_MS = 30_000.0  # a process without a job ends after so long
_PAUSED_MS = 1_000.0
_AGAIN_MS = 10_000.0
_TRIES_MAX = 10
_PRESSURE_MS = 60_000  # a changed option is noticed after so long
_HINDERED = "Other transactions compact or change the same buckets."

_log = logging.getLogger(__name__)

OUT_OF_MEMORY = 73
"""The exit code of a process that needs more memory than its budget."""


@dataclass(frozen=True)
class Endpoint:
    """Where the compacting processes find their coordinator, and the `module` that they run."""

    address: str
    token: str
    module: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Which tables are compacted, and how long after a commit. With `is_auto`, all tables except
    those whose options disable it; else only tables whose options enable it.
    """

    is_auto: bool
    settle_ms: int


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A snapshot that was published, `before` the start or since, and the number of tries to note
    it.
    """

    publication: Publication
    before: bool
    tries: int = 0


@dataclass(slots=True)
class _Worker:
    """One process, and the loop that gives it jobs."""

    child: ChildProcess
    pause_ms: float = 0.0
    idle_since_ms: float = 0.0
    loop: Loop | None = None


class CompactionScheduler:
    """Looks after the tables of a catalog, by `rules`.

    `paused` returns whether nothing new may begin, `pause` is the pause of compactions alone.
    `counts` has the portions, buckets and bytes that were compacted since the start, and the failed
    jobs.
    """

    def __init__(
        self,
        runtime: Runtime,
        catalog: Catalog,
        budget: Budget,
        endpoint: Endpoint,
        halts: HaltTable,
        rules: CompactionRules,
        paused: Callable[[], bool],
    ) -> None:
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._catalog = catalog
        self._endpoint = endpoint
        self.is_auto = rules.is_auto
        self._paused = paused
        self._schedule = Schedule(rules.settle_ms)
        self._turn = threading.RLock()
        self._pausing = threading.RLock()
        self._stopping = False
        self._workers = [
            _Worker(ChildProcess(endpoint.module, _PURPOSE)) for _ in range(max(budget.workers, 0))
        ]
        self._intake: Owner[_Arrived] = runtime.owner(
            "compaction-intake",
            lambda arrived: self._note(arrived[0]),
            crashed=lambda arrived, _: self._note_again(arrived[0]),
            fatal=(),
            ended=lambda _: None,
        )
        self._later = runtime.pool("compaction-later", 1)
        self._pressures: dict[str, tuple[int, Pressure]] = {}
        self.budget = budget
        self._halts = halts
        self.pause = halts.compaction_pause()
        self.counts: Counter[str] = Counter()

    @property
    def has_work(self) -> bool:
        """Whether a compaction is running, or due soon."""
        with self._turn:
            return self._schedule.has_work and self.pause is None

    def tables(self) -> list[tuple[State, Watched]]:
        """The known tables, each with its state."""
        with self._turn:
            tables = [(table.state, replace(table)) for table in self._schedule.tables.values()]
        return sorted(tables, key=lambda entry: str(entry[1].table))

    def facts(self) -> Iterator[Fact]:
        """The facts for the coordinator's health."""
        for number, worker in enumerate(self._workers, 1):
            seconds = worker.child.busy_seconds
            yield Fact("child_busy_seconds", seconds, subject=f"compactor {number}")
        # A table that is just tried again has failed until it succeeds.
        failed = [table for _, table in self.tables() if table.problem]
        problem = ""
        if failed:
            problem = f"{count_text(len(failed), 'table')} could not be compacted."
        yield Fact("compaction_failed", len(failed), problem)

    def start(self, recent: Sequence[Publication]) -> None:
        """Start the threads. `recent` are the last commits before the start."""
        latest = {_key(p.location, p.table): p for p in recent}
        for publication in latest.values():
            self._intake.put(_Arrived(publication, True))
        self._intake.start()
        for worker in self._workers:
            worker.loop = self._loop_of(worker)

    def stop(self) -> None:
        """Stop; running jobs are abandoned, and end when their transactions' leases expire."""
        self._stopping = True
        self._intake.end()
        self._later.end()
        for worker in self._workers:
            worker.child.kill()
            if worker.loop is not None:
                worker.loop.end()
            worker.child.close()

    def set_pause(self, by: str | None) -> Pause | None:
        """Let no compaction begin, or with None let them begin again; return the pause. An earlier
        pause stays, with the name of its requester.
        """
        with self._pausing:
            pause = None if by is None else self.pause or Pause(by, now_ms())
            self._halts.save_compaction_pause(pause)
            self.pause = pause
        self._wake()
        return pause

    def committed(self, publication: Publication) -> None:
        """Note a new snapshot of a table. It never waits."""
        self._intake.put(_Arrived(publication, False))

    def _loop_of(self, worker: _Worker) -> Loop:
        return self._runtime.loop(
            "compaction", lambda: worker.pause_ms, lambda: self._round(worker)
        )

    def _wake(self) -> None:
        for worker in self._workers:
            if worker.loop is not None:
                worker.loop.wake()

    def _note(self, arrived: _Arrived) -> None:
        publication = arrived.publication
        key = _key(publication.location, publication.table)
        pressure = self._pressure(key, publication.table)
        if pressure is None:
            return
        if arrived.before and pressure.commits:  # the earlier amount is unknown
            pressure = Pressure(1)
        compacts = publication.commit_kind == "COMPACT" and not arrived.before
        with self._turn:
            self._schedule.committed(
                key, publication.table, pressure, self._now_ms(), compacts=compacts
            )
        self._wake()

    def _note_again(self, arrived: _Arrived) -> None:
        again = replace(arrived, tries=arrived.tries + 1)
        if again.tries < _TRIES_MAX:
            label = f"`{arrived.publication.table}`"
            self._later.run(label, lambda: self._intake.put(again), after_ms=_AGAIN_MS)

    def _pressure(self, key: str, table: TableName) -> Pressure | None:
        """After how many commits a table is checked; None if unknown. The result is cached for a
        while.
        """
        at_ms, pressure = self._pressures.get(key, (0, None))
        if pressure is not None and self._now_ms() - at_ms < _PRESSURE_MS:
            return pressure
        try:
            pressure = Pressure.of(self._catalog.load(table).schema, by_default=self.is_auto)
        except PaimonMagicsError:  # dropped meanwhile, or damaged: its users get the error
            self._pressures.pop(key, None)
            return None
        self._pressures[key] = self._now_ms(), pressure
        return pressure

    def _round(self, worker: _Worker) -> None:
        """Do the next thing, or note when to look again."""
        steady_ms = self._runtime.clock.steady_ms
        worker.pause_ms = _PAUSED_MS
        if self._stopping or self.pause is not None or self._paused():
            return
        with self._turn:
            step = self._schedule.next(self._now_ms())
            wait_ms = self._schedule.wait_ms(self._now_ms()) if step is None else 0
            table = None if step is None else self._schedule.tables[step.key].table
        if step is None or table is None:
            worker.pause_ms = _REST_MS if wait_ms is None else min(wait_ms, _REST_MS)
            if steady_ms() - worker.idle_since_ms >= _REST_MS:
                worker.child.rest()
            return
        with about(table):
            self._done(step, table, self._answer(worker.child, step, table))
        worker.pause_ms, worker.idle_since_ms = 0.0, steady_ms()

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
        except Exception as error:  # the process could not be started
            return CompactionAnswer(problem=repr(error))
        assert isinstance(answer, CompactionAnswer)
        return answer

    def _done(self, step: Next, table: TableName, answer: CompactionAnswer) -> None:
        with self._turn:
            schedule = self._schedule
            if answer.is_gone:
                schedule.dropped(step.key)
            elif answer.problem:
                if not self._stopping:
                    self.counts["failures"] += 1
                    _log.warning("`%s` could not be compacted: %s", table, answer.problem)
                schedule.failed(step.key, answer.problem, self._now_ms())
            elif answer.hindered:
                schedule.failed(step.key, _HINDERED, self._now_ms())
            else:
                schedule.seen(step.key, answer.seen, self._now_ms())
            if answer.buckets:
                self.counts.update(portions=1, buckets=answer.buckets, read_bytes=answer.read_bytes)
        self._wake()


def _key(location: str, table: TableName) -> str:
    return location if table.branch is None else f"{location}#{table.branch}"


# A coordinator's requests to its compacting process, and the answers. Picklable.


@dataclass(frozen=True, slots=True)
class Budget:
    """What compactions may take: `workers` processes, each with `memory_bytes` of memory. A bucket
    with more than `bytes_max` to read is left to users; one portion of work reads `portion_bytes`,
    or a single bucket.
    """

    workers: int = 1
    memory_bytes: int = 1 << 30
    bytes_max: int = 2 << 30
    portion_bytes: int = 256 << 20


@dataclass(frozen=True)
class CompactionJob:
    """Check a table or, if it `works`, compact a portion of it, through the coordinator at
    `address`. `options` are the catalog's.
    """

    table: TableName
    options: Mapping[str, str]
    address: str
    token: str
    budget: Budget
    works: bool

    def __repr__(self) -> str:
        return f"CompactionJob({self.table}, works={self.works})"  # it holds secrets


@dataclass(frozen=True, slots=True)
class CompactionAnswer:
    """The remaining work, and the finished work. `hindered` if nothing could be done now, because
    others compact or change the same files. `problem` is why a job failed, `is_gone` if the table
    does not exist.
    """

    seen: Seen = field(default_factory=Seen)
    buckets: int = 0
    read_bytes: int = 0
    hindered: bool = False
    problem: str = ""
    is_gone: bool = False
