"""Results as a stream of Arrow batches, and the libraries that take an Outcome as it is."""

from __future__ import annotations

import datetime
import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, StatementError
from paimon_magics.session.outcome import Outcome
from tests.coordinator.process import wait_until
from tests.session.evidence import jobs

pytestmark = pytest.mark.spark

EVERY_TYPE = """
SELECT id, id AS Id, id AS `a.b`, timestamp_seconds(id) AS t,
  TIMESTAMP_NTZ '2026-11-20 08:00:00' AS l,
  IF(id % 2 = 0, named_struct('a', id, 't', timestamp_seconds(id)), NULL) AS s,
  array(timestamp_seconds(id)) AS list, map('k', timestamp_seconds(id)) AS m,
  parse_json('{"a": 1}') AS v, CAST(id AS DECIMAL(20, 3)) AS d, X'00' AS b,
  DATE '2026-11-20' AS day, NULL AS n, INTERVAL '1' DAY AS i
FROM range(0, 25000, 1, 3)"""
FAILS_LATE = "SELECT 1 DIV (id - 7000) AS q FROM range(0, 10000, 1, 4)"
TAKES_LONG = "SELECT sum(a.id % b.id) AS n FROM range(1, 3000000, 1, 4) a, range(1, 3000000) b"


@pytest.fixture(scope="module")
def session(module_session: Session) -> Session:
    module_session.run(
        "CREATE TABLE t (id BIGINT, v STRING); INSERT INTO t SELECT id, 'v' || id FROM range(1000)"
    )
    return module_session


def active(session: Session) -> list[int]:
    return list(session.spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "+05:30"])
def test_batches_have_the_rows_types_and_zones_of_to_arrow(session: Session, zone: str) -> None:
    session.run(f"SET spark.sql.session.timeZone = {zone}")
    try:
        outcome = session.run(EVERY_TYPE)
        whole = outcome.to_arrow()
        batches = list(outcome.to_arrow_batches())
    finally:
        session.run("RESET spark.sql.session.timeZone")
    assert len(batches) >= 3
    assert {batch.schema for batch in batches} == {whole.schema}
    assert pa.Table.from_batches(batches).equals(whole)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT id, hash(id) AS h FROM range(0, 30000, 1, 4) ORDER BY h DESC, id", 30_000),
        ("SELECT * FROM t ORDER BY v LIMIT 7", 7),
        ("SELECT id FROM t WHERE false", 0),
        ("SHOW DATABASES", 1),
    ],
)
def test_batches_keep_the_order_of_the_frame(session: Session, query: str, count: int) -> None:
    outcome = session.run(query)
    actual = outcome.to_arrow_batches().read_all()
    assert actual.num_rows == count
    assert actual.equals(outcome.to_arrow())


def test_wide_rows_come_in_small_batches(session: Session) -> None:
    """A batch of the task, of 10,000 rows, would have 100 MB."""
    outcome = session.run("SELECT repeat('x', 10000) AS v FROM range(0, 10000, 1, 1)")
    sizes = [batch.nbytes for batch in outcome.to_arrow_batches()]
    assert sum(sizes) > 100_000_000 and max(sizes) < 20_000_000


