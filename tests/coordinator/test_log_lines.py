"""The lines of a coordinator's log, and what names its build."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from paimon_magics.coordinator.ownership.redacted_log import _JsonFormatter, _TextFormatter
from paimon_magics.coordinator.protocol.errors import CURRENT, RequestId, about, request_id
from paimon_magics.version import _commit_of_checkout, build
from tests.coordinator.process import Process, create_table, wait_until


def started(
    tmp_path: Path, *options: str, sql: str = "CREATE TABLE t (k INT)"
) -> tuple[subprocess.Popen[str], str]:
    create_table(tmp_path / "warehouse", sql)
    places = [f"--warehouse={tmp_path / 'warehouse'}", f"--state={tmp_path / 'state'}"]
    running = subprocess.Popen(
        [sys.executable, "-m", "paimon_magics.coordinator", *places, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    return running, running.stdout.readline().split()[1]


def test_lines_are_json_objects_on_request(tmp_path: Path) -> None:
    running, address = started(tmp_path, "--log-format=json")
    token = (tmp_path / "state" / "token").read_text().strip()
    answer = httpx.get(
        f"{address}/v1/inserts/default/t",
        headers={"authorization": f"Bearer {token}", "x-request-id": "job-7"},
        trust_env=False,
    )
    assert answer.headers["x-request-id"] == "job-7"
    running.terminate()
    _, errors = running.communicate(timeout=30)
    lines = [json.loads(line) for line in errors.splitlines()]
    (ending,) = [line for line in lines if "SIGTERM" in line["message"]]
    assert ending["level"] == "WARNING" and ending["logger"].startswith("paimon_magics.")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", ending["time"])


def test_end_with_messages_of_streams_under_way_is_one_line(tmp_path: Path) -> None:
    sql = (
        "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true', "
        "'group_commit_interval_ms' = '600000')"
    )
    running, address = started(tmp_path, sql=sql)
    token = (tmp_path / "state" / "token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    path = f"{address.replace('http', 'ws', 1)}/v1/inserts/default/t/stream"

    def send(stream: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            for k in itertools.count():
                stream.send(json.dumps({"rows": [[k]]}))

    with contextlib.ExitStack() as ending:
        pool = ending.enter_context(ThreadPoolExecutor(4))
        for _ in range(4):
            opened = connect(path, additional_headers=headers, proxy=None, max_queue=None)
            stream = ending.enter_context(opened)
            pool.submit(send, stream)
        time.sleep(2)
        running.terminate()
        _, errors = running.communicate(timeout=60)
    assert "SIGTERM" in errors
    assert "never retrieved" not in errors, errors[:2_000]


def test_starts_takeovers_and_refused_starts_are_lines_too(tmp_path: Path) -> None:
    options = ["--log-format=json", "--standby", "--log=warehouse"]
    running, address = started(tmp_path, *options)
    token = (tmp_path / "state" / "token").read_text().strip()
    wait_until(lambda: httpx.get(f"{address}/health/owner", trust_env=False).status_code == 200, 30)
    second = subprocess.run(
        [sys.executable, "-m", "paimon_magics.coordinator", "--log-format=json",
         f"--warehouse={tmp_path / 'warehouse'}", f"--state={tmp_path / 'state'}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    running.terminate()
    _, errors = running.communicate(timeout=30)
    lines = [json.loads(line) for line in errors.splitlines()]
    messages = [line["message"] for line in lines if line["level"] == "INFO"]
    (start,) = [each for each in messages if each.startswith(f"Answers at {address}, standing by")]
    (takeover,) = [each for each in messages if each.startswith("Owns the warehouse since epoch 1")]
    assert start and takeover and token not in errors
    refused = [json.loads(line) for line in second.stderr.splitlines()]
    assert second.returncode == 2 and "in use by another" in refused[0]["message"]
    assert {"time", "level", "logger"} <= refused[0].keys()


@pytest.mark.parametrize(
    "form", [_TextFormatter("%(levelname)s %(message)s%(request)s"), _JsonFormatter()]
)
def test_a_line_names_its_request_and_table(form: logging.Formatter) -> None:
    record = logging.LogRecord("a", logging.ERROR, "f", 1, "it %s", ("failed",), None)
    assert "job-7" not in form.format(record)
    token = CURRENT.set(RequestId("job-7", "shop.orders"))
    try:
        line = form.format(record)
    finally:
        CURRENT.reset(token)
    assert "it failed" in line and "job-7" in line and "shop.orders" in line
    with about("shop.other"):  # as upkeep does, for which nobody has asked
        line = form.format(record)
    assert "shop.other" in line and "request" not in line


@pytest.mark.parametrize("given", [None, b"", b"a b", b"x" * 65, "ü".encode()])
def test_unusable_request_ids_are_replaced(given: bytes | None) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", request_id(given))


def test_refused_requests_have_an_id_too(tmp_path: Path) -> None:
    create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    try:
        answer = httpx.get(
            f"{process.address}/v1/inserts/default/missing",
            headers={"authorization": f"Bearer {process.token()}"},
            trust_env=False,
        )
        assert answer.status_code == 404 and answer.headers["x-request-id"]
    finally:
        process.close()


def test_version_names_the_commit_of_a_checkout(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "paimon_magics.coordinator", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"paimon-coordinator {build()}\n"
    commit = "0123456789abcdef0123456789abcdef01234567"
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    assert _commit_of_checkout(git) == commit
    (git / "HEAD").write_text(commit)
    assert _commit_of_checkout(git) == commit
    assert _commit_of_checkout(tmp_path / "none") == ""
