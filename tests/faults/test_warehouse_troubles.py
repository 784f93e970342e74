"""A coordinator whose warehouse is full or can't be written: each is told, nothing is lost, and it
goes on when that is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from paimon_magics.coordinator.protocol.documents import request_document
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.faults.compactor import Compactor
from tests.faults.disk import Disk, mounted_disk
from tests.tables.reachability import missing, unreachable

TRANSACTIONS = "/v1/transactions"
BEGIN = {"table": {"database": "default", "table": "t"}}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with mounted_disk(tmp_path_factory.mktemp("small") / "warehouse") as disk:
        yield disk


@pytest.fixture(scope="module")
def process(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    state = tmp_path_factory.mktemp("state")
    options = ("--cleanup-grace-ms=200", "--ownership-lease-ms=1500")
    started = Process(disk.folder, state, *options)
    started.start()
    yield started
    started.close()


@pytest.fixture
def catalog(disk: Disk) -> Iterator[Catalog]:
    made = create_table(disk.folder, "CREATE TABLE t (k INT, v STRING)")
    yield made
    disk.mend()
    made.drop_table(TABLE)


@pytest.mark.parametrize(
    ("trouble", "named"),
    [(Disk.fill, "No space left on device"), (Disk.write_protect, "Read-only file system")],
    ids=["full", "read-only"],
)
def test_unwritable_warehouse_is_reported_and_loses_no_rows(
    process: Process, disk: Disk, catalog: Catalog, trouble: Callable[[Disk], None], named: str
) -> None:
    client = process.client()
    first = client.begin(TABLE)
    before = CommitRequest(first, Append(), write(catalog, first, [{"k": 1, "v": "a"}]))
    receipt = client.commit(before)
    second = client.begin(TABLE)
    request = CommitRequest(second, Append(), write(catalog, second, [{"k": 2, "v": "b"}]))
    headers = {"Authorization": f"Bearer {process.token()}"}
    with httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http:
        trouble(disk)
        id = client.transactions.id_of(second)
        refused = http.post(
            f"{TRANSACTIONS}/{id}/commit", json=request_document(request), timeout=60
        )
        assert (refused.status_code, refused.json()["error"]["type"]) == (507, "Storage")
        assert named in refused.json()["error"]["message"]
        assert "Nothing was committed" in refused.json()["error"]["message"]
        opened = http.post(TRANSACTIONS, json=BEGIN, timeout=60)
        assert opened.status_code == 503
        assert named in opened.json()["error"]["message"]
        ready = http.get("/health/ready")  # a slow machine may not have renewed the lease since
        assert ready.status_code == 200 or "lease" in ready.text
        with pytest.raises(SetupError, match=named):
            client.begin(TABLE)
        assert client.commit(before) == receipt, "what was acknowledged is known"
        assert read(catalog) == [{"k": 1, "v": "a"}]
        disk.mend()
        again = http.post(f"{TRANSACTIONS}/{id}/commit", json=request_document(request))
        assert again.status_code == 410 and named in again.json()["error"]["message"]
    third = client.begin(TABLE)
    client.commit(CommitRequest(third, Append(), write(catalog, third, [{"k": 3, "v": "c"}])))
    assert sorted(row["k"] for row in read(catalog)) == [1, 3]  # type: ignore[type-var]
    assert missing(catalog.load(TABLE)) == set()


def test_coordinator_continues_once_there_is_room_for_its_lease(
    process: Process, disk: Disk, catalog: Catalog
) -> None:
    client = process.client()
    first, second = client.begin(TABLE), client.begin(TABLE)
    request = CommitRequest(first, Append(), write(catalog, first, [{"k": 1, "v": "a"}]))
    disk.fill()
    time.sleep(2)  # longer than the lease
    with pytest.raises(SetupError, match="No space left on device"):
        client.begin(TABLE)
    with ThreadPoolExecutor(1) as pool:
        receipt = pool.submit(client.commit, request)
        time.sleep(0.5)
        disk.mend()
        try:
            assert receipt.result().snapshot_id == 1
        except PaimonMagicsError as error:  # the worker was faster than the disk was mended
            assert "No space left on device" in error.message
    more = CommitRequest(second, Append(), write(catalog, second, [{"k": 2, "v": "b"}]))
    client.commit(more)
    assert {"k": 2, "v": "b"} in read(catalog)
    assert missing(catalog.load(TABLE)) == set()


def test_small_insert_waits_for_room_for_the_lease(process: Process, disk: Disk) -> None:
    """Its row is in the log, on another disk, when the lease has run out: it is acknowledged once
    the lease could be taken again, and not before."""
    options = "'auto_batch_load' = 'true', 'group_commit_interval_ms' = '200'"
    catalog = create_table(disk.folder, f"CREATE TABLE s (k INT) TBLPROPERTIES ({options})")
    table = TableName("s", "default")
    headers = {"Authorization": f"Bearer {process.token()}"}
    with (
        httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http,
        ThreadPoolExecutor() as pool,
    ):

        def insert(key: int) -> httpx.Response:
            rows = {"columns": ["k"], "rows": [[key]]}
            return http.post("/v1/inserts/default/s", json=rows, timeout=60)

        assert insert(0).status_code == 200
        wait_until(lambda: len(read(catalog, table)) == 1)
        disk.fill()
        time.sleep(2.5)  # the lease runs out
        waiting = pool.submit(insert, 1)
        time.sleep(2)
        assert not waiting.done(), waiting.result().text
        disk.mend()
        assert waiting.result().status_code == 200
        assert insert(2).status_code == 200
    wait_until(lambda: [row["k"] for row in read(catalog, table)] == [0, 1, 2])
    catalog.drop_table(table)


@pytest.mark.parametrize("room_bytes", [0, 64 * 1024], ids=["at its begin", "in the middle"])
def test_compaction_on_a_full_disk_leaves_the_table_unchanged(
    process: Process, disk: Disk, room_bytes: int
) -> None:
    options = "'primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'lookup'"
    catalog = create_table(
        disk.folder, f"CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ({options})"
    )
    client, compactor = process.client(), Compactor(process.client())
    for first in (0, 100):
        transaction = client.begin(TABLE)
        rows = [{"k": k, "v": os.urandom(600).hex()} for k in range(first, first + 200)]
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))
    table, before = catalog.load(TABLE), {row["k"]: row["v"] for row in read(catalog)}
    disk.fill(room_bytes)
    with pytest.raises(Exception, match="No space left on device"):
        compactor.compact(catalog, TABLE, is_full=True)
    assert {row["k"]: row["v"] for row in read(catalog)} == before
    disk.mend()
    wait_until(lambda: unreachable(table) == set())
    assert compactor.compact(catalog, TABLE, is_full=True).receipt is not None
    assert {row["k"]: row["v"] for row in read(catalog)} == before
    assert missing(table) == unreachable(table) == set()
    catalog.drop_table(TABLE)
