"""Compactors and writers of one bucket at once: no row is lost, doubled or brought back, and no
file is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paimon_magics.coordinator.client.compacting import commit_compaction
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Compact,
    OverwritePartitions,
)
from paimon_magics.planning.compaction.keyed_tables import Moment
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import CompactionScope, plan_compaction
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.snapshots.latest import latest_snapshot
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.appending import committer_of
from tests.tables.commits.compacting import bodies
from tests.tables.reachability import missing, unreachable

pytestmark = pytest.mark.slow

WRITERS, COMMITS, KEYS = 4, 6, 5
KEYED = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
    "'num-sorted-run.compaction-trigger' = '3', 'manifest.merge-min-count' = '3')"
)
DAILY = (
    "CREATE TABLE t (k INT NOT NULL, v STRING, p STRING NOT NULL) PARTITIONED BY (p) TBLPROPERTIES "
    "('primary-key' = 'k,p', 'bucket' = '1', 'num-sorted-run.compaction-trigger' = '3')"
)

Connect = Callable[[], CoordinatorClient]


@pytest.fixture(params=["processes of their own", "a coordinator"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """A client for each thread; those without a coordinator know nothing of each other."""
    warehouse = tmp_path / "warehouse"
    if request.param == "a coordinator":
        process = Process(warehouse, tmp_path / "state")
        process.start()
        yield process.client
        process.close()
    else:
        yield lambda: committer_of(opened(tmp_path))


def opened(folder: Path) -> Catalog:
    return Catalog.open({"warehouse": str(folder / "warehouse")})


def compact_once(catalog: Catalog, client: CoordinatorClient, *, is_full: bool) -> str:
    """Plan, rewrite and commit one compaction; return what became of it."""
    table = catalog.load(TABLE)
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return "nothing to do"
    plan = plan_compaction(table, snapshot, CompactionScope(is_full), Moment(now_ms=0, hour=0))
    if plan.is_empty:
        return "nothing to do"
    transaction = client.begin(TABLE, plan.snapshot_id, compacts=True)
    tasks = plan.tasks(1)
    try:
        results = rewrite_all(plan.spec(transaction), tasks)
    except Exception:
        client.abort(transaction)
        raise
    messages = compaction_messages(plan, tasks, results, transaction)
    request = CommitRequest(transaction, Compact(), bodies(table, messages))
    done = commit_compaction(client, request)
    return "conflict" if done.receipt is None else "committed"


def run(folder: Path, connect: Connect, *tasks: Callable[[Catalog, CoordinatorClient], Any]) -> Any:
    """Run tasks in threads beside two compactors, and return what became of their compactions."""
    ended = threading.Event()

    def compactor(is_full: bool) -> list[str]:
        catalog, client = opened(folder), connect()
        result = []
        while not ended.is_set():
            result.append(compact_once(catalog, client, is_full=is_full))
        return result

    with ThreadPoolExecutor(len(tasks) + 2) as pool:
        compactors = [pool.submit(compactor, is_full) for is_full in (True, False)]
        try:
            writers = [pool.submit(task, opened(folder), connect()) for task in tasks]
            for writer in writers:
                writer.result(300)
        finally:
            ended.set()
        return [outcome for each in compactors for outcome in each.result(120)]


def test_writers_and_compactors_of_a_bucket_keep_each_row_once(
    tmp_path: Path, connect: Connect
) -> None:
    catalog = create_table(tmp_path / "warehouse", KEYED)

    def writer(number: int) -> Callable[[Catalog, CoordinatorClient], None]:
        def task(catalog: Catalog, client: CoordinatorClient) -> None:
            for commit in range(COMMITS):
                transaction = client.begin(TABLE)
                rows = [{"k": number * 100 + at, "v": f"{commit}"} for at in range(KEYS)]
                messages = write(catalog, transaction, rows)
                client.commit(CommitRequest(transaction, Append(), messages))

        return task

    outcomes = run(tmp_path, connect, *(writer(number) for number in range(WRITERS)))
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    assert "committed" in outcomes
    expected = [
        {"k": writer * 100 + at, "v": f"{COMMITS - 1}"}
        for writer in range(WRITERS)
        for at in range(KEYS)
    ]
    assert sorted(read(catalog), key=lambda row: row["k"]) == expected  # type: ignore[arg-type,return-value]
    table = catalog.load(TABLE)
    assert missing(table) == set()
    assert unreachable(table) == set()
    compact_once(catalog, connect(), is_full=True)
    assert sorted(read(catalog), key=lambda row: row["k"]) == expected  # type: ignore[arg-type,return-value]


def test_compaction_does_not_bring_back_overwritten_rows(tmp_path: Path, connect: Connect) -> None:
    catalog = create_table(tmp_path / "warehouse", DAILY)

    def appending(catalog: Catalog, client: CoordinatorClient) -> None:
        for commit in range(COMMITS * 2):
            transaction = client.begin(TABLE)
            rows = [{"k": commit, "v": "b", "p": "b"}]
            client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))

    def overwriting(catalog: Catalog, client: CoordinatorClient) -> None:
        for commit in range(COMMITS):
            for number in range(3):
                transaction = client.begin(TABLE)
                rows = [{"k": commit * 10 + number, "v": "gone", "p": "a"}]
                client.commit(
                    CommitRequest(transaction, Append(), write(catalog, transaction, rows))
                )
            transaction = client.begin(TABLE)
            change = OverwritePartitions(((("p", "a"),),))
            rows = [{"k": 1000 + commit, "v": "stays", "p": "a"}]
            messages = write(catalog, transaction, rows, overwrite=True)
            client.commit(CommitRequest(transaction, change, messages))

    outcomes = run(tmp_path, connect, appending, overwriting)
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    actual = sorted(tuple(row.values()) for row in read(catalog))
    last = (1000 + COMMITS - 1, "stays", "a")
    assert actual == [*((k, "b", "b") for k in range(COMMITS * 2)), last]
    table = catalog.load(TABLE)
    assert missing(table) == set()
    assert unreachable(table) == set()
