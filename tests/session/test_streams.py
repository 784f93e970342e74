"""Tables read and written as streams: each change once, whatever stops in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.session.inserts.epochs import write_epoch
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.streaming import place_of, stream_options
from paimon_magics.spark.data_source import source_at
from paimon_magics.statements.clauses.names import named
from paimon_magics.statements.statement import TableName
from tests.session.half_checkpoints import leave_half_a_write
from tests.session.rows import rows
from tests.tables.reachability import unreachable

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KEYED = "(k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2'"


@pytest.fixture
def session(module_session: Session) -> Session:
    return module_session


@pytest.fixture
def warehouse(module_warehouse: Path) -> Path:
    return module_warehouse


@pytest.fixture(scope="module")
def changing(module_session: Session) -> Session:
    """`a` with the snapshots 1 to 5: three rows, an update, a deletion, an overwrite, a row."""
    module_session.run(
        f"CREATE TABLE a {KEYED}, 'changelog-producer' = 'input');"
        "INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, 'z');"
        "INSERT INTO a VALUES (1, 'x2');"
        "DELETE FROM a WHERE k = 2;"
        "INSERT OVERWRITE a VALUES (9, 'o');"
        "INSERT INTO a VALUES (4, 'w')"
    )
    return module_session


def read(frame: DataFrame, checkpoint: Path) -> list[list[tuple[Any, ...]]]:
    """The rows of each micro-batch of a stream that ends with what there is."""
    batches: list[list[tuple[Any, ...]]] = []

    def each(batch: DataFrame, number: int) -> None:
        batches.append(sorted((tuple(row) for row in batch.collect()), key=str))

    started = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    query = started.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    return [batch for batch in batches if batch]


def reader_of(session: Session, name: str, **options: object) -> Any:
    """What Spark asks for the batches of a stream."""
    connection = session._connection
    given = {key: str(value) for key, value in options.items()}
    found = stream_options(StatementScope(connection), connection.full_name(named(name)), given)
    source = source_at(place_of(connection))({key.lower(): each for key, each in found.items()})
    return source.streamReader(source.schema())


def read_here(session: Session, name: str, **options: object) -> list[list[tuple[Any, ...]]]:
    """The same by the data source alone, whose readers run in this process, as Spark asks them."""
    reader = reader_of(session, name, **options)
    position = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    batches = []
    while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
        rows = [
            tuple(row.values())
            for part in reader.partitions(position, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        reader.commit(end)
        batches.append(sorted(rows, key=str))
        position = end
    return [batch for batch in batches if batch]


BY_READER = [False, pytest.param(True, marks=pytest.mark.soak)]
"""Whether a query of Spark's reads, or the data source alone; a process for each query."""


@pytest.mark.parametrize("by_spark", BY_READER)
def test_stream_starts_at_requested_position(
    changing: Session, tmp_path: Path, by_spark: bool
) -> None:
    starts: dict[str, dict[str, object]] = {
        "full": {},
        "from": {"scan.snapshot-id": 2},
        "full at": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": 1},
        "after": {"scan.mode": "latest"},
        "since": {"scan.timestamp-millis": 1},
    }
    first = [("+I", 1, "x"), ("+I", 2, "y"), ("+I", 3, "z")]
    later = [("+I", 1, "x2"), ("+I", 4, "w"), ("-D", 2, "y")]
    actual = {
        name: read(changing.stream("a$audit_log", **options), tmp_path / name)
        if by_spark
        else read_here(changing, "a$audit_log", **options)
        for name, options in starts.items()
    }
    assert actual == {
        "full": [[("+I", 4, "w"), ("+I", 9, "o")]],
        "from": [later],
        "full at": [first, later],
        "after": [],
        "since": [sorted(first + later, key=str)],
    }


def test_a_batch_takes_whole_snapshots_within_its_limits(changing: Session, tmp_path: Path) -> None:
    one = {"scan.snapshot-id": 1, "read.stream.maxSnapshotsPerTrigger": 1}
    actual = read_here(changing, "a", **one)
    assert [len(batch) for batch in actual] == [3, 1, 1], (
        "an overwrite is no change, and a deleted row no row"
    )
    rows_max = {"scan.snapshot-id": 1, "read.stream.maxRowsPerTrigger": 4}
    actual = read(changing.stream("a$audit_log", **rows_max), tmp_path / "rows")
    assert [len(batch) for batch in actual] == [4, 2]
    assert actual == read_here(changing, "a$audit_log", **rows_max)


