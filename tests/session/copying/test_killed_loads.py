"""A process that dies inside a COPY INTO: the next one loads each file exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics.planning.copying.load_history import HISTORY_FOLDER, PENDING_FOLDER
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
import sys
import paimon_magics

with paimon_magics.connect(sys.argv[1], coordinator="in-process") as session:
    session.run(f"COPY INTO t FROM '{sys.argv[2]}' FILE_FORMAT = (TYPE = CSV)")
"""


@pytest.mark.usefixtures("state_home")
@pytest.mark.parametrize(
    ("step", "status"),
    [("load.noted", "LOADED"), ("load.committed", "SKIPPED")],
)
def test_killed_load_is_settled_by_the_next_one(
    spark: SparkSession, warehouse: Path, tmp_path: Path, step: str, status: str
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("1,a\n2,b\n")
    (source / "b.csv").write_text("3,c\n")
    with paimon_magics.connect(warehouse, spark=spark, coordinator="in-process") as session:
        session.run("CREATE TABLE t (id INT, v STRING)")
    ran = subprocess.run(
        [sys.executable, "-c", DRIVER, str(warehouse), str(source)],
        env={**os.environ, "PAIMON_MAGICS_FAULTS": f"{step}=kill", "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ran.returncode != 0, "the step was not reached"
    with paimon_magics.connect(warehouse, spark=spark, coordinator="in-process") as session:
        statement = f"COPY INTO t FROM '{source}' FILE_FORMAT = (TYPE = CSV)"
        answer = session.run(statement).to_pylist()
        assert {row["status"] for row in answer} == {status}, ran.stderr[-2000:]
        assert rows(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,)]
        table = warehouse / "default.db" / "t"
        assert len(list((table / HISTORY_FOLDER).iterdir())) == 2
        notes = list((table / PENDING_FOLDER).iterdir())
        assert len(notes) == (1 if step == "load.noted" else 0), "it may still run, for all we know"
        again = session.run(statement).to_pylist()
        assert {row["status"] for row in again} == {"SKIPPED"}
