"""Spark starts again after its JVM was killed, or its start was interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_KILLED = """
import os, signal, sys
import paimon_magics
from paimon_magics.errors import SetupError
from pyspark import SparkContext

session = paimon_magics.connect(sys.argv[1], coordinator="in-process")
session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
SparkContext._gateway.proc.kill()
SparkContext._gateway.proc.wait()
try:
    session.run("SELECT sum(k) FROM t")
except SetupError as error:
    print(error)
for ask in (session.history, session.layout, session.table):
    try:
        ask("t")
        print("not noticed")
    except SetupError as error:
        assert "Spark has ended" in str(error), error
session = paimon_magics.connect(sys.argv[1], coordinator="in-process")
print(session.run("SELECT sum(k) AS k FROM t").to_pylist())
"""

_INTERRUPTED = """
import os, signal, subprocess, sys, threading, time
import paimon_magics

def java():
    lines = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())],
                           capture_output=True, text=True).stdout.splitlines()
    return [line.split()[0] for line in lines if "java" in line]

def interrupt():
    while not java():
        time.sleep(0.05)
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGINT)

interrupting = threading.Thread(target=interrupt)
interrupting.start()
try:
    paimon_magics.connect(sys.argv[1], coordinator="in-process")
    interrupting.join()  # a fast machine has started before
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted", java())
session = paimon_magics.connect(sys.argv[1], coordinator="in-process")
print(session.run("SELECT 1 AS k").to_pylist(), len(java()))
"""


def _output(script: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_connect_after_killed_jvm_starts_a_new_jvm(tmp_path: Path) -> None:
    shown = _output(_KILLED, str(tmp_path))
    assert "Connect again" in shown and "not noticed" not in shown
    assert shown.splitlines()[-1] == "[{'k': 1}]"


@pytest.mark.parametrize("seconds", [0.3, 2, 4])
def test_interrupted_start_can_be_repeated_without_a_second_jvm(
    tmp_path: Path, seconds: float
) -> None:
    shown = _output(_INTERRUPTED, str(tmp_path), str(seconds)).splitlines()
    # On a quick machine Spark has started by then: the next connection goes on with it.
    assert shown[-1] == "[{'k': 1}] 1"
