"""`close(stop_spark=True)` ends Spark's JVM, and the next session starts another one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SOCKETS = """
import sys
import paimon_magics

session = paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]")
session.run("CREATE TABLE t (id INT)")
session.run("INSERT INTO t SELECT id FROM range(10)")
assert session.spark.range(3).rdd.map(lambda row: row.id + 1).sum() == 6
if sys.argv[2] == "stopped":
    session.close(stop_spark=True)
"""

SOURCE = """
import subprocess, sys
import paimon_magics
from pyspark import SparkContext

for number in range(2):
    session = paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]")
    session.run("CREATE TABLE IF NOT EXISTS t (id INT)")
    session.run("INSERT INTO t SELECT id FROM range(10)")
    jvm = SparkContext._gateway.proc
    assert jvm.poll() is None
    session.close(stop_spark=True)
    assert jvm.wait(10) is not None
with paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]") as session:
    print(session.run("SELECT count(*) AS n FROM t").to_pylist())
"""


def test_stopping_spark_ends_jvm_and_allows_a_new_start(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SOURCE, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parents[2],
    )
    assert ran.stdout.strip() == "[{'n': 20}]", ran.stderr[-3000:]


@pytest.mark.parametrize("end", ["stopped", "left open"])
def test_ended_session_leaves_no_socket_in_the_temporary_folder(tmp_path: Path, end: str) -> None:
    with tempfile.TemporaryDirectory(prefix="s") as temporary:  # tmp_path is too long for sockets
        subprocess.run(
            [sys.executable, "-c", SOCKETS, str(tmp_path / "warehouse"), end],
            env={**os.environ, "TMPDIR": temporary},
            check=True,
            timeout=240,
            cwd=Path(__file__).parents[2],
        )
        assert [path.name for path in Path(temporary).rglob("*.sock")] == []
