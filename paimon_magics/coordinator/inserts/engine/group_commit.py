"""Small inserts at work: the queues' thread, who loads batches, and the places among them.

What arrives goes to one thread (`queue_thread`), which makes it durable and answers. Batches are
loaded in a pool of threads (`loading`), their files written by a process of its own (`flusher`).

If the process dies: what was answered is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.futures import fail
from paimon_magics.coordinator.inserts.admission.items import Asked, Insert, Work
from paimon_magics.coordinator.inserts.admission.table_info import KnownTables, TableInfo
from paimon_magics.coordinator.inserts.engine.holds import Places
from paimon_magics.coordinator.inserts.engine.load_pool import Loading
from paimon_magics.coordinator.inserts.engine.queue_thread import Loader, QueueThread
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueue, TableQueues
from paimon_magics.coordinator.inserts.loading.dead_letter_table import DeadLetterTable, State, Told
from paimon_magics.coordinator.inserts.loading.flush import Flushing
from paimon_magics.coordinator.inserts.loading.flusher_process import Flusher
from paimon_magics.coordinator.inserts.log.interface import DeadLetter, Log
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.inserts.queue.events import Closed, Event, FlushAsked, Ticked
from paimon_magics.coordinator.inserts.queue.values import Answer, Thresholds, backlog
from paimon_magics.coordinator.protocol.clock import Clock, now_ms
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.faults import reach
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.schema.identity import identity_of
from paimon_magics.tables.snapshots.latest import latest_snapshot_id

__all__ = ["Buffered", "GroupCommit"]

_TICK_SECONDS = 0.05
_FORGET_EVERY_MS = 60_000
_NOTE_EVERY_MS = 5_000
_STOP_SECONDS = 20.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Buffered:
    """What is acknowledged and not visible in the snapshot (0 for none), the table's latest: the
    records above `published` up to `acknowledged`, in segments by their first records."""

    snapshot_id: int
    published: int
    acknowledged: int
    segments: tuple[tuple[int, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class _TakenAway:
    """A table that a statement drops, or gives another name."""

    facts: TableInfo
    renamed_to: TableName | None


class GroupCommit:
    """Owns the queues of a warehouse's tables. Every method may be called from any thread.

    `tables` are those that have, or had, inserts; `places` those of what is no insert.
    """

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        log: Log,
        registry: LogRegistry,
        settings: Settings,
        *,
        own: Callable[[], object],
        may_answer: Callable[[], None],
        thresholds: Thresholds,
        label_retention_ms: int,
        clock: Clock = now_ms,
    ) -> None:
        self._clock = clock
        self._catalog = catalog
        self._coordinator = coordinator
        self._log = log
        self._label_retention_ms = label_retention_ms
        self._flusher = Flusher()
        self._refusing = False
        self._forgot_at_ms = 0
        self._noted_at_ms = clock()
        self._taken_away: dict[str, _TakenAway] = {}
        self.on_failure: Callable[[], None] = lambda: None
        """Called once when nothing can be taken any more before another start reads the log."""
        flushing = Flushing(
            catalog, coordinator, log, self._flusher, settings, lambda: self._thread.stopping
        )
        self._letters = DeadLetterTable(catalog, coordinator, settings)
        self._loading = Loading(flushing, log, self._tell, coordinator.depose, self._buried, clock)
        self._queues = TableQueues(
            log,
            registry,
            flushing.settle,
            flushing.last_in,
            self._identity_at,
            own,
            thresholds,
            lambda: self._loading.soon(self._flusher.warm_up),
        )
        self._thread = QueueThread(
            self._queues,
            log,
            Loader(self._loading.load, self._loading.bury),
            may_answer,
            self._failed,
            clock,
        )
        self.known_tables = KnownTables(catalog, thresholds, own)
        self.places = Places(
            self._ask, self._tell, self.known_tables, self._may_commit, self._why, clock
        )
        self._ticker = threading.Thread(target=self._tick, name="group-ticker", daemon=True)

    def start(self) -> None:
        """Read the log, and begin to work. What arrives meanwhile waits."""
        self._thread.start()
        self._ticker.start()

    def wind_up(self) -> list[Future[Answer]]:
        """Take nothing more, and load what waits, so that nobody waits any more; when it is."""
        self._refusing = True
        return [
            self.flush(one.location)
            for one in list(self.tables.values())
            if one.queue.batches and not one.queue.closed and self._thread.deposed is None
        ]

    def depose(self, error: DeposedError) -> None:
        """Answer nothing more: another coordinator owns the warehouse."""
        self._thread.depose(error)

    def stop(self) -> None:
        """Take nothing more, load what waits (for a while), and end."""
        deadline = time.monotonic() + _STOP_SECONDS
        for future in self.wind_up():
            with contextlib.suppress(Exception):
                future.result(max(0.0, deadline - time.monotonic()))
        self._thread.stopping = True
        self._ticker.join()
        self._loading.end()
        self._thread.end()
        if self._thread.failure is None:
            with contextlib.suppress(PaimonMagicsError, OSError):
                self._queues.note_clean()
        self._flusher.close()
        self._log.close()

    # ---- what is told ----

    @property
    def tables(self) -> dict[str, TableQueue]:
        """The queues, by their tables' identities."""
        return self._queues.all

    @property
    def counts(self) -> dict[str, int]:
        """What was counted since the start; 0 for what was not."""
        return self._thread.counts

    @property
    def append_seconds(self) -> float:
        """How long the log took to append, in all."""
        return self._thread.append_seconds

    @property
    def problem(self) -> str | None:
        """Why nothing is taken: it has stopped for good. None while it works."""
        return self._thread.problem

    @property
    def has_work(self) -> bool:
        """Whether acknowledged rows are not in their tables yet, and can get there: not those of a
        table that is closed, or whose rows could not be loaded the last time. They stay in the log,
        and the next start loads them."""
        return any(
            one.queue.batches and not one.queue.closed and not one.queue.last_error
            for one in list(self.tables.values())
        )

    @property
    def troubles(self) -> list[tuple[str, int, str]]:
        """The tables whose rows wait and can't be loaded, each with how many and why."""
        return [
            (str(one.name), backlog(one.queue)[0], one.queue.closed or one.queue.last_error)
            for one in sorted(self.tables.values(), key=lambda one: str(one.name))
            if one.queue.batches and (one.queue.closed or one.queue.last_error)
        ]

    @property
    def log_name(self) -> str:
        """Which log it is, for a person."""
        return self._log.name

    @property
    def flusher_pid(self) -> int | None:
        """The process that writes files, if one runs."""
        return self._flusher.pid

    # ---- what is asked ----

    def submit(self, insert: Insert) -> None:
        """Have an insert taken; its answer comes in its future."""
        if self._thread.failure is not None or self._refusing:
            fail([insert.answer], self._thread.gone())
            return
        self._thread.put(insert)

    def queue_of(self, facts: TableInfo) -> TableQueue | None:
        """The table's queue, None where nothing was ever inserted; may wait for a look at it."""
        if facts.location not in self.tables:
            if all(one.moving != facts.name for one in list(self.tables.values())):
                return None
            self._work(lambda: self._queues.known(facts))
        return self.tables.get(facts.location)

    def location_of(self, name: TableName) -> str | None:
        """The identity of the table that last had that name and has a queue, without a look at the
        warehouse; None where none has."""
        found = [one.location for one in list(self.tables.values()) if one.name == name]
        return found[-1] if found else None

    def flush(self, location: str) -> Future[Answer]:
        """Have what was acknowledged until now loaded; Flushed when it is visible."""
        return self._ask(location, lambda ask: FlushAsked(ask, self._clock()), None)

    def buffered(self, facts: TableInfo) -> Buffered:
        """What is acknowledged and not in the table, and the snapshot that it follows: nothing is
        loaded while both are looked at. Raises CommitConflictError where that is unknown."""
        if self.queue_of(facts) is None:
            return Buffered(latest_snapshot_id(self._catalog.load(facts.name)), 0, 0)
        with self.places.of_look(facts) as published:
            acknowledged = self.tables[facts.location].queue.acknowledged
            snapshot_id = latest_snapshot_id(self._catalog.load(facts.name))
            segments = self._log.read(facts.location, published + 1, acknowledged)
            return Buffered(snapshot_id, published, acknowledged, tuple(segments))

    def begin_change(
        self, facts: TableInfo, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> str:
        """The place of a statement that changes a table, or `takes_away` what has its name (giving
        it another one, where that is given): then no inserts are taken until its end.

        Raises CommitConflictError when it does not come in time.
        """
        takes_away = takes_away or renamed_to is not None
        id = self.places.of_statement(facts, refuses=takes_away)
        if renamed_to is not None:
            try:
                self._work(lambda: self._queues.begin_move(facts.location, renamed_to))
            except BaseException:
                self.places.end(id)
                raise
            reach("rename.noted")
        if takes_away:
            self._taken_away[id] = _TakenAway(facts, renamed_to)
        return id

    def end_change(self, id: str, *, done: bool) -> bool:
        """The statement has ended, and has done it or has failed; whether its place was kept."""
        taken = self._taken_away.pop(id, None)
        if taken is not None:
            location = taken.facts.location
            self.known_tables.forget(taken.facts.name)
            with contextlib.suppress(PaimonMagicsError, OSError):
                if taken.renamed_to is not None:
                    reach("rename.done")
                    self._work(lambda: self._queues.end_move(location, done=done))
                elif done:
                    self._work(lambda: self._queues.forget(location))
        return self.places.end(id)

    def commit(self, name: TableName, who: str) -> AbstractContextManager[Callable[[], None]]:
        """The place of a commit by somebody without a transaction; see `Places.of_commit`."""
        return self.places.of_commit(name, who)

    @contextlib.contextmanager
    def change(
        self, name: TableName, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> Iterator[None]:
        """The place of a statement that is carried out here; see `begin_change`."""
        facts = self.known_tables.find(name)
        if facts is None:
            yield
            return
        id = self.begin_change(facts, takes_away=takes_away, renamed_to=renamed_to)
        done = False
        try:
            yield
            done = True
        finally:
            self.end_change(id, done=done)

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """The records that could not be loaded."""
        return self._log.dead_letters(location)

    def settle_dead_letter(self, facts: TableInfo, lsn: int, state: State) -> None:
        """One of them was retried or discarded: it is no longer kept but in the table of them."""
        letters = [one for one in self._log.dead_letters(facts.location) if one.lsn == lsn]
        self._letters.tell([Told(one, str(facts.name), state) for one in letters])
        self._log.drop_dead_letter(facts.location, lsn)

    def reopen(self, facts: TableInfo, *, accept_loss: bool) -> None:
        """Let a closed table go on; with `accept_loss` without the records that are missing or
        damaged, otherwise only if nothing is missing any more. Raises SetupError if it is."""
        done: Future[Answer] = Future()
        opened = Closed("", self._clock())
        self._thread.put(Asked(facts.location, lambda _: opened, done, facts, accept_loss))
        done.result()

    # ---- between the parts ----

    def _ask(
        self, location: str, make: Callable[[int], Event], facts: TableInfo | None
    ) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._thread.failure is not None:
            future.set_exception(self._thread.gone())
        else:
            self._thread.put(Asked(location, make, future, facts))
        return future

    def _work(self, do: Callable[[], object]) -> None:
        """Do something in the queues' thread, and wait for its end."""
        done: Future[None] = Future()
        if self._thread.failure is not None:
            raise self._thread.gone()
        self._thread.put(Work(do, done))
        done.result()

    def _identity_at(self, name: TableName) -> str | None:
        try:
            return identity_of(self._catalog.load(name))
        except UnknownNameError:
            return None

    def _tell(self, location: str, event: Event) -> None:
        self._thread.put(Asked(location, lambda _: event))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DeposedError):
            self._coordinator.depose(error)
        else:
            self.on_failure()

    def _buried(self, location: str, lsns: Sequence[int]) -> None:
        """Tell the table of letters, of those that are new."""
        wanted = set(lsns)
        found = [one for one in self._log.dead_letters(location) if one.lsn in wanted]
        table = self.tables.get(location)
        name = location if table is None else str(table.name)
        self._letters.tell([Told(one, name) for one in found])

    def _tell_all_letters(self) -> None:
        """At the start: somebody may have died before they were told."""
        with contextlib.suppress(PaimonMagicsError):
            names = {one.location: str(one.name) for one in list(self.tables.values())}
            found = self._log.dead_letters()
            if found:
                self._letters.tell([Told(o, names.get(o.location, o.location)) for o in found])

    def _note_ends(self) -> None:
        try:
            self._queues.note_ends()
        except DeposedError:
            pass  # everybody is told of it elsewhere
        except (PaimonMagicsError, OSError) as error:  # the warehouse's store: the next time, then
            _log.warning("What was acknowledged is not noted in the warehouse: %s", error)

    def _may_commit(self, transaction_id: str) -> bool:
        held = self._coordinator.state.held.get(transaction_id)
        return held is not None and held.phase.value in ("active", "committing", "unclear")

    def _why(self, location: str) -> str:
        table = self.tables.get(location)
        return (table.queue.last_error if table is not None else "") or "it takes long"

    def _tick(self) -> None:
        self._thread.ready.wait()
        self._loading.soon(self._tell_all_letters)
        while self._thread.failure is None and not self._thread.stopping:
            time.sleep(_TICK_SECONDS)
            at_ms = self._clock()
            self.places.tick()
            for table in list(self.tables.values()):
                if table.queue.batches or table.queue.holds:
                    self._tell(table.location, Ticked(at_ms))
            if at_ms - self._noted_at_ms > _NOTE_EVERY_MS:
                self._noted_at_ms = at_ms
                self._loading.soon(self._note_ends)
            if at_ms - self._forgot_at_ms > _FORGET_EVERY_MS:
                self._forgot_at_ms = at_ms
                self._loading.soon(self._letters.tell_again)
                with contextlib.suppress(PaimonMagicsError):
                    self._log.forget(at_ms - self._label_retention_ms)
