"""`close(stop_spark=True)` ends Spark's JVM, and the next session starts another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

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
