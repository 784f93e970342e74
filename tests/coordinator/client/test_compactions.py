"""Compactions beside the writers of a table that takes one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Compact,
    CompactManifests,
    Waiting,
)
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.clients import CLIENTS, opened_client
from tests.coordinator.process import TABLE, Process, create_table, wait_until, write
from tests.tables.commits.compacting import bodies, live_names, upgrade

SQL = "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k')"


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CoordinatorClient]:
    catalog = create_table(tmp_path / "warehouse", SQL)
    with opened_client(request.param, catalog, tmp_path) as opened:
        yield opened


def told(waiting: Waiting) -> None:
    raise KeyboardInterrupt(waiting.message)


def test_compaction_does_not_wait_for_its_turn(client: CoordinatorClient, tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    first = client.begin(TABLE, waits=told)
    client.commit(CommitRequest(first, Append(), write(catalog, first, [{"k": 1, "v": "a"}])))
    writing = client.begin(TABLE, waits=told)
    compacting = client.begin(TABLE, waits=told, compacts=True)
    with pytest.raises(KeyboardInterrupt):
        client.begin(TABLE, waits=told)
    table = catalog.load(TABLE)
    messages = bodies(table, upgrade(table, 5))
    receipt = client.commit(CommitRequest(compacting, Compact(), messages))
    assert (receipt.snapshot_id, receipt.commit_kind) == (2, "COMPACT")
    assert set(live_names(table).values()) == {5}
    client.abort(writing)
    client.abort(client.begin(TABLE, compacts=True))
    client.abort(client.begin(TABLE, waits=told))


def test_concurrent_compactions_never_share_a_bucket(client: CoordinatorClient) -> None:
    a, b, c = (b"x", 0), (b"x", 1), (b"y", 0)
    first = client.begin(TABLE, compacts=True)
    assert client.claim_buckets(first, [a, b]) == (0, 1)
    second = client.begin(TABLE, compacts=True)
    assert client.claim_buckets(second, [b, c, a]) == (1,)
    assert client.claim_buckets(first, [a, b, c]) == (0, 1)
    client.abort(first)
    assert client.claim_buckets(second, [b, c]) == (0, 1)
    client.commit(CommitRequest(second, Compact()))
    third = client.begin(TABLE, compacts=True)
    assert client.claim_buckets(third, [a, b, c]) == (0, 1, 2)
    client.abort(third)


def test_administrators_see_compacted_buckets(tmp_path: Path) -> None:
    create_table(tmp_path / "warehouse", SQL)
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    try:
        client = process.client()
        transaction = client.begin(TABLE, compacts=True)
        client.claim_buckets(transaction, [(b"", bucket) for bucket in range(3)])
        [held] = client.administration().transactions()
        assert held.reason == "compacts 3 buckets"
        headers = {"Authorization": f"Bearer {process.token()}"}
        address = f"{process.address}/metrics"
        assert (
            "paimon_coordinator_compacted_buckets 3.0"
            in httpx.get(address, headers=headers, trust_env=False).text
        )
        many = [(b"", bucket) for bucket in range(100_001)]
        with pytest.raises(InvalidValueError, match="too many for one compaction"):
            client.claim_buckets(transaction, many)
        client.abort(transaction)
        assert (
            "paimon_coordinator_compacted_buckets 0.0"
            in httpx.get(address, headers=headers, trust_env=False).text
        )
    finally:
        process.close()


def test_bucket_claims_end_with_the_lease(tmp_path: Path) -> None:
    catalog = create_table(tmp_path / "warehouse", SQL)
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--lease-ms=500")
    process.start()
    try:
        dead, alive = process.client(), process.client()
        first = dead.begin(TABLE, compacts=True)
        assert dead.claim_buckets(first, [(b"", 0)]) == (0,)
        dead.close()  # nobody renews its lease
        second = alive.begin(TABLE, compacts=True)
        wait_until(lambda: alive.claim_buckets(second, [(b"", 0)]) == (0,))
        alive.abort(second)
    finally:
        process.close()
    assert catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot() is None


def test_manifest_merge_runs_beside_a_writer_in_its_turn(
    client: CoordinatorClient, tmp_path: Path
) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    for k in range(3):
        transaction = client.begin(TABLE, waits=told)
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows(k))))
    writing = client.begin(TABLE, waits=told)
    merging = client.begin(TABLE, waits=told, compacts=True)
    request = CommitRequest(merging, CompactManifests())
    receipt = client.commit(request)
    assert (receipt.snapshot_id, receipt.commit_kind, receipt.total_rows) == (4, "COMPACT", 3)
    client.commit(CommitRequest(writing, Append(), write(catalog, writing, rows(9))))
    again = client.begin(TABLE, compacts=True)
    assert client.commit(CommitRequest(again, CompactManifests(1 << 20))).snapshot_id == 6
    nothing = client.begin(TABLE, compacts=True)
    assert client.commit(CommitRequest(nothing, CompactManifests())).snapshot_id is None


def rows(k: int) -> list[dict[str, object]]:
    return [{"k": k, "v": "a"}]
