"""A kernel that is interrupted, then killed, in the middle of its Spark job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paimon_magics import Session
from tests.session.evidence import files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 120


def test_interrupted_or_killed_statement_leaves_the_table_unchanged(
    session: Session, warehouse: Path, tmp_path: Path
) -> None:
    session.run("CREATE TABLE t (k BIGINT, v STRING); INSERT INTO t VALUES (0, 'before')")
    listing = files(warehouse)
    marker = tmp_path / "writing"
    aside = tmp_path / "aside"  # nobody removes what it puts there: it is killed
    aside.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(aside),
        "SPARK_LOCAL_DIRS": str(aside),
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={aside}",
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.slow_writer", str(warehouse), str(marker)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "connected\n"

        wait_for(marker)
        assert files(warehouse).keys() > listing.keys(), "the job has begun to write"
        os.kill(child.pid, signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert files(warehouse) == listing
        child.stdin.write("go on\n")
        child.stdin.flush()
        assert child.stdout.readline() == "2\n"

        marker_gone(marker)
        wait_for(marker)
        child.kill()
        assert child.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # its JVM and Python workers too
        child.communicate()
    rows = session.run("SELECT k, v FROM t ORDER BY k").to_arrow().to_pylist()
    before = [(-1, "after the interrupt"), (0, "before")]
    assert [tuple(row.values()) for row in rows] == before
    outcome = session.run("INSERT OVERWRITE t SELECT k + 10, 'next' FROM t")
    assert (outcome.snapshot_id, outcome.rows_written) == (3, 2)
    assert session.table("t").count() == 2


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} has not come"
        time.sleep(0.05)


def marker_gone(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while path.exists():
        assert time.monotonic() < deadline, f"{path.name} has not gone"
        time.sleep(0.005)
