"""A session that commits through a coordinator: the same statements, the same tables."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

import paimon_magics
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.coordinator.core.state import WAITER_MS
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Waiting
from paimon_magics.planning.job_progress import Progress
from paimon_magics.session.inserts.epochs import write_epoch
from paimon_magics.session.provenance import Operation
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.transactions import ToCommit, begun, transact
from paimon_magics.spark.listening import listen
from paimon_magics.spark.stopping import Stop, stoppable
from paimon_magics.statements.statement import TableName
from tests.coordinator.process import TABLE, Process, data_files
from tests.coordinator.rest_server import client_options
from tests.session.writes.held_writes import run_while, write_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state")
    started.start()
    yield started
    started.close()


@pytest.fixture
def session(spark: SparkSession, process: Process) -> Iterator[paimon_magics.Session]:
    with paimon_magics.connect(
        coordinator=process.address, token=process.token(), spark=spark
    ) as opened:
        yield opened


def test_statements_run_through_a_coordinator(
    session: paimon_magics.Session, process: Process
) -> None:
    assert session.warehouse == str(process.warehouse)
    session.run(
        "CREATE TABLE p (k INT NOT NULL, v STRING, dt STRING) PARTITIONED BY (dt) "
        "TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '2'); "
        "INSERT INTO p SELECT CAST(id AS INT), 'old', 'd' || (id % 2) FROM range(10); "
        "INSERT INTO p VALUES (0, 'new', 'd0'); "
        "INSERT OVERWRITE p PARTITION (dt = 'd1') VALUES (1, 'only')"
    )
    found = session.run("SELECT k, v, dt FROM p ORDER BY dt, k").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (0, "new", "d0"),
        *((k, "old", "d0") for k in (2, 4, 6, 8)),
        (1, "only", "d1"),
    ]
    kinds = session.run("SELECT commit_kind FROM p$snapshots ORDER BY snapshot_id").to_arrow()
    assert kinds["commit_kind"].to_pylist() == ["APPEND", "APPEND", "OVERWRITE"]


def test_writes_to_a_table_with_dynamic_buckets_take_turns(
    session: paimon_magics.Session,
) -> None:
    threads, each = 3, 3
    session.run("CREATE TABLE d (k INT NOT NULL, v INT) TBLPROPERTIES ('primary-key' = 'k')")

    def write(number: int) -> list[str]:
        rows = [f"({number * 100 + one}, {one}), (-1, {number})" for one in range(each)]
        return [str(session.run(f"INSERT INTO d VALUES {row}")) for row in rows]

    with ThreadPoolExecutor(threads) as pool:
        outcomes = [one for made in pool.map(write, range(threads)) for one in made]
    keys = session.run("SELECT k FROM d ORDER BY k").to_arrow()["k"].to_pylist()
    assert keys == [-1, *(n * 100 + one for n in range(threads) for one in range(each))]
    assert any("s for its turn" in outcome for outcome in outcomes)
    assert not any("run again" in outcome for outcome in outcomes)


def by_a_session_alone(session: paimon_magics.Session, process: Process) -> None:
    alone = InProcessCommitter(session.catalog, session.settings)
    other = paimon_magics.Session(session._connection.beside(committer=alone))
    other.run("INSERT INTO t VALUES ('a', 2, 'in between')")


def by_an_engine_on_the_rest_catalog(session: paimon_magics.Session, process: Process) -> None:
    options = client_options(process.address, Path(process.warehouse), process.token())
    table = CatalogFactory.create(options).get_table("default.t")
    builder = table.new_batch_write_builder()
    writer = builder.new_write()
    columns = [pa.field("p", pa.string(), False), pa.field("k", pa.int32(), False), ("v", "string")]
    writer.write_arrow(pa.table([["a"], [2], ["in between"]], schema=pa.schema(columns)))
    builder.new_commit().commit(writer.prepare_commit())
    writer.close()


@pytest.mark.parametrize("came", [by_a_session_alone, by_an_engine_on_the_rest_catalog])
def test_statement_reruns_after_a_writer_that_takes_no_turns(
    session: paimon_magics.Session,
    process: Process,
    tmp_path: Path,
    came: Callable[[paimon_magics.Session, Process], None],
) -> None:
    session.run(
        "CREATE TABLE t (p STRING NOT NULL, k INT NOT NULL, v STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'p,k'); INSERT INTO t VALUES ('a', 1, 'first')"
    )
    outcome = write_while(
        lambda: came(session, process), session, [("a", 2, "late"), ("a", 3, "late")], tmp_path
    )
    assert "Planned and run again 1 time" in str(outcome)
    found = session.run("SELECT k, v FROM t ORDER BY k").to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, "first"), (2, "late"), (3, "late")]


def test_interrupted_waiter_leaves_the_queue(
    session: paimon_magics.Session, process: Process
) -> None:
    session.run("CREATE TABLE d (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')")
    name = TableName("d", "default")
    holder, waiting, last = (process.client() for _ in range(3))
    held = holder.begin(name)

    def interrupt(_: Waiting) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        waiting.begin(name, waits=interrupt)
    holder.abort(held)
    started = time.monotonic()
    last.abort(last.begin(name))
    assert time.monotonic() - started < WAITER_MS / 1000, "it waited for nobody"


def test_waiting_statement_reports_its_wait_during_and_after(
    session: paimon_magics.Session, process: Process
) -> None:
    session.run("CREATE TABLE d (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')")
    holder = process.client()
    held = holder.begin(TableName("d", "default"))
    told: list[str] = []

    def hears(progress: Progress | None) -> None:
        if progress is not None and "in front" in progress.text():
            told.append(progress.text())
            holder.abort(held)

    listen(hears)
    try:
        outcome = session.run("INSERT INTO d VALUES (1)")
    finally:
        listen(None)
    assert told[0].startswith("waiting for `default.d` (1 in front), ")
    assert "s for its turn (1 in front): Table `default.d` has dynamic buckets" in str(outcome)


def shown(session: paimon_magics.Session, statement: str) -> dict[str, str]:
    rows = session.run(statement).to_arrow().to_pylist()
    return {row["info_name"]: row["info_value"] for row in rows}


def test_the_coordinator_keeps_properties_of_databases(
    session: paimon_magics.Session, process: Process, spark: SparkSession
) -> None:
    create = "CREATE DATABASE d COMMENT 'tills' WITH DBPROPERTIES ('b' = '2', 'a' = '1')"
    session.run(create)
    own = {"Catalog Name": "paimon", "Namespace Name": "d", "Comment": "tills"}
    location = {"Location": str(process.warehouse / "d.db")}
    assert shown(session, "DESCRIBE DATABASE d") == own | location
    properties = {"Properties": "((a,1), (b,2))"}
    assert shown(session, "DESCRIBE DATABASE EXTENDED d") == own | location | properties
    session.run("COMMENT ON DATABASE d IS 'shops'")
    session.run("ALTER DATABASE d SET DBPROPERTIES ('b' = '3', 'c' = '4')")
    session.run("ALTER DATABASE d UNSET DBPROPERTIES ('a', 'never')")
    changed = {"Comment": "shops", "Properties": "((b,3), (c,4))"}
    assert shown(session, "DESCRIBE DATABASE EXTENDED d") == own | location | changed
    session.run("COMMENT ON DATABASE d IS NULL")
    assert "Comment" not in shown(session, "DESCRIBE DATABASE d")
    session.run("COMMENT ON DATABASE default IS 'of all'")
    assert shown(session, "DESCRIBE DATABASE default")["Comment"] == "of all"
    with pytest.raises(UnknownNameError, match="no database `nowhere`"):
        session.run("COMMENT ON DATABASE nowhere IS 'x'")
    with pytest.raises(StatementError, match="exists already"):
        session.run(create)
    session.run(create.replace("DATABASE", "DATABASE IF NOT EXISTS"))
    with pytest.raises(InvalidTableError, match="can't have the location /far"):
        session.run("CREATE DATABASE far LOCATION '/far'")
    session.run("DROP DATABASE d; CREATE DATABASE d")  # the session's own doing
    assert "Comment" not in shown(session, "DESCRIBE DATABASE EXTENDED d")
    session.run(create.replace("DATABASE d", "DATABASE kept"))
    session.close()
    with paimon_magics.connect(process.warehouse, coordinator="in-process", spark=spark) as alone:
        found = shown(alone, "DESCRIBE DATABASE kept")
        assert found["Properties"].startswith("not known: Only a coordinator keeps")
        with pytest.raises(UnsupportedStatementError, match="can't keep properties of the"):
            alone.run(create.replace("DATABASE d", "DATABASE e"))
        with pytest.raises(UnsupportedStatementError, match="can't keep properties of the"):
            alone.run("COMMENT ON DATABASE default IS 'x'")


def test_failed_job_leaves_no_files(session: paimon_magics.Session, process: Process) -> None:
    session.run("CREATE TABLE t (k INT, v STRING); INSERT INTO t VALUES (1, 'a')")
    before = data_files(process.warehouse)
    with pytest.raises(InvalidValueError):
        session.run("INSERT INTO t SELECT CAST(if(id = 90, 'x', '1') AS INT), 'v' FROM range(100)")
    session.run("INSERT INTO t VALUES (2, 'b')")
    assert len(data_files(process.warehouse)) == len(before) + 1
    assert session.run("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [2]


def test_stop_before_the_commit_leaves_no_open_transaction(
    session: paimon_magics.Session,
) -> None:
    session.run("CREATE TABLE t (k INT)")
    scope = StatementScope(session._connection)
    transaction = begun(scope, TABLE, (0, ""), Attempts(reruns_max=0))
    stop = Stop()

    def write() -> tuple[ToCommit, None]:
        stop.ask()
        return ToCommit((), rows=0, files=0, operation=Operation("INSERT")), None

    with pytest.raises(KeyboardInterrupt), stoppable(stop):
        transact(scope, transaction, "INSERT INTO t VALUES (1)", write)
    assert scope.committer.administration().status().pending_transactions == 0


def test_statement_waits_for_a_restart_and_fails_without_a_coordinator(
    session: paimon_magics.Session, process: Process, spark: SparkSession
) -> None:
    session.run("CREATE TABLE t (k INT)")
    process.kill()
    told: list[str] = []

    def hears(progress: Progress | None) -> None:
        if progress is not None and "coordinator" in progress.text() and not told:
            told.append(progress.text())
            process.start()

    listen(hears)
    try:
        session.run("INSERT INTO t VALUES (1)")
    finally:
        listen(None)
    assert told[0].startswith(f"waiting for the coordinator at {process.address}, ")
    session.close()
    with paimon_magics.connect(
        coordinator=process.address, token=process.token(), spark=spark, coordinator_wait_ms=0
    ) as impatient:
        process.kill()
        with pytest.raises(SetupError, match="can't be reached"):
            impatient.run("INSERT INTO t VALUES (3)")
        process.start()
        impatient.run("INSERT INTO t VALUES (2)")
        rows = impatient.run("SELECT k FROM t ORDER BY k").to_arrow()
    assert rows["k"].to_pylist() == [1, 2]


def test_losing_the_coordinator_before_cleanup_keeps_the_outcome(
    process: Process, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paimon_magics.connect(
        coordinator=process.address, token=process.token(), spark=spark, coordinator_wait_ms=0
    ) as session:
        session.run("CREATE TABLE t (k INT)")
        scope, attempts = StatementScope(session._connection), Attempts(reruns_max=0)
        transaction = begun(scope, TABLE, (0, ""), attempts)

        def fails() -> tuple[ToCommit, None]:
            process.kill()
            raise InvalidValueError("The value does not fit.", hint="Give another one.")

        with pytest.raises(InvalidValueError, match="does not fit"):
            transact(scope, transaction, "INSERT INTO t VALUES (1)", fails)
        process.start()
        transaction = begun(scope, TABLE, (0, ""), attempts)
        commit = scope.committer.commit

        def commit_and_kill(request: CommitRequest) -> CommitReceipt:
            receipt = commit(request)
            process.kill()
            return receipt

        monkeypatch.setattr(scope.committer, "commit", commit_and_kill)
        written = ToCommit(
            (), rows=0, files=0, operation=Operation("INSERT"), repeated_attempts=True
        )
        receipt, _ = transact(
            scope, transaction, "INSERT INTO t VALUES (1)", lambda: (written, None)
        )
        assert receipt.snapshot_id is None


def test_environment_names_the_default_coordinator(
    spark: SparkSession,
    process: Process,
    tmp_path: Path,
    state_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAIMON_COORDINATOR", process.address)
    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
    monkeypatch.setenv("PAIMON_WAREHOUSE", str(tmp_path / "other"))
    with paimon_magics.connect(spark=spark) as found:
        assert found.warehouse == str(process.warehouse)
        found.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
    listed = process.client()._requests.repeat("GET", "/v1/transactions")["transactions"]
    assert [one["phase"] for one in listed] == ["committed"]
    with paimon_magics.connect(tmp_path / "third", spark=spark) as named:
        assert (named.warehouse, named.coordinator) == (str(tmp_path / "third"), "embedded")


def test_without_a_token_the_session_is_not_opened(process: Process) -> None:
    with pytest.raises(SetupError, match="requires a token") as raised:
        paimon_magics.connect(coordinator=process.address)
    assert "PAIMON_COORDINATOR_TOKEN" in raised.value.hint


def test_outcome_keeps_its_snapshots_until_released(
    session: paimon_magics.Session, process: Process
) -> None:
    """Other sessions replace everything, and their snapshots expire at once."""
    process.kill()
    process.options += ("--lease-ms=800", "--expire-every-ms=20")
    process.start()
    session.run(
        "CREATE TABLE t (k INT) TBLPROPERTIES ('snapshot.num-retained.min' = '1', "
        "'snapshot.time-retained' = '1 ms'); INSERT INTO t VALUES (1)"
    )
    outcome = session.run("SELECT k FROM t")
    session.run(
        "CREATE TABLE u (k INT) TBLPROPERTIES ('snapshot.num-retained.min' = '1', "
        "'snapshot.time-retained' = '1 ms'); INSERT INTO u VALUES (1)"
    )
    read = session.run("SELECT k FROM u")
    outcome_of_frame = session.run("SELECT k FROM read", frames={"read": read}, limit=1)
    del read
    session.run("CREATE TEMPORARY VIEW v AS SELECT k + 1 AS k FROM t")
    folder = process.warehouse / "default.db" / "t" / "snapshot"

    def overwritten(number: int, first: int) -> None:
        session.run(f"INSERT OVERWRITE u VALUES ({number}); INSERT OVERWRITE t VALUES ({number})")
        for _ in range(100):
            if min(int(path.name[9:]) for path in folder.glob("snapshot-*")) >= first:
                return
            time.sleep(0.1)
        raise AssertionError(sorted(folder.iterdir()))

    for number in range(2, 5):
        overwritten(number, first=1)
    time.sleep(2)
    assert (folder / "snapshot-1").exists()
    assert outcome.to_arrow()["k"].to_pylist() == [1]
    gc.collect()
    assert outcome_of_frame.to_arrow()["k"].to_pylist() == [1]
    assert session.run("SELECT k FROM v").to_arrow()["k"].to_pylist() == [2]
    outcome.release()
    with pytest.raises(StatementError, match="were released"):
        outcome.to_arrow()
    session.run("DROP VIEW v")
    session.run("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1 AS k")
    gc.collect()
    time.sleep(1)
    overwritten(5, first=4)
    assert session.run("SELECT k FROM t").to_arrow()["k"].to_pylist() == [5]


WRITES = {
    "UPDATE of keys": "UPDATE keyed SET v = held(v) WHERE k IN (SELECT k FROM source)",
    "UPDATE of a key": "UPDATE keyed SET v = held((SELECT max(v) FROM source)) WHERE k = 1",
    "UPDATE of an append table": "UPDATE plain SET v = held(v) WHERE k IN (SELECT k FROM source)",
    "INSERT BY NAME": "INSERT INTO plain BY NAME SELECT held(v) AS v, k FROM source",
    "MERGE": "MERGE INTO keyed t USING source s ON t.k = s.k "
    "WHEN MATCHED THEN UPDATE SET v = held(t.v + (SELECT max(v) FROM source))",
    "DELETE of keys": "DELETE FROM keyed WHERE held(v) = v AND k IN (SELECT k FROM source)",
}


def test_statement_keeps_its_source_snapshot_while_it_writes(
    session: paimon_magics.Session, process: Process, tmp_path: Path
) -> None:
    process.kill()
    process.options += ("--lease-ms=800", "--expire-every-ms=20")
    process.start()
    short = "'snapshot.num-retained.min' = '1', 'snapshot.time-retained' = '1 ms'"
    session.run(
        "CREATE TABLE keyed (k INT NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1'); INSERT INTO keyed VALUES (1, 1); "
        "CREATE TABLE plain (k INT, v INT); INSERT INTO plain VALUES (1, 1); "
        f"CREATE TABLE source (k INT, v INT) TBLPROPERTIES ({short}); "
        "INSERT INTO source VALUES (1, 100)"
    )
    folder = process.warehouse / "default.db" / "source" / "snapshot"

    def snapshots() -> list[int]:
        return sorted(int(path.name[9:]) for path in folder.glob("snapshot-*"))

    for name, statement in WRITES.items():
        read = snapshots()[-1]
        seen: list[int] = []

        def overwritten(seen: list[int] = seen) -> None:
            for _ in range(3):
                session.run("INSERT OVERWRITE source VALUES (1, 100)")
                time.sleep(0.6)
            seen += snapshots()

        outcome = run_while(overwritten, session, statement, tmp_path)
        assert not isinstance(outcome, Exception) and outcome.snapshot_id, (name, outcome)
        assert read in seen, name
        deadline = time.monotonic() + 20
        while read in snapshots() and time.monotonic() < deadline:
            gc.collect()
            session.run("INSERT OVERWRITE source VALUES (1, 100)")
            time.sleep(0.3)
        assert read not in snapshots(), name


def test_session_starts_a_coordinator_by_default_and_restarts_it(
    spark: SparkSession, warehouse: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAIMON_COORDINATOR")
    with paimon_magics.connect(warehouse, spark=spark, coordinator_idle_ms=60_000) as session:
        assert session.coordinator == "embedded"
        session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
        (folder,) = map(StateFolder, (state_home / "paimon-magics").glob("*-*"))
        running = folder.running()
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)
        session.run("INSERT INTO t SELECT CAST(id AS INT) FROM range(2, 4)")
        again = folder.running()
        assert again is not None and again.pid != running.pid
        properties = session.catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
        assert properties.properties["paimon-magics.epoch"] == "2"
        assert session.run("SELECT k FROM t ORDER BY k").to_arrow()["k"].to_pylist() == [1, 2, 3]
    with paimon_magics.connect(warehouse, spark=spark) as second:
        second.run("INSERT INTO t VALUES (4)")
        found = folder.running()
        assert found is not None and found.pid == again.pid


def test_reading_needs_no_coordinator(
    spark: SparkSession, warehouse: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paimon_magics.connect(warehouse, spark=spark, coordinator="in-process") as session:
        session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
        with pytest.raises(SetupError, match="through `in-process`, not `embedded`"):
            paimon_magics.connect(warehouse, spark=spark, coordinator="embedded")
    state_home.write_text("no folder can be made here")
    monkeypatch.delenv("PAIMON_COORDINATOR")
    with paimon_magics.connect(warehouse, spark=spark) as session:
        assert session.table("t").count() == 1
        with pytest.raises(SetupError, match="No coordinator could be started") as raised:
            session.run("INSERT INTO t VALUES (2)")
        assert "coordinator='in-process'" in raised.value.hint
        assert session.table("t").count() == 1


def test_connect_rejects_an_unknown_coordinator(warehouse: Path) -> None:
    with pytest.raises(SetupError, match="`embeded` is neither an address nor one of") as raised:
        paimon_magics.connect(warehouse, coordinator="embeded")
    assert "Did you mean `embedded`?" in raised.value.hint


def test_lost_stream_note_is_made_up_for_behind_a_coordinator_with_a_high_epoch(
    process: Process, spark: SparkSession
) -> None:
    for _ in range(4):  # each start is an epoch of the coordinator
        process.end()
        process.start()
    with paimon_magics.connect(
        coordinator=process.address, token=process.token(), spark=spark
    ) as session:
        session.run("CREATE TABLE unnoted (k BIGINT)")
        scope, name = StatementScope(session._connection), TableName("unnoted", "default")
        frame = session.spark.range(3).toDF("k")
        for number in (0, 1):
            write_epoch(scope, frame, name, "append", "mine", number)
        (process.warehouse / "default.db/unnoted/.streams/mine").unlink()
        for number in (1, 2, 3):  # the first one was committed
            write_epoch(scope, frame, name, "append", "mine", number)
        assert session.run("SELECT * FROM unnoted").to_arrow().num_rows == 12
