"""An IPython shell with the extension, and a connection that ends with its test."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

import paimon_magics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[str], object]


@pytest.fixture
def make_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Config], InteractiveShell]]:
    """Makes shells that are told a configuration; nothing of them is left after the test."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    opening = sys.modules.get("paimon_magics.session.opening")
    if opening is not None:  # what another test connected to, or failed to, is not this one's
        monkeypatch.setattr(opening, "_failed", None)
        monkeypatch.setattr(opening, "_active_words", None)

    def make(config: Config) -> InteractiveShell:
        InteractiveShell.clear_instance()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        return InteractiveShell.instance(config=config)

    yield make
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(make_shell: Callable[[Config], InteractiveShell]) -> InteractiveShell:
    """A shell with the extension loaded, and no connection."""
    shell = make_shell(Config())
    shell.run_cell("%load_ext paimon_magics").raise_error()
    return shell


@pytest.fixture
def closed_at_the_end() -> Iterator[None]:
    """After the test, closes the process's connection and takes back what it told Spark."""
    from paimon_magics.session.opening import active_session

    yield
    session = active_session()
    if session is not None:
        session.spark.conf.unset("spark.sql.session.timeZone")
        session.close()


@pytest.fixture(scope="session")
def warehouse_with_orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table `orders` of three rows, for copies."""
    folder = tmp_path_factory.mktemp("orders") / "warehouse"
    with paimon_magics.connect(folder, spark=spark, coordinator="in-process") as session:
        session.run(
            "CREATE TABLE orders (id INT NOT NULL, item STRING, day STRING) PARTITIONED BY (day) "
            "TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1'); "
            "INSERT INTO orders VALUES (1, 'tea', 'mon'), (2, NULL, 'mon'), (3, 'milk', 'tue')"
        )
    return folder


@pytest.fixture
def connected(
    warehouse_with_orders: Path,
    tmp_path: Path,
    shell: InteractiveShell,
    spark: SparkSession,
    closed_at_the_end: None,
) -> InteractiveShell:
    """A shell that is connected to a warehouse of its own, with the table `orders`."""
    shutil.copytree(warehouse_with_orders, tmp_path / "warehouse")
    shell.user_ns["spark"] = spark
    shell.run_cell("%paimon connect warehouse=warehouse spark=spark").raise_error()
    return shell


@pytest.fixture
def run(connected: InteractiveShell) -> Run:
    """Runs a cell of the connected shell that must succeed, and returns its value."""

    def run(cell: str) -> object:
        done: ExecutionResult = connected.run_cell(cell)
        done.raise_error()
        return done.result

    return run
