"""Notebooks, in real kernels, that share one Spark Connect server and one coordinator."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.settings import Settings
from paimon_magics.spark.connect_server import PORT, launch_environment, launch_words
from paimon_magics.spark.python_daemon import IDLE_SECONDS, MODULE
from paimon_magics.spark.remote import server_address
from tests.magics.kernel import ROOT, Done, Kernel
from tests.spark.shared_server import Place, family, family_mb, shared_place

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SESSION_S, DETACHED_S = 6, 3
NOTEBOOK_MB_MAX = 400
SETTINGS = {
    "spark.master": "local[4]",
    "spark.connect.session.manager.defaultSessionTimeout": f"{SESSION_S}s",
    "spark.connect.session.manager.maintenanceInterval": "1s",
    "spark.connect.execute.manager.detachedTimeout": f"{DETACHED_S}s",
    "spark.connect.execute.manager.maintenanceInterval": "1s",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
}
# Each task hands over some rows, and adds a line to a file twice a second.
SLOW = """\
import pathlib, time
lines = pathlib.Path("{name}").absolute()
spark = paimon_magics.active_session().spark

def rows(frames):
    for frame in frames:
        yield frame.head(1)
        for _ in range({halves}):
            with lines.open("a") as file:
                file.write("here\\n")
            time.sleep(0.5)

spark.range(0, {tasks}, 1, {tasks}).mapInPandas(rows, "id BIGINT").createOrReplaceTempView("slow")
"""
# A file that tasks may read lies at the server as long as the session.
SENDS = """\
import pathlib
pathlib.Path("prices.txt").write_text("1")
paimon_magics.active_session().spark.addArtifacts("prices.txt", file=True)
"""
COUNT = "%%paimon\nSELECT count(*) AS n FROM slow"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    idle = {IDLE_SECONDS: "3"}
    with shared_place(tmp_path_factory.mktemp("shared"), SETTINGS, idle) as place:
        yield place


@pytest.fixture(scope="module")
def three(place: Place) -> list[Kernel]:
    with ThreadPoolExecutor(3) as aside:
        starts = [aside.submit(place.notebook) for _ in range(3)]
        return [start.result() for start in starts]


@dataclass(frozen=True)
class Silent:
    """A notebook with a view that has run nothing since then."""

    kernel: Kernel
    since: float


@pytest.fixture(scope="module")
def silent(three: list[Kernel]) -> Silent:
    """The third notebook: what requests this fixture, and what follows, leaves it alone, so that no
    test has to wait for long."""
    three[2].run("%%paimon\nCREATE TEMPORARY VIEW there AS SELECT 42 AS n")
    return Silent(three[2], time.monotonic())


def at_once(*cells: Callable[[], Done]) -> list[Done]:
    with ThreadPoolExecutor(len(cells)) as aside:
        return [result.result() for result in [aside.submit(cell) for cell in cells]]


def shown(done: Done) -> str:
    return str(done.displays[-1]["text/plain"])


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def daemons(place: Place) -> list[int]:
    """The processes that Python processes of tasks are forked from, and these. The server's JVM has
    the module's name in a setting."""
    named = {pid: Path(f"/proc/{pid}/cmdline") for pid in family(place.server.pid)}
    lines = {pid: line.read_text().split("\0") for pid, line in named.items() if line.exists()}
    return [pid for pid, line in lines.items() if MODULE in line]


def session_of(kernel: Kernel) -> str:
    """The address of the notebook's session at the server: whoever has it shares the session."""
    code = "_c = paimon_magics.active_session().spark.client\n_c._session_id, _c._user_id or ''"
    session, user = eval(shown(kernel.run(code)))
    return f"/;session_id={session}" + (f";user_id={user}" if user else "")


LOOK = """
import sys
from pyspark.sql import SparkSession
try:
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    print([table.name for table in spark.catalog.listTables()])
    spark.client._release_session_on_exit = False
except Exception as error:
    print(str(error).splitlines()[0])
"""


def look_into(place: Place, session: str) -> str:
    """The views of a session at the server, or the first line of why there is none. A look is a
    sign of life, too."""
    words = [sys.executable, "-c", LOOK, place.server.address + session]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def test_idle_notebook_on_a_server_is_small_and_has_no_jvm(three: list[Kernel]) -> None:
    for kernel in three:
        assert 50 < family_mb(kernel.pid) < NOTEBOOK_MB_MAX
        programs = {Path(f"/proc/{pid}/comm").read_text() for pid in family(kernel.pid)}
        assert "java\n" not in programs