def test_stopped_stream_resumes_at_its_position(session: Session, tmp_path: Path) -> None:
    session.run("CREATE TABLE stopped (k INT); INSERT INTO stopped VALUES (1)")
    assert read(session.stream("stopped"), tmp_path) == [[(1,)]]
    session.run("INSERT INTO stopped VALUES (2); INSERT INTO stopped VALUES (3)")
    assert read(session.stream("stopped", **{"scan.mode": "latest"}), tmp_path) == [[(2,), (3,)]]


def test_consumer_records_position_and_resumes_there(
    session: Session, warehouse: Path, tmp_path: Path
) -> None:
    session.run(
        "CREATE TABLE held (k INT); INSERT INTO held VALUES (1); INSERT INTO held VALUES (2)"
    )
    mine = {"consumer-id": "me", "scan.snapshot-id": 1, "read.stream.maxSnapshotsPerTrigger": 1}
    assert read(session.stream("held", **mine), tmp_path / "one") == [[(1,)], [(2,)]]
    file = warehouse / "default.db/held/consumer/consumer-me"
    assert json.loads(file.read_text())["nextSnapshot"] in (2, 3), "the last one may come again"
    session.run("INSERT INTO held VALUES (3)")
    (again,) = read_here(session, "held", **{"consumer-id": "me"})
    assert (3,) in again and (1,) not in again


def test_new_consumer_begins_with_all_rows(session: Session, tmp_path: Path) -> None:
    """Spark asks two processes where a query begins: the second one finds the first one's
    consumer."""
    session.run(
        "CREATE TABLE consumed (k INT); INSERT INTO consumed VALUES (1), (2);"
        "INSERT INTO consumed VALUES (3); DELETE FROM consumed WHERE k = 3"
    )
    frame = session.stream("consumed", **{"consumer-id": "new"})
    assert read(frame, tmp_path / "one") == [[(1,), (2,)]]
    session.run("INSERT INTO consumed VALUES (4)")
    # Spark has not told that the only batch of the first query is done: it comes again.
    again = read(session.stream("consumed", **{"consumer-id": "new"}), tmp_path / "two")
    assert sorted(row for batch in again for row in batch) == [(1,), (2,), (4,)]
    assert read(session.stream("consumed", **{"consumer-id": "new"}), tmp_path / "two") == []


def test_changes_stream_into_another_table_once(changing: Session, tmp_path: Path) -> None:
    changing.run(f"CREATE TABLE b {KEYED})")
    slowly = {"scan.snapshot-id": 1, "read.stream.maxSnapshotsPerTrigger": 1}
    for source, expected in (("a", 4), ("a$audit_log", 3)):
        stream = changing.write_stream(
            changing.stream(source, **slowly), "b", checkpoint=tmp_path / source.replace("$", "-"),
            trigger="available-now",
        )  # fmt: skip
        assert stream.wait(120)
        assert stream.progress.epochs == 5
        assert "ended: 5 epochs" in repr(stream)
        actual = rows(changing, "SELECT * FROM b")
        assert len(actual) == expected, "a stream of the rows alone does not tell what is deleted"
    assert sorted(actual) == [(1, "x2"), (3, "z"), (4, "w")]


def test_repeated_epoch_is_written_once(session: Session) -> None:
    session.run("CREATE TABLE again (k BIGINT)")
    scope, name = StatementScope(session._connection), TableName("again", "default")
    for query, number in (("q", 0), ("q", 0), ("q", 1), ("q", 0), ("other", 1)):
        write_epoch(scope, session.spark.range(3).toDF("k"), name, "append", query, number)
    assert len(rows(session, "SELECT * FROM again")) == 9
    properties = rows(session, "SELECT snapshot_id FROM again$snapshots")
    assert len(properties) == 3


