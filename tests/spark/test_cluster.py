"""Executors as processes of their own: what holds with threads for executors holds there too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics import Session
from tests.backends.spark_home import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
MASTER = "local-cluster[2,1,1024]"


# An upsert, a compaction, and where the tasks run. Of tasks that fail there `test_killed_clusters`
# has a short run.
SOME = "statements_order or compacted_by_a_job or test_cluster"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("marked", "chosen"),
    [
        pytest.param("cluster", SOME, id="some"),
        pytest.param("cluster and (soak or not soak)", "", id="all", marks=pytest.mark.soak),
    ],
)
def test_cluster_tests_pass_with_executors_in_separate_processes(
    tmp_path: Path, marked: str, chosen: str
) -> None:
    """In a pytest of its own: a process has one JVM, and a JVM one master."""
    files = [str(p) for p in (ROOT / "tests").rglob("test_*.py") if "mark.cluster" in p.read_text()]
    without = ("-p", "no:cacheprovider", "-p", "no:nbval")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", marked, "-k", chosen, *without, *files],
        cwd=ROOT,
        env={
            **os.environ,
            "PAIMON_MAGICS_TEST_MASTER": MASTER,
            "SPARK_HOME": str(spark_home(tmp_path / "home")),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]


@pytest.mark.spark
@pytest.mark.cluster
def test_tasks_run_this_python_and_find_the_package(session: Session, spark: SparkSession) -> None:
    def where(_: int) -> str:
        import sys

        import paimon_magics

        return f"{sys.executable} {paimon_magics.__file__}"

    import paimon_magics

    spark.udf.register("where_am_i", where, "string")
    actual = session.run("SELECT DISTINCT where_am_i(id) AS w FROM range(0, 4, 1, 4)").to_arrow()
    assert actual["w"].to_pylist() == [f"{sys.executable} {paimon_magics.__file__}"]


@pytest.mark.spark
@pytest.mark.cluster
def test_executors_match_the_configured_master(spark: SparkSession) -> None:
    context = spark.sparkContext
    wanted = os.environ.get("PAIMON_MAGICS_TEST_MASTER", "local[2]")
    assert context.master == wanted
    executors = len(context._jsc.sc().statusTracker().getExecutorInfos())
    assert executors == (3 if wanted == MASTER else 1), "the driver counts as one"
