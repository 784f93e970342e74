"""Cells in a real kernel, on Spark in the kernel's own JVM with a coordinator in a process of its
own, and on Spark Connect without one: they show how far they are, one interrupt stops them, and
they ask before they take much away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from paimon_magics.coordinator.core.values import FINISHED
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from tests.magics.kernel import Done, Kernel
from tests.session.evidence import files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CONNECT = {
    "classic": "%paimon connect warehouse=lake master=local[2] coordinator=embedded",
    "Spark Connect": """\
from pyspark.sql import SparkSession
server = SparkSession.builder.remote("local[2]").getOrCreate()
%paimon connect warehouse=lake spark=server""",
}
# Tasks that hand over some rows, say so by a file, and then wait for longer than the test lasts.
SLOW = """\
import pathlib, time
session = paimon_magics.active_session()
marker = pathlib.Path("begun").absolute()

def rows(frames):
    for number, frame in enumerate(frames):
        yield frame.head(1000)
        marker.touch()
        time.sleep(60)

session.spark.range(0, 200_000, 1, 2).mapInPandas(rows, "id BIGINT").createOrReplaceTempView("slow")
"""
TABLE = "%%paimon\nCREATE TABLE t (id BIGINT, v STRING);\nINSERT INTO t VALUES (0, 'before')"
INSERT = "%%paimon\nINSERT INTO t SELECT id, 'interrupted' FROM slow"
# Not how fast it is, which benchmarks say, but that it did not wait for the tasks' sleep to end.
SECONDS_MAX = 20
TASKS = "0 of 2 tasks"
SELECT = "%%paimon\nSELECT sum(id) FROM slow"
WRITE = """session.write(session.spark.sql("SELECT id, 'interrupted' AS v FROM slow"), 't')"""
FETCH = "session.run('SELECT sum(id) FROM slow').to_pandas()"
STOPPED = {
    INSERT: "KeyboardInterrupt: the cell was stopped",
    SELECT: "KeyboardInterrupt: the cell was stopped",
    WRITE: "KeyboardInterrupt: the call was stopped, and its Spark jobs with it.\nA statement that",
    FETCH: "KeyboardInterrupt: the call was stopped, and its Spark jobs with it.",
}


# What is the same on both: a kernel on Spark Connect does it in `make soak`.
MOSTLY_CLASSIC = pytest.mark.parametrize(
    "kernel", ["classic", pytest.param("Spark Connect", marks=pytest.mark.soak)], indirect=True
)


@pytest.fixture(scope="module", params=CONNECT)
def kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("kernel")
    kernel = Kernel(folder, TZ="Europe/Berlin")
    try:
        kernel.run("%load_ext paimon_magics\nimport paimon_magics")
        kernel.run(CONNECT[request.param])
        kernel.run(SLOW)
        kernel.run(TABLE)
        yield kernel
    finally:
        kernel.stop()


def unfinished(kernel: Kernel) -> list[str] | None:
    """The transactions that the kernel's coordinator lists as open or being ended; None without a
    coordinator of its own."""
    for announced in kernel.folder.glob("state/paimon-magics/*/running.json"):
        folder = StateFolder(announced.parent)
        running = folder.running()
        assert running is not None
        headers = {"Authorization": f"Bearer {folder.token()}"}
        answer = httpx.get(f"{running.address}/v1/transactions", headers=headers)
        answer.raise_for_status()
        phases = {each["id"]: each["phase"] for each in answer.json()["transactions"]}
        return [id for id, phase in phases.items() if phase not in FINISHED]
    return None


def told(done: Done) -> list[str]:
    """The lines of progress that were shown."""
    return [text for _, text in done.told]


def interrupted(kernel: Kernel, code: str) -> tuple[Done, float, list[str] | None]:
    """What a cell came to that is interrupted when it has begun and shown how far it is, the
    seconds that it took to end after that, and the `unfinished` transactions before that."""
    opened: list[list[str] | None] = []
    marker = kernel.folder / "begun"
    marker.unlink(missing_ok=True)
    pressed: list[float] = []
    # In the kernel's own JVM Spark's tasks tell their rows long before they end.
    rows = " rows read" if code == INSERT and unfinished(kernel) is not None else ""

    def press(so_far: Done) -> bool:
        if not marker.exists() or not any(TASKS in text and rows in text for text in told(so_far)):
            return False  # Spark Connect tells of tasks every two seconds
        opened.append(unfinished(kernel))
        pressed.append(time.monotonic())
        kernel.interrupt()
        return True

    done = kernel.execute(code, meanwhile=press)
    return done, time.monotonic() - pressed[0], opened[0]


def test_kernel_shows_and_binds_times_in_zone_of_environment(kernel: Kernel) -> None:
    at, midnight = "TIMESTAMP'2026-10-25 01:30:00Z'", "TIMESTAMP'2026-07-01 00:00:00Z'"
    query = f"SELECT {at} AS at, array({midnight}) AS a"
    shown = kernel.run(f"%%paimon\n{query}").displays[-1]
    assert "2026-10-25 02:30:00+01:00" in shown["text/plain"]
    assert '["2026-07-01 02:00:00"]' in shown["text/plain"]
    assert shown["text/plain"].endswith("1 row; `at`, `a` in Europe/Berlin")
    assert "in Europe/Berlin" in shown["text/html"]
    kernel.run("import datetime; at = datetime.datetime(2026, 7, 1, 2)")
    bound = kernel.run(f"%%paimon\nSELECT :at = {midnight} AS same").displays[-1]
    assert bound["text/plain"].endswith("true\n1 row")
    assert "in Europe/Berlin" in kernel.run("%paimon history t").displays[-1]["text/plain"]
    # What `$snapshots` has is a wall clock of the process: the SQL beside the view takes it back.
    code = "h = paimon_magics.active_session().history('t')\n" + (
        "paimon_magics.active_session().run(h.sql).data['commit_time'].to_pylist() "
        "== h.data['commit_time'].to_pylist()"
    )
    assert kernel.run(code).displays[-1]["text/plain"] == "True"


@pytest.mark.parametrize("code", [INSERT, FETCH], ids=["INSERT", "to_pandas"])
def test_single_interrupt_stops_cell_and_leaves_nothing(kernel: Kernel, code: str) -> None:
    check_interrupted(kernel, code)


# Pressed while the driver plans: no job runs that could be cancelled.
IN_A_CALL = """\
import os, signal, threading
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
session.spark._jvm.java.lang.Thread.sleep(30_000)
"""


@pytest.mark.parametrize("kernel", ["classic"], indirect=True)
def test_interrupted_jvm_call_prints_no_py4j_trace(kernel: Kernel) -> None:
    done = kernel.execute(IN_A_CALL)
    assert "KeyboardInterrupt" in done.error
    assert "while sending command" not in done.printed
    assert kernel.run("%%paimon\nSELECT * FROM t").displays[-1]["text/plain"].endswith("1 row")


@MOSTLY_CLASSIC
@pytest.mark.parametrize("code", [SELECT, WRITE], ids=["SELECT", "write"])
def test_single_interrupt_stops_query_of_cell_and_write_call(kernel: Kernel, code: str) -> None:
    check_interrupted(kernel, code)


def check_interrupted(kernel: Kernel, code: str) -> None:
    """Interrupt a cell, and look what is left of it."""
    before = files(kernel.folder / "lake")
    done, seconds, opened = interrupted(kernel, code)
    assert seconds < SECONDS_MAX
    if opened is not None:
        assert len(opened) == (code in (INSERT, WRITE)), (
            "a statement that writes is listed while it runs"
        )
        assert unfinished(kernel) == [], "its transaction has ended at its coordinator, too"
    assert "Traceback" not in done.printed
    assert done.error.startswith(STOPPED[code]), done.error
    assert len(done.error.splitlines()) <= 2, done.error
    assert any(TASKS in text for text in told(done)), told(done)
    assert done.displays == [{}], "nothing of it is saved"
    assert files(kernel.folder / "lake") == before
    again = kernel.run("%%paimon\nSELECT * FROM t")
    assert again.displays[-1]["text/plain"].endswith("before\n1 row")


# Pressed when the thread that waits for an answer has just taken the lock of grpc's channel: when
# `job` says that tasks have begun, else at once.
WITH_A_LOCK = """\
import os, pathlib, signal, sys, threading, time, uuid
marker = pathlib.Path(f"begun-{uuid.uuid4()}").absolute()

