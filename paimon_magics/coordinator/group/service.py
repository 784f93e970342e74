"""Small inserts at work: the thread that owns all queues and the log, and who loads batches.

What arrives goes to one thread. It takes whatever has come since it was last free, has the queues
decide (`queueing`), appends all of it to the log at once, and only then answers: so that many
inserts share one sync of the disk. Batches are loaded in a pool of threads (`flushing`), their
files written by a process of its own.

If the process dies: what was answered is in the log, and the next start goes on from there.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue as queues
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from paimon_magics.coordinator.database import StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.group.answering import Answered, deliver, fail
from paimon_magics.coordinator.group.door import Admitted
from paimon_magics.coordinator.group.facts import Facts, KnownTables
from paimon_magics.coordinator.group.flusher import Flusher
from paimon_magics.coordinator.group.flushing import Flushing, Loaded, NotLoadedError, StuckError
from paimon_magics.coordinator.group.logs import Appended, DeadLetter, Keyed, Log, StoredTable
from paimon_magics.coordinator.group.queueing import (
    Accepted,
    Answer,
    Append,
    Arrival,
    Arrived,
    Batch,
    BeginFlush,
    Bury,
    Closed,
    Effect,
    Event,
    FlushAsked,
    FlushFailed,
    Granted,
    HoldAsked,
    HoldEnded,
    Known,
    Mode,
    Published,
    Queue,
    Refused,
    Reply,
    Thresholds,
    Ticked,
    step,
)
from paimon_magics.coordinator.group.records import Record, read_segments, seal
from paimon_magics.coordinator.group.recovery import recovered, stored_name, table_name
from paimon_magics.coordinator.group.witness import Witness
from paimon_magics.coordinator.service import Coordinator
from paimon_magics.errors import CommitConflictError, PaimonMagicsError, SetupError
from paimon_magics.faults import reach
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog import Catalog, Table
from paimon_magics.tables.fencing import DeposedError

__all__ = ["GroupCommit", "Insert", "TableQueue"]

_TICK_SECONDS = 0.05
_LOADERS = 4
_GROUP_MAX = 4_096
_RETRY_SECONDS = 0.5
_FORGET_EVERY_MS = 60_000
_FOREVER_MS = 2**62
_HOLD_SECONDS = 60.0
_STOP_SECONDS = 20.0
_STOPPED = "The coordinator is stopping."

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Insert:
    """An insert that the door has let in, and who waits for its answer."""

    facts: Facts
    admitted: Admitted
    mode: Mode
    answer: Answered
    key: str = ""
    offset: int = -1
    digest: bytes = b""


@dataclass(slots=True)
class TableQueue:
    """One table: its queue, a value; and the chain of the last record in its log. `is_open` tells
    that the warehouse knows which log that is; `mode` is the table's own, None before an insert."""

    location: str
    name: TableName
    queue: Queue
    chain: int
    is_open: bool = False
    mode: Mode | None = None

    @classmethod
    def empty(cls, location: str, name: TableName) -> TableQueue:
        """The queue of a table without any inserts yet."""
        return cls(location, name, Queue(), 0)


@dataclass(frozen=True, slots=True)
class _Event:
    """Something but inserts, for one table; of `make` what is asked is numbered."""

    location: str
    make: Callable[[int], Event]
    answer: Answered | None = None
    facts: Facts | None = None
    accept_loss: bool = False


@dataclass(slots=True)
class _Turn:
    """What one turn of the thread has decided, before it is done."""

    states: dict[str, tuple[Queue, int]] = field(default_factory=dict)
    groups: list[Appended] = field(default_factory=list)
    effects: list[tuple[TableQueue, Effect]] = field(default_factory=list)
    asks: list[int] = field(default_factory=list)


