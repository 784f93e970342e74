"""What a coordinator that died has left of a dropped table, its next start deletes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx

from tests.coordinator.process import Process, wait_until


def test_a_drop_that_died_is_finished_at_the_next_start(tmp_path: Path) -> None:
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start(faults="drop.detached=kill")
    fields = [{"id": 0, "name": "id", "type": "BIGINT"}]
    schema = {
        "fields": fields,
        "partitionKeys": [],
        "primaryKeys": [],
        "options": {},
        "comment": "",
    }
    identifier = {"database": "default", "object": "t"}
    headers = {"authorization": f"Bearer {process.token()}"}
    dropped = tmp_path / "warehouse/.paimon-magics/dropped"
    with httpx.Client(headers=headers, trust_env=False, timeout=60) as client:
        tables = f"{process.address}/v1/paimon/databases/default/tables"
        body = {"identifier": identifier, "schema": schema}
        assert client.post(tables, json=body).status_code == 200
        with contextlib.suppress(httpx.HTTPError):
            client.delete(f"{tables}/t")
    assert process.has_died()
    assert len(list(dropped.iterdir())) == 1
    process.start()
    wait_until(lambda: not list(dropped.iterdir()))
    process.close()
