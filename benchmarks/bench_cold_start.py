"""The time of the first cell of a fresh notebook: load, connect, and SELECT from a table.

Each run is a process of its own, so that nothing but the disk's cache is warm. The peer is a
process that starts Spark and selects the same rows from a Parquet file; the difference is our
overhead. The process that commits (`embedded`) is started anew, too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import report

RUNS = 3

MAKE = """
import paimon_magics, sys
with paimon_magics.connect(sys.argv[1], master="local[2]", coordinator="in-process") as session:
    session.run("CREATE TABLE t (id BIGINT, name STRING)")
    session.run("INSERT INTO t SELECT id, string(id) FROM range(100000)")
    session.spark.range(100000).selectExpr("id", "string(id) AS name").write.parquet(sys.argv[2])
"""

SPARK = """
import time
started = time.perf_counter()
import os, sys
from paimon_magics.spark.java import find_java, newest_java, prepare_environment
import pyspark
os.environ.update(prepare_environment(find_java(os.environ, newest_java(pyspark.__version__))))
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.port", "0")
    .config("spark.driver.memory", "2g").getOrCreate()
)
print("start", (time.perf_counter() - started) * 1000)
spark.read.parquet(sys.argv[2]).createOrReplaceTempView("t")
spark.sql("SELECT count(*) AS rows, max(name) AS last FROM t").toArrow()
print("total", (time.perf_counter() - started) * 1000)
"""

CELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import time
started = time.perf_counter()
shell.run_cell("%load_ext paimon_magics").raise_error()
print("load", (time.perf_counter() - started) * 1000)
shell.run_cell(f"%paimon connect warehouse={sys.argv[1]} master=local[2]").raise_error()
print("start", (time.perf_counter() - started) * 1000)
shell.run_cell("%%paimon\\nSELECT count(*) AS rows, max(name) AS last FROM t").raise_error()
print("total", (time.perf_counter() - started) * 1000)
"""


def times(script: str, folder: Path, coordinator: str) -> dict[str, float]:
    environment = {
        **os.environ,
        "PAIMON_COORDINATOR": coordinator,
        "XDG_STATE_HOME": str(folder / f"state-{os.urandom(4).hex()}"),
    }
    command = [sys.executable, "-c", script, str(folder / "lake"), str(folder / "parquet")]
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    words = [line.split() for line in done.stdout.decode().splitlines()]
    found = [pair for pair in words if len(pair) == 2 and pair[0] in ("load", "start", "total")]
    return {name: float(ms) for name, ms in found}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-cold-start-") as name:
        folder = Path(name)
        command = [sys.executable, "-c", MAKE, str(folder / "lake"), str(folder / "parquet")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kinds = {
            "Spark alone": (SPARK, "in-process"),
            "a first cell, in-process": (CELL, "in-process"),
            "a first cell, embedded": (CELL, "embedded"),
        }
        runs = {
            kind: [times(script, folder, coordinator) for _ in range(RUNS)]
            for kind, (script, coordinator) in kinds.items()
        }
        for kind, found in runs.items():
            for part in found[0]:
                report(f"{kind}: {part}", statistics.median(each[part] for each in found))


if __name__ == "__main__":
    main()
