"""The thread that owns the queues: everybody who asks gets an answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.idempotency_keys import Remembered
from paimon_magics.coordinator.inserts.log.log import Appended, LogTable
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Flushed, Mode
from paimon_magics.coordinator.protocol.errors import BrokeOffError
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.errors import SetupError, UnknownNameError
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.tables.commits.fencing import DeposedError
from tests.coordinator.inserts.kept import Kept
from tests.coordinator.inserts.serving import SLOW, TABLE, table_sql
from tests.coordinator.process import wait_until


class Troubled(DatabaseLog):
    """A log that does not answer for a moment, or never again, when it is asked for a label."""

    trouble: Exception | None = None
    append_error: BaseException | None = None
    is_held, is_clear = threading.Event(), threading.Event()
    is_held.set()
    is_clear.set()

    def append(self, groups: Sequence[Appended]) -> None:
        super().append(groups)
        error, Troubled.append_error = self.append_error, None
        if error is not None:
            raise error
        if not self.is_clear.is_set():
            raise StoreUnavailableError("The answer is lost.", unclear=True)

    def tables(self) -> list[LogTable]:
        self.is_held.wait(30)
        return super().tables()

    def remembered(self, location: str, keys: Sequence[str]) -> dict[str, Remembered]:
        if self.trouble is not None:
            trouble, Troubled.trouble = self.trouble, None
            raise trouble
        return super().remembered(location, keys)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    made = Kept(tmp_path, lambda: Troubled(SqliteDatabase(tmp_path / "log.sqlite")))
    made.start()
    return made


def test_insert_fails_when_its_label_cannot_be_looked_up(kept: Kept) -> None:
    Troubled.trouble = StoreUnavailableError("The disk is full.")
    with pytest.raises(StoreUnavailableError, match="full"):
        kept.insert(1, "one")
    assert kept.insert(1, "one") == Accepted(1, Mode.ASYNC)
    assert kept.group.owner.replies.counts["records"] == 1
    kept.end()


def test_insert_fails_when_the_log_is_lost_during_label_lookup(kept: Kept) -> None:
    Troubled.trouble = StoreLostError("It is another one.")
    with pytest.raises(SetupError, match="stopped: It is another one"):
        kept.insert(1, "one")
    assert kept.group.problem
    kept.end()


def test_buffered_read_waits_for_the_log_after_a_restart(kept: Kept) -> None:
    kept.insert(1)
    kept.end()
    Troubled.is_held.clear()
    try:
        kept.start()
        table_info = kept.group.known_tables.load("default", "t")
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(lambda: waited(kept.group.buffered(table_info)))
            with pytest.raises(TimeoutError):
                answer.result(0.2)
            Troubled.is_held.set()
            assert answer.result(30).acknowledged == 1
    finally:
        Troubled.is_held.set()
        kept.end()


def test_events_during_an_unclear_append_are_not_lost(kept: Kept) -> None:
    table_info = kept.group.known_tables.load("default", "t")
    hold = kept.group.holds.take(table_info)
    assert hold.granted.result(30) == 0
    Troubled.is_clear.clear()
    try:
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(kept.insert, 1)
            wait_until(lambda: kept.group.owner.appending.is_unclear)
            kept.group.holds.end(hold)
            Troubled.is_clear.set()
            wait_until(lambda: _later(kept) and answer.done())
            assert answer.result() == Accepted(1, Mode.ASYNC)
        flushed = kept.group.flush(table_info.identity)
        assert isinstance(flushed.result(30), Flushed)
    finally:
        Troubled.is_clear.set()
        kept.end()


def test_repeated_commit_leaves_no_hold(kept: Kept) -> None:
    table_info = kept.group.known_tables.load("default", "t")
    came = [waited(kept.group.holds.commit(table_info.name, "me")) for _ in range(2)]
    for hold in came:
        with hold:
            pass  # to be prepared anew
    with waited(kept.group.holds.commit(table_info.name, "me")) as publish:
        publish()
    wait_until(lambda: not kept.group.tables[table_info.identity].queue.holds)
    kept.end()


def _later(kept: Kept) -> bool:
    """Let time pass."""
    kept.now_ms += 100
    return True


class PanicException(BaseException):
    """What a library in Rust raises."""


@pytest.mark.parametrize("error", [KeyError("foreign"), PanicException("foreign")])
def test_append_with_an_unexpected_error_is_made_once(kept: Kept, error: BaseException) -> None:
    Troubled.append_error = error
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(kept.insert, 1, "one")
        wait_until(lambda: kept.group.owner.appending.is_unclear)
        wait_until(lambda: _later(kept) and first.done())
        assert first.result() == Accepted(1, Mode.ASYNC)
    assert kept.insert(1, "one") == Accepted(1, Mode.ASYNC, duplicate=True)
    assert kept.insert(2) == Accepted(2, Mode.ASYNC)
    assert kept.group.problem is None
    kept.flush()
    assert kept.ids() == [1, 2]
    kept.end()


def test_insert_prepared_for_a_dropped_table_is_refused(kept: Kept) -> None:
    known = kept.group.known_tables.load("default", "t")
    kept.catalog.drop_table(TABLE)
    statement = parse_statement(table_sql(options=SLOW))
    kept.catalog.create_table(TABLE, plan_create_table(statement))
    answer: Future[Answer] = Future()
    validated = known.validator.json(b'{"rows": [[1, "a"]]}')
    kept.group.submit(Insert(known, validated, Mode.ASYNC, answer, "", -1, b""))
    with pytest.raises(UnknownNameError, match="dropped"):
        answer.result(30)
    kept.group.known_tables.forget(TABLE)
    assert kept.insert(2) == Accepted(1, Mode.ASYNC)
    kept.flush()
    assert kept.ids() == [2]
    kept.end()


def test_drop_of_a_damaged_table_refuses_later_inserts(kept: Kept) -> None:
    kept.insert(1)
    kept.flush()
    known = kept.group.known_tables.load("default", "t")
    schema = Path(known.location) / "schema/schema-0"
    schema.write_text("")
    assert kept.group.holds.has_queue(TABLE)
    with waited(kept.group.holds.change(TABLE, drops=True)):
        pass  # the table goes here
    answer: Future[Answer] = Future()
    validated = known.validator.json(b'{"rows": [[2, "a"]]}')
    kept.group.submit(Insert(known, validated, Mode.ASYNC, answer, "", -1, b""))
    with pytest.raises(UnknownNameError, match="dropped"):
        answer.result(30)
    kept.end()


def _submitted(kept: Kept, id: int, mode: Mode = Mode.ASYNC) -> Future[Answer]:
    """The future of the answer to an insert without a label."""
    table_info = kept.group.known_tables.load("default", "t")
    validated = table_info.validator.json(b'{"rows": [[%d, "a"]]}' % id)
    answer: Future[Answer] = Future()
    kept.group.submit(Insert(table_info, validated, mode, answer))
    return answer


def test_insert_has_an_unknown_outcome_when_the_log_is_lost_in_append(
    kept: Kept,
) -> None:
    kept.insert(1)
    Troubled.append_error = StoreLostError("It is another one.")
    with pytest.raises(BrokeOffError, match=r"not known whether .* It is another one"):
        _submitted(kept, 2).result(30)
    with pytest.raises(SetupError, match="stopped: It is another one") as raised:
        _submitted(kept, 3).result(30)
    assert not isinstance(raised.value, BrokeOffError)
    kept.end()
    kept.start()
    kept.flush()
    assert kept.ids() == [1, 2]
    kept.end()


def test_unclear_append_refuses_only_inserts_behind_it(
    kept: Kept,
) -> None:
    kept.insert(1)
    Troubled.is_clear.clear()
    try:
        given = _submitted(kept, 2)
        wait_until(lambda: kept.group.owner.appending.is_unclear)
        behind = _submitted(kept, 3)
        wait_until(lambda: _later(kept) and given.done() and behind.done())
        with pytest.raises(BrokeOffError, match="not known whether the rows were accepted"):
            given.result()
        with pytest.raises(
            StoreUnavailableError, match="not accepted, because the log does not work"
        ):
            behind.result()
        Troubled.is_clear.set()
        wait_until(lambda: _later(kept) and not kept.group.owner.appending.is_unclear)
        kept.flush()
        assert kept.ids() == [1, 2]
    finally:
        Troubled.is_clear.set()
        kept.end()


def test_synchronous_insert_has_an_unknown_outcome_after_deposition(
    kept: Kept,
) -> None:
    kept.insert(1)
    table_info = kept.group.known_tables.load("default", "t")
    hold = kept.group.holds.take(table_info)
    assert hold.granted.result(30) is not None
    waiting = _submitted(kept, 2, Mode.SYNC)
    wait_until(lambda: kept.group.tables[table_info.identity].queue.acknowledged == 2)
    flush = kept.group.flush(table_info.identity)
    kept.group.owner.depose(DeposedError("Another one owns it.", address="http://there"))
    with pytest.raises(BrokeOffError, match=r"not known whether .* Another one owns it") as raised:
        waiting.result(30)
    assert (raised.value.address, raised.value.may_repeat) == ("http://there", False)
    with pytest.raises(DeposedError):
        flush.result(30)
    with pytest.raises(DeposedError):
        _submitted(kept, 3).result(30)
    kept.end()


def test_synchronous_insert_has_an_unknown_outcome_at_shutdown(kept: Kept) -> None:
    table_info = kept.group.known_tables.load("default", "t")
    hold = kept.group.holds.take(table_info)
    assert hold.granted.result(30) is not None
    waiting = _submitted(kept, 1, Mode.SYNC)
    wait_until(lambda: kept.group.tables[table_info.identity].queue.acknowledged == 1)
    kept.end()
    with pytest.raises(BrokeOffError, match="not known whether the rows were accepted"):
        waiting.result(30)