def slow(frames):
    for frame in frames:
        marker.touch()
        time.sleep(60)
        yield frame

rows = session.spark.range(0, 2, 1, 2).mapInPandas(slow, "id BIGINT")
rows.createOrReplaceTempView("with_marker")

def press(frame, event, _):
    if event != "c_return" or frame.f_code is not threading.Condition.__enter__.__code__:
        return
    caller = frame.f_back
    if not caller.f_globals["__name__"].startswith("grpc.") or caller.f_code.co_name != "_next":
        return
    of_the_call = caller.f_locals["self"]._state.condition
    if (not job or marker.exists()) and frame.f_locals["self"] is not of_the_call:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(press)
session.run("SELECT sum(id) FROM with_marker").to_pandas()
"""


@pytest.mark.parametrize("kernel", ["Spark Connect"], indirect=True)
@pytest.mark.parametrize("job", [True, False], ids=["fetching", "planning"])
def test_interrupt_leaves_no_grpc_lock_behind(kernel: Kernel, job: bool) -> None:
    """An exception just after a lock was taken would keep it locked for every other thread."""
    done = kernel.execute(f"job = {job}\n{WITH_A_LOCK}")
    assert done.error.startswith(STOPPED[FETCH]), done.error
    assert done.seconds < SECONDS_MAX
    again = kernel.run("%%paimon\nSELECT * FROM t")
    assert again.displays[-1]["text/plain"].endswith("before\n1 row")


TAKES_AWAY = """%%paimon{}
CREATE TABLE IF NOT EXISTS days (id INT, day STRING) PARTITIONED BY (day);
INSERT OVERWRITE days VALUES (3, 'wed')"""
FILL = """%%paimon
CREATE TABLE days (id INT, day STRING) PARTITIONED BY (day);
INSERT INTO days VALUES (1, 'mon'), (2, 'tue')"""
ROWS = "%%paimon\nSELECT day FROM days ORDER BY day"


@pytest.mark.parametrize("kernel", ["classic"], indirect=True)
def test_attended_cell_needs_confirmation_to_remove_many_rows(kernel: Kernel) -> None:
    def days() -> str:
        text: str = kernel.run(ROWS).displays[-1]["text/plain"]
        return " ".join(text.split()[2:-2])

    kernel.run(FILL)
    refused = kernel.execute(TAKES_AWAY.format(""))
    assert refused.error.startswith(
        "UnconfirmedError: INSERT OVERWRITE `default.days` without PARTITION removes 2 rows in "
        "2 files ("
    ), refused.error
    assert ") of 2 partitions." in refused.error
    assert "begin the cell with %%paimon --yes" in refused.error
    assert days() == "mon tue"
    kernel.run("%%paimon --dry-run\nTRUNCATE TABLE days")
    kernel.run("%%paimon --preview\nTRUNCATE TABLE days")
    kernel.run("%%paimon\nTRUNCATE TABLE days PARTITION (day = 'mon')")
    assert days() == "tue"
    kernel.run(TAKES_AWAY.format(" --yes"))
    assert days() == "wed"
    done = kernel.execute(TAKES_AWAY.format(""), attended=False)
    assert (done.error, days()) == ("", "wed")
    for statement in ("TRUNCATE TABLE days", "DROP TABLE days"):
        assert "removes 1 row in 1 file (" in kernel.execute(f"%%paimon\n{statement}").error
    kernel.run("%paimon config confirm=False")
    kernel.run("%%paimon\nTRUNCATE TABLE days")
    kernel.run("%paimon config confirm=True")
    kernel.run("%%paimon\nTRUNCATE TABLE days")  # nothing is in it
    assert "removes 6 snapshots" in kernel.execute("%%paimon\nDROP TABLE days").error
    kernel.run("%%paimon --yes\nDROP TABLE days")


@MOSTLY_CLASSIC
def test_unattended_kernel_shows_no_progress(kernel: Kernel) -> None:
    slow = "%%paimon\nSELECT count(*) FROM slow"
    # Long enough to be told of; Spark Connect hands over more and smaller frames.
    code = SLOW.replace("time.sleep(60)", "time.sleep(0.8 if number < 4 else 0)")
    kernel.run(code)
    try:
        assert told(kernel.run(slow))[0].startswith("Spark")
        unseen = kernel.execute(slow, attended=False)
        (only,) = unseen.updates
        assert only["text/plain"].startswith("count(1)")
        assert unseen.told == []
    finally:
        kernel.run(SLOW)


SPARKS_OWN_CALLS = """\
from paimon_magics.errors import UnsupportedStatementError
spark = paimon_magics.active_session().spark
refused = []
for change in (
    lambda: spark.range(1).write.saveAsTable("t"),
    lambda: spark.range(1).write.insertInto("t"),
    lambda: spark.range(1).writeTo("t").append(),
    lambda: spark.catalog.createTable("t", schema=spark.range(1).schema),
    lambda: spark.sql("INSERT INTO t VALUES (1, 'a')"),
):
    try:
        change()
    except UnsupportedStatementError as error:
        refused.append("is a Paimon table" in str(error))