def test_large_results_are_spooled_to_temporary_files(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    query = (
        "SELECT id, repeat('x', 1000) AS v, IF(id < 0, 1, NULL) AS n FROM range(0, 200000, 1, 2)"
    )
    with session.run(query).to_arrow_batches() as batches:
        ids, spooled = [], 0
        for batch in batches:
            ids += batch.column(0).to_pylist()
            assert batch.nbytes < 20_000_000
            spooled = max(spooled, len(list(tmp_path.glob("paimon-magics-rows-*/*.arrow"))))
    assert ids == list(range(200_000)) and spooled
    del batches
    gc.collect()
    assert not list(tmp_path.glob("paimon-magics-rows-*"))


def test_job_starts_with_first_batch_and_closing_cancels_it(session: Session) -> None:
    outcome = session.run(
        "SELECT id, if(id < 100, 0, java_method('java.lang.Thread', 'sleep', 10L)) AS w "
        "FROM range(0, 20000, 1, 4)"
    )
    schema = outcome.to_arrow_batches().schema
    before = jobs(session.spark)
    with outcome.to_arrow_batches() as unread:
        pass
    assert unread.schema == schema and list(unread) == []
    assert jobs(session.spark) <= before, "Spark forgets old ones"
    session.run("SET spark.sql.execution.arrow.maxRecordsPerBatch = 100")
    try:
        with session.run("SELECT id FROM range(0, 4000, 1, 40)").to_arrow_batches() as batches:
            assert next(batches).num_rows == 100
        assert len(jobs(session.spark) - before) < 5, (
            "partitions behind the read one are not computed"
        )
    finally:
        session.run("RESET spark.sql.execution.arrow.maxRecordsPerBatch")
    wait_until(lambda: not active(session))


SLOWLY = (
    "(SELECT id, java_method('java.lang.Thread', 'sleep', bigint(id * 0 + 100)) AS w "
    "FROM range(0, 20, 1, 2))"
)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (f"SELECT t.id, w FROM t JOIN {SLOWLY} AS b ON t.id = b.id", 20),
        (f"SELECT id % 3 AS k, count(w) AS n FROM {SLOWLY} GROUP BY ALL", 3),
        (
            f"SELECT * FROM t WHERE id < (SELECT max(id) FROM {SLOWLY} WHERE w IS NULL OR id > 3)",
            19,
        ),
    ],
    ids=["broadcast", "shuffle", "subquery"],
)
def test_result_is_read_again_after_an_interrupt(session: Session, query: str, rows: int) -> None:
    """Spark keeps the broadcasts and stages of a frame, cancelled ones too."""
    outcome = session.run(query)

    def press() -> None:
        wait_until(lambda: bool(active(session)))
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        outcome.to_pandas()
    presser.join()
    assert len(outcome.to_pandas()) == rows
    assert session.run("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 1000}]


def test_an_interrupt_ends_the_stream_and_its_jobs(session: Session) -> None:
    batches = session.run(TAKES_LONG).to_arrow_batches()

    def press() -> None:
        wait_until(lambda: bool(active(session)))
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    presser.join()
    wait_until(lambda: not active(session))
    assert list(batches) == []


@pytest.mark.parametrize(
    "take",
    [
        lambda outcome: outcome.to_arrow_batches().read_all(),
        lambda outcome: list(outcome.to_arrow_batches()),
    ],
)
def test_batches_raise_the_errors_of_to_arrow(
    session: Session, take: Callable[[Outcome], object]
) -> None:
    outcome = session.run(FAILS_LATE)
    with pytest.raises(PaimonMagicsError) as whole:
        outcome.to_arrow()
    with pytest.raises(type(whole.value)) as streamed:
        take(outcome)
    assert (str(streamed.value), streamed.value.hint) == (str(whole.value), whole.value.hint)
    with pytest.raises(pa.ArrowException, match="Division by zero"):
        pa.table(outcome)


def test_outcome_without_rows_refuses_every_conversion(session: Session) -> None:
    outcome = session.run("CREATE TABLE IF NOT EXISTS without_rows (id INT)")
    released = session.run("SELECT 1")
    released.release()
    for each in (outcome, released):
        with pytest.raises(StatementError) as whole:
            each.to_arrow()
        for take in (
            each.to_arrow_batches, each.to_duckdb, each.__arrow_c_stream__, each.__arrow_c_schema__,
        ):  # fmt: skip
            with pytest.raises(StatementError) as raised:
                take()
            assert str(raised.value) == str(whole.value)


def test_duckdb_relation_can_be_queried_repeatedly(session: Session) -> None:
    outcome = session.run("SELECT id, v, IF(id = 1, NULL, named_struct('a', id)) AS s FROM t")
    relation = outcome.to_duckdb()
    session.run("INSERT INTO t VALUES (5000, 'later')")
    for _ in range(2):
        assert relation.aggregate("count(*), sum(id)").fetchall() == [(1000, 499_500)]
    assert relation.filter("id < 2").order("id").fetchall() == [
        (0, "v0", {"a": 0}),
        (1, "v1", None),
    ]
    with duckdb.connect() as connection:
        given = outcome.to_duckdb(connection)
        assert given.query("given", "SELECT max(v) FROM given").fetchall() == [("v999",)]
        given.create("kept")
        assert connection.sql("SELECT count(*) FROM kept").fetchall() == [(1000,)]
    with pytest.raises(duckdb.Error, match="Division by zero"):
        session.run(FAILS_LATE).to_duckdb().fetchall()


@pytest.mark.parametrize(
    "take",
    [
        lambda outcome: duckdb.from_arrow(outcome),
        pl.DataFrame,
        lambda outcome: pa.RecordBatchReader.from_stream(outcome),
        lambda outcome: outcome.to_arrow_batches(),
    ],
)
def test_libraries_accept_an_outcome_directly(
    session: Session, take: Callable[[Outcome], Any]
) -> None:
    outcome = session.run("SELECT id, v FROM t ORDER BY id LIMIT 500")
    taken = take(outcome)
    actual = pa.table(taken)
    assert actual.to_pylist() == outcome.to_pylist()


def test_abandoned_stream_is_cancelled_when_collected(session: Session) -> None:
    reader = pa.RecordBatchReader.from_stream(
        session.run("SELECT id FROM range(0, 100000, 1, 50)").to_arrow_batches()
    )
    before = jobs(session.spark)
    assert reader.read_next_batch().num_rows == 2_000
    reader.close()
    gc.collect()
    wait_until(lambda: not active(session))
    assert len(jobs(session.spark) - before) < 5


def test_stream_is_written_and_queried_in_bounded_memory(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other processes of the tests have rows in the folder of all.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    peaks, before = [0], pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(90):
            peaks.append(pa.total_allocated_bytes() - before)
            yield pa.record_batch(
                {"id": [number], "at": [datetime.time(8, number % 60)], "v": ["x" * 1_000_000]}
            )

    schema = next(batches()).schema
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    outcome = session.write(reader, "streamed", create=True)
    assert outcome.rows_written == 90 and max(peaks) < 60_000_000
    assert "`at` TIME" in str(session.run("SHOW CREATE TABLE streamed"))
    query = "SELECT count(*) AS c, sum(id) AS s, max(length(v)) AS l FROM {}"
    for source, frames in (("streamed", {}), ("given", {"given": reader_of(schema, batches)})):
        actual = session.run(query.format(source), frames=frames).dataframe
        assert actual is not None
        gc.collect()
        assert actual.filter("c > 0").collect()[0][:] == (90, 4005, 1_000_000)
    left = list(tmp_path.glob("paimon-magics-rows-*"))
    assert len(left) == 1, "a frame of the query may still be read, the written rows may not"


def reader_of(
    schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]
) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches())