class GroupCommit:
    """Owns the queues of a warehouse's tables. Every method may be called from any thread.

    `has_room` tells whether the log's disk has space left. `tables` are those that have, or had,
    inserts; `counts` what was counted since the start.
    """

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        log: Log,
        witness: Witness,
        settings: Settings,
        *,
        own: Callable[[], object],
        may_answer: Callable[[], None],
        thresholds: Thresholds,
        label_retention_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._log = log
        self._witness = witness
        self._own = own
        self._may_answer = may_answer
        self._defaults = thresholds
        self._label_retention_ms = label_retention_ms
        self._flusher = Flusher()
        self._refusing = self._stopping = False
        self._flushing = Flushing(
            catalog, coordinator, log, self._flusher, settings, lambda: self._stopping
        )
        self.known_tables = KnownTables(catalog, thresholds, own)
        self.tables: dict[str, TableQueue] = {}
        self.counts: Counter[str] = Counter()
        self.fsync_seconds = 0.0
        self.on_failure: Callable[[], None] = lambda: None
        """Called once when nothing can be taken any more before another start reads the log."""
        self._inbox: queues.SimpleQueue[Insert | _Event | None] = queues.SimpleQueue()
        self._asks: dict[int, Answered] = {}
        self._numbers = itertools.count(1)
        self._holds: dict[str, tuple[str, str]] = {}
        self._failure: BaseException | None = None
        self._deposed: DeposedError | None = None
        self._forgot_at_ms = 0
        self._pool = ThreadPoolExecutor(_LOADERS, thread_name_prefix="load")
        self._thread = threading.Thread(target=self._work, name="group-commit", daemon=True)
        self._ticker = threading.Thread(target=self._tick, name="group-ticker", daemon=True)
        self.ready = threading.Event()

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
            if one.queue.batches and not one.queue.closed and self._deposed is None
        ]

    def depose(self, error: DeposedError) -> None:
        """Answer nothing more: another coordinator owns the warehouse."""
        self._deposed = self._deposed or error
        self._inbox.put(_Event("", lambda _: Ticked(_now_ms())))  # wakes the thread

    def stop(self) -> None:
        """Take nothing more, load what waits (for a while), and end."""
        deadline = time.monotonic() + _STOP_SECONDS
        for future in self.wind_up():
            with contextlib.suppress(Exception):
                future.result(max(0.0, deadline - time.monotonic()))
        self._stopping = True
        self._pool.shutdown(wait=True)
        self._inbox.put(None)
        self._thread.join()
        for one in self.tables.values():
            if one.is_open and not one.queue.batches and self._failure is None:
                with contextlib.suppress(PaimonMagicsError, OSError):
                    self._witness.clean(one.location, one.queue.acknowledged)
        self._flusher.close()
        self._log.close()

    # ---- what is asked ----

    @property
    def problem(self) -> str | None:
        """Why nothing is taken: it has stopped for good. None while it works."""
        return None if self._failure is None else f"Group commit has stopped: {self._failure}"

    @property
    def has_work(self) -> bool:
        """Whether acknowledged rows are not in their tables yet, and can get there."""
        return any(one.queue.batches and not one.queue.closed for one in self.tables.values())

    @property
    def log_name(self) -> str:
        """Which log it is, for a person."""
        return self._log.name

    @property
    def flusher_pid(self) -> int | None:
        """The process that writes files, if one runs."""
        return self._flusher.pid

    def submit(self, insert: Insert) -> None:
        """Have an insert taken; its answer comes in its future."""
        if self._failure is not None or self._refusing:
            fail([insert.answer], self._gone())
            return
        self._inbox.put(insert)

    def flush(self, location: str) -> Future[Answer]:
        """Have what was acknowledged until now loaded; Flushed when it is visible."""
        return self._ask(location, lambda ask: FlushAsked(ask, _now_ms()))

    def hold(self, table: Table) -> Callable[[str | None], None]:
        """Wait for the place of a statement that is no insert: what was acknowledged before is
        visible, and nothing else will be, until the transaction has ended that the returned
        function is told of, or (None) at once.

        Raises CommitConflictError when the place does not come in time.
        """
        id = uuid.uuid4().hex
        facts = self.known_tables.load(table.name.database or "", table.name.table)
        location = facts.location
        until_ms = _now_ms() + int(_HOLD_SECONDS * 1000)
        self._holds[id] = (location, "")
        try:
            answer = self._ask(
                location,
                lambda ask: HoldAsked(id, ask, _now_ms(), _FOREVER_MS),
                facts=facts,
            ).result((until_ms - _now_ms()) / 1000)
        except TimeoutError:
            answer = None
        except BaseException:
            self._end_hold(id)
            raise
        if not isinstance(answer, Granted):
            self._end_hold(id)
            why = answer.message if isinstance(answer, Refused) else self._why_not(location)
            raise CommitConflictError(
                f"Rows of `{table.name}` were acknowledged before this statement, and could not be "
                f"loaded in time: {why}.",
                hint="Nothing was written. `%paimon queue` shows what waits.",
            )

        def taken_by(transaction_id: str | None) -> None:
            if transaction_id is None:
                self._end_hold(id)
            else:
                self._holds[id] = (location, transaction_id)

        return taken_by

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """The records that could not be loaded."""
        return self._log.dead_letters(location)

    def drop_dead_letter(self, location: str, lsn: int) -> None:
        """Forget one of them."""
        self._log.drop_dead_letter(location, lsn)

    def reopen(self, facts: Facts, *, accept_loss: bool) -> None:
        """Let a closed table go on; with `accept_loss` without the records that are missing or
        damaged, otherwise only if nothing is missing any more. Raises SetupError if it is."""
        done: Future[Answer] = Future()
        opened = Closed("", _now_ms())
        self._inbox.put(_Event(facts.location, lambda _: opened, done, facts, accept_loss))
        done.result()

    def records(self, location: str, first: int, last: int) -> list[Record]:
        """Records that are acknowledged and not published."""
        after = first - 1
        return read_segments(self._log.read(location, first, last), after, upto=last)[0]

    # ---- the thread ----

    def _work(self) -> None:
        try:
            for stored in self._log.tables():
                self._recover(stored)
            self.ready.set()
            while True:
                items = self._next()
                if items is None:
                    return
                if self._deposed is not None:
                    for item in items:
                        if item.answer is not None:
                            fail([item.answer], self._deposed)
                    raise self._deposed
                self._take(items)
        except BaseException as error:
            # What is in the log is not known: nobody may be answered from here on.
            self._failure = error
            self.ready.set()
            if not isinstance(error, DeposedError):
                _log.critical("Group commit has stopped: %s", error)
            self._fail_all()
            if isinstance(error, DeposedError):
                self._coordinator.depose(error)
            else:
                self.on_failure()

    def _next(self) -> list[Insert | _Event] | None:
        """What has come since; None at the end."""
        first = self._inbox.get()
        if first is None:
            return None
        items: list[Insert | _Event] = [first]
        with contextlib.suppress(queues.Empty):
            while len(items) < _GROUP_MAX:
                item = self._inbox.get_nowait()
                if item is None:
                    self._inbox.put(None)
                    break
                items.append(item)
        return items

    def _take(self, items: Sequence[Insert | _Event]) -> None:
        turn = _Turn()
        inserts: dict[str, list[Insert]] = {}
        for item in items:
            if isinstance(item, Insert):
                inserts.setdefault(item.facts.location, []).append(item)
        try:
            for some in inserts.values():
                self._take_inserts(turn, some)
            self._append(turn)
        except StoreUnavailableError as error:
            for ask in turn.asks:
                future = self._asks.pop(ask, None)
                if future is not None:
                    fail([future], error)
            turn = _Turn()
        self._carry_out(turn)
        for item in items:
            if not isinstance(item, Insert):
                self._take_event(item)

    def _take_inserts(self, turn: _Turn, inserts: Sequence[Insert]) -> None:
        """Have one table's queue decide about inserts; nothing is done yet."""
        now_ms = _now_ms()
        try:
            table = self._table(inserts[0].facts, now_ms)
        except StoreLostError:
            raise
        except (PaimonMagicsError, OSError) as error:  # the warehouse's store, not the log
            fail([insert.answer for insert in inserts], error)
            return
        known = self._known_of(table, inserts)
        arrivals = []
        by_ask: dict[int, Insert] = {}
        for insert in inserts:
            ask = next(self._numbers)
            self._asks[ask] = insert.answer
            turn.asks.append(ask)
            by_ask[ask] = insert
            same, last_offset = known.get((insert.key, insert.offset), (None, None))
            admitted = insert.admitted
            arrivals.append(
                Arrival(
                    ask,
                    admitted.rows,
                    len(admitted.payload),
                    insert.mode,
                    insert.key,
                    insert.offset,
                    insert.digest,
                    same,
                    last_offset,
                )
            )
        queue, effects = step(table.queue, Arrived(tuple(arrivals), now_ms))
        chain = table.chain
        for effect in effects:
            if isinstance(effect, Append):
                group = _group(table, effect, by_ask, chain, now_ms)
                turn.groups.append(group)
                chain = group.segment.chain
                self.counts["records"] += len(effect.inserts)
                self.counts["rows"] += sum(arrival.rows for _, arrival in effect.inserts)
            else:
                turn.effects.append((table, effect))
        turn.states[table.location] = (queue, chain)

    def _known_of(
        self, table: TableQueue, inserts: Sequence[Insert]
    ) -> dict[tuple[str, int], tuple[Known | None, int | None]]:
        """What the log remembers of the inserts' labels and channels."""
        keyed = [insert for insert in inserts if insert.key]
        if not keyed:
            return {}
        found = self._log.remembered(table.location, [insert.key for insert in keyed])
        known: dict[tuple[str, int], tuple[Known | None, int | None]] = {}
        for insert in keyed:
            remembered = found.get(insert.key)
            if remembered is not None:
                same = remembered.inserts.get(insert.offset)
                known[insert.key, insert.offset] = (
                    None if same is None else Known(*same),
                    remembered.last_offset,
                )
        return known

    def _append(self, turn: _Turn) -> None:
        """Make durable what was decided."""
        if not turn.groups:
            return
        reach("log.sealed")
        started = time.perf_counter()
        while True:
            try:
                self._log.append(turn.groups)
                break
            except StoreUnavailableError as error:
                if not error.unclear:
                    raise
                # The same call again finds out whether it was written.
                _log.error("The log does not answer: %s", error)
                if self._stopping:
                    raise
                time.sleep(_RETRY_SECONDS)
        self.fsync_seconds += time.perf_counter() - started
        self.counts["groups"] += 1
        reach("log.appended")

    def _carry_out(self, turn: _Turn) -> None:
        """What was decided is durable: it is the state now, and everybody is told."""
        for location, (queue, chain) in turn.states.items():
            table = self.tables[location]
            table.queue, table.chain = queue, chain
        self._do(turn.effects)

    def _do(self, effects: Iterable[tuple[TableQueue, Effect]]) -> None:
        replies: list[tuple[Answered, Answer]] = []
        for table, effect in effects:
            match effect:
                case Reply(ask=ask, answer=answer):
                    future = self._asks.pop(ask, None)
                    self._count(answer)
                    if future is not None:
                        replies.append((future, answer))
                case BeginFlush(batch=batch):
                    with contextlib.suppress(RuntimeError):  # stopping: the next start has it
                        self._pool.submit(self._load, table, batch)
                case Bury(lsn=lsn, why=why):
                    self._bury(table, lsn, why)
                case _:
                    raise AssertionError(effect)
        if not replies:
            return
        try:
            self._may_answer()  # a deposed coordinator acknowledges nothing
        except PaimonMagicsError as error:
            fail([future for future, _ in replies], error)
            raise
        deliver(replies)

    def _count(self, answer: Answer) -> None:
        match answer:
            case Accepted(duplicate=True):
                self.counts["duplicates"] += 1
            case Refused(reason=reason):
                self.counts[f"refused_{reason.value}"] += 1
            case _:
                pass

    def _take_event(self, item: _Event) -> None:
        now_ms = _now_ms()
        table = self.tables.get(item.location)
        if table is None and item.facts is not None:
            try:
                table = self._table(item.facts, now_ms)
            except StoreLostError:
                raise
            except (PaimonMagicsError, OSError) as error:
                if item.answer is not None:
                    fail([item.answer], error)
                return
        if table is None:
            if item.answer is not None:
                fail([item.answer], SetupError("Nothing was ever inserted there."))
            return
        ask = next(self._numbers)
        event = item.make(ask)
        if isinstance(event, Closed):
            self._close_or_open(table, event, item)
            return
        if item.answer is not None:
            self._asks[ask] = item.answer
        queue, effects = step(table.queue, event)
        table.queue = queue
        self._do([(table, effect) for effect in effects])
        if isinstance(event, Published):
            self.counts["flushes"] += 1

    def _close_or_open(self, table: TableQueue, event: Closed, item: _Event) -> None:
        try:
            if event.why:
                self._log.close_table(table.location, event.why)
            else:
                self._open_again(table, accept_loss=item.accept_loss)
        except PaimonMagicsError as error:
            if item.answer is not None:
                fail([item.answer], error)
            return
        # After an opening the table's state is that of the log: `_open_again` has read it.
        queue, effects = step(table.queue, event)
        table.queue = queue
        self._do([(table, effect) for effect in effects])
        if item.answer is not None:
            deliver([(item.answer, Accepted(queue.acknowledged, Mode.ASYNC))])

    def _open_again(self, table: TableQueue, *, accept_loss: bool) -> None:
        acknowledged = table.queue.acknowledged
        if table.queue.flushing is not None:
            raise SetupError(f"Rows of `{table.name}` are being loaded.", hint="Ask again.")
        if accept_loss:
            note = self._witness.note(table.location)
            above = max(acknowledged, 0 if note is None else note.first)
            self._log.accept_loss(table.location, stored_name(table.name), above)
            self._witness.open(table.location, above + 1)
            table.is_open = True
        else:
            missing = self._witness.missing(table.location, acknowledged)
            if missing:
                raise SetupError(f"`{table.name}` stays closed: {missing}.")
            self._log.close_table(table.location, "")
        stored = next(s for s in self._log.tables() if s.location == table.location)
        again = self._recovered(stored)
        if again.queue.closed:
            raise SetupError(f"`{table.name}` stays closed: {again.queue.closed}.")
        table.queue, table.chain = again.queue, again.chain

    def _table(self, facts: Facts, now_ms: int) -> TableQueue:
        """The table's queue, at its first insert too; the warehouse knows of its log then."""
        table = self.tables.get(facts.location)
        if table is None:
            table = TableQueue(facts.location, facts.name, Queue(facts.thresholds), 0)
            self.tables[facts.location] = table
        table.name = facts.name
        table.mode = facts.mode
        if table.queue.thresholds != facts.thresholds:
            table.queue, effects = step(table.queue, Ticked(now_ms, facts.thresholds))
            self._do([(table, effect) for effect in effects])
        if not table.is_open and not table.queue.closed:
            missing = self._witness.missing(table.location, table.queue.acknowledged)
            if missing:
                table.queue = step(table.queue, Closed(missing, now_ms))[0]
            else:
                self._witness.open(table.location, table.queue.next_lsn)
                table.is_open = True
                self._pool.submit(self._flusher.warm_up)
        return table

    # ---- the log at the start ----

    def _recover(self, stored: StoredTable) -> None:
        self.tables[stored.location] = self._recovered(stored)

    def _recovered(self, stored: StoredTable) -> TableQueue:
        name = table_name(stored.name)
        if stored.flush is not None and not stored.closed:
            try:
                self._own()
                self._flushing.settle(stored, name)
            except StuckError as error:
                self._log.close_table(stored.location, str(error))
            stored = next(s for s in self._log.tables() if s.location == stored.location)
        found = recovered(self._log, stored, self._defaults, _now_ms())
        queue = found.queue
        if queue.batches and not queue.closed:
            missing = self._witness.missing(stored.location, queue.acknowledged)
            queue = step(queue, Closed(missing, 0))[0] if missing else queue
        if queue.closed and not stored.closed:
            _log.error("`%s` takes no inserts: %s", name, queue.closed)
        return TableQueue(stored.location, name, queue, found.chain)

    # ---- loading ----

    def _load(self, table: TableQueue, batch: Batch) -> None:
        """In the pool: load a batch, and tell."""
        location = table.location
        try:
            loaded = self._flushing.load(table.name, location, batch)
            event: Event = _published(loaded)
        except NotLoadedError as error:
            _log.warning("Rows of `%s` are not loaded yet: %s", table.name, error)
            event = FlushFailed(str(error), _now_ms(), permanent=error.permanent)
        except StuckError as error:
            _log.error("`%s` takes no inserts: %s", table.name, error)
            closed = Closed(str(error), _now_ms())
            self._inbox.put(_Event(location, lambda _: closed))
            event = FlushFailed(str(error), _now_ms())
        except DeposedError as error:
            self._coordinator.depose(error)
            return
        except Exception as error:  # stopping: the next start finds out what became of it
            _log.error("A batch of `%s` was cut off: %r", table.name, error)
            return
        told = event
        self._inbox.put(_Event(location, lambda _: told))

    def _bury(self, table: TableQueue, lsn: int, why: str) -> None:
        segments = self._log.read(table.location, lsn, lsn)
        records, chain = read_segments(segments, lsn - 1, upto=lsn)
        assert chain is not None
        letter = DeadLetter(table.location, lsn, why, _now_ms(), seal(records, 0).body)
        self._log.publish(table.location, lsn, chain, None, [letter])

    # ---- time ----

    def _tick(self) -> None:
        self.ready.wait()
        while self._failure is None and not self._stopping:
            time.sleep(_TICK_SECONDS)
            now_ms = _now_ms()
            for id, (_, transaction_id) in list(self._holds.items()):
                if transaction_id and not self._is_open(transaction_id):
                    self._end_hold(id)
            for table in list(self.tables.values()):
                if table.queue.batches or table.queue.holds:
                    self._inbox.put(_Event(table.location, lambda _: Ticked(_now_ms())))
            if now_ms - self._forgot_at_ms > _FORGET_EVERY_MS:
                self._forgot_at_ms = now_ms
                with contextlib.suppress(PaimonMagicsError):
                    self._log.forget(now_ms - self._label_retention_ms)

    def _is_open(self, transaction_id: str) -> bool:
        """Whether a transaction may still be committed."""
        held = self._coordinator.state.held.get(transaction_id)
        return held is not None and held.phase.value in ("active", "committing", "unclear")

    def _end_hold(self, id: str) -> None:
        location, _ = self._holds.pop(id)
        self._inbox.put(_Event(location, lambda _: HoldEnded(id, _now_ms())))

    # ---- answers ----

    def _ask(
        self, location: str, make: Callable[[int], Event], facts: Facts | None = None
    ) -> Future[Answer]:
        future: Future[Answer] = Future()
        if self._failure is not None:
            future.set_exception(self._gone())
        else:
            self._inbox.put(_Event(location, make, future, facts))
        return future

    def _why_not(self, location: str) -> str:
        table = self.tables.get(location)
        return (table.queue.last_error if table is not None else "") or "it takes long"

    def _gone(self) -> SetupError:
        if isinstance(self._failure, DeposedError):
            return self._failure
        return SetupError(self.problem or _STOPPED, hint="Ask again when it runs.")

    def _fail_all(self) -> None:
        waiting = list(self._asks.values())
        self._asks.clear()
        with contextlib.suppress(queues.Empty):
            while True:
                item = self._inbox.get_nowait()
                if item is not None and item.answer is not None:
                    waiting.append(item.answer)
        fail(waiting, self._gone())


def _group(
    table: TableQueue, append: Append, by_ask: dict[int, Insert], chain: int, now_ms: int
) -> Appended:
    records = []
    keys = []
    for lsn, arrival in append.inserts:
        admitted = by_ask[arrival.ask].admitted
        records.append(
            Record(
                lsn,
                admitted.format,
                admitted.schema_id,
                admitted.rows,
                now_ms,
                admitted.payload,
                arrival.key,
                arrival.offset,
                arrival.digest,
            )
        )
        if arrival.key:
            keys.append(Keyed(arrival.key, arrival.offset, lsn, arrival.digest))
    return Appended(
        table.location, stored_name(table.name), seal(records, chain), tuple(keys), now_ms
    )


def _published(loaded: Loaded) -> Published:
    return Published(loaded.snapshot_id, _now_ms(), loaded.dead)


def _now_ms() -> int:
    return int(time.time() * 1000)
