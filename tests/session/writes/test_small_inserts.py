"""Small inserts of a session, through a real coordinator, and without one."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.errors import InvalidValueError, SetupError, UnknownNameError
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AlterTable
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics.session.session import Session

pytestmark = pytest.mark.spark

SLOW = "'group_commit_interval_ms' = '600000'"


@pytest.fixture
def events(coordinated: Session) -> Session:
    """A session with an empty table `events` that takes small inserts."""
    coordinated.run(
        "DROP TABLE IF EXISTS events; CREATE TABLE events (id BIGINT NOT NULL, kind STRING "
        f"DEFAULT 'new') TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})"
    )
    return coordinated


def stored(session: Session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT id, kind FROM events")


def queue_names(session: Session) -> list[str]:
    names: list[str] = session.administration.queues().to_arrow()["table"].to_pylist()
    return names


def test_rows_in_every_form_are_acknowledged_and_visible_after_flush(events: Session) -> None:
    outcome = events.insert("events", [(1, "a"), (2, None)])
    assert str(outcome) == (
        "INSERT INTO `default.events`: 2 rows acknowledged (record 1), loaded with others soon."
    )
    events.insert("events", {"id": 3})
    events.insert("events", [{"id": 4, "kind": "b"}, {"id": 5}])
    events.insert("events", pa.table({"id": [6], "kind": ["c"]}))
    events.insert("events", pa.table({"id": [7], "kind": ["d"]}).to_pandas())
    assert stored(events) == []
    flushed = events.flush("events")
    assert (
        str(flushed) == "All inserts of `default.events` up to record 5 are visible (snapshot 1)."
    )
    assert stored(events) == [
        (1, "a"),
        (2, "new"),
        (3, "new"),
        (4, "b"),
        (5, "new"),
        (6, "c"),
        (7, "d"),
    ]


def test_visible_wait_returns_after_insert_is_visible(events: Session) -> None:
    outcome = events.insert("events", [(1, "a")], wait="visible")
    assert "visible in snapshot 1" in str(outcome)
    assert (outcome.snapshot_id, stored(events)) == (1, [(1, "a")])
    with pytest.raises(InvalidValueError, match="can't be 'seen'"):
        events.insert("events", [(2, "a")], wait="seen")  # type: ignore[arg-type]


def test_repeated_label_does_not_insert_again(events: Session) -> None:
    for _ in range(3):
        outcome = events.insert("events", [(1, "a")], label="one")
    assert "before, under this label (record 1)" in str(outcome)
    with pytest.raises(InvalidValueError, match="used before"):
        events.insert("events", [(2, "a")], label="one")
    for label in ("", " one", "o\nne", "x" * 129):
        with pytest.raises(InvalidValueError, match="is not valid"):
            events.insert("events", [(2, "a")], label=label)
    again = [events.insert("events", [(3, "c")], label="größe 🐟") for _ in range(2)]
    assert "before, under this label (record 2)" in str(again[1])
    events.flush("events")
    assert stored(events) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([(1, "a"), ("x", "a")], "Column `id` takes BIGINT; 'x' of row 2 does not fit"),
        ([(1,)], "Row 1 has 1 value, but the table has 2 columns"),
        ([(1, "a"), (2, "b", "c")], "Row 2 has 3 values, but"),
        ([1, 2], "Row 1 is not a tuple of 2 values: 1"),
        (["ab"], "Row 1 is not a tuple of 2 values: 'ab'"),
        ([(1, "a"), {"id": 2}], "Row 2 is not a tuple of 2 values: {'id': 2}"),
        ([(None, "a")], "`id` is NOT NULL"),
        ("text", "can't be inserted"),
        ({"id": 2**70}, "Column `id` takes BIGINT; 1180591620717411303424 of row 1"),
        (pa.table({"id": ["five"]}), "column `id`"),
    ],
)
def test_rows_not_matching_the_schema_are_refused(
    events: Session, given: object, said: str
) -> None:
    with pytest.raises(InvalidValueError, match=re.escape(said)) as caught:
        events.insert("events", given)
    if "Column" in said:
        assert "whole number from -9223372036854775808" in caught.value.hint
    elif isinstance(given, list) and given[0] != (None, "a"):
        assert "The columns are `id` BIGINT NOT NULL, `kind` STRING" in caught.value.hint
    with pytest.raises(UnknownNameError, match="no column `knd`"):
        events.insert("events", {"id": 1, "knd": "a"})


def test_insert_values_goes_to_log_and_other_statements_see_its_rows(
    events: Session,
) -> None:
    outcome = events.run("INSERT INTO events VALUES (1, upper('a')), (2, NULL)")
    assert "2 rows acknowledged (record 1)" in str(outcome)
    events.run("INSERT INTO events (id) VALUES (3)")
    assert stored(events) == []
    events.run("INSERT INTO events SELECT id + 10, kind FROM events WHERE id < 3")
    assert stored(events) == [(1, "A"), (2, "new"), (3, "new"), (11, "A"), (12, "new")]
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


def test_wait_option_decides_when_insert_returns(events: Session) -> None:
    durable = events.run("INSERT INTO events VALUES (1, 'a')", wait="durable")
    assert "loaded with others soon" in str(durable)
    visible = events.run("INSERT INTO events VALUES (2, 'b')", wait="visible")
    assert "visible in snapshot 1" in str(visible)
    assert [id for id, _ in stored(events)] == [1, 2]
    events.run("ALTER TABLE events SET TBLPROPERTIES ('group_commit_mode' = 'sync_mode')")
    durable = events.run("INSERT INTO events VALUES (3, 'c')", wait="durable")
    assert "loaded with others soon" in str(durable)
    with pytest.raises(InvalidValueError, match="`wait` can't be 'soon'"):
        events.run("SELECT 1", wait="soon")  # type: ignore[arg-type]


def test_concurrent_inserts_of_threads_and_tasks_are_all_answered(events: Session) -> None:
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
    actual = [id for id, _ in stored(events)]
    assert [id for id in actual if id >= 1000] == list(range(1000, 1050))  # type: ignore[operator]
    for number in range(5):
        own = [id for id in actual if number * 100 <= id < number * 100 + 100]  # type: ignore[operator]
        assert own == list(range(number * 100, number * 100 + 20))


def test_queue_shows_waiting_rows_and_dead_letters(events: Session) -> None:
    events.run("DROP TABLE events")
    events.run(
        "CREATE TABLE events (id BIGINT, kind STRING) "
        f"TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})"
    )
    events.insert("events", [(1, None)])

    def queue() -> dict[str, object]:
        actual = events.administration.queues("events").to_arrow().to_pylist()
        assert len(actual) == 1
        return dict(actual[0])

    shown = queue()
    assert (shown["table"], shown["state"], shown["mode"]) == (
        "default.events",
        "open",
        "async_mode",
    )
    assert (shown["acknowledged"], shown["visible"], shown["waiting_rows"]) == (1, 0, 1)
    live = events.reports.queue()
    assert live.summary == (
        "The coordinator accepts new transactions; 0 transactions open; "
        "1 row of small inserts waits"
    )
    assert live.refresh is not None
    assert str(live.refresh()) == str(live)
    # Beside the session, so that nothing is loaded before.
    name = TableName("events", "default")
    from paimon_magics.statements.grammar.parsing import parse_statement
    from paimon_magics.statements.table_changes import AlterTable

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
    assert [(each["record"], each["rows"]) for each in letters] == [(1, 1)]
    events.run("ALTER TABLE events ALTER COLUMN kind DROP NOT NULL")
    assert "record 2" in str(events.administration.retry("events", 1))
    events.flush("events")
    assert stored(events) == [(1, None)]
    with pytest.raises(UnknownNameError, match="no dead letter 1"):
        events.administration.discard("events", 1)
    events.close()
    assert live.refresh() is None, "a view that goes on is over with its session"


def test_without_a_coordinator_rows_are_committed_at_once(session: Session) -> None:
    session.run("CREATE TABLE events (id INT) TBLPROPERTIES ('auto_batch_load' = 'true')")
    outcome = session.insert("events", [(1,)])
    assert outcome.snapshot_id == 1
    assert "this session has no coordinator" in str(outcome)
    assert session.run("INSERT INTO events VALUES (2)").snapshot_id == 2
    with pytest.raises(InvalidValueError, match="can't have a label"):
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

    def test_inserts_during_a_request_are_sent_together(self, tmp_path: Path) -> None:
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


class TestTheBuffer:
    """Rows that are acknowledged and not loaded, seen together with the table."""

    def made(self, session: Session, name: str, columns: str, options: str = "") -> None:
        session.run(
            f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns}) TBLPROPERTIES "
            f"('auto_batch_load' = 'true', {SLOW}{options})"
        )

    def seen(self, session: Session, query: str) -> list[tuple[object, ...]]:
        found = session.run(query, include_buffer=True).to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def test_query_shows_buffered_rows_on_request(self, events: Session) -> None:
        assert self.seen(events, "SELECT count(*) FROM events") == [(0,)]
        events.insert("events", [(1, "a")])
        assert self.seen(events, "SELECT * FROM events") == [(1, "a")]
        events.flush("events")
        events.insert("events", {"id": 2})
        assert self.seen(events, "SELECT e.id, kind FROM events AS e") == [(1, "a"), (2, "new")]
        assert self.seen(events, "SELECT count(*) FROM events WHERE id > 1") == [(1,)]
        assert stored(events) == [(1, "a")]  # without it, what is loaded
        frame = events.table("events", include_buffer=True)
        assert sorted(row["id"] for row in frame.collect()) == [1, 2]
        assert events.table("events").count() == 1
        # What has a place in time has no buffer.
        assert self.seen(events, "SELECT id FROM events VERSION AS OF 1") == [(1,)]
        events.flush("events")
        assert sorted(row["id"] for row in frame.collect()) == [1, 2]

    def test_buffered_rows_are_read_with_current_schema(self, events: Session) -> None:
        self.made(events, "changing", "a INT, b STRING")
        events.insert("changing", [(1, "x")])
        events.flush("changing")
        # Changed behind the session's back: nothing is loaded before it.
        catalog = events.catalog
        for change in ("RENAME COLUMN b TO c", "ADD COLUMN d INT", "ALTER COLUMN a TYPE BIGINT"):
            events.insert("changing", {"a": 2})
            statement = parse_statement(f"ALTER TABLE changing {change}")
            assert isinstance(statement, AlterTable)
            catalog.alter_table(TableName("changing", "default"), statement.changes)
            time.sleep(1.1)
        events.insert("changing", {"d": 5})
        expected = [(1, "x", None), *[(2, None, None)] * 3, (None, None, 5)]
        assert self.seen(events, "SELECT a, c, d FROM changing") == expected
        events.flush("changing")
        assert self.seen(events, "SELECT a, c, d FROM changing") == expected

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            pytest.param("", [(1, 20, None), (2, 7, "b"), (3, 1, "c")], marks=pytest.mark.soak),
            pytest.param(
                *(", 'merge-engine' = 'partial-update'", [(1, 20, "a"), (2, 7, "b"), (3, 1, "c")]),
                marks=pytest.mark.soak,
            ),
            (
                ", 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum'",
                [(1, 31, "a"), (2, 7, "b"), (3, 1, "c")],
            ),
            (", 'sequence.field' = 'n'", [(1, 20, None), (2, 9, "new"), (3, 1, "c")]),
        ],
    )
    def test_buffered_rows_of_a_key_are_merged_as_after_flush(
        self, events: Session, options: str, expected: list[tuple[object, ...]]
    ) -> None:
        columns = "k INT NOT NULL, n INT, v STRING"
        self.made(events, "keyed", columns, f", 'primary-key' = 'k', 'bucket' = '2'{options}")
        events.insert("keyed", [(1, 1, "a"), (3, 1, "c")])
        if "sequence" in options:
            events.insert("keyed", [(2, 9, "new")])
        events.flush("keyed")
        events.insert("keyed", [(1, 10, None), (2, 7, "b")])
        events.insert("keyed", {"k": 1, "n": 20})
        query = "SELECT k, n, v FROM keyed"
        assert self.seen(events, query) == expected
        assert self.seen(events, "SELECT n FROM keyed WHERE k = 1") == [(expected[0][1],)]
        events.flush("keyed")
        assert self.seen(events, query) == expected
        assert events.run("SELECT count(*) AS n FROM keyed").to_arrow()["n"][0].as_py() == 3

    def test_buffer_is_refused_without_coordinator(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        import paimon_magics

        with paimon_magics.connect(
            tmp_path / "warehouse", spark=spark, coordinator="in-process"
        ) as session:
            session.run("CREATE TABLE e (a INT) TBLPROPERTIES ('auto_batch_load' = 'true')")
            with pytest.raises(InvalidValueError, match="this session has no coordinator"):
                session.run("SELECT * FROM e", include_buffer=True)
            session.run("CREATE TABLE f (a INT)")
            assert session.run("SELECT * FROM f", include_buffer=True).to_arrow().num_rows == 0


def test_rename_loads_buffered_rows_and_drop_ends_the_queue(events: Session) -> None:
    events.insert("events", [(1, "a")])
    events.run("ALTER TABLE events RENAME TO moved")
    assert events.run("SELECT id FROM moved").to_arrow()["id"].to_pylist() == [1]
    events.insert("moved", [(2, "b")])
    events.run("DROP TABLE moved")
    assert not {"default.events", "default.moved"}.intersection(queue_names(events))
    with pytest.raises(UnknownNameError):
        events.insert("moved", [(3, "c")])


def test_dropping_database_removes_queues_of_its_tables(events: Session) -> None:
    events.run(
        "CREATE DATABASE gone; CREATE TABLE gone.t (id BIGINT) "
        f"TBLPROPERTIES ('auto_batch_load' = 'true', {SLOW})"
    )
    events.insert("gone.t", [(1,)])
    events.run("DROP DATABASE gone CASCADE")
    assert "gone.t" not in queue_names(events)


def test_job_takes_its_place_between_earlier_and_later_inserts(
    events: Session,
) -> None:
    events.run(
        "DROP TABLE IF EXISTS keyed; CREATE TABLE keyed (id BIGINT NOT NULL, name STRING) "
        f"TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1', 'auto_batch_load' = 'true', {SLOW})"
    )
    done = threading.Event()
    last = ""

    def insert() -> None:
        nonlocal last
        for number in range(1_000_000):
            if done.is_set():
                return
            events.insert("keyed", [(1, str(number))])
            last = str(number)

    events.insert("keyed", [(1, "before")])
    thread = threading.Thread(target=insert)
    thread.start()
    outcome = events.run("INSERT INTO keyed SELECT id, 'job' FROM range(1, 3)")
    time.sleep(0.1)  # something comes after it, too
    done.set()
    thread.join()

    def found(query: str) -> dict[int, str]:
        return {row["id"]: row["name"] for row in events.run(query).to_arrow().to_pylist()}

    query = f"SELECT id, name FROM keyed VERSION AS OF {outcome.snapshot_id}"
    assert found(query) == {1: "job", 2: "job"}
    events.flush("keyed")
    assert found("SELECT id, name FROM keyed") == {1: last, 2: "job"}


def test_row_changes_keep_their_place_among_inserts(events: Session) -> None:
    events.run(
        "CREATE TABLE kept (id BIGINT NOT NULL, n INT, PRIMARY KEY (id) NOT ENFORCED) "
        f"TBLPROPERTIES ('bucket' = '2', 'auto_batch_load' = 'true', {SLOW})"
    )
    # What was acknowledged a moment before is found, and what comes after is not touched.
    events.insert("kept", [(1, 1), (2, 2), (3, 3)])
    assert events.run("DELETE FROM kept WHERE id + 0 = 1").rows_deleted == 1
    events.insert("kept", [(1, 10), (4, 4)])
    assert events.update("kept", {"n": "n + 1"}, "id IN (1, 2)").rows_updated == 2
    events.insert("kept", [(2, 20)])
    merged = events.merge(pa.table({"id": [2, 4, 5]}), "kept", on="id")
    merged.when_matched_delete(condition="t.n < 20").when_not_matched_insert(
        {"id": "id", "n": "0"}
    ).run()
    events.insert("kept", [(4, 40)])
    assert events.delete("kept", "id = 5 OR n < 0").rows_deleted == 1
    events.flush("kept")
    assert rows(events, "SELECT * FROM kept ORDER BY id") == [(1, 11), (2, 20), (3, 3), (4, 40)]


def test_empty_insert_acknowledges_zero_rows(events: Session) -> None:
    assert "0 rows acknowledged" in str(events.insert("events", []))


def test_unsupported_layout_is_committed_at_once_with_a_note(
    events: Session,
) -> None:
    events.run(
        "DROP TABLE IF EXISTS moving; CREATE TABLE moving (id BIGINT NOT NULL, p STRING) "
        "PARTITIONED BY (p) TBLPROPERTIES ('primary-key' = 'id', 'auto_batch_load' = 'true')"
    )
    for outcome in (
        events.run("INSERT INTO moving VALUES (1, 'a')"),
        events.insert("moving", [(1, "b"), (2, "b")]),
    ):
        (note,) = [each for each in outcome.notes if each.startswith("Committed at once")]
        assert "can move between partitions" in note
    events.run("INSERT OVERWRITE moving PARTITION (p = 'b') VALUES (3)")
    actual = events.run("SELECT id, p FROM moving").to_arrow().to_pylist()
    assert actual == [{"id": 3, "p": "b"}]
    events.run("ALTER TABLE moving SET TBLPROPERTIES ('auto_batch_load' = 'false')")
    events.run("ALTER TABLE moving SET TBLPROPERTIES ('auto_batch_load' = 'true')")
    events.run("DROP TABLE moving")
