"""Several compactors of one bucket, through a coordinator that compacts, too: never two at a time.

Writers only add files, so that a compaction conflicts with nothing but another compaction of its
bucket: none of them may.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.compactions import CompactionReceipt
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.compactor import Compactor
from tests.tables.reachability import missing, unreachable

pytestmark = pytest.mark.slow

TABLES = {
    "keyed": "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
    "'bucket' = '1', 'num-sorted-run.compaction-trigger' = '2', 'changelog-producer' = 'lookup', "
    "'deletion-vectors.enabled' = 'true')",
    "append": "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('compaction.min.file-num' = '2')",
}
COMMITS, KEYS = 6, 5


@dataclass(frozen=True)
class Noting(Compactor):
    """Notes what became of its commits."""

    receipts: list[CompactionReceipt] = field(default_factory=list)

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        self.receipts.append(super().committed(request))
        return self.receipts[-1]


@pytest.mark.parametrize("kind", TABLES)
def test_two_compactors_and_the_coordinators_own_never_do_the_same(
    tmp_path: Path, kind: str
) -> None:
    catalog = create_table(tmp_path / "warehouse", TABLES[kind])
    options = ("--compact=auto", "--cleanup-grace-ms=0")
    process = Process(tmp_path / "warehouse", tmp_path / "state", *options)
    process.start()
    ended = threading.Event()

    def compacts(is_full: bool) -> list[CompactionReceipt]:
        compactor = Noting(process.client())
        while not ended.is_set():
            compactor.compact(opened(tmp_path), TABLE, is_full=is_full)
        return compactor.receipts

    def writes(number: int) -> None:
        client, mine = process.client(), opened(tmp_path)
        for commit in range(COMMITS):
            transaction = client.begin(TABLE)
            rows = [{"k": number * 100 + at, "v": f"{commit}"} for at in range(KEYS)]
            client.commit(CommitRequest(transaction, Append(), write(mine, transaction, rows)))

    with ThreadPoolExecutor(6) as pool:
        compactors = [pool.submit(compacts, is_full) for is_full in (True, False)]
        try:
            for writer in [pool.submit(writes, number) for number in range(4)]:
                writer.result(300)
        finally:
            ended.set()
        receipts = [receipt for one in compactors for receipt in one.result(120)]
    assert [receipt.reason for receipt in receipts if receipt.conflicting] == []
    assert sum(receipt.receipt is not None for receipt in receipts) > 1
    Compactor(process.client()).compact(catalog, TABLE, is_full=True)
    process.close()
    commits = range(COMMITS) if kind == "append" else [COMMITS - 1]
    keys = [writer * 100 + at for writer in range(4) for at in range(KEYS)]
    found = [(row["k"], row["v"]) for row in read(catalog)]
    assert sorted(found, key=repr) == sorted([(k, f"{n}") for k in keys for n in commits], key=repr)
    table = catalog.load(TABLE)
    assert missing(table) == set()
    assert unreachable(table) == set()


def opened(folder: Path) -> Catalog:
    return Catalog.open({"warehouse": str(folder / "warehouse")})