class Producer:
    """An object of another library, of which nothing is known but Arrow's interface."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        schema = pa.schema({"id": pa.int64()})
        return reader_of(schema, lambda: self._batches).__arrow_c_stream__(requested_schema)


def test_any_arrow_stream_producer_is_written_and_queried(session: Session) -> None:
    session.run("CREATE TABLE written (id BIGINT)")
    for each in (
        Producer(iter([pa.record_batch({"id": [1]}), pa.record_batch({"id": [2]})])),
        duckdb.sql("SELECT 3::BIGINT AS id"),
        session.run("SELECT 4L AS id").to_arrow_batches(),
        session.run("SELECT 5L AS id").to_duckdb(),
        Producer(iter([])),
    ):
        session.write(each, "written")
    assert session.run("SELECT id FROM written ORDER BY id").to_arrow()["id"].to_pylist() == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip
    joined = "SELECT a.id FROM one a JOIN one b USING (id)"
    one = duckdb.sql("SELECT 7 AS id")
    assert session.run(joined, frames={"one": one}).to_pylist() == [{"id": 7}]


def test_broken_stream_leaves_nothing_behind(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes use the usual one
    spooled: list[Path] = []

    def breaks() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            yield pa.record_batch({"id": pa.array(range(5_000_000))})  # too much for memory
        spooled.extend(tmp_path.glob("paimon-magics-rows-*"))
        raise OSError("the line is down")

    with pytest.raises(InvalidValueError, match="the line is down"):
        session.write(Producer(breaks()), "broken", create=True)
    with pytest.raises(PaimonMagicsError, match="broken"):
        session.table("broken")
    assert spooled and not list(tmp_path.glob("paimon-magics-rows-*"))
