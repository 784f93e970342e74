"""The JVM of an idle Spark returns the heap that it does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
import paimon_magics
from paimon_magics.spark import sessions
from paimon_magics.spark.sessions import release_when_idle

def heap():
    beans = session.spark._jvm.java.lang.management.ManagementFactory
    return beans.getMemoryMXBean().getHeapMemoryUsage().getCommitted()

def limits():
    jvm = session.spark._jvm
    kind = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(kind)
    return [bean.getVMOption(f"{name}HeapFreeRatio").getValue() for name in ("Min", "Max")]

with paimon_magics.connect(sys.argv[1], coordinator="in-process") as session:
    assert sessions._idle_watch.is_alive()
    before = limits()
    session.spark.range(3_000_000).selectExpr("size(collect_list(id))").collect()
    grown = heap()
    release_when_idle(session.spark, look_s=2.0)
    ends = time.monotonic() + 60
    while heap() > 0.7 * grown and time.monotonic() < ends:
        time.sleep(1)
    print(heap() / grown, limits() == before)
    assert session.spark.range(1_000_000).count() == 1_000_000
"""


@pytest.mark.spark
def test_idle_jvm_returns_heap_and_continues_to_work(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:+UseG1GC"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "warehouse")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left, is_as_before = done.stdout.split()
    assert float(left) <= 0.7
    assert is_as_before == "True"