def test_stale_stream_notes_are_removed_and_epochs_stay_known(
    session: Session, warehouse: Path
) -> None:
    session.run("CREATE TABLE noted (k BIGINT)")
    scope, name = StatementScope(session._connection), TableName("noted", "default")
    frame = session.spark.range(3).toDF("k")
    for number in (0, 1):
        write_epoch(scope, frame, name, "append", "mine", number)
    folder = warehouse / "default.db/noted/.streams"
    for number in range(101):
        (folder / f"other-{number}").write_text("{}")
    days = 86_400
    for path, age in ((folder / "mine", 91), (folder / "other-7", 92), (folder / "other-8", 89)):
        os.utime(path, (time.time() - age * days,) * 2)
    write_epoch(scope, frame, name, "append", "new", 0)
    left = {path.name for path in folder.iterdir()}
    assert left == {"new", *(f"other-{number}" for number in range(101))} - {"other-7"}
    assert len(rows(session, "SELECT * FROM noted")) == 9
    for number in (1, 2):  # the first one was committed: a snapshot has its number
        write_epoch(scope, frame, name, "append", "mine", number)
    assert len(rows(session, "SELECT * FROM noted")) == 12


DRIVER = """
import sys
import paimon_magics
session = paimon_magics.connect(sys.argv[1], coordinator=sys.argv[3], master="local[2]")
frame = session.stream("a_NAME", **{"read.stream.maxSnapshotsPerTrigger": 1,
                                          "scan.snapshot-id": 1})
stream = session.write_stream(frame, "b_NAME", checkpoint=sys.argv[2], trigger="available-now")
stream.wait()
session.close(stop_spark=True)
"""
QUICK = "--conf spark.python.daemon.module=paimon_magics.spark.python_daemon pyspark-shell"
KILLS = {
    "one": [("embedded", "epoch.committed")],
    "all": [
        ("embedded", "statement.written"),
        ("embedded", "epoch.noted"),
        ("embedded", "epoch.committed"),
        ("embedded", ""),
        ("in-process", "epoch.noted"),
        ("in-process", "publish.linked"),
    ],
}
"""Where the drivers of a run commit, and the steps at which they die."""


