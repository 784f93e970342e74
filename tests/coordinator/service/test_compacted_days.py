"""A table of small inserts keeps itself fast: hours of loads and compactions, by a simulated clock.

Every ten seconds a batch is loaded, as the coordinator does with 100 inserts a second. The schedule
decides by the simulated time; tables, commits and compactions are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.process.compaction_worker import Compactor
from paimon_magics.coordinator.service.compaction_scheduler import Budget
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.compaction.schedule import Pressure, Schedule, Work
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from tests.coordinator.process import TABLE, create_table, read, write
from tests.tables.reachability import missing, unreachable

EVERY_MS = 10_000
SETTLE_MS = 10_000
JOB_MS = 1_000
BYTES_A_SECOND = 20_000_000
TRIGGER = 5
KEYS = 200_000


class Warehouse:
    """A table, and who looks after it."""

    def __init__(self, folder: Path) -> None:
        self.catalog: Catalog = create_table(
            folder,
            "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
            "'bucket' = '1', 'snapshot.num-retained.max' = '20')",
        )
        self.client = InProcessCommitter(self.catalog, Settings())
        self.compactor = Compactor(self.catalog, self.client)
        self.schedule = Schedule(SETTLE_MS)
        self.pressure = Pressure.of(self.catalog.load(TABLE).schema, by_default=True)
        self.manifests = ManifestCache(self.catalog.load(TABLE).paimon)
        self.busy_until_ms = 0

    def load(self, keys: list[int], now_ms: int) -> None:
        """One batch of inserts."""
        transaction = self.client.begin(TABLE)
        rows = [{"k": key, "v": str(now_ms)} for key in keys]
        messages = write(self.catalog, transaction, rows)
        self.client.commit(CommitRequest(transaction, Append(), messages))
        self.schedule.committed("t", TABLE, self.pressure, now_ms)

    def look_after(self, until_ms: int) -> None:
        """What the coordinator does until then."""
        now_ms = self.busy_until_ms
        while now_ms < until_ms:
            step = self.schedule.next(now_ms)
            if step is None:
                wait_ms = self.schedule.wait_ms(now_ms)
                now_ms = until_ms if wait_ms is None else now_ms + max(wait_ms, 1)
                continue
            took_ms = JOB_MS
            if isinstance(step, Work):
                answer = self.compactor.compact(TABLE, Budget())
                assert not answer.hindered
                seen = answer.seen
                took_ms += answer.read_bytes * 1000 // BYTES_A_SECOND
            else:
                seen = self.compactor.look(TABLE, Budget())
            now_ms += took_ms
            self.schedule.seen(step.key, seen, now_ms)
        self.busy_until_ms = now_ms

    def runs(self) -> int:
        """The sorted runs that a read merges."""
        files = live_files(self.manifests, latest_snapshot(self.catalog.load(TABLE).paimon))
        levels = files["level"].to_pylist()
        return levels.count(0) + len(set(levels) - {0})


def loads(folder: Path, count: int, rows: int) -> tuple[list[int], Warehouse]:
    """The sorted runs after each load."""
    warehouse = Warehouse(folder)
    draw = np.random.default_rng(7)
    latest: dict[int, str] = {}
    found = []
    for number in range(count):
        now_ms = number * EVERY_MS
        warehouse.look_after(now_ms)
        keys = sorted(set(draw.integers(0, KEYS, rows).tolist()))
        warehouse.load(keys, now_ms)
        latest.update(dict.fromkeys(keys, str(now_ms)))
        found.append(warehouse.runs())
    assert {row["k"]: row["v"] for row in read(warehouse.catalog)} == latest
    return found, warehouse


def test_ten_minutes_of_inserts_keep_runs_within_twice_the_trigger(tmp_path: Path) -> None:
    runs, _ = loads(tmp_path / "warehouse", count=60, rows=20)
    assert max(runs) <= 2 * TRIGGER
    assert max(runs) >= TRIGGER, "the trigger is reached, again and again"


@pytest.mark.soak
def test_day_of_100_inserts_a_second_keeps_runs_within_twice_the_trigger(tmp_path: Path) -> None:
    runs, _ = loads(tmp_path / "warehouse", count=8_640, rows=1_000)
    assert max(runs) <= 2 * TRIGGER


class _Overtaken(InProcessCommitter):
    """A committer before whose first claim another partition is overwritten."""

    has_overwritten = False

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        if not self.has_overwritten:
            self.has_overwritten = True
            other = self.begin(TABLE)
            rows = write(self._catalog, other, [{"k": 1, "v": "y"}])
            self.commit(CommitRequest(other, OverwritePartitions(((("v", "y"),),)), rows))
        return super().claim_buckets(transaction, buckets)


def test_replanned_compaction_is_at_most_a_portion(tmp_path: Path) -> None:
    catalog = create_table(
        tmp_path / "warehouse",
        "CREATE TABLE t (k INT, v STRING) PARTITIONED BY (v) TBLPROPERTIES ("
        "'bucket' = '-1', 'target-file-size' = '2 kb', 'compaction.min.file-num' = '2')",
    )
    client = _Overtaken(catalog, Settings())
    for key in range(12):
        transaction = client.begin(TABLE)
        messages = write(catalog, transaction, [{"k": key, "v": "x"}])
        client.commit(CommitRequest(transaction, Append(), messages))
    compactor, portion = Compactor(catalog, client), Budget(portion_bytes=1)
    planned = compactor.look(TABLE, portion)
    assert planned.buckets > 2
    answer = compactor.compact(TABLE, portion)
    assert client.has_overwritten and answer.buckets == 1
    assert answer.seen.buckets == planned.buckets - 1
    while answer.seen.buckets:
        answer = compactor.compact(TABLE, portion)
        assert answer.buckets == 1
    assert sorted(row["k"] for row in read(catalog)) == [0, 1, *range(1, 12)]


def test_postponed_rows_get_buckets_partition_by_partition(tmp_path: Path) -> None:
    catalog = create_table(
        tmp_path / "warehouse",
        "CREATE TABLE t (k INT NOT NULL, v STRING NOT NULL) PARTITIONED BY (v) TBLPROPERTIES ("
        "'primary-key' = 'k,v', 'bucket' = '-2', 'postpone.default-bucket-num' = '2', "
        "'postpone.batch-write-fixed-bucket' = 'false', 'compaction.force-up-level-0' = 'true')",
    )
    client = InProcessCommitter(catalog, Settings())
    expected = set()
    for number in range(4):
        transaction = client.begin(TABLE)
        rows = [{"k": k, "v": "xy"[k % 2]} for k in range(number, number + 10)]
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))
        expected |= {(row["k"], row["v"]) for row in rows}
    assert read(catalog) == []
    compactor, portion = Compactor(catalog, client), Budget(portion_bytes=1)
    assert compactor.look(TABLE, portion).buckets == 2
    first = compactor.compact(TABLE, portion)
    assert (first.buckets, first.seen.buckets) == (1, 1)
    assert len({row["v"] for row in read(catalog)}) == 1, "of one partition, not the other"
    second = compactor.compact(TABLE, portion)
    assert (second.buckets, second.seen.buckets) == (1, 0)
    table = catalog.load(TABLE)
    assert {(row["k"], row["v"]) for row in read(catalog)} == expected
    actual = latest_snapshot(table.paimon)
    assert (actual.id, actual.commit_kind) == (6, "COMPACT"), "one for each portion"
    files = live_files(ManifestCache(table.paimon), actual)
    assert set(files["level"].to_pylist()) == {5}, "compacted in the same commit"
    assert missing(table) == unreachable(table) == set()
