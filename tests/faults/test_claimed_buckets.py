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
from py4j.protocol import Py4JJavaError

from paimon_magics.coordinator.client.compacting import CompactionReceipt
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.compactor import Compactor
from tests.oracle.java_compactor import JavaCompact
from tests.oracle.java_reader import JavaPaimon
from tests.tables.reachability import missing, unreachable

pytestmark = pytest.mark.slow

TABLES = {
    "keyed": "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
    "'bucket' = '1', 'num-sorted-run.compaction-trigger' = '2', 'changelog-producer' = 'lookup', "
    "'deletion-vectors.enabled' = 'true')",
    "append": "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('compaction.min.file-num' = '2')",
}
COMMITS, KEYS = 6, 5
ROUNDS_MAX = 20


@dataclass(frozen=True)
class Noting(Compactor):
    """Notes what became of its commits."""

    receipts: list[CompactionReceipt] = field(default_factory=list)

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        self.receipts.append(super().committed(request))
        return self.receipts[-1]


@pytest.mark.parametrize("kind", TABLES)
def test_compactors_and_coordinator_never_compact_the_same_bucket(
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

    with ThreadPoolExecutor(6) as pool:
        compactors = [pool.submit(compacts, is_full) for is_full in (True, False)]
        try:
            for writer in [pool.submit(writes, tmp_path, process, number) for number in range(4)]:
                writer.result(300)
        finally:
            ended.set()
        receipts = [receipt for each in compactors for receipt in each.result(120)]
    assert [receipt.reason for receipt in receipts if receipt.conflicting] == []
    assert sum(receipt.receipt is not None for receipt in receipts) > 1
    Compactor(process.client()).compact(catalog, TABLE, is_full=True)
    process.close()
    assert sorted((row["k"], row["v"]) for row in read(catalog)) == expected(kind)  # type: ignore[type-var]
    table = catalog.load(TABLE)
    assert missing(table) == set()
    assert unreachable(table) == set()


def writes(folder: Path, process: Process, number: int) -> None:
    """Write the same keys again and again."""
    client, catalog = process.client(), opened(folder)
    for commit in range(COMMITS):
        transaction = client.begin(TABLE)
        rows = [{"k": number * 100 + at, "v": f"{commit}"} for at in range(KEYS)]
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))


def expected(kind: str) -> list[tuple[int, str]]:
    """The rows once all is written and compacted."""
    commits = range(COMMITS) if kind == "append" else [COMMITS - 1]
    keys = [writer * 100 + at for writer in range(4) for at in range(KEYS)]
    return sorted((k, f"{commit}") for k in keys for commit in commits)


def opened(folder: Path) -> Catalog:
    return Catalog.open({"warehouse": str(folder / "warehouse")})


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.soak
@pytest.mark.parametrize("kind", TABLES)
def test_java_compactions_in_between_lose_no_rows(
    tmp_path: Path, java_paimon: JavaPaimon, java_compact: JavaCompact, kind: str
) -> None:
    """Java knows no claims: who commits later is refused, and nothing is lost."""
    catalog = create_table(tmp_path / "warehouse", TABLES[kind])
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--cleanup-grace-ms=0")
    process.start()
    options = {
        "metastore": "rest", "uri": process.address, "warehouse": str(tmp_path / "warehouse"),
        "token.provider": "bear", "token": process.token(), "cache-enabled": "false",
    }  # fmt: skip
    ended = threading.Event()

    def compacts(is_full: bool) -> int:
        compactor = Noting(process.client(), reruns_max=200)
        while not ended.wait(0.5):  # so that Java is faster now and then
            compactor.compact(opened(tmp_path), TABLE, is_full=is_full)
        return sum(receipt.receipt is not None for receipt in compactor.receipts)

    writes(tmp_path, process, 0)
    with ThreadPoolExecutor(6) as pool:
        compactors = [pool.submit(compacts, is_full) for is_full in (True, False)]
        javas = rounds = 0
        try:
            while javas < 2 and rounds < ROUNDS_MAX:
                rounds += 1
                writers = [pool.submit(writes, tmp_path, process, number) for number in range(4)]
                while not all(writer.done() for writer in writers):
                    try:
                        javas += java_compact(options, javas % 2 == 0)
                    except Py4JJavaError as error:  # others were faster
                        assert "conflict" in str(error).lower(), error
        finally:
            ended.set()
        assert sum(each.result(120) for each in compactors) > 0
    assert javas > 0
    Compactor(process.client()).compact(catalog, TABLE, is_full=True)
    process.close()
    actual = java_paimon.rows(tmp_path / "warehouse", "default.t")
    rows = expected(kind)
    if kind == "append":
        first = [row for row in rows if row[0] < 100]
        rows = sorted(rows * rounds + first)
    assert sorted(actual) == rows
    assert missing(catalog.load(TABLE)) == set()
