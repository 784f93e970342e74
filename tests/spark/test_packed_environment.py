"""Executors on another place get Python and its packages as docs/deployment.md says: packed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.backends.spark_home import spark_home
from tests.backends.toxiproxy import free_port

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(0)]

ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(r"```bash\n(python3 -m venv .*?)```", re.DOTALL)
SESSION = re.compile(r"```python\n(import os\n.*?spark://.*?)```", re.DOTALL)
SCRIPT = """
{session}
import json, sys

def where(_):
    import os, sys, paimon_magics
    return os.path.realpath(paimon_magics.__file__) + " " + sys.executable

session.spark.udf.register("where_am_i", where, "string")
session.run("CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')")
session.run("INSERT INTO t SELECT CAST(id AS INT), 'x' FROM range(1000)")
session.run("UPDATE t SET v = 'y' WHERE k % 2 = 1")
session.run("CALL sys.compact('t')")
session.run("CREATE TABLE u (k INT, v STRING)")
stream = session.write_stream(session.stream("t"), "u", checkpoint="c", trigger="available-now")
assert stream.wait(120)
assert session.table("u").count() == 1000
rows = session.run("SELECT v, count(*) AS n FROM t GROUP BY v ORDER BY v").to_arrow().to_pylist()
places = session.run("SELECT DISTINCT where_am_i(id) AS w FROM range(0, 4, 1, 4)").to_arrow()
print("FOUND " + json.dumps([rows, places["w"].to_pylist()]))
session.close(stop_spark=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a standalone cluster of one worker, and the folder in which it works."""
    home, work = spark_home(tmp_path / "home"), tmp_path / "work"
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    # The Python of this environment is not on the worker's PATH.
    environment = {
        "SPARK_HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    starts = str(home / "bin" / "spark-class")
    master = "org.apache.spark.deploy.master.Master"
    worker = "org.apache.spark.deploy.worker.Worker"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    sizes = ("--cores", "2", "--memory", "2g", "--work-dir", str(work))
    with ExitStack() as stack, open(tmp_path / "cluster.log", "w+b") as log:
        for command in (
            [starts, master, "--port", str(port), *place],
            [starts, worker, address, *place, *sizes],
        ):
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        deadline = time.monotonic() + 120
        while b"Successfully registered with master" not in Path(log.name).read_bytes():
            assert time.monotonic() < deadline, Path(log.name).read_text()[-4000:]
            time.sleep(0.5)
        yield address, work


def test_executors_use_the_packed_environment(cluster: tuple[str, Path], tmp_path: Path) -> None:
    address, work = cluster
    page = (ROOT / "docs" / "deployment.md").read_text()
    (commands,) = COMMANDS.findall(page)
    (session,) = SESSION.findall(page)
    commands = commands.replace("paimon-magics", str(ROOT)).replace("python3", sys.executable, 1)
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    session = session.replace("spark://master:7077", address).replace("/data/lake", "lake")
    done = subprocess.run(
        [tmp_path / "notebooks-env" / "bin" / "python", "-c", SCRIPT.format(session=session)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    (actual,) = re.findall(r"^FOUND (.*)$", done.stdout, re.MULTILINE)
    rows, places = json.loads(actual)
    assert rows == [{"v": "x", "n": 500}, {"v": "y", "n": 500}]
    assert places and all(place.startswith(str(work)) for place in places), places


def test_error_for_missing_executor_packages_names_the_remedy(tmp_path: Path) -> None:
    python = Path(sys.base_prefix, "bin", "python3")
    script = (
        "import paimon_magics\n"
        "session = paimon_magics.connect('lake', coordinator='in-process', local_rows_max=0)\n"
        "session.run('CREATE TABLE t (k INT)')\n"
        "session.run('INSERT INTO t SELECT CAST(id AS INT) FROM range(100000)')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "JobError: The Python of Spark's executors has no `pyarrow`. Set PYSPARK_PYTHON" in last
