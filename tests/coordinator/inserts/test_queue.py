"""What happens to a table's small inserts: each decision, and thousands of orders of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paimon_magics.coordinator.inserts.queue.events import (
    Append,
    Arrived,
    BeginFlush,
    Bury,
    Closed,
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
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Answer,
    Arrival,
    Batch,
    Flushed,
    Granted,
    Known,
    Mode,
    Queue,
    Reason,
    Refused,
    Thresholds,
    backlog,
)

THRESHOLDS = Thresholds(rows=10, data_bytes=1_000, interval_ms=100, soft_bytes=600, hard_bytes=900)
EMPTY = Queue(THRESHOLDS)


def insert(ask: int, rows: int = 1, size_bytes: int = 10, **other: object) -> Arrival:
    return Arrival(ask, rows, size_bytes)._replace(**other)


def run(queue: Queue, *events: Event) -> tuple[Queue, list[object]]:
    """The last state, and all effects."""
    done: list[object] = []
    for event in events:
        queue, effects = step(queue, event)
        done += effects
    return queue, done


def answers(effects: list[object]) -> dict[int, Answer]:
    return {effect.ask: effect.answer for effect in effects if isinstance(effect, Reply)}


def test_insert_is_answered_after_its_append() -> None:
    queue, effects = run(EMPTY, Arrived((insert(1), insert(2)), 0))
    assert effects == [
        Append(((1, insert(1)), (2, insert(2)))),
        Reply(1, Accepted(1, Mode.ASYNC)),
        Reply(2, Accepted(2, Mode.ASYNC)),
    ]
    assert queue.open == Batch(1, 2, 2, 20, 0)


@pytest.mark.parametrize(
    ("events", "flushed"),
    [
        ([Arrived((insert(1, rows=10),), 0)], Batch(1, 1, 10, 10, 0)),
        ([Arrived((insert(1), insert(2, rows=9)), 0)], Batch(1, 2, 10, 20, 0)),
        ([Arrived((insert(1, size_bytes=899),), 0), Ticked(99)], None),
        ([Arrived((insert(1),), 5), Ticked(105)], Batch(1, 1, 1, 10, 5)),
        ([Arrived((insert(1),), 5), Ticked(104)], None),
        ([Arrived((insert(1),), 5), FlushRequested(2, 6)], Batch(1, 1, 1, 10, 5)),
        ([Arrived((insert(1),), 5), HoldRequested("h", 2, 6)], Batch(1, 1, 1, 10, 5)),
        ([Arrived((insert(1), insert(2, mode=Mode.OFF)), 0)], Batch(1, 1, 1, 10, 0)),
    ],
)
def test_batch_is_flushed_at_its_thresholds(events: list[Event], flushed: Batch | None) -> None:
    effects = run(EMPTY, *events)[1]
    begun = [effect.batch for effect in effects if isinstance(effect, BeginFlush)]
    assert begun == ([] if flushed is None else [flushed])


def test_batch_is_sealed_at_its_byte_threshold() -> None:
    queue = replace(EMPTY, thresholds=replace(THRESHOLDS, data_bytes=50))
    queue, effects = run(queue, Arrived(tuple(insert(n, size_bytes=20) for n in range(4)), 0))
    assert [e.batch for e in effects if isinstance(e, BeginFlush)] == [Batch(1, 3, 3, 60, 0)]
    assert queue.open == Batch(4, 4, 1, 20, 0)


def test_batches_are_flushed_in_order_without_overlap() -> None:
    queue, _ = run(EMPTY, Arrived((insert(1, rows=10), insert(2, rows=10)), 0))
    assert (queue.flushing, queue.sealed) == (Batch(1, 1, 10, 10, 0), (Batch(2, 2, 10, 10, 0),))
    queue, effects = run(queue, Published(7, 1))
    assert effects == [BeginFlush(Batch(2, 2, 10, 10, 0))]
    assert (queue.published, queue.snapshot_id) == (1, 7)


def test_synchronous_insert_is_answered_when_its_rows_are_visible() -> None:
    queue, effects = run(EMPTY, Arrived((insert(1, mode=Mode.SYNC),), 0), FlushRequested(2, 1))
    assert answers(effects) == {}
    queue, effects = run(queue, Published(4, 2))
    assert answers(effects) == {
        1: Accepted(1, Mode.SYNC, snapshot_id=4),
        2: Flushed(1, 4),
    }
    assert answers(run(queue, FlushRequested(3, 3))[1]) == {3: Flushed(1, 4)}


def test_off_mode_insert_gets_its_own_batch() -> None:
    arrivals = (insert(1), insert(2, mode=Mode.OFF), insert(3))
    queue, _ = run(EMPTY, Arrived(arrivals, 0))
    assert [(b.first, b.last) for b in queue.batches] == [(1, 1), (2, 2), (3, 3)]


class TestRepeatedInserts:
    LABELLED = insert(1, key="l:a", digest=b"x")

    def test_the_same_label_gets_the_first_answer(self) -> None:
        again = self.LABELLED._replace(ask=2, known=Known(1, b"x"))
        queue = run(EMPTY, Arrived((self.LABELLED,), 0))[0]
        assert run(queue, Arrived((again,), 1)) == (
            queue,
            [Reply(2, Accepted(1, Mode.ASYNC, duplicate=True))],
        )

    @pytest.mark.parametrize("mode", [Mode.SYNC, Mode.OFF])
    def test_repeat_of_a_visible_insert_names_a_snapshot_that_has_it(self, mode: Mode) -> None:
        first = self.LABELLED._replace(mode=mode)
        events = [Arrived((first,), 0), FlushRequested(3, 1), Published(4, 2)]
        queue = run(EMPTY, *events)[0]
        again = first._replace(ask=2, known=Known(1, b"x"))
        effects = run(queue, Arrived((again,), 3))[1]
        assert answers(effects) == {2: Accepted(1, mode, duplicate=True, snapshot_id=4)}

    def test_same_label_within_a_group_gets_the_first_answer(self) -> None:
        effects = run(EMPTY, Arrived((self.LABELLED, self.LABELLED._replace(ask=2)), 0))[1]
        assert answers(effects)[2] == Accepted(1, Mode.ASYNC, duplicate=True)

    def test_label_reused_for_other_rows_is_refused(self) -> None:
        other = self.LABELLED._replace(ask=2, digest=b"y")
        answer = answers(run(EMPTY, Arrived((self.LABELLED, other), 0))[1])[2]
        assert isinstance(answer, Refused)
        assert answer.reason is Reason.MISMATCH

    def test_synchronous_repeat_waits_for_visibility(self) -> None:
        again = self.LABELLED._replace(ask=2, mode=Mode.SYNC, known=Known(1, b"x"))
        queue, effects = run(EMPTY, Arrived((self.LABELLED,), 0), Arrived((again,), 1))
        assert 2 not in answers(effects)
        queue, effects = run(queue, FlushRequested(3, 2), Published(9, 3))
        seen = Accepted(1, Mode.SYNC, duplicate=True, snapshot_id=9)
        assert answers(effects)[2] == seen
        late = answers(run(queue, Arrived((again._replace(ask=4),), 4))[1])[4]
        assert late == seen

    @pytest.mark.parametrize(
        ("offset", "last", "known", "expected"),
        [
            (5, None, None, Accepted(1, Mode.ASYNC)),
            (5, 4, None, Accepted(1, Mode.ASYNC)),
            (4, 4, Known(77, b"x"), Accepted(77, Mode.ASYNC, duplicate=True)),
            (4, 4, Known(77, b"y"), Reason.MISMATCH),
            (3, 4, None, Accepted(0, Mode.ASYNC, duplicate=True)),
            (6, 4, None, Reason.RANGE),
        ],
    )
    def test_offsets_of_a_channel_follow_each_other(
        self, offset: int, last: int | None, known: Known | None, expected: object
    ) -> None:
        arrival = insert(1, key="c:a", offset=offset, digest=b"x", known=known, last_offset=last)
        answer = answers(run(EMPTY, Arrived((arrival,), 0))[1])[1]
        assert (answer.reason if isinstance(answer, Refused) else answer) == expected

    @pytest.mark.parametrize(("first", "last"), [(4, 9), (None, None)])
    def test_offset_before_the_first_of_its_channel_is_refused(
        self, first: int | None, last: int | None
    ) -> None:
        named = partial(insert, key="c:a", digest=b"x", last_offset=last, first_offset=first)
        begin = [] if last is not None else [named(1, offset=4), named(2, offset=5)]
        queue, effects = run(EMPTY, Arrived((*begin, named(3, offset=3)), 0))
        answer = answers(effects)[3]
        assert isinstance(answer, Refused)
        assert answer.reason is Reason.BEFORE
        assert queue.acknowledged == len(begin)

    def test_offsets_within_a_group_are_checked(self) -> None:
        arrivals = [insert(n, key="c:a", offset=n, digest=b"x", last_offset=0) for n in (1, 2, 2)]
        arrivals.append(insert(9, key="c:a", offset=4, digest=b"x", last_offset=0))
        queue, effects = run(EMPTY, Arrived(tuple(arrivals), 0))
        assert queue.acknowledged == 2
        assert answers(effects)[2] == Accepted(2, Mode.ASYNC, duplicate=True)
        assert isinstance(answers(effects)[9], Refused)


def test_insert_larger_than_the_hard_limit_is_refused() -> None:
    queue = replace(EMPTY, thresholds=replace(THRESHOLDS, hard_bytes=1200))
    _, effects = run(queue, Arrived((insert(1, size_bytes=1201), insert(2, size_bytes=1200)), 0))
    refused = answers(effects)[1]
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.retry_after_ms) == (Reason.LARGE, 0)
    assert "1,201 bytes" in refused.message
    assert answers(effects)[2] == Accepted(1, Mode.ASYNC)


def test_large_backlog_delays_inserts_and_full_backlog_refuses_them() -> None:
    events = Arrived(tuple(insert(n, size_bytes=300) for n in range(1, 6)), 0)
    queue, effects = run(replace(EMPTY, thresholds=replace(THRESHOLDS, hard_bytes=1200)), events)
    given = answers(effects)
    assert given[1] == Accepted(1, Mode.ASYNC)
    assert given[3] == Accepted(3, Mode.ASYNC)
    assert 4 not in given  # it waits
    refused = given[5]
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.retry_after_ms) == (Reason.FULL, 1_000)
    assert backlog(queue) == (4, 1200)
    _, effects = run(queue, FlushRequested(6, 1), Published(1, 2))
    seen = answers(effects)[4]
    assert isinstance(seen, Accepted)
    assert (seen.mode, seen.fallback) == (Mode.SYNC, "900 bytes wait to be loaded")


def test_failed_flush_is_retried_before_later_batches() -> None:
    queue, _ = run(EMPTY, Arrived((insert(1, rows=10), insert(2, rows=10)), 0))
    queue, effects = run(queue, FlushFailed("no disk", 10), Ticked(300))
    assert (effects, queue.last_error) == ([], "no disk")
    queue, effects = run(queue, Ticked(500))
    assert effects == [BeginFlush(Batch(1, 1, 10, 10, 0))]


def test_unclear_batch_is_settled_before_anything_else() -> None:
    queue, _ = run(EMPTY, Arrived((insert(1, rows=10), insert(2, rows=10)), 0))
    queue, effects = run(
        queue, HoldRequested("h", 3, 5), FlushUnclear("no answer", 10), Ticked(300)
    )
    assert (effects, queue.last_error) == ([], "no answer")
    settled, effects = run(queue, Ticked(500))
    assert effects == [SettleFlush(Batch(1, 1, 10, 10, 0))]
    assert run(settled, Ticked(9_000))[1] == []
    assert run(settled, Published(7, 600))[1] == [BeginFlush(Batch(2, 2, 10, 10, 0))]
    again, effects = run(settled, FlushUnclear("still none", 600), FlushRequested(4, 700))
    assert effects == [SettleFlush(Batch(1, 1, 10, 10, 0))]
    assert run(again, FlushFailed("not there", 800), Ticked(99_000))[1] == [
        BeginFlush(Batch(1, 1, 10, 10, 0))
    ]


def test_unloadable_record_is_isolated_by_bisection_and_buried() -> None:
    queue, effects = run(EMPTY, Arrived(tuple(insert(n, mode=Mode.SYNC) for n in range(1, 9)), 0))
    queue, effects = run(queue, FlushRequested(99, 0))
    published: list[int] = []
    given: dict[int, Answer] = {}
    now_ms = 0
    for _ in range(200):
        now_ms += 10_000
        begun = [effect.batch for effect in effects if isinstance(effect, BeginFlush)]
        given |= answers(effects)
        if begun:
            batch = begun[0]
            if batch.first <= 6 <= batch.last:
                event: Event = FlushFailed("bad", now_ms, permanent=True)
            else:
                published += range(batch.first, batch.last + 1)
                event = Published(1, now_ms)
        else:
            event = Ticked(now_ms)
        queue, effects = run(queue, event)
        if any(isinstance(effect, Bury) for effect in effects):
            assert effects == [Bury(6, "bad")]
            queue, effects = run(queue, Published(None, now_ms, ((6, "bad"),)))
    assert published == [1, 2, 3, 4, 5, 7, 8]
    assert given[6] == Refused(Reason.DEAD, "bad")
    assert sorted(given) == [1, 2, 3, 4, 5, 6, 7, 8, 99]


class TestHolds:
    def test_a_statement_gets_its_place_between_the_inserts(self) -> None:
        queue, effects = run(EMPTY, Arrived((insert(1),), 0), HoldRequested("h", 2, 1))
        assert 2 not in answers(effects)
        queue, effects = run(queue, Published(3, 2))
        assert answers(effects) == {2: Granted(1)}
        queue, effects = run(queue, Arrived((insert(3, rows=10),), 3), Ticked(500))
        assert answers(effects) == {3: Accepted(2, Mode.ASYNC)}
        assert queue.flushing is None
        queue, effects = run(queue, HoldEnded("h", 600))
        assert effects == [BeginFlush(Batch(2, 2, 10, 10, 3))]

    def test_hold_ended_before_its_grant_is_refused(self) -> None:
        queue, _ = run(EMPTY, Arrived((insert(1, rows=10),), 0), HoldRequested("h", 2, 0))
        answer = answers(run(queue, HoldEnded("h", 50))[1])[2]
        assert isinstance(answer, Refused)
        assert answer.reason is Reason.LATE

    def test_reading_hold_waits_for_the_running_flush_and_stops_the_next(self) -> None:
        queue, _ = run(EMPTY, Arrived((insert(1, rows=10), insert(2, rows=10)), 0))
        queue, effects = run(queue, HoldRequested("h", 3, 1, drains=False))
        assert answers(effects) == {}
        done, effects = run(queue, Published(1, 2))
        assert answers(effects) == {3: Granted(1)}
        assert done.flushing is None
        assert run(done, HoldEnded("h", 3))[0].flushing is not None
        failed, effects = run(queue, FlushFailed("disk", 2))
        assert answers(effects) == {3: Granted(0)}
        assert run(failed, Ticked(900))[0].flushing is None

    def test_refusing_hold_rejects_inserts_until_it_ends(self) -> None:
        queue, _ = run(EMPTY, HoldRequested("h", 1, 0, refuses=True))
        answer = answers(run(queue, Arrived((insert(2),), 1))[1])[2]
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.retry_after_ms) == (Reason.BUSY, 1_000)
        assert answers(run(queue, HoldEnded("h", 2), Arrived((insert(2),), 3))[1])[2] == Accepted(
            1, Mode.ASYNC
        )

    def test_hold_without_a_backlog_is_granted_at_once(self) -> None:
        assert answers(run(EMPTY, HoldRequested("h", 1, 0))[1]) == {1: Granted(0)}


def test_batch_that_takes_too_long_is_cut_in_halves_and_a_single_record_is_not() -> None:
    queue, _ = run(EMPTY, Arrived((insert(1, rows=3), insert(2, rows=3), insert(3, rows=4)), 0))
    assert queue.flushing == Batch(1, 3, 10, 30, 0)
    queue, effects = run(queue, FlushFailed("long", 1, large=True))
    assert effects == [BeginFlush(Batch(1, 2, 5, 15, 0))]
    assert queue.sealed == (Batch(3, 3, 5, 15, 0),)
    assert queue.failures == 0
    queue, _ = run(queue, Published(1, 2), FlushFailed("long", 3, large=True))
    assert queue.sealed == (Batch(3, 3, 5, 15, 0),), "it is tried again"
    assert queue.failures == 1


def test_a_closed_table_takes_and_loads_nothing_until_it_is_opened() -> None:
    queue, effects = run(
        EMPTY, Arrived((insert(1),), 0), Closed("lost", 1), Arrived((insert(2),), 2), Ticked(500)
    )
    assert answers(effects)[2] == Refused(Reason.CLOSED, "lost")
    assert queue.flushing is None
    assert run(queue, Closed("", 501))[1] == [BeginFlush(Batch(1, 1, 1, 10, 0))]


def test_closing_a_table_answers_all_waiters() -> None:
    events = [
        Arrived((insert(1, mode=Mode.SYNC),), 0),
        FlushRequested(2, 1),
        HoldRequested("h", 3, 1),
    ]
    queue, effects = run(EMPTY, *events, Closed("lost", 2), FlushRequested(4, 3))
    closed = Refused(Reason.CLOSED, "lost")
    assert answers(effects) == {
        1: Accepted(1, Mode.ASYNC, fallback="lost"),
        2: closed,
        3: closed,
        4: closed,
    }
    assert (queue.waiting, queue.holds) == ((), ())


@dataclass
class World:
    """What the shell keeps: the log, the table, the dead letters, and what clients were told."""

    log: list[Arrival] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    said: dict[int, Answer] = field(default_factory=dict)


class Orders(RuleBasedStateMachine):
    """Any order of inserts, repeats, flushes, failures, holds and deaths.

    A death loses the state, and the outcome of the batch under way may be either; what comes after
    it is made of the log and the table alone.
    """

    labels = st.sampled_from(["", "", "", "l:a", "l:b", "l:c"])
    modes = st.sampled_from([Mode.ASYNC, Mode.ASYNC, Mode.SYNC, Mode.OFF])

    @initialize()
    def start(self) -> None:
        self.queue = EMPTY
        self.world = World()
        self.now_ms = 0
        self.asked = 0
        self.flush: Batch | None = None
        self.unsettled: bool | None = None  # whether the batch is in the table, once unclear
        self.burial: int | None = None
        self.poison: set[int] = set()
        self.of_ask: dict[int, Arrival] = {}
        self.holds: set[str] = set()
        self.hold_places: dict[str, int] = {}

    def happen(self, event: Event, *, log_works: bool = True) -> None:
        queue, effects = step(self.queue, event)
        for effect in effects:
            match effect:
                case Append(inserts=inserts):
                    if not log_works:
                        return  # nothing has happened
                    for lsn, arrival in inserts:
                        self.world.log.append(arrival)
                        assert lsn == len(self.world.log)
                case Reply(ask=ask, answer=answer):
                    assert ask not in self.world.said
                    self.world.said[ask] = answer
                    if isinstance(answer, Granted):
                        hold = next(h for h in queue.holds if h.ask == ask)
                        assert len(self.world.table) + len(self.world.dead) == hold.lsn
                        self.hold_places[hold.id] = hold.lsn
                case BeginFlush(batch=batch):
                    assert self.flush is None
                    self.flush = batch
                case SettleFlush(batch=batch):
                    assert self.flush is None
                    self.flush = batch
                case Bury(lsn=lsn):
                    assert lsn in self.poison
                    self.burial = lsn
        self.queue = queue

    def known(self, key: str) -> Known | None:
        found = [n for n, arrival in enumerate(self.world.log, 1) if key and arrival.key == key]
        return Known(found[0], self.world.log[found[0] - 1].digest) if found else None

    @rule(
        requests=st.lists(
            st.tuples(labels, modes, st.sampled_from([b"x", b"x", b"y"]), st.integers(1, 12)),
            min_size=1,
            max_size=4,
        ),
        log_works=st.sampled_from([True, True, True, False]),
    )
    def arrive(self, requests: list[tuple[str, Mode, bytes, int]], log_works: bool) -> None:
        arrivals = []
        for key, mode, digest, rows in requests:
            self.asked += 1
            arrivals.append(
                insert(
                    self.asked,
                    rows=rows,
                    mode=mode,
                    key=key,
                    digest=digest if key else b"",
                    known=self.known(key),
                )
            )
            self.of_ask[self.asked] = arrivals[-1]
        self.happen(Arrived(tuple(arrivals), self.now_ms), log_works=log_works)

    @rule(milliseconds=st.integers(1, 5_000))
    def tick(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.happen(Ticked(self.now_ms))
        held = {hold.id for hold in self.queue.holds}
        self.hold_places = {id: lsn for id, lsn in self.hold_places.items() if id in held}

    @rule()
    def ask_flush(self) -> None:
        self.asked += 1
        self.happen(FlushRequested(self.asked, self.now_ms))

    @rule(id=st.sampled_from(["h", "i"]))
    def ask_hold(self, id: str) -> None:
        if id not in {hold.id for hold in self.queue.holds}:
            self.asked += 1
            self.happen(HoldRequested(id, self.asked, self.now_ms))

    @rule(id=st.sampled_from(["h", "i"]))
    def end_hold(self, id: str) -> None:
        self.hold_places.pop(id, None)
        self.happen(HoldEnded(id, self.now_ms))

    @precondition(lambda self: self.flush is not None)
    @rule(done=st.booleans())
    def flush_gets_unclear(self, done: bool) -> None:
        batch, self.flush = self.flush, None
        assert batch is not None
        lsns = range(batch.first, batch.last + 1)
        if self.unsettled is None:
            self.unsettled = done and not self.poison.intersection(lsns)
            self.world.table += lsns if self.unsettled else ()
        self.happen(FlushUnclear("no answer", self.now_ms))

    @precondition(lambda self: self.burial is not None)
    @rule(unclear=st.booleans())
    def burial_ends(self, unclear: bool) -> None:
        lsn, self.burial = self.burial, None
        assert lsn is not None
        self.world.dead.append(lsn)
        if unclear:
            self.unsettled = True
            self.happen(FlushUnclear("no answer", self.now_ms))
        else:
            self.happen(Published(None, self.now_ms, ((lsn, "bad"),)))

    @precondition(lambda self: self.flush is not None)
    @rule(bad=st.sampled_from([False, False, True]))
    def flush_ends(self, bad: bool) -> None:
        batch, self.flush = self.flush, None
        assert batch is not None
        lsns = range(batch.first, batch.last + 1)
        is_there, self.unsettled = self.unsettled, None
        if is_there is not None:
            dead = tuple((lsn, "bad") for lsn in lsns if lsn in self.world.dead)
            if is_there:
                self.happen(Published(None, self.now_ms, dead))
            else:
                self.happen(FlushFailed("cut off", self.now_ms))
        elif self.poison.intersection(lsns):
            self.happen(FlushFailed("bad", self.now_ms, permanent=True))
        elif bad:
            self.happen(FlushFailed("store", self.now_ms))
        else:
            self.world.table += lsns
            self.happen(Published(len(self.world.table), self.now_ms))

    @precondition(lambda self: self.world.log)
    @rule(data=st.data())
    def spoil(self, data: st.DataObject) -> None:
        unseen = range(len(self.world.table) + len(self.world.dead) + 1, len(self.world.log) + 1)
        if unseen and len(self.poison) < 2:
            self.poison.add(data.draw(st.sampled_from(unseen)))

    @rule(published=st.booleans())
    def die(self, published: bool) -> None:
        batch = self.flush
        if batch is not None:
            lsns = range(batch.first, batch.last + 1)
            is_new = self.unsettled is None
            if is_new and published and not self.poison.intersection(lsns):
                self.world.table += lsns
        self.flush = self.unsettled = self.burial = None
        done = len(self.world.table) + len(self.world.dead)
        last = len(self.world.log)
        rest = self.world.log[done:]
        rows, size_bytes = sum(a.rows for a in rest), sum(a.size_bytes for a in rest)
        self.queue = replace(
            EMPTY,
            next_lsn=last + 1,
            published=done,
            sealed=(Batch(done + 1, last, rows, size_bytes, self.now_ms),) if rest else (),
        )
        self.hold_places.clear()

    @invariant()
    def the_table_has_the_log_in_its_order(self) -> None:
        table, dead = self.world.table, self.world.dead
        assert sorted(table + dead) == list(range(1, len(table) + len(dead) + 1))
        assert table == sorted(table)

    @invariant()
    def what_was_said_is_true(self) -> None:
        for ask, answer in self.world.said.items():
            if isinstance(answer, Accepted):
                first = self.world.log[answer.lsn - 1]
                asked = self.of_ask[ask]
                assert first.ask == ask or (
                    answer.duplicate and (first.key, first.digest) == (asked.key, asked.digest)
                )
                if answer.mode is not Mode.ASYNC:
                    assert answer.lsn in self.world.table or answer.lsn in self.world.dead
            if isinstance(answer, Flushed):
                assert len(self.world.table) + len(self.world.dead) >= answer.lsn

    @invariant()
    def a_label_is_in_the_log_once(self) -> None:
        keys = [arrival.key for arrival in self.world.log if arrival.key]
        assert len(keys) == len(set(keys))

    @invariant()
    def nothing_passes_a_hold(self) -> None:
        done = len(self.world.table) + len(self.world.dead)
        assert all(done <= lsn for lsn in self.hold_places.values())

    def teardown(self) -> None:
        """When all works, what was acknowledged gets into the table or is a dead letter."""
        if not hasattr(self, "queue"):
            return
        for id in ("h", "i"):
            self.happen(HoldEnded(id, self.now_ms))
        for _ in range(300):
            if self.flush is not None:
                self.flush_ends(bad=False)
            elif self.burial is not None:
                self.burial_ends(unclear=False)
            else:
                self.tick(20_000)
            if self.queue.published == len(self.world.log):
                break
        assert len(self.world.table) + len(self.world.dead) == len(self.world.log)
        assert set(self.world.dead) <= self.poison


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
