"""Number the inserts that arrive together, put them into batches, and answer them. Pure.

An insert with the label, or the channel and offset, of an earlier insert gets the same answer, or
is refused if it differs. An insert is also refused if the backlog is full, or while the table
accepts none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.queue.events import Append, Effect, Reply
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Arrival,
    Batch,
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
    """The state after inserts that arrive together, and the effects."""
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
