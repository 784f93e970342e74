"""A folder in place of a snapshot or a hint is that table's damage: it is told with its path, and
the table can be dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.coordinator.process import Process, create_table, wait_until

TABLES = "/v1/paimon/databases/default/tables"
COLUMNS = "(id INT NOT NULL, x STRING)"
OPTIONS = (
    "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1', 'auto_batch_load' = 'true', "
    "'group_commit_interval_ms' = '100')"
)
FOLDERS = [
    ("snapshot/snapshot-1",),
    ("snapshot/LATEST", "snapshot/snapshot-1"),
    ("snapshot/EARLIEST", "snapshot/LATEST"),
]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("service")
    opened = Process(folder / "warehouse", folder / "state")
    create_table(opened.warehouse, f"CREATE TABLE other {COLUMNS}")
    opened.start()
    yield opened
    opened.close()


@pytest.fixture
def client(process: Process) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {process.token()}"}
    with httpx.Client(
        base_url=process.address, headers=headers, trust_env=False, timeout=60
    ) as opened:
        yield opened


def table_of(process: Process, client: httpx.Client) -> Path:
    create_table(Path(process.warehouse), f"CREATE TABLE t {COLUMNS} {OPTIONS}")
    rows, mode = {"rows": [[1, "x"]]}, {"group_commit": "sync_mode"}
    answer = client.post("/v1/inserts/default/t", json=rows, headers=mode)
    assert answer.status_code == 200, answer.text
    return Path(process.warehouse) / "default.db/t"


def check_dropped(client: httpx.Client) -> None:
    wait_until(lambda: client.delete(f"{TABLES}/t").status_code == 200)
    assert client.get(f"{TABLES}/t").status_code == 404
    assert client.get("/health/ready").status_code == 200


@pytest.mark.parametrize("places", FOLDERS, ids=lambda places: places[0])
def test_folder_in_place_of_a_file_is_reported_with_its_path(
    process: Process, client: httpx.Client, places: tuple[str, ...]
) -> None:
    table = table_of(process, client)
    for place in places:
        (table / place).unlink(missing_ok=True)
        (table / place).mkdir()
    for path in ("snapshot", "snapshots", "partitions"):
        answer = client.get(f"{TABLES}/t/{path}")
        assert answer.status_code < 500 or "Internal error" not in answer.text, answer.text
        assert answer.status_code == 200 or str(table) in answer.text, answer.text
    rows = {"rows": [[2, "x"]]}
    answer = client.post("/v1/inserts/default/t", json=rows)
    assert answer.status_code == 200 or str(table) in answer.text, answer.text
    check_dropped(client)