def test_notebooks_insert_and_query_at_the_same_time(three: list[Kernel]) -> None:
    three[0].run("%%paimon\nCREATE TABLE shared (who INT, k BIGINT)")

    def work(number: int) -> Done:
        kernel = three[number]
        for step in range(3):
            kernel.run(
                f"%%paimon\nINSERT INTO shared SELECT {number}, id FROM "
                f"range({step * 1000}, {step * 1000 + 1000})"
            )
            mine = kernel.run(f"%%paimon\nSELECT count(*), max(k) FROM shared WHERE who = {number}")
            assert str((step + 1) * 1000) in shown(mine)
        # Views of the same name are each notebook's own.
        kernel.run(f"%%paimon\nCREATE TEMPORARY VIEW mine AS SELECT {number} + 40 AS n")
        return kernel.run("%%paimon\nSELECT n FROM mine")

    views = at_once(*(lambda number=number: work(number) for number in range(3)))
    assert [str(number + 40) in shown(view) for number, view in enumerate(views)] == [True] * 3
    rows = three[1].run("%%paimon\nSELECT count(*), count(DISTINCT who, k) FROM shared")
    assert shown(rows).splitlines()[2].split() == ["9000", "9000"]


def test_interrupt_stops_one_notebook_and_each_sees_its_own_progress(three: list[Kernel]) -> None:
    interrupted, others = three[0], three[1:]
    interrupted.run(SLOW.format(name="lines", tasks=2, halves=120))
    for kernel in others:
        kernel.run(SLOW.format(name="lines", tasks=1, halves=14))
    lines = interrupted.folder / "lines"
    pressed: list[float] = []

    def press(so_far: Done) -> bool:
        if not lines.exists() or not any("of 2 tasks" in text for _, text in so_far.told):
            return False
        pressed.append(time.monotonic())
        interrupted.interrupt()
        return True

    stopped, *rest = at_once(
        lambda: interrupted.execute(COUNT, meanwhile=press),
        *(lambda kernel=kernel: kernel.run(COUNT) for kernel in others),
    )
    assert stopped.error.startswith("KeyboardInterrupt: the cell was stopped"), stopped.error
    for done in rest:
        assert shown(done).splitlines()[2].strip() == "1"
        tasks = [text for _, text in done.told if " task" in text]
        assert tasks and not any("of 2 tasks" in text for text in tasks), tasks
    assert not any("of 1 task" in text for _, text in stopped.told), stopped.told
    time.sleep(1)
    size = lines.stat().st_size
    time.sleep(1.5)
    assert lines.stat().st_size == size, "its tasks have ended"
    assert shown(interrupted.run("%%paimon\nSELECT 1 AS n")).splitlines()[2].strip() == "1"


def test_killed_notebook_leaves_neither_jobs_nor_session_at_the_server(
    place: Place, silent: Silent
) -> None:
    kernel = place.notebook()
    before = place.server.files()
    kernel.run(SLOW.format(name="lines", tasks=1, halves=120))
    kernel.run(SENDS)
    assert place.server.files() != before
    session = session_of(kernel)
    assert "'slow'" in look_into(place, session)
    lines = kernel.folder / "lines"
    cell = "%%paimon\nINSERT INTO killed SELECT id FROM slow"
    kernel.run("%%paimon\nCREATE TABLE killed (id BIGINT)")

    def kill(_: Done) -> bool:
        if lines.exists():
            kernel.kill()
            raise InterruptedError
        return False

    with pytest.raises(InterruptedError):
        kernel.execute(cell, meanwhile=kill)
    killed = time.monotonic()
    wait_for(lambda: time.time() - lines.stat().st_mtime > 2, DETACHED_S + 10)
    wait_for(lambda: place.server.files() == before, SESSION_S + 20)
    assert time.monotonic() - killed > SESSION_S / 2
    assert "SESSION_CLOSED" in look_into(place, session)


def test_idle_python_of_a_session_ends_and_comes_back(place: Place) -> None:
    """Spark ends idle processes after a minute; their daemon then ends, and is started anew."""
    kernel = place.notebook()
    kernel.run(SLOW.format(name="idle.txt", tasks=1, halves=0))
    kernel.run(COUNT)
    assert daemons(place)
    wait_for(lambda: not daemons(place), 120)
    assert "1" in shown(kernel.run(COUNT))
    assert daemons(place)


