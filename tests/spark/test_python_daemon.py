"""The daemon of Spark's Python processes: what they find imported, and from where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paimon_magics.spark.python_daemon import MODULE, unpacked

STARTED = """
import json, sys
import paimon_magics

def told(_):
    found = [name for name in ("pandas", "pypaimon", "paimon_magics.spark.reading")
             if name in sys.modules]
    return json.dumps([found, sys.modules["pyspark"].__file__])

with paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]") as session:
    # A function of this script goes to the task by value and imports nothing.
    rows = session.spark.sparkContext.parallelize([1], 1).map(told).collect()
    module = session.spark.conf.get("spark.python.daemon.module", "")
    print("FOUND", json.dumps([module, *json.loads(rows[0])]))
    session.spark.stop()
"""


def test_archive_of_installed_pyspark_is_left_off_the_path() -> None:
    archive, other = "/env/site/pyspark/python/lib/pyspark.zip", "/opt/spark/python/lib/pyspark.zip"
    path = [archive, "/env/site/pyspark/python/lib/py4j-src.zip", other, "", "/env/site"]
    assert unpacked(path) == [place for place in path if place != archive]
    assert unpacked([other, "/env/site"]) == [other, "/env/site"]


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep PySpark's daemon")
@pytest.mark.parametrize("is_own", [True, False], ids=["this Python", "another Python"])
def test_python_workers_of_own_spark_preload_task_modules(tmp_path: Path, is_own: bool) -> None:
    """Executors of another Python may not have them, and keep PySpark's daemon."""
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable if is_own else str(other)}
    output = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path / "warehouse")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    module, imported, pyspark = json.loads(output.split("FOUND", 1)[1])
    assert module == (MODULE if is_own else "")
    assert imported == (["pandas", "pypaimon", "paimon_magics.spark.reading"] if is_own else [])
    assert ("pyspark.zip" in pyspark) != is_own
