"""A coordinator without a disk of its own: its log lies with the tables, on S3."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from paimon_magics.coordinator.client.interface import Definitions
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable
from tests.backends.s3 import Bucket, Reply, S3Server
from tests.coordinator.inserts.serving import SLOW, TABLE, table_sql
from tests.coordinator.process import Process, create_table, read

LEASE = "--ownership-lease-ms=2000"


def post(process: Process, path: str, body: Any = None, label: str | None = None) -> Any:
    headers = {"authorization": f"Bearer {process.token()}"}
    if label is not None:
        headers["idempotency-key"] = label
    answer = httpx.post(
        f"{process.address}/v1/inserts/default/t{path}",
        content=json.dumps(body or {}),
        headers=headers,
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def started(bucket: Bucket, state: Path) -> Process:
    process = Process(
        bucket.options["warehouse"], state, LEASE, "--log=warehouse", catalog=bucket.options
    )
    process.start()
    return process


def test_acknowledged_inserts_outlive_the_machine(tmp_path: Path, s3: S3Server) -> None:
    bucket = s3.bucket()
    catalog = create_table(bucket.options, table_sql(options=SLOW))
    first = started(bucket, tmp_path / "state")
    post(first, "", {"rows": [[1, "a"]]}, "one")
    post(first, "/flush")
    for number in (2, 3):
        post(first, "", {"rows": [[number, "a"]]}, f"label-{number}")
    first.kill()
    shutil.rmtree(tmp_path / "state")
    second = started(bucket, tmp_path / "another-state")
    try:
        repeated = post(second, "", {"rows": [[3, "a"]]}, "label-3")
        assert (repeated["lsn"], repeated["duplicate"]) == (3, True)
        assert post(second, "", {"rows": [[4, "a"]]})["lsn"] == 4
        assert post(second, "/flush")["lsn"] == 4
        assert [row["id"] for row in read(catalog, TABLE)] == [1, 2, 3, 4]
    finally:
        second.close()


def test_table_created_while_its_predecessor_is_deleted_keeps_its_rows(
    tmp_path: Path, s3: S3Server
) -> None:
    """Deleting the files of a table takes long on S3; its name is free before that."""
    bucket = s3.bucket()
    catalog = create_table(bucket.options, table_sql(options=SLOW))
    process = started(bucket, tmp_path / "state")
    statement = parse_statement(table_sql(options=SLOW))
    assert isinstance(statement, CreateTable)
    deleting = threading.Event()

    def slow_deletes(environment: dict[str, Any], hand_on: Callable[[], Reply]) -> Reply:
        query = environment["QUERY_STRING"]
        if environment["REQUEST_METHOD"] == "DELETE" or "delete" in query.split("&"):
            deleting.set()
            time.sleep(0.5)
        return hand_on()

    try:
        for number in range(3):
            post(process, "", {"rows": [[-1 - number, "old"]]})
            post(process, "/flush")
        definitions = Definitions(catalog, process.client().change_definition)
        s3.between = slow_deletes
        with ThreadPoolExecutor(1) as pool:
            dropping = pool.submit(definitions.drop_table, TABLE)
            assert deleting.wait(30)
            assert definitions.create_table(TABLE, plan_create_table(statement))
            assert not dropping.done()
            for number in range(3):
                assert post(process, "", {"rows": [[number, "new"]]})["lsn"] == number + 1
            post(process, "/flush")
            post(process, "", {"rows": [[3, "waits"]]})
            assert dropping.result(60)
        post(process, "/flush")
        assert [row["id"] for row in read(catalog, TABLE)] == [0, 1, 2, 3]
    finally:
        s3.between = lambda _, hand_on: hand_on()
        process.close()
