"""The state machine of one table's small inserts. Pure.

`step(queue, event)` returns the next state and the effects, which a shell carries out in order.
When an effect fails, the state stays as it was: nothing after the failed effect has happened.

An insert's life:

    arrived ── checked ──> appended to the log ──> acknowledged ──> in the open batch
      open batch ── rows, bytes, time, a flush, a hold ──> sealed ──> flushing ──> published
      flushing ── failed ──> waits, and again ── failed for good ──> in halves ──> a dead letter
      flushing ── unclear ──> waits, and settled ──> published, or failed

Invariants: lsns have no gaps and follow the order of acknowledgement. Batches are published one at
a time, in that order. Nothing is acknowledged before it was appended. A repeat of an insert, by its
label or its channel and offset, gets the same answer or is refused, and is never appended.

A hold is a place in that order for a statement other than a small insert. It is granted when
everything before it is published; until it ends, nothing after it is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.queue.events import (
    Append,
    Arrived,
    BeginFlush,
    Bury,
    Closed,
    Effect,
    Event,
    FlushFailed,
    FlushRequested,
    FlushUnclear,
    HoldEnded,
    HoldRequested,
    Published,
    Reply,
    SettleFlush,
    Ticked,
)
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Arrival,
    Batch,
    Flushed,
    Granted,
    Hold,
    Known,
    Mode,
    Queue,
    Reason,
    Refused,
    Waiter,
    backlog,
    is_full,
)

_BUSY_MS = 1_000
_OFF_WAITING_MAX = 64  # each is a separate commit, for which all later inserts wait


def arrive(queue: Queue, arrivals: Iterable[Arrival], now_ms: int) -> tuple[Queue, list[Effect]]:
    """Number the inserts that arrive together, put them into batches, and answer them; return the
    next state and the effects.

    An insert is also refused if the backlog is full, or while the table accepts none.
    """
    group = _Group(queue, now_ms)
    for arrival in arrivals:
        group.take(arrival)
    return group.taken()


class _Group:
    """The state while inserts that arrive together are taken one after the other."""

    def __init__(self, queue: Queue, now_ms: int) -> None:
        self._queue = queue
        self._now_ms = now_ms
        self._backlog_bytes = backlog(queue)[1]
        self._known: dict[tuple[str, int], Known] = {}
        self._first_offsets: dict[str, int] = {}
        self._last_offsets: dict[str, int] = {}
        self._inserts: list[tuple[int, Arrival]] = []
        self._replies: list[Effect] = []
        self._waiters: list[Waiter] = []
        self._sealed = list(queue.sealed)
        self._open: _OpenBatch | None = None
        batch = queue.open
        if batch is not None:  # `astuple` would copy each number deeply, in each turn
            self._open = _OpenBatch(
                batch.first, batch.last, batch.rows, batch.size_bytes, batch.since_ms
            )
        self._is_refusing = any(hold.refuses for hold in queue.holds)

    def take(self, arrival: Arrival) -> None:
        """Give an insert an lsn; or answer it without an lsn, as a repeat or as refused."""
        answer = self._answer_of_repeated(arrival) if arrival.key else None
        if answer is None and arrival.is_repeat_only:
            answer = Refused(Reason.NEW, "no accepted insert has its name")
        if answer is None:
            answer = self._refusal(arrival)
        if answer is None:
            self._accept(arrival)
        elif isinstance(answer, Accepted) and arrival.mode is not Mode.ASYNC:
            self._wait(arrival, answer)
        else:
            self._replies.append(Reply(arrival.ask, answer))

    def taken(self) -> tuple[Queue, list[Effect]]:
        """The state after all inserts, and the effects."""
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

    def _answer_of_repeated(self, arrival: Arrival) -> Answer | None:
        """The answer to a repeated insert, or to an insert that does not follow the last insert of
        its channel; None for a new insert.
        """
        known = self._known.get((arrival.key, arrival.offset), arrival.known)
        if known is not None:
            if known.digest != arrival.digest:
                return Refused(Reason.MISMATCH, "the earlier insert had different rows")
            return Accepted(known.lsn, Mode.ASYNC, duplicate=True)
        last = self._last_offsets.get(arrival.key, arrival.last_offset)
        if arrival.offset < 0 or last is None or arrival.offset == last + 1:
            return None
        first = self._first_offsets.get(arrival.key, arrival.first_offset)
        if first is not None and arrival.offset < first:
            return Refused(
                Reason.BEFORE,
                f"its offset is {arrival.offset}, but its channel begins with {first}, so it was "
                "never accepted",
            )
        if arrival.offset <= last:
            return Accepted(0, Mode.ASYNC, duplicate=True)
        return Refused(
            Reason.RANGE,
            f"its offset is {arrival.offset}, but the next offset of its channel is {last + 1}",
        )

    def _refusal(self, arrival: Arrival) -> Refused | None:
        queue = self._queue
        if queue.closed:
            return Refused(Reason.CLOSED, queue.closed)
        if self._is_refusing:
            return Refused(Reason.BUSY, "a statement is changing it", _BUSY_MS)
        if arrival.mode is Mode.OFF and len(self._sealed) >= _OFF_WAITING_MAX:
            waits = f"{len(self._sealed)} commits of inserts wait in it"
            return Refused(Reason.FULL, waits, _BUSY_MS)
        if arrival.size_bytes > queue.thresholds.hard_bytes:
            most = f"at most {queue.thresholds.hard_bytes:,} bytes may wait in it"
            return Refused(Reason.LARGE, f"it has {arrival.size_bytes:,} bytes, and {most}")
        if self._backlog_bytes + arrival.size_bytes > queue.thresholds.hard_bytes:
            after_ms = max(1_000, min(queue.thresholds.interval_ms, 10_000))
            return Refused(Reason.FULL, f"{self._backlog_bytes:,} bytes wait in it", after_ms)
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
                if arrival.last_offset is None:
                    self._first_offsets.setdefault(arrival.key, arrival.offset)
                self._last_offsets[arrival.key] = arrival.offset
        self._add_to_batch(lsn, arrival)
        answer = Accepted(lsn, mode, fallback=fallback, trouble=self._queue.last_error)
        if mode is Mode.ASYNC:
            self._replies.append(Reply(arrival.ask, answer))
        else:
            self._waiters.append(Waiter(arrival.ask, lsn, answer))

    def _wait(self, arrival: Arrival, answer: Accepted) -> None:
        answer = answer._replace(mode=arrival.mode)
        if answer.lsn <= self._queue.published:
            if answer.lsn:  # visible in the last snapshot, as what a flush waits for
                answer = answer._replace(snapshot_id=self._queue.snapshot_id)
            self._replies.append(Reply(arrival.ask, answer))
        else:
            self._waiters.append(Waiter(arrival.ask, answer.lsn, answer))

    def _add_to_batch(self, lsn: int, arrival: Arrival) -> None:
        if arrival.mode is Mode.OFF:
            self._seal()
        batch = self._open
        if batch is None:
            batch = self._open = _OpenBatch(lsn, lsn, 0, 0, self._now_ms)
        batch.last = lsn
        batch.rows += arrival.rows
        batch.size_bytes += arrival.size_bytes
        if arrival.mode is Mode.OFF or is_full(
            batch.rows, batch.size_bytes, self._queue.thresholds
        ):
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


_FAILURES_MAX = 3
"""How often writing a batch is tried before the batch is split in halves."""

_PAUSE_MS = 200
_PAUSE_MS_MAX = 10_000


def step(queue: Queue, event: Event) -> tuple[Queue, tuple[Effect, ...]]:
    """The next state, and the effects in their order."""
    match event:
        case Arrived(arrivals=arrivals, now_ms=now_ms):
            queue, effects = arrive(queue, arrivals, now_ms)
        case FlushRequested(ask=ask):
            queue, effects = _ask_flush(queue, ask)
        case HoldRequested():
            queue, effects = _ask_hold(queue, event)
        case HoldEnded(id=id):
            queue, effects = _without_hold(queue, id)
        case Published():
            queue, effects = _published(queue, event)
        case FlushFailed():
            queue, effects = _failed(queue, event)
        case FlushUnclear():
            queue, effects = _unclear(queue, event)
        case Closed(why=why):
            queue, effects = _close(queue, why)
        case Ticked(thresholds=thresholds):
            queue = queue if thresholds is None else replace(queue, thresholds=thresholds)
            effects = []
    queue, following = _go_on(queue, event.now_ms)
    return queue, (*effects, *following)


# ------------------------------------------------------------------------------------- waiting


def _sealed(queue: Queue) -> Queue:
    if queue.open is None:
        return queue
    return replace(queue, sealed=(*queue.sealed, queue.open), open=None)


def _close(queue: Queue, why: str) -> tuple[Queue, list[Effect]]:
    """Close the table (`why`), or open it (""). Closing answers all waiters, since it may last for
    days; the answer to a waiting insert says that it is durable."""
    queue = replace(queue, closed=why, retry_at_ms=0)
    return _not_waiting(queue, Reason.CLOSED, why) if why else (queue, [])


def _not_waiting(queue: Queue, reason: Reason, why: str) -> tuple[Queue, list[Effect]]:
    """Answer all waiters for rows that will not become visible for now."""
    effects: list[Effect] = []
    for group in queue.waiting:
        for waiter in group:
            answer: Answer = Refused(reason, why)
            if isinstance(waiter.answer, Accepted):
                answer = waiter.answer._replace(mode=Mode.ASYNC, fallback=why)
            effects.append(Reply(waiter.ask, answer))
    late = [Reply(h.ask, Refused(reason, why)) for h in queue.holds if not h.granted]
    holds = tuple(hold for hold in queue.holds if hold.granted)
    return replace(queue, waiting=(), holds=holds), [*effects, *late]


def _ask_flush(queue: Queue, ask: int) -> tuple[Queue, list[Effect]]:
    lsn = queue.acknowledged
    if queue.closed and lsn > queue.published:
        return queue, [Reply(ask, Refused(Reason.CLOSED, queue.closed))]
    if lsn <= queue.published:
        return queue, [Reply(ask, Flushed(lsn, queue.snapshot_id))]
    waiter = Waiter(ask, lsn, Flushed(lsn))
    # The caller wants it now: a batch that failed before is tried at once.
    return replace(_sealed(queue), waiting=(*queue.waiting, (waiter,)), retry_at_ms=0), []


def _ask_hold(queue: Queue, event: HoldRequested) -> tuple[Queue, list[Effect]]:
    if queue.closed:
        return queue, [Reply(event.ask, Refused(Reason.CLOSED, queue.closed))]
    lsn = queue.acknowledged
    if event.drains:
        queue = replace(_sealed(queue), retry_at_ms=0)
    else:
        lsn = queue.published if queue.flushing is None else queue.flushing.last
    hold = Hold(
        event.id,
        event.ask,
        lsn,
        drains=event.drains,
        refuses=event.refuses,
        passes=event.passes,
    )
    return _granted(replace(queue, holds=(*queue.holds, hold)))


def _granted(queue: Queue) -> tuple[Queue, list[Effect]]:
    """Grant the holds whose turn it is."""
    due = [h for h in queue.holds if not h.granted and h.lsn <= queue.published]
    if not due:
        return queue, []
    holds = tuple(replace(h, granted=True) if h in due else h for h in queue.holds)
    return replace(queue, holds=holds), [Reply(h.ask, Granted(h.lsn)) for h in due]


def _without_hold(queue: Queue, id: str) -> tuple[Queue, list[Effect]]:
    ended = [hold for hold in queue.holds if hold.id == id]
    late = Refused(Reason.LATE, queue.last_error or "loading them takes a long time")
    holds = tuple(hold for hold in queue.holds if hold.id != id)
    return replace(queue, holds=holds), [Reply(h.ask, late) for h in ended if not h.granted]


# ------------------------------------------------------------------------------------ flushing


def _go_on(queue: Queue, now_ms: int) -> tuple[Queue, list[Effect]]:
    """If it is time, begin the next batch, or determine the outcome of the last batch."""
    if queue.unsettled and queue.flushing is not None and now_ms >= queue.retry_at_ms:
        return replace(queue, unsettled=False), [SettleFlush(queue.flushing)]
    if queue.flushing is not None or queue.closed or now_ms < queue.retry_at_ms:
        return queue, []
    if not queue.sealed and queue.open is not None:
        is_old = now_ms - queue.open.since_ms >= queue.thresholds.interval_ms
        if is_old or is_full(queue.open.rows, queue.open.size_bytes, queue.thresholds):
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
        unsettled=False,
        published=last,
        failures=0,
        retry_at_ms=0,
        last_error="",
        snapshot_id=queue.snapshot_id if event.snapshot_id is None else event.snapshot_id,
    )
    return _answer_waiters(queue, event.snapshot_id, dict(event.dead))


def _answer_waiters(
    queue: Queue, snapshot_id: int | None, dead: dict[int, str]
) -> tuple[Queue, list[Effect]]:
    """Answer the waiters up to `published`, and grant the holds whose turn it is."""
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
                answer = waiter.answer._replace(snapshot_id=snapshot_id)
                if isinstance(answer, Accepted):
                    answer = answer._replace(trouble="")
                effects.append(Reply(waiter.ask, answer))
        left = tuple(waiter for waiter in group if waiter.lsn > queue.published)
        if left:
            waiting.append(left)
    queue, granted = _granted(replace(queue, waiting=tuple(waiting)))
    return queue, effects + granted


def _failed(queue: Queue, event: FlushFailed) -> tuple[Queue, list[Effect]]:
    batch = queue.flushing
    assert batch is not None
    if event.large and batch.first < batch.last:
        halves = (*_halves(batch), *queue.sealed)
        return _before_it(replace(queue, flushing=None, unsettled=False, sealed=halves))
    failures = queue.failures + 1
    queue = replace(_waits(queue, event), flushing=None, unsettled=False)
    if not event.permanent or failures < _FAILURES_MAX:
        queue, granted = _before_it(replace(queue, sealed=(batch, *queue.sealed)))
        if not event.refused:
            return queue, granted
        # Only other credentials change this: waiters hear now that their rows are durable.
        queue, replies = _not_waiting(queue, Reason.STORE, event.why)
        return queue, granted + replies
    if batch.first == batch.last:
        return replace(queue, flushing=batch), [Bury(batch.last, event.why)]
    return _before_it(
        replace(
            queue,
            sealed=(*_halves(batch), *queue.sealed),
            failures=_FAILURES_MAX - 1,  # the halves are suspect: the next gets one try
            retry_at_ms=0,
        )
    )


def _unclear(queue: Queue, event: FlushUnclear) -> tuple[Queue, list[Effect]]:
    """Wait, then determine the outcome. Before that, nothing else is loaded, and no hold is
    granted.
    """
    assert queue.flushing is not None
    return replace(_waits(queue, event), unsettled=True), []


def _waits(queue: Queue, event: FlushFailed | FlushUnclear) -> Queue:
    failures = queue.failures + 1
    pause_ms = min(_PAUSE_MS * 2 ** min(failures, 10), _PAUSE_MS_MAX)
    return replace(
        queue, failures=failures, retry_at_ms=event.now_ms + pause_ms, last_error=event.why
    )


def _before_it(queue: Queue) -> tuple[Queue, list[Effect]]:
    """Grant the holds that waited only for the end of the failed batch, and holds that pass a
    repeatedly failing batch: their statement may be what ends the failures.
    """
    fails = queue.failures >= _FAILURES_MAX
    holds = tuple(
        replace(hold, lsn=queue.published)
        if not hold.granted and (not hold.drains or (hold.passes and fails))
        else hold
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
