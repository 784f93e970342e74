"""Classes of endpoints take no thread from each other, and a store that stands still takes none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.http.authorisation import SCOPES
from paimon_magics.coordinator.http.limits import Capacity, Threads
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from tests.coordinator.process import Process, create_table, write

WAITERS = 60
INSERTED = "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    create_table(tmp_path / "warehouse", INSERTED)
    create_table(tmp_path / "warehouse", "CREATE TABLE u (k INT)")
    made = Process(tmp_path / "warehouse", tmp_path / "state")
    made.start()
    yield made
    made.close()


def test_waiters_for_a_table_do_not_block_commits_and_heartbeats(
    process: Process, tmp_path: Path
) -> None:
    other = TableName("u", "default")
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE u (k INT)")
    client = process.client()
    transaction = client.begin(other)
    id = client.transactions.id_of(transaction)
    headers = {"Authorization": f"Bearer {process.token()}"}
    limits = httpx.Limits(max_connections=None)
    with (
        httpx.Client(
            base_url=process.address, headers=headers, trust_env=False, limits=limits, timeout=90
        ) as http,
        ThreadPoolExecutor(WAITERS) as waiters,
    ):
        bucket = tmp_path / "warehouse" / "default.db" / "t" / "bucket-0"
        bucket.touch()  # nothing can be loaded into it
        assert http.post("/v1/inserts/default/t", json={"rows": [[1]]}).status_code == 200
        document = {"table": {"database": "default", "table": "t", "branch": None}}
        waiting = [
            waiters.submit(http.post, "/v1/transactions", json=document) for _ in range(WAITERS)
        ]
        time.sleep(1)
        began = time.monotonic()
        heartbeat = f"/v1/transactions/{id}/heartbeat"
        assert http.post(heartbeat, json={}, timeout=2).status_code == 200
        for question in ("/v1/coordinator", "/metrics", "/health/ready", "/v1/inserts"):
            assert http.get(question, timeout=2).status_code == 200
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}])))
        assert time.monotonic() - began < 5
        assert not [each.result().text for each in waiting if each.done()]
        bucket.unlink()
        assert {each.result().status_code for each in waiting} == {200}


def test_disconnected_insert_frees_its_request_place(tmp_path: Path) -> None:
    create_table(tmp_path / "warehouse", INSERTED)
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--client-requests-max=2")
    process.start()
    bucket = tmp_path / "warehouse" / "default.db" / "t" / "bucket-0"
    bucket.touch()  # nothing can be loaded into it
    path = f"{process.address}/v1/inserts/default/t"
    try:
        asked = {"name": "etl", "allow": ["write"]}
        admin = {"Authorization": f"Bearer {process.token()}"}
        told = httpx.post(
            f"{process.address}/v1/tokens", json=asked, headers=admin, trust_env=False
        )
        headers = {"Authorization": f"Bearer {told.json()['token']}"}
        for mode in ("sync_mode", "off_mode", "sync_mode"):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    path,
                    json={"rows": [[1]]},
                    headers={**headers, "group_commit": mode},
                    trust_env=False,
                    timeout=1,
                )
        answer = httpx.post(path, json={"rows": [[2]]}, headers=headers, trust_env=False)
        assert answer.status_code == 200, answer.text
    finally:
        bucket.unlink()
        process.close()


def test_each_endpoint_has_a_capacity_class() -> None:
    threads = Threads()
    of = {each: threads.of_endpoint(each) for each in SCOPES}
    table = "/v1/paimon/databases/{database}/tables/{table}"
    for endpoint, capacity in (
        ("GET /metrics", Capacity.HEALTH),
        ("POST /v1/leases", Capacity.HEARTBEATS),
        ("POST /v1/transactions/{id}/heartbeat", Capacity.HEARTBEATS),
        ("POST /v1/transactions", Capacity.BEGINS),
        ("POST /v1/transactions/{id}/commit", Capacity.COMMITS),
        (f"POST {table}/commit", Capacity.COMMITS),
        (f"POST {table}/rollback", Capacity.DEFINITIONS),
        (f"DELETE {table}", Capacity.DEFINITIONS),
        ("POST /v1/inserts/{database}/{table}/flush", Capacity.INSERTS),
        ("POST /v1/changes", Capacity.DEFINITIONS),
        (f"GET {table}", Capacity.OTHERS),
    ):
        assert of[endpoint] is threads.of(capacity), endpoint


def test_table_with_hanging_files_delays_no_other_table(tmp_path: Path) -> None:
    for name in ("t", "hung"):
        create_table(tmp_path / "warehouse", INSERTED.replace("TABLE t", f"TABLE {name}"))
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    schema = tmp_path / "warehouse/default.db/hung/schema/schema-0"
    schema.unlink()
    os.mkfifo(schema)  # as a mount that hangs: whoever opens it waits
    headers = {"Authorization": f"Bearer {process.token()}"}
    with (
        ThreadPoolExecutor(60) as clients,
        httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http,
    ):
        row = {"rows": [[1]]}
        waiting = [
            clients.submit(http.post, "/v1/inserts/default/hung", json=row, timeout=60)
            for _ in range(60)
        ]
        try:
            time.sleep(2)
            began = time.monotonic()
            assert http.post("/v1/inserts/default/t", json=row, timeout=20).status_code == 200
            assert time.monotonic() - began < 10
            assert not any(each.done() for each in waiting)
        finally:
            process.kill()


def test_process_ends_despite_a_stuck_thread(tmp_path: Path) -> None:
    began = time.monotonic()
    program = (
        "import sys, threading, time\n"
        "from paimon_magics.coordinator.__main__ import command\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        f"sys.argv = ['paimon-coordinator', 'token', 'list', '--state={tmp_path}/none']\n"
        "command()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 2 and "The process ends anyway" in ended.stderr, ended.stderr
    assert time.monotonic() - began < 60