spark.range(5).write.saveAsTable("of_sparks")
counts = [
    spark.table("t").count(),
    spark.read.table("t").count(),
    spark.sql("SELECT count(*) FROM t").collect()[0][0],
    spark.table("of_sparks").count(),
]
spark.sql("DROP TABLE of_sparks")
import pandas
harvest = pandas.DataFrame({"id": [0, 1]})
harvest.to_csv("harvest.csv", index=False)
refused, counts"""


def test_spark_calls_and_cells_read_tables_frames_and_files(kernel: Kernel) -> None:
    kernel.run("%%paimon\nCREATE TABLE IF NOT EXISTS t (id BIGINT, v STRING)")
    shown = kernel.run(SPARKS_OWN_CALLS).displays[-1]["text/plain"]
    assert shown == "([True, True, True, True, True], [1, 1, 1, 5])"
    actual = kernel.run("%%paimon\nSELECT v FROM harvest JOIN t USING (id)").displays[-1]
    assert actual["text/plain"].endswith("a pandas frame of 2 rows.")
    assert "before" in actual["text/plain"]
    actual = kernel.run("%%paimon\nSELECT max(id) FROM csv.`harvest.csv`").displays[-1]
    assert actual["text/plain"].splitlines()[2].strip() == "1"


QUERIES = """\
session = paimon_magics.active_session()
session.spark.conf.set("spark.sql.shuffle.partitions", "2")

