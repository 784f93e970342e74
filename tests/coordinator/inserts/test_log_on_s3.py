"""A coordinator without a disk of its own: its log lies with the tables, on S3."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx

from tests.backends.s3 import Bucket, S3Server
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


def test_what_was_acknowledged_outlives_the_machine(tmp_path: Path, s3: S3Server) -> None:
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
