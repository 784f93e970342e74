"""Small inserts of a session, through a real coordinator, and without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from paimon_magics.coordinator.inserting import SmallInserts
from paimon_magics.errors import InvalidValueError, SetupError, UnknownNameError
from paimon_magics.statements.statement import TableName
from tests.coordinator.process import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics.session.session import Session

pytestmark = pytest.mark.spark

SLOW = "'group_commit_interval_ms' = '600000'"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("inserting")
    (folder / "warehouse").mkdir()
    process = Process(folder / "warehouse", folder / "state")
    process.start()
    yield process
    process.close()


@pytest.fixture
def events(
    spark: SparkSession, process: Process, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """A session with an empty table `events` that takes small inserts."""
    import paimon_magics

    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
    with paimon_magics.connect(coordinator=process.address, spark=spark) as session:
        session.run(
            "DROP TABLE IF EXISTS events; CREATE TABLE events (id BIGINT NOT NULL, kind STRING "
            f"DEFAULT 'new') TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})"
        )
        yield session


def rows(session: Session) -> list[tuple[object, ...]]:
    found = session.run("SELECT id, kind FROM events").to_arrow().to_pylist()
    return [tuple(row.values()) for row in found]


def test_rows_of_all_kinds_are_acknowledged_and_visible_after_a_flush(events: Session) -> None:
    outcome = events.insert("events", [(1, "a"), (2, None)])
    assert str(outcome) == (
        "INSERT INTO `default.events`: 2 rows acknowledged (record 1), loaded with others soon."
    )
    events.insert("events", {"id": 3})
    events.insert("events", [{"id": 4, "kind": "b"}, {"id": 5}])
    events.insert("events", pa.table({"id": [6], "kind": ["c"]}))
    events.insert("events", pa.table({"id": [7], "kind": ["d"]}).to_pandas())
    assert rows(events) == []
    flushed = events.flush("events")
    assert (
        str(flushed) == "All inserts of `default.events` up to record 5 are visible (snapshot 1)."
    )
    assert rows(events) == [
        (1, "a"),
        (2, "new"),
        (3, "new"),
        (4, "b"),
        (5, "new"),
        (6, "c"),
        (7, "d"),
    ]


def test_who_waits_sees_what_was_inserted(events: Session) -> None:
    outcome = events.insert("events", [(1, "a")], wait="visible")
    assert "visible in snapshot 1" in str(outcome)
    assert (outcome.snapshot_id, rows(events)) == (1, [(1, "a")])
    with pytest.raises(InvalidValueError, match="can't be 'seen'"):
        events.insert("events", [(2, "a")], wait="seen")  # type: ignore[arg-type]


def test_a_label_makes_it_safe_to_insert_again(events: Session) -> None:
    for _ in range(3):
        outcome = events.insert("events", [(1, "a")], label="one")
    assert "before, under this label (record 1)" in str(outcome)
    with pytest.raises(InvalidValueError, match="used before"):
        events.insert("events", [(2, "a")], label="one")
    events.flush("events")
    assert rows(events) == [(1, "a")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("x", "a")], "do not fit"),
        ([(1,)], "1 values, but the table has 2 columns"),
        ([(None, "a")], "`id` is NOT NULL"),
        ("text", "can't be inserted"),
    ],
)
def test_rows_that_do_not_fit_are_refused(events: Session, given: object, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        events.insert("events", given)
    with pytest.raises(UnknownNameError, match="no column `knd`"):
        events.insert("events", {"id": 1, "knd": "a"})


def test_values_of_a_cell_are_a_small_insert_and_other_statements_see_them(
    events: Session,
) -> None:
    outcome = events.run("INSERT INTO events VALUES (1, upper('a')), (2, NULL)")
    assert "2 rows acknowledged (record 1)" in str(outcome)
    events.run("INSERT INTO events (id) VALUES (3)")
    assert rows(events) == []
    events.run("INSERT INTO events SELECT id + 10, kind FROM events WHERE id < 3")
    assert rows(events) == [(1, "A"), (2, "new"), (3, "new"), (11, "A"), (12, "new")]
    events.insert("events", [(4, "x")])
    events.run("ALTER TABLE events RENAME COLUMN kind TO sort")
    assert events.run(
        "SELECT max(sort) AS m, count(*) AS n FROM events"
    ).to_arrow().to_pylist() == [{"m": "x", "n": 6}]
    events.insert("events", [(5, "y")])
    events.run("INSERT OVERWRITE events VALUES (9, 'o')")
    assert events.run("SELECT id FROM events").to_arrow().to_pylist() == [{"id": 9}]
    events.insert("events", [(10, "z")])
    events.run("TRUNCATE TABLE events")
    assert events.run("SELECT id FROM events").to_arrow().num_rows == 0


def test_threads_and_tasks_share_requests_and_each_gets_its_answer(events: Session) -> None:
    def insert(number: int) -> None:
        for n in range(20):
            events.insert("events", [(number * 100 + n, "t")])

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def insert_all() -> list[int | None]:
        outcomes = await asyncio.gather(
            *(events.insert_async("events", [(1000 + n, "a")]) for n in range(50))
        )
        return [outcome.rows_written for outcome in outcomes]

    assert asyncio.run(insert_all()) == [1] * 50
    events.flush("events")
    found = [id for id, _ in rows(events)]
    assert [id for id in found if id >= 1000] == list(range(1000, 1050))  # type: ignore[operator]
    for number in range(5):
        own = [id for id in found if number * 100 <= id < number * 100 + 100]  # type: ignore[operator]
        assert own == list(range(number * 100, number * 100 + 20))


def test_the_queue_shows_what_waits_and_what_could_not_be_loaded(events: Session) -> None:
    events.run("DROP TABLE events")
    events.run(
        "CREATE TABLE events (id BIGINT, kind STRING) "
        f"TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})"
    )
    events.insert("events", [(1, None)])

    def queue() -> dict[str, object]:
        found = events.administration.queues("events").to_arrow().to_pylist()
        assert len(found) == 1
        return dict(found[0])

    shown = queue()
    assert (shown["table"], shown["state"], shown["mode"]) == (
        "default.events",
        "open",
        "async_mode",
    )
    assert (shown["acknowledged"], shown["visible"], shown["waiting_rows"]) == (1, 0, 1)
    # Beside the session, so that nothing is loaded before.
    name = TableName("events", "default")
    from paimon_magics.statements.parsing import parse_statement
    from paimon_magics.statements.statement import AlterTable

    for change in (
        "SET TBLPROPERTIES ('alter-column-null-to-not-null.disabled' = 'false')",
        "ALTER COLUMN kind SET NOT NULL",
    ):
        statement = parse_statement(f"ALTER TABLE events {change}")
        assert isinstance(statement, AlterTable)
        events.catalog.alter_table(name, statement.changes)
    events.flush("events")
    assert (queue()["dead_letters"], queue()["visible"]) == (1, 1)
    letters = events.administration.dead_letters("events").to_arrow().to_pylist()
    assert [(one["record"], one["rows"]) for one in letters] == [(1, 1)]
    events.run("ALTER TABLE events ALTER COLUMN kind DROP NOT NULL")
    assert "record 2" in str(events.administration.retry("events", 1))
    events.flush("events")
    assert rows(events) == [(1, None)]
    with pytest.raises(UnknownNameError, match="no dead letter 1"):
        events.administration.discard("events", 1)


def test_without_a_coordinator_rows_are_committed_at_once(session: Session) -> None:
    session.run("CREATE TABLE events (id INT) TBLPROPERTIES ('auto_batch_load' = 'true')")
    outcome = session.insert("events", [(1,)])
    assert outcome.snapshot_id == 1
    assert "this session has no coordinator" in str(outcome)
    assert session.run("INSERT INTO events VALUES (2)").snapshot_id == 2
    with pytest.raises(InvalidValueError, match="labels belong to them"):
        session.insert("events", [(1,)], label="a")
    with pytest.raises(SetupError):
        session.flush("events")


class TestGathering:
    """What the client sends, seen from the coordinator's side."""

    NAME = TableName("t", "default")

    def sent(self, tmp_path: Path) -> tuple[SmallInserts, list[tuple[int, str]]]:
        seen: list[tuple[int, str]] = []
        free = threading.Event()

        def send(path: str, content: bytes, headers: object) -> object:
            assert path == "/v1/inserts/default/t"
            assert isinstance(headers, dict)
            count = pa.ipc.open_stream(content).read_all().num_rows
            seen.append((count, headers["idempotency-key"]))
            free.wait(0.05)
            return {"lsn": len(seen), "mode": "async_mode"}

        return SmallInserts(send), seen

    def test_what_comes_while_a_request_is_under_way_goes_together(self, tmp_path: Path) -> None:
        inserts, seen = self.sent(tmp_path)
        one = pa.table({"id": [1]})
        futures = [inserts.insert(self.NAME, one) for _ in range(10)]
        labelled = inserts.insert(self.NAME, one, label="mine")
        last = [inserts.insert(self.NAME, one) for _ in range(3)]
        assert [f.result().lsn for f in futures] == sorted(f.result().lsn for f in futures)
        assert labelled.result().label == "mine"
        assert [f.result().rows for f in last] == [1, 1, 1]
        inserts.close()
        assert sum(count for count, _ in seen) == 14
        assert len(seen) <= 5
        assert (1, "mine") in seen
        assert len({key for _, key in seen}) == len(seen)
        with pytest.raises(SetupError):
            inserts.insert(self.NAME, one)
