"""Two coordinators on one warehouse: the older is stopped between its check and its publish, the
newer takes over, and the older goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import epoch_of
from tests.backends.s3 import S3Server
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write

LEASE = "--ownership-lease-ms=1500"
DEPOSED = 3
APPEND_TABLE = "CREATE TABLE t (k INT, v STRING)"
KEY_TABLE = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
)


@pytest.fixture
def catalog_options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A warehouse on the disk; the indirect parameter "s3" puts it into a bucket."""
    if getattr(request, "param", "disk") == "disk":
        return {"warehouse": str(tmp_path / "warehouse")}
    server: S3Server = request.getfixturevalue("s3")
    return server.bucket().options


class Two:
    """The two coordinators, and their clients."""

    def __init__(self, tmp_path: Path, options: dict[str, str]) -> None:
        self.options = options
        self._clients: list[RemoteCoordinator] = []
        self.older, self.newer = (
            Process(tmp_path / "warehouse", tmp_path / name, LEASE, catalog=options)
            for name in ("older", "newer")
        )

    def stopped(self) -> None:
        """Wait until the older stands still."""
        wait_until(self.older.is_stopped)

    def go_on(self) -> int:
        """Let the older go on to its end; its exit code."""
        assert self.older.running is not None
        self.older.running.send_signal(signal.SIGCONT)
        self.older.running.communicate(timeout=30)
        return self.older.running.wait()

    def client(self, catalog: Catalog) -> RemoteCoordinator:
        """A client of the older, which may look into the warehouse for the newer."""
        client = RemoteCoordinator(At(self.older.address, self.older.token(), catalog))
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for process in (self.older, self.newer):
            if process.running is not None and process.running.poll() is None:
                process.running.send_signal(signal.SIGCONT)
            process.close()


@pytest.fixture
def two(tmp_path: Path, catalog_options: dict[str, str]) -> Iterator[Two]:
    made = Two(tmp_path, catalog_options)
    yield made
    made.close()


def epochs(catalog: Catalog) -> list[int]:
    manager = catalog.load(TABLE).paimon.snapshot_manager()
    latest = manager.get_latest_snapshot()
    count = 0 if latest is None else latest.id
    found = [manager.get_snapshot_by_id(number) for number in range(1, count + 1)]
    return [epoch_of(snapshot.properties) for snapshot in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("catalog_options", "kind", "meanwhile"),
    [
        ("disk", "append", "nothing"),
        ("disk", "append", "another commit"),
        ("disk", "append", "the same commit"),
        ("disk", "overwrite", "another commit"),
        ("s3", "append", "another commit"),
        pytest.param("disk", "primary key", "the same commit", marks=pytest.mark.soak),
        pytest.param("s3", "append", "nothing", marks=pytest.mark.soak),
        pytest.param("s3", "append", "the same commit", marks=pytest.mark.soak),
    ],
    indirect=["catalog_options"],
)
def test_commit_frozen_in_a_deposed_owner_happens_once(two: Two, kind: str, meanwhile: str) -> None:
    change = OverwritePartitions(swallow_newer=True) if kind == "overwrite" else Append()
    two.older.start(faults="commit.prepared=stop")
    catalog = create_table(two.options, KEY_TABLE if kind == "primary key" else APPEND_TABLE)
    client = two.client(catalog)
    transaction = client.begin(TABLE)
    messages = write(
        catalog, transaction, [{"k": 1, "v": "a"}], overwrite=not isinstance(change, Append)
    )
    request = CommitRequest(transaction, change, messages)
    with ThreadPoolExecutor(1) as pool:
        asked: Future[CommitReceipt] = pool.submit(client.commit, request)
        two.stopped()
        two.newer.start()
        assert epochs(catalog) == []
        if meanwhile == "another commit":
            other = two.newer.client()
            begun = other.begin(TABLE)
            rows = write(catalog, begun, [{"k": 2, "v": "b"}])
            assert other.commit(CommitRequest(begun, Append(), rows)).snapshot_id == 1
        elif meanwhile == "the same commit":
            impatient = two.newer.client()
            id = client.transactions.id_of(request.transaction)
            impatient.transactions.ended(request.transaction.commit_user, id)
            assert impatient.commit(request).snapshot_id == 1
        assert not asked.done()
        assert two.go_on() == DEPOSED
        receipt = asked.result(60)
    assert receipt.snapshot_id == (2 if meanwhile == "another commit" else 1)
    assert client.commit(request) == receipt
    keys = sorted(int(str(row["k"])) for row in read(catalog))
    assert keys == ([1, 2] if meanwhile == "another commit" and kind != "overwrite" else [1])
    expected = {"nothing": [1], "another commit": [2, 2], "the same commit": [2]}
    assert epochs(catalog) == expected[meanwhile]


@pytest.mark.slow
def test_deposed_owner_and_successor_agree_on_removal_of_a_transaction(two: Two) -> None:
    two.older.options += ["--lease-ms=1000", "--cleanup-grace-ms=100"]
    two.older.start(faults="removal.claimed=stop")
    catalog = create_table(two.options, APPEND_TABLE)
    client = two.client(catalog)
    transaction = client.begin(TABLE)
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    client.close()  # it is silent: its lease expires
    two.stopped()
    two.newer.start()
    late = two.newer.client()
    id = client.transactions.id_of(request.transaction)
    late.transactions.ended(request.transaction.commit_user, id)
    with pytest.raises(CommitConflictError, match="being removed"):
        late.commit(request)
    assert two.go_on() == DEPOSED
    assert read(catalog) == []


def test_second_coordinator_names_the_owner_and_starts_after_its_end(
    two: Two, capfd: pytest.CaptureFixture[str]
) -> None:
    two.older.start()
    with pytest.raises(AssertionError):
        two.newer.start()
    assert two.newer.running is not None and two.newer.running.wait(20) == 2
    said = capfd.readouterr().err
    assert "owns the warehouse's commits" in said and two.older.address in said
    assert two.older.end() == 0
    two.newer.start()
    catalog = create_table(two.options, APPEND_TABLE)
    client = two.newer.client()
    transaction = client.begin(TABLE)
    client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}])))
    assert epochs(catalog) == [2]
