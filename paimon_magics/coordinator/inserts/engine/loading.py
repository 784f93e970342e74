"""The slow work of group commit, in pools: tables are opened, batches loaded, dead letters buried.

Each piece ends in an event for its table. FlushFailed means that a batch is certainly not in the
table. After any other error its outcome is unknown, and determined later. Waiting for a commit
occupies no thread.

If the process dies, the next start determines the outcome of the batches under way.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from paimon_magics.coordinator.inserts.admission.items import Done
from paimon_magics.coordinator.inserts.engine.queue_owner import QueueOwner
from paimon_magics.coordinator.inserts.engine.recovery import recovered
from paimon_magics.coordinator.inserts.engine.replies import TableQueue, dropped, shown
from paimon_magics.coordinator.inserts.loading.flush import (
    BatchLoader,
    Loaded,
    NotLoadedError,
    StuckError,
)
from paimon_magics.coordinator.inserts.log.log import DeadLetter, stored_name
from paimon_magics.coordinator.inserts.log.records import read_segments, seal
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.events import (
    BeginFlush,
    Bury,
    Closed,
    Event,
    FlushFailed,
    FlushUnclear,
    Published,
    SettleFlush,
)
from paimon_magics.coordinator.inserts.queue.values import Queue, Thresholds
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.runtime.work import Clock, Steps
from paimon_magics.coordinator.store.database import StoreLostError
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import DeposedError

_QUICK_SLOTS = 3
_LONG_SLOTS = 2
_QUICK_MS = 10_000.0
"""How long a load may last while others wait, before it goes to the lane of long loads."""

_LONG_MS = 300_000.0
"""How long a load may last there, before its batch is cut in halves."""

_LOADERS = _QUICK_SLOTS + _LONG_SLOTS + 2  # outcomes and dead letters don't wait for loads
_OPENERS = 4
_AGAIN_MS = 1_000

_Events = tuple[Event, ...]


class LoadPool:
    """The slow work for tables. Its outcomes come back to the owner as events and items. `lose` is
    called when the log or the warehouse is lost, `buried` with a table's id and the lsns of new
    dead letters. `ownership` is None where no other coordinator can own the warehouse.
    """

    def __init__(
        self,
        owner: QueueOwner,
        loader: BatchLoader,
        log: RegisteredLog,
        ownership: Ownership | None,
        defaults: Thresholds,
        lose: Callable[[DeposedError | StoreLostError], None],
        buried: Callable[[str, Sequence[int]], None],
    ) -> None:
        self._runtime = runtime = owner.runtime
        self._now_ms = runtime.clock.now_ms
        self._owner = owner
        self._loader = loader
        self._log = log.log
        self._registry = log.registry
        self._ownership = ownership
        self._defaults = defaults
        self._lose = lose
        self._buried = buried
        self._loads = runtime.pool("loads", _LOADERS)
        self._long = Lane(_LONG_SLOTS, _LONG_MS, runtime.clock)
        self._quick = Lane(_QUICK_SLOTS, _QUICK_MS, runtime.clock, self._long)
        self.pool = runtime.pool("tables", _OPENERS)
        self._noting = threading.RLock()

    def open(self, table: TableQueue) -> None:
        """Check that the log has all of a table's records, and note it in the log registry;
        `QueueOwner.opened` or `not_opened` follows."""
        self.pool.effect(
            f"opening {table.name}",
            lambda: partial(self._owner.opened, table, self._open_for_inserts(table)),
            lambda error: partial(self._owner.not_opened, table, self._lost(error)),
            lambda adopt: self._owner.put(Done(adopt)),
        )
        self.pool.run("flusher", self._loader.flusher.warm_up)

    def load(self, table: TableQueue, effect: BeginFlush) -> None:
        """Load a batch when it is its user's turn."""
        if not table.is_open:  # its rows were acknowledged before this process began
            check: Callable[[], str | Exception] = partial(self._open_for_loading, table)
            checked = partial(self._checked, table, effect)
            self.pool.effect(f"checking {table.name}", check, self._lost, checked)
            return
        lane = self._long if table.is_long else self._quick
        lane.enter(table.user or table.id, partial(self._load, table, effect))

    def _load(self, table: TableQueue, effect: BeginFlush, place: Place) -> None:
        batch = effect.batch
        if table.is_long and batch.first == batch.last:
            place.has_limit = False  # a record is not cut
        loading = self._loader.load(table.name, table.id, batch, place)

        def deliver(events: _Events | None) -> None:
            place.end()
            is_long = events is None or (table.is_long and place.lasted_ms > _QUICK_MS / 2)
            if is_long is not table.is_long:
                self._owner.put(Done(partial(setattr, table, "is_long", is_long)))
            if events is None:
                self._owner.put(Done(partial(self.load, table, effect)))
            else:
                self._deliver(table, events)

        self._loads.run_steps(
            f"loading {table.name}",
            self._loaded(table, loading),
            partial(self._crashed, table),
            deliver,
        )

    def _loaded(self, table: TableQueue, loading: Steps[Loaded]) -> Steps[_Events | None]:
        """Load a batch; None if it begins again in the lane of long loads."""
        try:
            return (yield from self._outcome(table, loading))
        except LongLoadError as error:
            if not table.is_long:
                return None
            return (FlushFailed(str(error), self._now_ms(), large=True),)

    def settle(self, table: TableQueue, effect: SettleFlush) -> None:
        """Determine the outcome of a batch."""
        self._run(table, self._loader.settle(table.name, table.id, effect.batch))

    def bury(self, table: TableQueue, effect: Bury) -> None:
        """Make a dead letter of a record."""
        lsn, why = effect.lsn, effect.why

        def bury() -> _Events:
            segments = self._log.read(table.id, lsn, lsn)
            records, chain = read_segments(segments, lsn - 1, upto=lsn)
            assert chain is not None
            letter = DeadLetter(table.id, lsn, why, self._now_ms(), seal(records, 0).body)
            self._log.publish(table.id, lsn, chain, None, [letter])
            return (Published(None, self._now_ms(), ((lsn, why),)),)

        self._loads.effect(
            f"dead letter of {table.name}",
            bury,
            partial(self._crashed, table),
            partial(self._deliver, table),
        )

    def note_closed(self, table: TableQueue) -> None:
        """Note in the log whether a table is closed, and why."""

        def note() -> None:
            with self._noting:  # the last of several notes the final state
                self._log.close_table(table.id, table.queue.closed)

        self._again(f"closing {table.name}", note)

    def reopen(self, table: TableQueue, *, accept_loss: bool) -> Future[None]:
        """Open a closed table again; see `_read_again`. With `accept_loss`, a table whose rows
        can't be loaded is closed first, so that no insert is acknowledged while these rows are
        discarded.
        """
        done: Future[None] = Future()

        def reopen() -> tuple[Queue, int] | None:
            with self._noting:  # nobody notes in between that it is closed
                return self._read_again(table, accept_loss=accept_loss)

        def deliver(outcome: tuple[Queue, int] | Exception | None) -> None:
            def adopt() -> None:
                if isinstance(outcome, tuple):
                    table.is_open = table.is_open or accept_loss
                    self._owner.reopened(table, *outcome)
                done.set_result(None)

            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                self._owner.put(Done(adopt))

        def begin() -> None:
            queue = table.queue
            if accept_loss and queue.batches and queue.last_error and not queue.closed:
                why = "The waiting rows are discarded, because they can't be loaded: "
                self._owner.happen(table, Closed(f"{why}{queue.last_error}", self._now_ms()))
            self.pool.effect(f"reopening {table.name}", reopen, self._lost, deliver)

        self._owner.put(Done(begin))
        return done

    def renamed(self, table: TableQueue) -> None:
        """Note a table's new name in the log."""
        note = partial(self._loader.note_name, table.id, table.name)
        self._again(f"renaming {table.name}", note)

    def note_drop(self, table_id: str) -> None:
        """Note that the drop of a table with waiting rows begins. Raises SetupError."""
        table = self._owner.tables.get(table_id)
        if table is not None and table.queue.batches:
            self._registry.note_drop(table_id)

    def forget(self, table_id: str) -> None:
        """Forget a dropped table and its waiting rows, in queues, log and registry."""

        def forget() -> None:
            self._log.drop_table(table_id)
            self._registry.forget(table_id)

        def drop() -> None:
            self._owner.dropped(table_id)
            self._again("dropped table", forget)

        self._owner.put(Done(drop))

    def note_ends(self, tables: Iterable[TableQueue]) -> None:
        """Note in the warehouse how far records are acknowledged."""
        for table in tables:
            if table.is_open and table.noted < _noted(table):
                self.pool.run(f"note {table.name}", partial(self._note_end, table))

    def end(self, tables: Iterable[TableQueue]) -> None:
        """Wait for work under way, and note which tables have nothing left in the log."""
        self._loads.end()
        self.pool.end()
        for table in tables:
            self._runtime.attempt("a note", partial(self._note_clean, table))

    # ---- whether the log has all acknowledged records ----

    def _open_for_inserts(self, table: TableQueue) -> str:
        """See `_open`. Raises UnknownNameError for a table that is gone: a client may insert into a
        table that was dropped since.
        """
        self._own()
        if self._loader.table_of(table.name, table.id) is None:
            raise dropped(table.name)
        return self._open(table)

    def _open_for_loading(self, table: TableQueue) -> str:
        """See `_open`. Raises NotLoadedError for a table that was dropped here."""
        self._own()
        if self._loader.table_of(table.name, table.id) is None:
            self._loader.check_not_dropped(table.name, table.id)
        return self._open(table)

    def _open(self, table: TableQueue) -> str:
        """Note in the log registry that this log has the table's records; or return why some are
        missing."""
        missing = self._missing(table)
        acknowledged = table.queue.acknowledged
        if missing:
            self._confirm()
        else:
            noted, published = _noted(table), table.queue.published
            self._registry.open(table.id, acknowledged + 1, published)
            table.noted = max(table.noted, noted)
        return missing

    def _missing(self, table: TableQueue) -> str:
        """Why acknowledged rows are missing in this log; "" when they are not.

        Another call may have opened the table meanwhile, so that more records are acknowledged,
        noted and loaded. So the table's queue is read last: it has everything that the others have.
        """
        missing = self._registry.missing(
            table.id,
            lambda: table.queue.acknowledged,
            self._log.damage,
            published=lambda: table.queue.published,
        )
        if missing:
            return missing
        last = self._loader.last_in(table.name, table.id, table.queue.snapshot_id or 0)
        acknowledged = table.queue.acknowledged
        if last > acknowledged:
            return (
                f"The log {self._log.name} ends with record {acknowledged}, but the table has "
                f"records up to {last}"
            )
        return ""

    def _read_again(self, table: TableQueue, *, accept_loss: bool) -> tuple[Queue, int] | None:
        """A closed table's queue and chain, read from the log again; None if it is open.

        With `accept_loss`, missing or damaged records are discarded; otherwise raises SetupError
        while any are missing. If the table was closed for another reason, all its records are
        discarded.
        """
        if table.queue.flushing is not None and not table.queue.unsettled:
            raise SetupError(f"Rows of `{table.name}` are being loaded.", hint="Ask again.")
        missing = self._missing(table)
        if not missing and not table.queue.closed:
            return None  # there is nothing to accept, and waiting rows are loaded
        if missing and not accept_loss:
            raise SetupError(
                f"`{table.name}` stays closed: {missing}.",
                hint=f"Restore the log. Or discard these rows: `%paimon queue {table.name} "
                "accept-loss`.",
            )
        if accept_loss and not (missing and self._goes_on(table)):
            self._begin_anew(table)
        else:
            self._log.close_table(table.id, "")
        stored = self._loader.stored(table.id)
        assert stored is not None  # it was closed for its records, or has begun anew
        if accept_loss:
            self._registry.open(table.id, stored.acknowledged + 1, stored.published)
        again = recovered(self._log, stored, self._defaults)
        if again.queue.closed:
            raise SetupError(f"`{table.name}` stays closed: {again.queue.closed}.")
        return again.queue, again.chain

    def _note_end(self, table: TableQueue) -> None:
        """Note in the log registry how far a table's records are acknowledged, so that their loss
        from the log is noticed.
        """
        noted = _noted(table)
        if table.is_open and table.noted < noted:
            self._own()
            queue = table.queue
            self._registry.open(table.id, queue.acknowledged + 1, queue.published)
            table.noted = noted

    def _note_clean(self, table: TableQueue) -> None:
        """Note in the log registry that a table has nothing left in the log."""
        if table.is_open and not table.queue.batches:
            self._registry.clean(table.id, table.queue.acknowledged)

    def _goes_on(self, table: TableQueue) -> bool:
        """Whether a log that lost its last records can continue from its present end: its remaining
        records are whole, and neither lost nor waiting ones are in the table.
        """
        stored, note = self._loader.stored(table.id), self._registry.note(table.id)
        if stored is None or stored.flush is not None:
            return False
        if note is not None and note.published > stored.published:
            return False
        last = self._loader.last_in(table.name, table.id, stored.snapshot_id or 0)
        whole = recovered(self._log, replace(stored, closed=""), self._defaults)
        return last <= stored.acknowledged and not whole.queue.closed

    def _begin_anew(self, table: TableQueue) -> None:
        """Discard the table's records in the log, and continue above all lsns that were ever
        given."""
        note = self._registry.note(table.id)
        above = max(
            table.queue.acknowledged,
            0 if note is None else note.first - 1,
            self._loader.last_in(table.name, table.id, table.queue.snapshot_id or 0),
        )
        self._log.accept_loss(table.id, stored_name(table.name), above)

    def _own(self) -> None:
        """Own the warehouse. Raises what `Ownership.acquire` raises."""
        if self._ownership is not None:
            self._ownership.acquire()

    def _confirm(self) -> None:
        """Confirm that this coordinator owns the warehouse, before it closes a table: records that
        its log does not know may be those of a coordinator that has taken over. Raises what
        `Ownership.check` raises; the outcome is unknown then.
        """
        if self._ownership is not None:
            self._ownership.check()

    # ---- outcomes ----

    def _run(self, table: TableQueue, steps: Steps[Loaded]) -> None:
        self._loads.run_steps(
            f"loading {table.name}",
            self._outcome(table, steps),
            partial(self._crashed, table),
            partial(self._deliver, table),
        )

    def _outcome(self, table: TableQueue, steps: Steps[Loaded]) -> Steps[_Events]:
        try:
            loaded = yield from steps
        except NotLoadedError as error:
            if error.dropped:
                self.forget(table.id)
            return (
                FlushFailed(
                    str(error), self._now_ms(), permanent=error.permanent, refused=error.refused
                ),
            )
        except StuckError as error:
            self._confirm()
            now_ms = self._now_ms()
            return Closed(str(error), now_ms), FlushFailed(str(error), now_ms)
        return (Published(loaded.snapshot_id, self._now_ms(), loaded.dead),)

    def _crashed(self, table: TableQueue, error: Exception) -> _Events:
        return (FlushUnclear(shown(self._lost(error)).message, self._now_ms()),)

    def _deliver(self, table: TableQueue, events: _Events) -> None:
        for event in events:
            self._owner.tell(table, event)
            if isinstance(event, Published) and event.dead:
                lsns = [lsn for lsn, _ in event.dead]
                self.pool.run("dead letters", partial(self._buried, table.id, lsns))

    def _checked(self, table: TableQueue, effect: BeginFlush, outcome: str | Exception) -> None:
        """Load a batch of a table after checking its log; close the table if records are
        missing."""

        def adopt() -> None:
            if outcome == "":
                self._owner.opened(table, "")
                self.load(table, effect)
                return
            self._owner.happen(table, FlushFailed(str(outcome), self._now_ms()))
            if isinstance(outcome, NotLoadedError) and outcome.dropped:
                self.forget(table.id)
            if isinstance(outcome, str):
                self._owner.opened(table, outcome)

        self._owner.put(Done(adopt))

    def _again(self, label: str, work: Callable[[], object]) -> None:
        """Repeat an action until it succeeds; the next start makes it unnecessary."""

        def ended(error: Exception | None) -> None:
            if error is not None:
                self.pool.run(label, lambda: self._again(label, work), after_ms=_AGAIN_MS)

        def done() -> Exception | None:
            work()
            return None

        self.pool.effect(label, done, self._lost, ended)

    def _lost(self, error: Exception) -> Exception:
        if isinstance(error, DeposedError | StoreLostError):
            self._lose(error)
        return error


