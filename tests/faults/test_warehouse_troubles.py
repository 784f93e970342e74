"""A coordinator whose warehouse is full or can't be written: each is told, nothing is lost, and it
goes on when that is over."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.protocol.documents import request_document
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.faults.compactor import Compactor
from tests.tables.reachability import missing, unreachable

TRANSACTIONS = "/v1/transactions"
BEGIN = {"table": {"database": "default", "table": "t"}}


class Disk:
    """A file system of two megabytes, mounted as a warehouse."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._ballast = folder / "ballast"
        self._mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))

    def fill(self, room_bytes: int = 0) -> None:
        """Leave no more than so much room."""
        with self._ballast.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            file.truncate(file.tell() - room_bytes)

    def write_protect(self) -> None:
        self._mount("-o", "remount,ro", str(self.folder))

    def mend(self) -> None:
        self._mount("-o", "remount,rw", str(self.folder))
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    try:
        mounted = Disk(tmp_path_factory.mktemp("small") / "warehouse")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system can't be mounted here: {error}")
    yield mounted
    mounted.close()


@pytest.fixture(scope="module")
def process(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    state = tmp_path_factory.mktemp("state")
    started = Process(disk.folder, state, "--cleanup-grace-ms=200")
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
def test_a_warehouse_that_can_not_be_written_is_told_and_nothing_is_lost(
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
        assert http.get("/health/ready").json()["status"] == "ready"
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


@pytest.mark.parametrize("room_bytes", [0, 64 * 1024], ids=["at its begin", "in the middle"])
def test_a_compaction_that_finds_no_room_leaves_the_table_as_it_was(
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
