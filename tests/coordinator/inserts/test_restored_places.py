"""An open statement keeps its place among small inserts when the coordinator dies: what is
acknowledged after its beginning is loaded after its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.coordinator.inserts.engine.recovery import with_place
from paimon_magics.coordinator.inserts.queue.events import BeginFlush, HoldEnded, Ticked
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Batch, Queue
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.sampling import only_in_soak

SQL = (
    "CREATE TABLE orders (id INT NOT NULL, x STRING) TBLPROPERTIES ('primary-key' = 'id', "
    "'bucket' = '1', 'auto_batch_load' = 'true', 'group_commit_interval_ms' = '100')"
)
TABLE = TableName("orders", "default")


class Service:
    def __init__(self, folder: Path, log: str) -> None:
        warehouse = folder / "warehouse"
        self.catalog: Catalog = create_table(warehouse, SQL)
        self.process = Process(warehouse, folder / "state", f"--log={log}")
        self.process.start()

    def post(self, path: str, document: Any, **headers: str) -> httpx.Response:
        headers["authorization"] = f"Bearer {self.process.token()}"
        return httpx.post(
            self.process.address + path, json=document, headers=headers, timeout=60, trust_env=False
        )

    def insert(self, id: int, mode: str = "async_mode", table: str = "orders") -> None:
        rows = {"rows": [[id, "x"]]}
        answer = self.post(f"/v1/inserts/default/{table}", rows, group_commit=mode)
        assert answer.status_code == 200, answer.text

    def queue(self, table: str = "orders") -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.process.token()}"}
        path = f"{self.process.address}/v1/inserts/default/{table}"
        return dict(httpx.get(path, headers=headers, trust_env=False).json())

    def begin(self, table: str = "orders") -> dict[str, Any]:
        name = {"database": "default", "table": table}
        answer = self.post("/v1/transactions", {"table": name, "ticket": uuid.uuid4().hex})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def truncate(self, begun: dict[str, Any]) -> httpx.Response:
        change = {"kind": "overwrite-partitions", "specs": [], "swallow_newer": True}
        request = {"change": change, "messages": [], "properties": {}}
        document = {**request, "transaction": begun["transaction"]}
        return self.post(f"/v1/transactions/{begun['id']}/commit", document)

    def ids(self, name: TableName = TABLE) -> list[object]:
        return sorted(row["id"] for row in read(self.catalog, name))


@pytest.fixture(params=only_in_soak(["store", "warehouse"], ["store"]))
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    opened = Service(tmp_path, request.param)
    yield opened
    opened.process.close()


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_rows_behind_an_open_statement_stay_behind_it_after_restart(
    service: Service, ends: str
) -> None:
    service.insert(1, "sync_mode")
    begun = service.begin()
    service.insert(2)
    if ends == "killed":
        service.process.kill()
    else:
        service.process.end()
    service.process.start()
    service.insert(3)
    queue = service.queue()
    assert (queue["published"], queue["held_by"]) == (1, 1)
    answer = service.truncate(begun)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: service.queue()["published"] == 3)
    assert service.ids() == [2, 3], "they were acknowledged after the statement began"
    assert service.queue()["held_by"] == 0


def test_rows_are_loaded_when_the_statement_is_aborted(service: Service) -> None:
    begun = service.begin()
    service.insert(1)
    service.process.kill()
    service.process.start()
    answer = service.post(f"/v1/transactions/{begun['id']}/abort", {})
    assert answer.status_code == 200, answer.text
    wait_until(lambda: service.queue()["published"] == 1)
    assert service.ids() == [1]


@pytest.mark.parametrize("is_flushing", [False, True])
def test_no_batch_behind_a_restored_place_is_flushed(is_flushing: bool) -> None:
    first, second = Batch(1, 1, 1, 1, 0), Batch(2, 2, 1, 1, 0)
    queue = Queue(next_lsn=3, sealed=(first, second))
    if is_flushing:
        queue = Queue(next_lsn=3, flushing=first, unsettled=True, sealed=(second,))
    queue, effects = step(with_place(queue, "place"), Ticked(10_000))
    assert not any(isinstance(effect, BeginFlush) for effect in effects)
    if not is_flushing:
        queue, effects = step(queue, HoldEnded("place", 10_000))
        assert effects == (BeginFlush(first),)


def test_statement_keeps_its_place_on_a_table_without_earlier_inserts(service: Service) -> None:
    begun = service.begin()
    service.process.kill()
    service.process.start()
    service.insert(1)
    assert service.queue()["held_by"] == 1
    answer = service.truncate(begun)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: service.queue()["published"] == 1)
    assert service.ids() == [1], "it was acknowledged after the statement began"


def test_statement_on_an_externally_renamed_table_keeps_its_place(service: Service) -> None:
    service.insert(1, "sync_mode")
    renamed = TableName("renamed", "default")
    service.catalog.rename_table(TABLE, renamed)  # around the coordinator
    begun = service.begin(renamed.table)
    service.process.kill()
    service.process.start()
    service.insert(2, table=renamed.table)
    assert service.queue(renamed.table)["held_by"] == 1
    answer = service.truncate(begun)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: service.queue(renamed.table)["published"] == 2)
    assert service.ids(renamed) == [2], "it was acknowledged after the statement began"


def test_coordinator_without_the_statement_refuses_it_and_loses_no_row(tmp_path: Path) -> None:
    service = Service(tmp_path, "warehouse")
    try:
        service.insert(1, "sync_mode")
        begun = service.begin()
        service.insert(2)
        service.process.kill()
        options = ("--log=warehouse", "--lease-ms=2000")
        service.process = Process(tmp_path / "warehouse", tmp_path / "other", *options)
        service.process.start()
        service.insert(3)
        answer = service.truncate(begun)
        assert answer.status_code == 409, answer.text
        assert "lost its place among small inserts" in answer.text
        wait_until(lambda: service.queue()["published"] == 3)
        assert service.ids() == [1, 2, 3]
        assert service.truncate(begun).status_code == 410, "it has ended"
    finally:
        service.process.close()