def test_culled_notebook_ends_its_session_at_once(place: Place) -> None:
    kernel = place.notebook()
    before = place.server.files()
    kernel.run(SENDS)
    assert place.server.files() != before
    session = session_of(kernel)
    pid = kernel.pid
    kernel.cull()
    culled = time.monotonic()
    assert not Path(f"/proc/{pid}").exists()
    wait_for(lambda: place.server.files() == before, SESSION_S / 2)
    assert time.monotonic() - culled < SESSION_S, "before the server would have ended it"
    assert "SESSION_CLOSED" in look_into(place, session)
    assert not list((kernel.folder / "aside").glob("paimon-magics-*"))


def test_silent_notebook_keeps_its_session_and_views(silent: Silent) -> None:
    time.sleep(max(0, silent.since + SESSION_S + 3 - time.monotonic()))
    seen = silent.kernel.run("%%paimon\nSELECT n FROM there")
    assert shown(seen).splitlines()[2].strip() == "42"


def test_notebook_connects_again_after_the_server_was_restarted(
    place: Place, three: list[Kernel]
) -> None:
    kernel = three[1]
    place.server.stop()
    place.server.start()
    failed = kernel.execute("%%paimon\nSELECT 1 AS n")
    assert "The session on the Spark Connect server has ended" in failed.error, failed.error
    assert "%paimon connect" in failed.error
    kernel.run("%paimon connect")
    assert shown(kernel.run("%%paimon\nSELECT 1 AS n")).splitlines()[2].strip() == "1"
    own = "SparkSession.getActiveSession() is paimon_magics.active_session().spark"
    assert shown(kernel.run(f"from pyspark.sql import SparkSession\n{own}")) == "True"


# A process has one kind of Spark at a time: from a server to a Spark of its own, and not back.
BOTH = """
import os, sys
import paimon_magics
from paimon_magics.errors import SetupError

server = sys.argv[2]
with paimon_magics.connect(sys.argv[1], coordinator="in-process", master=server) as session:
    assert type(session.spark).__module__.startswith("pyspark.sql.connect")
    session.close(stop_spark=True)
os.environ["SPARK_REMOTE"] = server
with paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]") as session:
    assert session.spark.sparkContext.master == "local[1]"
    assert session.run("SELECT 1 AS n").to_pylist() == [{"n": 1}]
try:
    paimon_magics.connect(sys.argv[1], coordinator="in-process", master=server)
except SetupError as error:
    print(error)
"""


@pytest.mark.soak
def test_process_changes_from_a_server_to_a_spark_of_its_own(place: Place, tmp_path: Path) -> None:
    words = [sys.executable, "-c", BOTH, str(tmp_path / "lake"), place.server.address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "has a Spark of its own running" in done.stdout


@pytest.mark.parametrize(
    ("master", "remote", "address"),
    [
        (Settings().master, "sc://lake:15002", "sc://lake:15002"),
        ("sc://other:1", "sc://lake:15002", "sc://other:1"),
        ("local[2]", "sc://lake:15002", None),
        (Settings().master, "", None),
    ],
)
def test_own_master_goes_before_spark_remote(master: str, remote: str, address: str | None) -> None:
    assert server_address(master, {"SPARK_REMOTE": remote}) == address


def test_spark_remote_that_names_no_server_is_refused() -> None:
    with pytest.raises(SetupError, match="SPARK_REMOTE is `local"):
        server_address(Settings().master, {"SPARK_REMOTE": "local[*]"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host=0.0.0.0"], "without a token would run anybody's code"),
        (["--port=1", "--host=192.0.2.1"], "without a token"),
    ],
)
def test_server_open_to_strangers_is_refused(options: list[str], message: str) -> None:
    words = [sys.executable, "-m", "paimon_magics.spark.connect_server", *options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_CONNECT_")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ([], "127.0.0.1"),
        (["--master", "local[2]"], "127.0.0.1"),
        (["--conf", "spark.master=spark://lake:7077"], None),
        (["--master=local[2]", "--master", "yarn"], None),
    ],
)
def test_only_a_server_of_a_cluster_is_open_to_other_machines(
    options: list[str], host: str | None
) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    environment = launch_environment(plain, options)
    words = launch_words("127.0.0.1", PORT, Path("/tmp/x"), options)
    bound = [word for word in words if word.startswith("spark.driver.bindAddress=")]
    assert bound == ([] if host is None else [f"spark.driver.bindAddress={host}"])
    assert environment.get("SPARK_LOCAL_IP") == host
