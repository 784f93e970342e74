"""A session in a forked child is refused: PySpark's connections can't be shared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SOURCE = """
import json, os, sys
import paimon_magics
from paimon_magics.spark import sessions
from paimon_magics.errors import SetupError

session = paimon_magics.connect(sys.argv[1], coordinator="in-process", master="local[1]")
session.run("CREATE TABLE t (id INT)")
session.run("INSERT INTO t VALUES (1)")
folder = sessions.log_file().parent
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    answers = []
    for use in (
        lambda: session.run("SELECT * FROM t"),
        lambda: session.table("t"),
        lambda: session.spark,
        lambda: paimon_magics.connect(sys.argv[1]),
    ):
        try:
            answers.append(repr(use()))
        except SetupError as error:
            answers.append(str(error))
    session.close(stop_spark=True)
    try:
        answers.append(repr(paimon_magics.connect(sys.argv[1])))
    except SetupError as error:
        answers.append(str(error))
    os.write(writing, json.dumps(answers).encode())
    os.close(writing)
    os._exit(0)  # as multiprocessing ends its processes
os.close(writing)
with os.fdopen(reading) as answer:
    answers = json.loads(answer.read())
os.waitpid(child, 0)
rows = session.run("SELECT count(*) AS n FROM t").to_pylist()
print(json.dumps([answers, folder.exists(), rows]))
"""


def test_forked_child_is_refused_and_parent_continues(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SOURCE, str(tmp_path / "warehouse")],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    answers, has_folder, rows = json.loads(ran.stdout.splitlines()[-1])
    assert len(answers) == 5
    for answer in answers:
        assert "forked" in answer and 'get_context("spawn")' in answer
    assert has_folder and rows == [{"n": 1}]
