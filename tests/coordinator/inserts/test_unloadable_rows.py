"""Acknowledged rows that can't be loaded do not lock their table: its definition can be changed, it
can be dropped, and an administrator can give the rows up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.process import TABLE, Process, create_table, read, wait_until

SQL = (
    "CREATE TABLE t (id INT NOT NULL, x STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = "
    "'1', 'auto_batch_load' = 'true', 'group_commit_interval_ms' = '100')"
)
TABLES = "/v1/paimon/databases/default/tables"


class Service:
    """A coordinator whose table `t` has two snapshots, the second of them damaged, and a row that
    waits to be loaded."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self.process = Process(self.warehouse, folder / "state")
        create_table(self.warehouse, SQL)
        self.process.start()
        self.client = httpx.Client(
            base_url=self.process.address,
            headers={"authorization": f"Bearer {self.process.token()}"},
            trust_env=False,
            timeout=120,
        )
        self.insert(1, "sync_mode")
        self.insert(2, "sync_mode")
        snapshots = self.warehouse / "default.db/t/snapshot"
        self.manifests = self.warehouse / "default.db/t/manifest"
        self.damaged = json.loads((snapshots / "snapshot-2").read_text())["deltaManifestList"]
        self.content = (self.manifests / self.damaged).read_bytes()
        (self.manifests / self.damaged).write_bytes(b"x")
        self.insert(3, "async_mode")
        wait_until(lambda: bool(self.queue()["last_error"]))

    def post(self, path: str, document: Any, **headers: str) -> httpx.Response:
        return self.client.post(path, json=document, headers=headers)

    def insert(self, number: int, mode: str) -> None:
        answer = self.post("/v1/inserts/default/t", {"rows": [[number, "x"]]}, group_commit=mode)
        assert answer.status_code == 200, answer.text

    def queue(self) -> dict[str, Any]:
        (queue,) = self.client.get("/v1/inserts").json()["tables"]
        return dict(queue)

    def mend(self) -> None:
        (self.manifests / self.damaged).write_bytes(self.content)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    opened = Service(tmp_path)
    try:
        yield opened
    finally:
        opened.client.close()
        opened.process.close()


def test_table_with_an_unloadable_row_can_be_altered_and_loads_it_later(service: Service) -> None:
    change = {"action": "setOption", "key": "snapshot.num-retained.min", "value": "20"}
    answer = service.post(f"{TABLES}/t", {"changes": [change]})
    assert answer.status_code == 200, answer.text
    moved = {
        "source": {"database": "default", "object": "t"},
        "destination": {"database": "default", "object": "u"},
    }
    assert service.post("/v1/paimon/tables/rename", moved).status_code == 200
    service.manifests = service.warehouse / "default.db/u/manifest"
    service.mend()
    assert service.post("/v1/inserts/default/u/flush", {}).status_code == 200
    catalog = create_table(service.warehouse, "CREATE TABLE other (id INT)")
    rows = read(catalog, type(TABLE)("u", database="default"))
    assert sorted(row["id"] for row in rows) == [1, 2, 3]


def test_table_with_an_unloadable_row_can_be_dropped(service: Service) -> None:
    assert service.client.delete(f"{TABLES}/t").status_code == 200
    assert service.client.get(f"{TABLES}/t").status_code == 404
    create_table(service.warehouse, SQL)
    service.insert(7, "sync_mode")
    assert service.client.get("/health/ready").status_code == 200


def test_administrator_discards_an_unloadable_row_and_rolls_back(service: Service) -> None:
    path = "/v1/inserts/default/t/reopen"
    answered = service.post(path, {"accept_loss": True})
    if answered.status_code == 409:  # the row was just being loaded
        wait_until(lambda: service.post(path, {"accept_loss": True}).status_code == 200)
    assert service.queue()["waiting_rows"] == 0
    instant = {"instant": {"type": "snapshot", "snapshotId": 1}}
    answer = service.post(f"{TABLES}/t/rollback", instant)
    assert answer.status_code == 200, answer.text
    service.insert(4, "sync_mode")
    rows = read(create_table(service.warehouse, "CREATE TABLE other (id INT)"))
    assert sorted(row["id"] for row in rows) == [1, 4]


def test_insert_is_refused_when_table_options_prevent_loading(service: Service) -> None:
    service.mend()
    assert service.post("/v1/inserts/default/t/flush", {}).status_code == 200
    for key, value in (
        ("manifest.compression", "brotli"),
        ("metadata.stats-mode", "truncate(x)"),
        ("file.compression.per.level", "0:brotli"),
    ):
        change = {"action": "setOption", "key": key, "value": value}
        if service.post(f"{TABLES}/t", {"changes": [change]}).status_code != 200:
            continue  # refused already
        answer = service.post("/v1/inserts/default/t", {"rows": [[9, "x"]]})
        assert answer.status_code in (400, 501), (key, answer.text)
        assert f"'{key}'" in answer.text
        undo = {"action": "removeOption", "key": key}
        assert service.post(f"{TABLES}/t", {"changes": [undo]}).status_code == 200
    service.insert(9, "sync_mode")
