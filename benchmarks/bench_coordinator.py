"""A coordinator that many notebooks share: concurrent commits, and its memory.

The aims: of 50 notebooks with 100 commits each to one table, less than 1 % of the attempts are
refused; 1,000 open transactions with their heartbeats need less than 300 MB. `WRITERS`, `COMMITS`
and `OPEN` in the environment make it shorter. The notebooks are threads of a few processes. Each
commit is begun, written and committed as by a session.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import httpx
from bench_commits import append, create, started
from measure import cpu_ms, resident_mb

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.protocol.documents import table_document
from paimon_magics.errors import CommitConflictError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

_WRITERS = int(os.environ.get("WRITERS", "50"))
_COMMITS = int(os.environ.get("COMMITS", "100"))
_OPEN = int(os.environ.get("OPEN", "1000"))
_PROCESSES = 2
_HEARTBEAT_ROUNDS = 3


def write(warehouse: str, address: str, token: str, writers: int, results: object) -> None:
    """Run some notebooks in one process; put (times of commits in ms, number of refused ones) into
    the queue `results`."""
    catalog = Catalog.open({"warehouse": warehouse})
    times: list[float] = []
    refused: list[int] = []

    def notebook() -> None:
        committer = RemoteCoordinator(At(address, token))
        for number in range(_COMMITS):
            try:
                took, _ = append(catalog, committer, TableName("many", "default"), number)
                times.append(took)
            except CommitConflictError:
                refused.append(number)
        committer.close()

    threads = [threading.Thread(target=notebook) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((times, len(refused)))  # type: ignore[attr-defined]


def many_writers(warehouse: Path, pid: int, place: At) -> None:
    """Measure the commits of many notebooks to one table."""
    catalog = Catalog.open({"warehouse": str(warehouse)})
    create(catalog, "many")
    found = place.find()
    assert found is not None
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    shares = [_WRITERS // _PROCESSES + (n < _WRITERS % _PROCESSES) for n in range(_PROCESSES)]
    processes = [
        spawn.Process(
            target=write, args=(str(warehouse), found.address, found.token, share, results)
        )
        for share in shares
    ]
    cpu_before_ms, began = cpu_ms(pid), time.perf_counter()
    for process in processes:
        process.start()
    parts = [results.get() for _ in processes]
    seconds = time.perf_counter() - began
    used_ms = cpu_ms(pid) - cpu_before_ms
    for process in processes:
        process.join()
    times = [took for part in parts for took in part[0]]
    refused = sum(part[1] for part in parts)
    latest = catalog.load(TableName("many", "default")).paimon.snapshot_manager()
    snapshots = latest.get_latest_snapshot().id
    assert snapshots == len(times), f"{snapshots} snapshots of {len(times)} commits"
    attempts = len(times) + refused
    print(
        f"{_WRITERS} notebooks, {attempts:,} commits to one table: {refused / attempts:.2%} "
        f"refused, {attempts / seconds:.0f} commits a second, "
        f"median {statistics.median(times):.0f} ms, "
        f"{used_ms / attempts:.1f} ms of a core each",
        flush=True,
    )


def many_open(warehouse: Path, pid: int, place: At) -> None:
    """Measure the coordinator's memory with many open transactions."""
    create(Catalog.open({"warehouse": str(warehouse)}), "opened")
    found = place.find()
    assert found is not None
    before_mb = resident_mb(pid)
    headers = {"Authorization": f"Bearer {found.token}"}
    begin = {"table": table_document(TableName("opened", "default")), "owner": "notebook"}
    with httpx.Client(base_url=found.address, headers=headers, trust_env=False) as http:
        ids = [http.post("/v1/transactions", json=begin).json()["id"] for _ in range(_OPEN)]
        for _ in range(_HEARTBEAT_ROUNDS):
            for id in ids:
                http.post(f"/v1/transactions/{id}/heartbeat").raise_for_status()
        listed = http.get("/v1/transactions").json()["transactions"]
        assert sum(each["phase"] == "active" for each in listed) == _OPEN
    print(
        f"{_OPEN:,} open transactions: {resident_mb(pid):.0f} MB resident, "
        f"{before_mb:.0f} MB before them",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder, "warehouse")
        with started(warehouse, Path(folder, "state")) as (pid, place):
            many_open(warehouse, pid, place)
        with started(warehouse, Path(folder, "state")) as (pid, place):
            many_writers(warehouse, pid, place)


if __name__ == "__main__":
    main()