@pytest.mark.usefixtures("state_home")
@pytest.mark.soak  # tests/faults/test_killed_streams.py has a short one for every run
@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
def test_killed_stream_neither_duplicates_nor_loses_rows(
    session: Session, warehouse: Path, tmp_path: Path, kills: list[tuple[str, str]]
) -> None:
    name = f"after_{len(kills)}"
    session.run(f"CREATE TABLE a_{name} {KEYED}, 'changelog-producer' = 'input')")
    session.run(
        f"CREATE TABLE b_{name} (k INT NOT NULL, v STRING)"
    )  # without keys: what doubles is seen
    count = len(kills) + 2
    for number in range(count):
        session.run(f"INSERT INTO a_{name} VALUES ({number}, 'v')")
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": QUICK, "SPARK_LOCAL_IP": "127.0.0.1"}
    for coordinator, step in kills:
        fault = tmp_path / "fault"
        if step:
            fault.write_text(f"{step}=kill")
        source = DRIVER.replace("NAME", name)
        ran = subprocess.run(
            [sys.executable, "-c", source, str(warehouse), str(tmp_path / "c"), coordinator],
            env=environment | {"PAIMON_MAGICS_FAULTS": f"@{fault}"},
            cwd=ROOT, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert (ran.returncode == 0) is not bool(step), ran.stderr[-3000:]
        assert not fault.exists(), f"{step} was not reached: {ran.stderr[-3000:]}"
    stream = session.write_stream(
        session.stream(f"a_{name}"), f"b_{name}", checkpoint=tmp_path / "c", trigger="available-now"
    )
    assert stream.wait(120)
    actual = rows(session, f"SELECT * FROM b_{name}")
    assert sorted(actual) == [(number, "v") for number in range(count)]
    table = session.catalog.load(TableName(f"b_{name}", "default"))
    left = {each for each in unreachable(table) if not each.startswith(".")}
    assert left == set(), "what was given up is removed"


PARTS = "spark.sql.shuffle.partitions"


def test_streamed_aggregation_replaces_keys_or_whole_table(
    session: Session, tmp_path: Path
) -> None:
    session.run("CREATE TABLE counted (v STRING); INSERT INTO counted VALUES ('a'), ('b'), ('a')")
    session.run("CREATE TABLE whole (v STRING, n BIGINT); INSERT INTO whole VALUES ('old', 0)")
    session.run(
        "CREATE TABLE keyed (v STRING NOT NULL, n BIGINT) TBLPROPERTIES ('primary-key' = 'v')"
    )
    counted = session.stream("counted").groupBy("v").count().withColumnRenamed("count", "n")
    half = leave_half_a_write(tmp_path / "whole")
    parts = session.spark.conf.get(PARTS)
    running = []
    for name, mode, count in (("whole", "complete", 17), ("keyed", "upsert", 2)):
        session.spark.conf.set(PARTS, count)
        running.append(session.write_stream(counted, name, checkpoint=tmp_path / name, mode=mode))
    session.spark.conf.set(PARTS, str(parts))
    for stream in running:
        stream.process_all()
    assert not half.exists(), "Spark would have refused the checkpoint"
    session.run("INSERT INTO counted VALUES ('b'), ('c')")
    for stream in running:
        stream.process_all()
        assert "running: 2 epochs" in repr(stream)
    for name in ("whole", "keyed"):
        assert sorted(rows(session, f"SELECT * FROM {name}")) == [("a", 2), ("b", 2), ("c", 1)]
    for stream in running:
        report = stream.report()
        is_many = stream is running[0]
        assert ("state in 17 parts" in str(report)) is is_many
        assert any(PARTS in note for note in report.notes) is is_many
        line = repr(stream).removeprefix("Stream(").removesuffix(")")
        assert str(report) == "\n\n".join((line, *report.notes))
        (section,) = report.sections
        (now,) = section.rows.to_pylist()
        # Of two rows in a slow micro-batch, and of ten seconds without any, the speed is 0.
        assert (now["state"], now["epochs"], now["rows_per_second"] >= 0) == ("running", 2, True)
        (stop,) = section.actions
        assert "ended: 2 epochs" in str(stop.run(()))
        assert not stream.is_active and "ended" in repr(stream)
        assert report.refresh is not None
        ended = report.refresh()
        assert ended is not None and ended.sections[0].actions == ()


def test_invalid_streams_are_refused_before_start(changing: Session, tmp_path: Path) -> None:
    session = changing
    session.run(f"CREATE TABLE IF NOT EXISTS r {KEYED}); CREATE TABLE IF NOT EXISTS plain (k INT)")
    frame = session.stream("a")
    refused: list[tuple[type[PaimonMagicsError], str, Any]] = [
        (UnknownNameError, "no table `nope`", lambda: session.stream("nope")),
        (UnsupportedStatementError, "no changes", lambda: session.stream("a$files")),
        (UnknownNameError, "consumer-id", lambda: session.stream("a", consumer="me")),
        (UnknownNameError, "no column `z`", lambda: into(frame.withColumnRenamed("v", "z"), "r")),
        (InvalidValueError, "NOT NULL", lambda: into(frame.select("v"), "r")),
        (InvalidValueError, "`k`", lambda: into(frame.selectExpr("array(k) AS k", "v"), "r")),
        (InvalidValueError, "no mode 'x'", lambda: into(frame, "r", mode="x")),
        (InvalidValueError, "'available-now'", lambda: into(frame, "r", trigger="availableNow")),
        (UnknownNameError, "branch `b`", lambda: session.stream("a", branch="b")),
        (UnsupportedStatementError, "primary key", lambda: into(frame, "plain", mode="upsert")),
        (InvalidValueError, "not a stream", lambda: into(session.table("a"), "r")),
    ]

    def into(given: DataFrame, name: str, **more: str) -> object:
        return session.write_stream(given, name, checkpoint=tmp_path, **more)

    for kind, said, call in refused:
        with pytest.raises(kind) as raised:
            call()
        assert said in f"{raised.value.message} {raised.value.hint}"
    assert list(tmp_path.iterdir()) == []


def test_stream_reports_missing_snapshots_or_columns(
    session: Session, warehouse: Path, tmp_path: Path
) -> None:
    session.run("CREATE TABLE gone (k INT, v INT); INSERT INTO gone VALUES (1, 1)")
    session.run("CREATE TABLE taken (k INT, v INT)")
    stream = session.write_stream(session.stream("gone"), "taken", checkpoint=tmp_path)
    stream.process_all()
    session.run("ALTER TABLE gone RENAME COLUMN v TO w; INSERT INTO gone VALUES (2, 2)")
    with pytest.raises(InvalidTableError, match=r"`v` of .* is gone"):
        stream.process_all()
    session.run("ALTER TABLE gone RENAME COLUMN w TO v; INSERT INTO gone VALUES (3, 3)")
    (warehouse / "default.db/gone/snapshot/snapshot-2").unlink()
    stream = session.write_stream(session.stream("gone"), "taken", checkpoint=tmp_path)
    with pytest.raises(UnknownNameError, match=r"Snapshot 2 of .* has expired"):
        stream.process_all()
    assert "failed" in repr(stream)


def test_stream_refuses_table_recreated_under_same_name(
    session: Session,
) -> None:
    def make(table: str) -> None:
        session.run(f"CREATE TABLE {table} (k INT)")
        session.run(f"INSERT INTO {table} VALUES (1); INSERT INTO {table} VALUES (2)")

    make("anew")
    reader = reader_of(session, "anew", **{"scan.snapshot-id": 1})
    begins, read = {"snapshotId": 1}, reader.latestOffset(reader.initialOffset())
    assert len(reader.partitions(begins, read)) == 1, "an offset may not tell of its table"
    session.run("INSERT INTO anew VALUES (3); ALTER TABLE anew RENAME TO moved")
    renamed = reader_of(session, "moved")
    assert len(renamed.partitions(read, renamed.latestOffset(read))) == 1
    make("anew")
    session.run("INSERT INTO anew VALUES (3); INSERT INTO anew VALUES (4)")
    for again in (reader, reader_of(session, "anew")):
        with pytest.raises(InvalidTableError, match="dropped and created again, or the checkpoint"):
            again.partitions(read, again.latestOffset(read))


def test_spark_reads_of_the_format_return_the_rows_of_sql(
    changing: Session, tmp_path: Path
) -> None:
    """As a caller sees it whose calls are not answered: Scala, or SQL of Spark's."""
    session = changing
    session.run(
        "CREATE TABLE typed (k INT, f FLOAT, d DECIMAL(10, 2), t TIMESTAMP, n TIMESTAMP_NTZ, "
        "b BINARY, s STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, INT>, p DATE) "
        "PARTITIONED BY (p);"
        "INSERT INTO typed VALUES (1, 1.5, 2.25, TIMESTAMP '2026-01-31 12:00:00', "
        "TIMESTAMP_NTZ '2026-01-31 12:00:00', X'01', named_struct('x', 1, 'y', array('q', NULL)), "
        "map('a', 1), DATE '2026-01-31'), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    conditions = {
        "typed": ["true", "p = DATE '2026-01-31' AND k >= 1"],
        "a": ["true"],
        "a$audit_log": ["k IN (4, 9)"],
        "a$snapshots": ["true"],
    }
    for name in conditions:
        view = f"raw_{name.replace('$', '_')}"
        session.spark.createDataFrame([], "x INT").createOrReplaceTempView(view)
        text = f"CREATE OR REPLACE TEMPORARY VIEW {view} USING paimon OPTIONS (table '{name}')"
        unanswered(session.spark, text)
        for condition in conditions[name]:
            raw = unanswered(session.spark, f"SELECT * FROM {view} WHERE {condition}").collect()
            frame = session.run(f"SELECT * FROM `{name}` WHERE {condition}").dataframe
            assert frame is not None
            assert sorted(raw, key=str) == sorted(frame.collect(), key=str), name


def unanswered(spark: SparkSession, text: str) -> DataFrame:
    """A call of `spark.sql` that no session answers."""
    original: Any = type(spark).sql
    result: DataFrame = original.__wrapped__(spark, text)
    return result
