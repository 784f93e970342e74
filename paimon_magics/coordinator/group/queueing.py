"""What happens to the small inserts of one table, decided without doing anything. Pure.

`step(queue, event)` gives the next state and the effects that a shell carries out, in their order.
When an effect fails, the state stays as it was: nothing after the failed effect has happened.

An insert's life:

    arrived ── checked ──> appended to the log ──> acknowledged ──> in the open batch
      open batch ── rows, bytes, time, a flush, a hold ──> sealed ──> flushing ──> published
      flushing ── failed ──> waits, and again ── failed for good ──> in halves ──> a dead letter

Invariants: lsns are dense and given in the order of acknowledgement; batches are published one at a
time, in that order; nothing is acknowledged before it was appended; what has the label, or the
channel and offset, of an earlier insert is answered like that one, or refused, and never appended.

A hold is a place in that order for a statement that is no insert: it is granted when everything
before it is published, and until it ends nothing after it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum

__all__ = [
    "Accepted",
    "Answer",
    "Append",
    "Arrival",
    "Arrived",
    "Batch",
    "BeginFlush",
    "Bury",
    "Closed",
    "Effect",
    "Event",
    "FlushAsked",
    "FlushFailed",
    "Flushed",
    "Granted",
    "Hold",
    "HoldAsked",
    "HoldEnded",
    "Known",
    "Mode",
    "Published",
    "Queue",
    "Reason",
    "Refused",
    "Reply",
    "Thresholds",
    "Ticked",
    "backlog",
    "step",
]

_FAILURES_MAX = 3
"""So often a batch is tried that can't be written, before it is taken apart."""

_BUSY_MS = 1_000
_PAUSE_MS = 200
_PAUSE_MS_MAX = 10_000


