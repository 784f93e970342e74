"""A process that dies inside a COPY INTO: the next one loads each file exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics.planning.copying.load_history import HISTORY_FOLDER, PENDING_FOLDER
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.table import Table
from tests.backends.s3 import s3_server
from tests.coordinator.process import Process, wait_until
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
import json, sys
import paimon_magics

with paimon_magics.connect(**json.loads(sys.argv[1])) as session:
    session.run(f"COPY INTO t FROM '{sys.argv[2]}' FILE_FORMAT = (TYPE = CSV)")
"""
CSV = "FILE_FORMAT = (TYPE = CSV)"


def killed(connection: Mapping[str, Any], source: Path, step: str) -> str:
    """Let a session die at a step of COPY INTO; return what it wrote to its error output."""
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(connection), str(source)],
        env={**os.environ, "PAIMON_MAGICS_FAULTS": f"{step}=kill", "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ran.returncode != 0, "the step was not reached"
    return ran.stderr[-2000:]


def source_files(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.csv").write_text("1,a\n2,b\n")
    (folder / "b.csv").write_text("3,c\n")
    return folder


def names(table: Path, folder: str) -> list[str]:
    return sorted(file.name for file in (table / folder).iterdir())


@pytest.mark.usefixtures("state_home")
@pytest.mark.parametrize(
    ("step", "status"),
    [("load.noted", "LOADED"), ("load.committed", "SKIPPED")],
)
def test_killed_load_is_settled_by_the_next_one(
    spark: SparkSession, warehouse: Path, tmp_path: Path, step: str, status: str
) -> None:
    source = source_files(tmp_path / "in")
    with paimon_magics.connect(warehouse, spark=spark, coordinator="in-process") as session:
        session.run("CREATE TABLE t (id INT, v STRING)")
    error = killed({"warehouse": str(warehouse), "coordinator": "in-process"}, source, step)
    with paimon_magics.connect(warehouse, spark=spark, coordinator="in-process") as session:
        statement = f"COPY INTO t FROM '{source}' {CSV}"
        answer = session.run(statement).to_pylist()
        assert {row["status"] for row in answer} == {status}, error
        assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
        table = warehouse / "default.db" / "t"
        assert len(names(table, HISTORY_FOLDER)) == 2
        notes = names(table, PENDING_FOLDER)
        assert len(notes) == (1 if step == "load.noted" else 0), "it may still run, for all we know"
        again = session.run(statement).to_pylist()
        assert {row["status"] for row in again} == {"SKIPPED"}


@pytest.fixture(params=["disk", "S3"])
def place(request: pytest.FixtureRequest, warehouse: Path) -> Iterator[dict[str, str]]:
    """Catalog options of a warehouse on a disk, or in S3."""
    if request.param == "disk":
        yield {"warehouse": str(warehouse)}
        return
    with s3_server() as server:
        yield server.bucket().options


@pytest.mark.parametrize(
    ("step", "status"),
    [("load.noted", "LOADED"), ("load.committed", "SKIPPED")],
)
def test_load_of_a_killed_kernel_is_settled_by_its_coordinator(
    spark: SparkSession, place: dict[str, str], tmp_path: Path, step: str, status: str
) -> None:
    source = source_files(tmp_path / "in")
    coordinator = Process(place["warehouse"], tmp_path / "state", "--lease-ms=2000", catalog=place)
    coordinator.start()
    try:
        connection: dict[str, Any] = {
            "catalog": place,
            "coordinator": coordinator.address,
            "token": coordinator.token(),
        }
        with paimon_magics.connect(spark=spark, **connection) as session:
            session.run("CREATE TABLE t (id INT, v STRING)")
        error = killed(connection, source, step)
        with paimon_magics.connect(spark=spark, **connection) as session:
            # Its tasks note what they write: nothing waits for them.
            wait_until(lambda: session.administration.transactions().to_pylist() == [], seconds=40)
            table = session.catalog.load(TableName("t", database="default"))
            names = partial(stored_names, table)
            assert names(PENDING_FOLDER) == []
            statement = f"COPY INTO t FROM '{source}' {CSV}"
            answer = session.run(statement).to_pylist()
            assert {row["status"] for row in answer} == {status}, error
            assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
            assert len(names(HISTORY_FOLDER)) == 2
            again = session.run(statement).to_pylist()
            assert {row["status"] for row in again} == {"SKIPPED"}
    finally:
        coordinator.close()


def stored_names(table: Table, folder: str) -> list[str]:
    return table.store.names(f"{table.location}/{folder}")
