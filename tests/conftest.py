"""Fixtures for every test: one Spark session for the whole run, started when first asked."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.backends.jvm import prepare_jvms
from tests.backends.maven import fetched_jar
from tests.fast import Fast
from tests.lots import Lot, dear_files, enter_zone
from tests.oracle.java_compactor import JavaCompact, java_compactor
from tests.oracle.java_reader import PACKAGE, JavaPaimon
from tests.order import FileTimes, dearest_first, recorded_seconds
from tests.recorded_reads import unpack_recorded_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import paimon_magics
    from tests.backends.s3 import S3Server
    from tests.coordinator.postgres import PostgresServer

prepare_jvms()
ZONE = enter_zone(Path(__file__).parents[1])

ROOT = str(Path(__file__).parents[1])
MASTER = os.environ.get("PAIMON_MAGICS_TEST_MASTER", "local[2]")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("paimon-magics")
    group.addoption("--fast", action="store_true", help="only tests that start no process")
    group.addoption(
        "--lot", action="store_true", help="one lot of the cases of dear files: tests/lots.py"
    )
    group.addoption(
        "--slowest-files", type=int, default=0, metavar="N", help="print the N slowest files"
    )
    group.addoption(
        "--write-durations", action="store_true", help="write tests/durations.json anew"
    )


def pytest_report_header() -> str:
    return f"zone of the machine: TZ={ZONE}"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.fast:
        config.pluginmanager.register(Fast(config.rootpath, recorded_seconds()))
    if config.option.lot:
        config.pluginmanager.register(Lot(config.rootpath, recorded_seconds()))
    shown, writes = config.option.slowest_files, config.option.write_durations
    if shown or writes:
        in_part = dear_files(recorded_seconds()) if config.option.lot else {}
        config.pluginmanager.register(FileTimes(shown, writes, in_part))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files, and deselect tests marked `soak` unless `-m` names that mark; then no test
    has a limit of time."""
    dearest_first(items, recorded_seconds())
    if "soak" in config.option.markexpr:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
        return
    left_out = [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A Spark session with two cores, a warehouse folder of its own and no UI.

    Each operator runs by itself: the code that Spark makes of a whole stage is compiled anew for
    most of the tests' small queries, a tenth of all CPU time. Notebooks, kernels and clusters of
    the tests, and `make soak`, have it, as Spark does by default.
    Its JVM also has the jar of Paimon's Java library, the oracle of `java_paimon`.
    PAIMON_MAGICS_TEST_MASTER chooses another master: a process has one JVM, and a JVM one master.
    """
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    compiles = "soak" in request.config.option.markexpr
    # Temporary files of Spark, its executors and Paimon's Java library are removed with the tests'.
    aside = tmp_path_factory.mktemp("aside")
    session = (
        SparkSession.builder.master(MASTER)
        .appName("paimon-magics tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.codegen.wholeStage", str(compiles).lower())
        .config("spark.driver.memory", "2g")
        # Running tasks report their rows so often.
        .config("spark.executor.heartbeatInterval", "1s")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "paimon_magics.spark.python_daemon")
        # As connect() sets it. A longer path is none of a socket.
        .config("spark.python.unix.domain.socket.enabled", str(len(str(aside)) <= 60).lower())
        .config("spark.executorEnv.PYTHONPATH", ROOT)
        # Ended jobs are kept for a UI; a question about jobs returns all of them.
        .config("spark.ui.retainedJobs", "100")
        .config("spark.ui.retainedStages", "100")
        .config("spark.ui.retainedTasks", "1000")
        .config("spark.sql.ui.retainedExecutions", "50")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark-warehouse")))
        .config("spark.local.dir", str(aside))
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={aside}")
        .config("spark.executor.extraJavaOptions", f"-Djava.io.tmpdir={aside}")
        .config("spark.jars", fetched_jar(PACKAGE))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def java_paimon(spark: SparkSession) -> JavaPaimon:
    """Paimon's own Java library, for tests marked `java`."""
    return JavaPaimon(spark)


@pytest.fixture(scope="session")
def java_compact(spark: SparkSession) -> JavaCompact:
    """Compacts a table with Paimon's own Java library. (One for all tests: py4j knows a class by
    its name, and would take one that was compiled again for another.)"""
    return java_compactor(spark)


@pytest.fixture(scope="session")
def recorded_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of `tests/recorded_reads.py`; tests only read it."""
    return unpack_recorded_warehouse(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the tests' own."""
    from tests.coordinator.postgres import start_postgres

    server = start_postgres()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server for tests that ask it for buckets, and do nothing else to it."""
    from tests.backends.s3 import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an HDFS cluster; a test has a folder of its own there."""
    from tests.backends.hdfs_cluster import hdfs_cluster

    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def store_address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The address of a coordinator's store, for each kind of store (None: SQLite). PostgreSQL's
    password is in the environment."""
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.empty_database()


@pytest.fixture(autouse=True)
def no_coordinator_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions commit in the tests' process unless a test sets another coordinator."""
    monkeypatch.setenv("PAIMON_COORDINATOR", "in-process")


@pytest.fixture(autouse=True)
def errors_are_short() -> Iterator[None]:
    """Restores a setting of the process after each test: whether errors show whole tracebacks."""
    from paimon_magics.boundary import show_full_tracebacks, shows_full_tracebacks

    before = shows_full_tracebacks()
    yield
    show_full_tracebacks(before)


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for the state of coordinators that a test starts; they are killed after it."""
    from paimon_magics.coordinator.ownership.state_folder import StateFolder

    home = tmp_path / "state-home"
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    yield home
    for path in home.glob("paimon-magics/*-*"):
        folder = StateFolder(path)
        with folder.turn("starting"):  # waits for a coordinator that is being started
            running = folder.running()
            if running is not None and folder.is_held():
                os.kill(running.pid, signal.SIGKILL)
            while folder.is_held():
                time.sleep(0.02)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of the test's own warehouse; it need not exist yet."""
    return tmp_path / "warehouse"


@pytest.fixture
def session(
    spark: SparkSession, warehouse: Path, request: pytest.FixtureRequest
) -> Iterator[paimon_magics.Session]:
    """An open session on `warehouse`, with the settings SETTINGS of the test's module. After the
    test it is closed, and its views are dropped."""
    import paimon_magics

    settings = getattr(request.module, "SETTINGS", {})
    with paimon_magics.connect(warehouse, spark=spark, **settings) as opened:
        yield opened
    _drop_views(spark)


@pytest.fixture(scope="module")
def module_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the warehouse that a module's tests share; it need not exist yet."""
    return tmp_path_factory.mktemp("module") / "warehouse"


@pytest.fixture(scope="module")
def module_session(
    spark: SparkSession, module_warehouse: Path, request: pytest.FixtureRequest
) -> Iterator[paimon_magics.Session]:
    """An open session on `module_warehouse`, for tests that only read, expect refusals, or use
    tables of their own; with the settings SETTINGS of the module. A process has one open session,
    so the module can't open another."""
    import paimon_magics

    settings = {"coordinator": "in-process", **getattr(request.module, "SETTINGS", {})}
    with paimon_magics.connect(module_warehouse, spark=spark, **settings) as opened:
        yield opened
    _drop_views(spark)


def _drop_views(spark: SparkSession) -> None:
    # `spark.catalog.listTables()` would take a tenth of a second of CPU time after each test.
    catalog = spark._jsparkSession.sessionState().catalog()  # type: ignore[attr-defined]
    views = catalog.listLocalTempViews("*")
    for name in [views.apply(position).table() for position in range(views.size())]:
        spark.catalog.dropTempView(name)