def views():
    names = [table.name for table in session.spark.catalog.listTables()]
    return sum(name.startswith("paimon_magics_") for name in names)

def queries():
    for _ in range(5):
        session.run("SELECT snapshot_id FROM `t$snapshots`").to_pandas()

queries()
before = views()
queries()
more = views() - before
lazy = session.run("SELECT snapshot_id FROM `t$snapshots`").dataframe.limit(1)
queries()
more, [row.snapshot_id for row in lazy.collect()]"""


@MOSTLY_CLASSIC
def test_query_views_are_dropped_when_unused(kernel: Kernel) -> None:
    kernel.run("%%paimon\nCREATE TABLE IF NOT EXISTS t (id BIGINT, v STRING)")
    shown = kernel.run(QUERIES).displays[-1]["text/plain"]
    assert shown == "(0, [1])"


EVICTED = """\
session = paimon_magics.active_session()
spark = session.spark
session.close()
few = paimon_magics.connect("lake", spark=spark, kept_views_max=1)
few.run("CREATE TABLE a (k INT); INSERT INTO a VALUES (1); CREATE TABLE b (k INT)")
first = few.run("SELECT k FROM a").dataframe
for _ in range(2):
    few.run("SELECT k FROM b; SELECT k FROM a; SELECT k FROM b").to_pandas()
rows = [row.k for row in first.collect()]
few.close()
session = paimon_magics.connect("lake", spark=spark)
rows"""


@MOSTLY_CLASSIC
def test_frame_keeps_its_view_alive(kernel: Kernel) -> None:
    assert kernel.run(EVICTED).displays[-1]["text/plain"] == "[1]"