def _noted(table: TableQueue) -> int:
    """A number that grows with what the registry's note says of a table."""
    return table.queue.acknowledged + table.queue.published


# Whose batch is loaded next: a share for each user, and for long loads a lane of their own.
#
# Loads are files to write, and how long a batch takes is seen only while it is written: a few
# kilobytes may have rows of ten thousand partitions. So users take turns, however many tables and
# batches one of them has. A load that lasts while others wait gives up its place, and goes on in
# the lane of long loads, or begins again there where that has no place. There it may last, unless
# its batch can be cut in halves.


class LongLoadError(Exception):
    """A load has lasted too long for its lane, and others wait."""


class Lane:
    """Loads that take turns: up to `slots` at once, the users who wait one after the other. A load
    may last for `limit_ms` while others wait, then it goes to the lane `beyond`. For any thread."""

    def __init__(
        self, slots: int, limit_ms: float, clock: Clock, beyond: Lane | None = None
    ) -> None:
        self.limit_ms = limit_ms
        self.beyond = beyond
        self._free = slots
        self._clock = clock
        self._turn = threading.Lock()
        self._waiting: OrderedDict[str, deque[Callable[[Place], object]]] = OrderedDict()

    def enter(self, user: str, begin: Callable[[Place], object]) -> None:
        """Call `begin`, which must not wait, with a place when it is the user's turn."""
        with self._turn:
            self._waiting.setdefault(user, deque()).append(begin)
        self._go_on()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._waiting)

    def takes_one(self) -> bool:
        """Take a place that is free; return whether there was one."""
        with self._turn:
            if not self._free or self._waiting:
                return False
            self._free -= 1
            return True

    def left(self) -> None:
        """Give a place to the next user."""
        with self._turn:
            self._free += 1
        self._go_on()

    def _go_on(self) -> None:
        while (begin := self._next()) is not None:
            begin(Place(self, self._clock))

    def _next(self) -> Callable[[Place], object] | None:
        with self._turn:
            if not self._free or not self._waiting:
                return None
            self._free -= 1
            user, begins = self._waiting.popitem(last=False)
            begin = begins.popleft()
            if begins:  # behind the others
                self._waiting[user] = begins
            return begin


class Place:
    """The place of a load in a lane, until its `end`; `lasted_ms` is how long it was taken. For any
    thread."""

    def __init__(self, lane: Lane, clock: Clock) -> None:
        self._lane = lane
        self._clock = clock
        self._since_ms = clock.steady_ms()
        self._turn = threading.Lock()
        self._has_ended = False
        self.has_limit = True
        self.lasted_ms = 0.0

    def check(self) -> None:
        """If the load has lasted too long, and others wait, go on in the lane beyond. Where that
        has no place, end, and raise LongLoadError."""
        lasts_ms = self._clock.steady_ms() - self._since_ms
        lane = self._lane
        if not self.has_limit or lasts_ms <= lane.limit_ms or not lane.is_wanted:
            return
        if lane.beyond is not None and lane.beyond.takes_one():
            self._lane = lane.beyond
            lane.left()
            return
        self.end()
        raise LongLoadError(f"Its load has lasted {lasts_ms / 1000:,.0f} s, and others wait.")

    def end(self) -> None:
        """Leave the lane. May be called again."""
        with self._turn:
            if self._has_ended:
                return
            self._has_ended = True
            self.lasted_ms = self._clock.steady_ms() - self._since_ms
        self._lane.left()
