"""PySpark's daemon, with ours around it, ends by itself where nobody needs it; real processes."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paimon_magics.spark import python_daemon

IDLE_SECONDS = 2.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the daemon is Linux's")


def started(**more: str) -> tuple[subprocess.Popen[bytes], int]:
    """A daemon, as Spark starts it, and its port."""
    environment = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("PYTHON_UNIX_DOMAIN_ENABLED", None)
    daemon = subprocess.Popen(
        [sys.executable, "-m", python_daemon.MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    return daemon, port


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_daemon_ends_when_its_last_process_has_and_not_before() -> None:
    daemon, port = started(**{python_daemon.IDLE_SECONDS: str(IDLE_SECONDS)})
    try:
        with socket.create_connection(("127.0.0.1", port)) as worker:
            select.select([worker], [], [], 30)  # it says its process id
            assert children(daemon.pid)
            time.sleep(2 * IDLE_SECONDS)
            assert daemon.poll() is None and children(daemon.pid)
        began = time.monotonic()
        daemon.wait(60)
        assert time.monotonic() - began > IDLE_SECONDS / 2
    finally:
        daemon.kill()
        daemon.wait()


def test_daemon_of_a_sessions_own_spark_stays() -> None:
    daemon, _ = started()
    try:
        time.sleep(2 * IDLE_SECONDS)
        assert daemon.poll() is None
    finally:
        daemon.kill()
        daemon.wait()