class Mode(StrEnum):
    """When an insert is acknowledged: when it is durable, when it is visible, or when it is
    visible in a commit of its own."""

    ASYNC = "async_mode"
    SYNC = "sync_mode"
    OFF = "off_mode"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When the open batch is loaded, and how much may wait: a backlog of `soft_bytes` makes inserts
    wait until they are visible, `hard_bytes` refuses them."""

    rows: int = 1_000_000
    data_bytes: int = 64 * 2**20
    interval_ms: int = 10_000
    soft_bytes: int = 512 * 2**20
    hard_bytes: int = 2**30


# ------------------------------------------------------------------------------------- answers


class Reason(StrEnum):
    """Why an insert was not taken, or will never be visible."""

    FULL = "full"  # the backlog: come back later
    BUSY = "busy"  # a statement takes the table away or renames it: come back later
    CLOSED = "closed"  # somebody has to look at the table first
    MISMATCH = "mismatch"  # the label stands for another insert
    RANGE = "range"  # an offset of the channel was left out
    DEAD = "dead"  # it was durable, and can't be loaded: it is a dead letter
    LATE = "late"  # what it waited for did not come in time


@dataclass(frozen=True, slots=True)
class Accepted:
    """The insert is durable, or visible where `mode` says so (then in `snapshot_id`, where that is
    known). `fallback` tells why it is another mode than the one asked for. Of a repeated one whose
    first answer is no longer kept the `lsn` is 0."""

    lsn: int
    mode: Mode
    duplicate: bool = False
    fallback: str = ""
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything up to `lsn` is visible."""

    lsn: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """Everything up to `lsn` is visible, and nothing else will be until the hold ends."""

    lsn: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Not taken, or with `Reason.DEAD` not loaded."""

    reason: Reason
    message: str
    retry_after_ms: int = 0


Answer = Accepted | Flushed | Granted | Refused

# -------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of an insert with a label, or with a channel and offset."""

    lsn: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Arrival:
    """One insert that the door has let through. `ask` is who asks.

    `key` and `offset` as in `records.Record`; `known` is what is remembered under them,
    `last_offset` the last one of the channel, None for a channel that is not known.
    """

    ask: int
    rows: int
    size_bytes: int
    mode: Mode = Mode.ASYNC
    key: str = ""
    offset: int = -1
    digest: bytes = b""
    known: Known | None = None
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """Inserts, in their order."""

    arrivals: tuple[Arrival, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class FlushAsked:
    """Somebody wants to see what was acknowledged up to now."""

    ask: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class HoldAsked:
    """A statement that is no insert wants its place; it ends by itself at `until_ms`. One that
    does not `drains` only stops what would be loaded next: its place is behind what is visible. One
    that `refuses` has no inserts taken until it ends."""

    id: str
    ask: int
    now_ms: int
    until_ms: int
    drains: bool = True
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """The statement has ended."""

    id: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Published:
    """The batch that was being flushed is in the table, but for its `dead` records (lsn, why)."""

    snapshot_id: int | None
    now_ms: int
    dead: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FlushFailed:
    """The batch is certainly not in the table. `permanent` where its rows are the reason."""

    why: str
    now_ms: int
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing is taken or loaded until somebody has looked (`why`), or ("") it is again."""

    why: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed. `thresholds` are the table's of now, where they were read again."""

    now_ms: int
    thresholds: Thresholds | None = None


Event = Arrived | FlushAsked | HoldAsked | HoldEnded | Published | FlushFailed | Closed | Ticked

# --------------------------------------------------------------------------------------- state


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that are loaded together, `first` to `last`; the oldest came at `since_ms`."""

    first: int
    last: int
    rows: int
    size_bytes: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A statement's place: after `lsn`, before all others. One that does not `drains` goes on
    before a batch that has failed."""

    id: str
    ask: int
    lsn: int
    until_ms: int
    granted: bool = False
    drains: bool = True
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class _Waiter:
    ask: int
    lsn: int
    answer: Accepted | Flushed


@dataclass(frozen=True, slots=True)
class Queue:
    """A table's inserts that are not published. `published` is the last lsn that is."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    next_lsn: int = 1
    published: int = 0
    sealed: tuple[Batch, ...] = ()
    open: Batch | None = None
    flushing: Batch | None = None
    failures: int = 0
    retry_at_ms: int = 0
    last_error: str = ""
    holds: tuple[Hold, ...] = ()
    waiting: tuple[tuple[_Waiter, ...], ...] = ()
    closed: str = ""
    snapshot_id: int | None = None

    @property
    def acknowledged(self) -> int:
        """The last lsn that was given."""
        return self.next_lsn - 1

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All that is not published, in order."""
        begun = (self.flushing,) if self.flushing is not None else ()
        ended = (self.open,) if self.open is not None else ()
        return (*begun, *self.sealed, *ended)


def backlog(queue: Queue) -> tuple[int, int]:
    """Rows and bytes that are not published."""
    batches = queue.batches
    return sum(b.rows for b in batches), sum(b.size_bytes for b in batches)


# ------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Append:
    """Make these inserts durable, with their lsns, before any effect that follows."""

    inserts: tuple[tuple[int, Arrival], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer who asked."""

    ask: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class BeginFlush:
    """Load the batch; Published or FlushFailed comes back."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Bury:
    """Make a dead letter of one record, durably: it counts as published then."""

    lsn: int
    why: str


Effect = Append | Reply | BeginFlush | Bury


def step(queue: Queue, event: Event) -> tuple[Queue, tuple[Effect, ...]]:
    """The next state, and what must be done, in this order."""
    match event:
        case Arrived(arrivals=arrivals, now_ms=now_ms):
            queue, effects = _arrive(queue, arrivals, now_ms)
        case FlushAsked(ask=ask):
            queue, effects = _ask_flush(queue, ask)
        case HoldAsked():
            queue, effects = _ask_hold(queue, event)
        case HoldEnded(id=id):
            queue, effects = _without_holds(queue, lambda hold: hold.id == id, "")
        case Published():
            queue, effects = _published(queue, event)
        case FlushFailed():
            queue, effects = _failed(queue, event)
        case Closed(why=why):
            queue, effects = _close(queue, why)
        case Ticked(now_ms=now_ms, thresholds=thresholds):
            queue = queue if thresholds is None else replace(queue, thresholds=thresholds)
            queue, effects = _without_holds(
                queue, lambda hold: hold.until_ms <= now_ms, "the wait was too long"
            )
    queue, following = _go_on(queue, event.now_ms)
    return queue, (*effects, *following)


# ------------------------------------------------------------------------------------ arriving


def _arrive(queue: Queue, arrivals: Iterable[Arrival], now_ms: int) -> tuple[Queue, list[Effect]]:
    group = _Group(queue, now_ms)
    for arrival in arrivals:
        group.take(arrival)
    return group.taken()


class _Group:
    """Inserts that arrive together, taken one after the other: a state under way."""

    def __init__(self, queue: Queue, now_ms: int) -> None:
        self._queue = queue
        self._now_ms = now_ms
        self._backlog_bytes = backlog(queue)[1]
        self._known: dict[tuple[str, int], Known] = {}
        self._last_offsets: dict[str, int] = {}
        self._inserts: list[tuple[int, Arrival]] = []
        self._replies: list[Effect] = []
        self._waiters: list[_Waiter] = []
        self._sealed = list(queue.sealed)
        self._open: _OpenBatch | None = None
        if queue.open is not None:
            self._open = _OpenBatch(*astuple(queue.open))
        self._is_refusing = any(hold.refuses for hold in queue.holds)

    def take(self, arrival: Arrival) -> None:
        """Give it an lsn, or an answer that it gets none for."""
        known = self._known.get((arrival.key, arrival.offset), arrival.known)
        answer = self._answer_of_repeated(arrival, known) if arrival.key else None
        if answer is None:
            answer = self._refusal(arrival)
        if answer is None:
            self._accept(arrival)
        elif isinstance(answer, Accepted) and arrival.mode is not Mode.ASYNC:
            self._wait(arrival, answer)
        else:
            self._replies.append(Reply(arrival.ask, answer))

    def taken(self) -> tuple[Queue, list[Effect]]:
        """The state after it, and the effects."""
        queue = replace(
            self._queue,
            next_lsn=self._next_lsn,
            sealed=tuple(self._sealed),
            open=None if self._open is None else self._open.value(),
            waiting=(*self._queue.waiting, tuple(self._waiters))
            if self._waiters
            else self._queue.waiting,
        )
        appended: list[Effect] = [Append(tuple(self._inserts))] if self._inserts else []
        return queue, appended + self._replies

    @property
    def _next_lsn(self) -> int:
        return self._queue.next_lsn + len(self._inserts)

    def _answer_of_repeated(self, arrival: Arrival, known: Known | None) -> Answer | None:
        """The answer to what was there before; None for what is new."""
        if known is not None:
            if known.digest != arrival.digest:
                return Refused(Reason.MISMATCH, "it was given to an insert of something else")
            return Accepted(known.lsn, Mode.ASYNC, duplicate=True)
        last = self._last_offsets.get(arrival.key, arrival.last_offset)
        if arrival.offset < 0 or last is None or arrival.offset == last + 1:
            return None
        if arrival.offset <= last:
            return Accepted(0, Mode.ASYNC, duplicate=True)
        return Refused(
            Reason.RANGE, f"offset {arrival.offset} where {last + 1} comes next in its channel"
        )

    def _refusal(self, arrival: Arrival) -> Refused | None:
        queue = self._queue
        if queue.closed:
            return Refused(Reason.CLOSED, queue.closed)
        if self._is_refusing:
            return Refused(Reason.BUSY, "a statement is changing what it is", _BUSY_MS)
        if self._backlog_bytes + arrival.size_bytes > queue.thresholds.hard_bytes:
            after_ms = max(1_000, min(queue.thresholds.interval_ms, 10_000))
            return Refused(Reason.FULL, f"{self._backlog_bytes:,} bytes wait", after_ms)
        return None

    def _accept(self, arrival: Arrival) -> None:
        lsn = self._next_lsn
        mode, fallback = arrival.mode, ""
        if mode is Mode.ASYNC and self._backlog_bytes > self._queue.thresholds.soft_bytes:
            mode, fallback = Mode.SYNC, f"{self._backlog_bytes:,} bytes wait to be loaded"
        self._inserts.append((lsn, arrival))
        self._backlog_bytes += arrival.size_bytes
        if arrival.key:
            self._known[arrival.key, arrival.offset] = Known(lsn, arrival.digest)
            if arrival.offset >= 0:
                self._last_offsets[arrival.key] = arrival.offset
        self._add_to_batch(lsn, arrival)
        answer = Accepted(lsn, mode, fallback=fallback)
        if mode is Mode.ASYNC:
            self._replies.append(Reply(arrival.ask, answer))
        else:
            self._waiters.append(_Waiter(arrival.ask, lsn, answer))

    def _wait(self, arrival: Arrival, answer: Accepted) -> None:
        answer = replace(answer, mode=arrival.mode)
        if answer.lsn <= self._queue.published:
            self._replies.append(Reply(arrival.ask, answer))
        else:
            self._waiters.append(_Waiter(arrival.ask, answer.lsn, answer))

    def _add_to_batch(self, lsn: int, arrival: Arrival) -> None:
        if arrival.mode is Mode.OFF:
            self._seal()
        batch = self._open
        if batch is None:
            batch = self._open = _OpenBatch(lsn, lsn, 0, 0, self._now_ms)
        batch.last = lsn
        batch.rows += arrival.rows
        batch.size_bytes += arrival.size_bytes
        if arrival.mode is Mode.OFF or _is_full(batch, self._queue.thresholds):
            self._seal()

    def _seal(self) -> None:
        if self._open is not None:
            self._sealed.append(self._open.value())
            self._open = None


@dataclass(slots=True)
class _OpenBatch:
    """A `Batch` that inserts are added to, thousands in one step."""

    first: int
    last: int
    rows: int
    size_bytes: int
    since_ms: int

    def value(self) -> Batch:
        return Batch(self.first, self.last, self.rows, self.size_bytes, self.since_ms)


def _is_full(batch: Batch | _OpenBatch, thresholds: Thresholds) -> bool:
    return batch.rows >= thresholds.rows or batch.size_bytes >= thresholds.data_bytes


# ------------------------------------------------------------------------------------- waiting


def _sealed(queue: Queue) -> Queue:
    if queue.open is None:
        return queue
    return replace(queue, sealed=(*queue.sealed, queue.open), open=None)


def _close(queue: Queue, why: str) -> tuple[Queue, list[Effect]]:
    """Nobody waits for what may take days; who has inserted is told that it is durable."""
    queue = replace(queue, closed=why, retry_at_ms=0)
    if not why:
        return queue, []
    effects: list[Effect] = []
    for group in queue.waiting:
        for waiter in group:
            answer: Answer = Refused(Reason.CLOSED, why)
            if isinstance(waiter.answer, Accepted):
                answer = replace(waiter.answer, mode=Mode.ASYNC, fallback=why)
            effects.append(Reply(waiter.ask, answer))
    late = [Reply(h.ask, Refused(Reason.CLOSED, why)) for h in queue.holds if not h.granted]
    holds = tuple(hold for hold in queue.holds if hold.granted)
    return replace(queue, waiting=(), holds=holds), [*effects, *late]


def _ask_flush(queue: Queue, ask: int) -> tuple[Queue, list[Effect]]:
    lsn = queue.acknowledged
    if queue.closed and lsn > queue.published:
        return queue, [Reply(ask, Refused(Reason.CLOSED, queue.closed))]
    if lsn <= queue.published:
        return queue, [Reply(ask, Flushed(lsn, queue.snapshot_id))]
    waiter = _Waiter(ask, lsn, Flushed(lsn))
    # Who asks wants it now: what failed before is tried at once.
    return replace(_sealed(queue), waiting=(*queue.waiting, (waiter,)), retry_at_ms=0), []


def _ask_hold(queue: Queue, event: HoldAsked) -> tuple[Queue, list[Effect]]:
    if queue.closed:
        return queue, [Reply(event.ask, Refused(Reason.CLOSED, queue.closed))]
    lsn = queue.acknowledged
    if event.drains:
        queue = replace(_sealed(queue), retry_at_ms=0)
    else:
        lsn = queue.published if queue.flushing is None else queue.flushing.last
    hold = Hold(
        event.id, event.ask, lsn, event.until_ms, drains=event.drains, refuses=event.refuses
    )
    return _granted(replace(queue, holds=(*queue.holds, hold)))


def _granted(queue: Queue) -> tuple[Queue, list[Effect]]:
    """Grant the holds whose turn it is."""
    due = [h for h in queue.holds if not h.granted and h.lsn <= queue.published]
    if not due:
        return queue, []
    holds = tuple(replace(h, granted=True) if h in due else h for h in queue.holds)
    return replace(queue, holds=holds), [Reply(h.ask, Granted(h.lsn)) for h in due]


def _without_holds(
    queue: Queue, ends: Callable[[Hold], bool], why: str
) -> tuple[Queue, list[Effect]]:
    gone = [hold for hold in queue.holds if ends(hold)]
    if not gone:
        return queue, []
    holds = tuple(hold for hold in queue.holds if hold not in gone)
    late = [h for h in gone if not h.granted]
    refused = Refused(Reason.LATE, why or "its statement has ended")
    return replace(queue, holds=holds), [Reply(hold.ask, refused) for hold in late]


# ------------------------------------------------------------------------------------ flushing


def _go_on(queue: Queue, now_ms: int) -> tuple[Queue, list[Effect]]:
    """Begin the next batch if it is time."""
    if queue.flushing is not None or queue.closed or now_ms < queue.retry_at_ms:
        return queue, []
    if not queue.sealed and queue.open is not None:
        is_old = now_ms - queue.open.since_ms >= queue.thresholds.interval_ms
        if is_old or _is_full(queue.open, queue.thresholds):
            queue = _sealed(queue)
    if not queue.sealed:
        return queue, []
    batch, *rest = queue.sealed
    if any(hold.lsn < batch.first for hold in queue.holds):
        return queue, []
    return replace(queue, flushing=batch, sealed=tuple(rest)), [BeginFlush(batch)]


def _published(queue: Queue, event: Published) -> tuple[Queue, list[Effect]]:
    assert queue.flushing is not None
    last = queue.flushing.last
    queue = replace(
        queue,
        flushing=None,
        published=last,
        failures=0,
        retry_at_ms=0,
        last_error="",
        snapshot_id=queue.snapshot_id if event.snapshot_id is None else event.snapshot_id,
    )
    return _told(queue, event.snapshot_id, dict(event.dead))


def _told(
    queue: Queue, snapshot_id: int | None, dead: dict[int, str]
) -> tuple[Queue, list[Effect]]:
    """Answer those whose wait is over."""
    effects: list[Effect] = []
    waiting = []
    for group in queue.waiting:
        for waiter in group:
            if waiter.lsn > queue.published:
                continue
            if waiter.lsn in dead and isinstance(waiter.answer, Accepted):
                refused = Refused(Reason.DEAD, dead[waiter.lsn])
                effects.append(Reply(waiter.ask, refused))
            else:
                answer = replace(waiter.answer, snapshot_id=snapshot_id)
                effects.append(Reply(waiter.ask, answer))
        left = tuple(waiter for waiter in group if waiter.lsn > queue.published)
        if left:
            waiting.append(left)
    queue, granted = _granted(replace(queue, waiting=tuple(waiting)))
    return queue, effects + granted


def _failed(queue: Queue, event: FlushFailed) -> tuple[Queue, list[Effect]]:
    batch = queue.flushing
    assert batch is not None
    failures = queue.failures + 1
    pause_ms = min(_PAUSE_MS * 2 ** min(failures, 10), _PAUSE_MS_MAX)
    queue = replace(
        queue,
        flushing=None,
        failures=failures,
        retry_at_ms=event.now_ms + pause_ms,
        last_error=event.why,
    )
    if not event.permanent or failures < _FAILURES_MAX:
        return _before_it(replace(queue, sealed=(batch, *queue.sealed)))
    if batch.first == batch.last:
        buried = replace(queue, published=batch.last, failures=0, retry_at_ms=0)
        buried, effects = _told(buried, None, {batch.last: event.why})
        return buried, [Bury(batch.last, event.why), *effects]
    return _before_it(
        replace(
            queue,
            sealed=(*_halves(batch), *queue.sealed),
            failures=_FAILURES_MAX - 1,  # the halves are known to be suspect
            retry_at_ms=0,
        )
    )


def _before_it(queue: Queue) -> tuple[Queue, list[Effect]]:
    """Grant the holds that wait for nothing but the end of the batch that has failed."""
    holds = tuple(
        hold if hold.drains or hold.granted else replace(hold, lsn=queue.published)
        for hold in queue.holds
    )
    return _granted(replace(queue, holds=holds))


def _halves(batch: Batch) -> tuple[Batch, Batch]:
    middle = (batch.first + batch.last) // 2
    rows, size_bytes = batch.rows // 2, batch.size_bytes // 2
    return (
        replace(batch, last=middle, rows=rows, size_bytes=size_bytes),
        replace(
            batch,
            first=middle + 1,
            rows=batch.rows - rows,
            size_bytes=batch.size_bytes - size_bytes,
        ),
    )
