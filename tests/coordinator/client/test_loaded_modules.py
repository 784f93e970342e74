"""What a kernel loads that commits in its own process: no web server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

WEB_SERVER = {"starlette", "uvicorn", "websockets", "prometheus_client"}

SCRIPT = """
import json, sys
import paimon_magics
with paimon_magics.connect(sys.argv[1], coordinator="in-process") as session:
    session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
    rows = session.run("SELECT k FROM t").to_arrow().to_pylist()
print(json.dumps([rows, sorted(sys.modules)]))
"""


def test_a_session_without_a_coordinator_loads_no_web_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows, modules = json.loads(done.stdout.splitlines()[-1])
    assert rows == [{"k": 1}]
    assert "paimon_magics.coordinator.client.in_process" in modules
    assert {name.partition(".")[0] for name in modules} & WEB_SERVER == set()
