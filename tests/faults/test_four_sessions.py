"""Four sessions change the rows of one table, each by DELETE, UPDATE, MERGE and INSERT, beside a
compactor: the rows are those of the acknowledged statements, one after the other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import CompactionConflictError, OutdatedPlanError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import wait_until
from tests.tables.reachability import missing, unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.soak]

KINDS = {
    "keyed": "'primary-key' = 'k', 'bucket' = '1', 'num-sorted-run.compaction-trigger' = '3'",
    "files": "'compaction.min.file-num' = '3'",
    "vectors": "'deletion-vectors.enabled' = 'true', 'compaction.min.file-num' = '3'",
    "columns": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true', 'compaction.min.file-num' = '3'",
}
SESSIONS, STEPS, ATTEMPTS_MAX = 4, 6, 60
COUNTED = range(12)
"""Keys that stay, and count what was added to them. Each session deletes one of those after them,
merges in keys from 100 on, which others do too, and inserts keys of its own from 1,000 on."""


class Worker:
    """One session's statements; what was acknowledged of them."""

    def __init__(self, number: int, session: Session) -> None:
        self.number, self.session = number, session
        self.chance = random.Random(number)
        self.added: Counter[int] = Counter()
        self.inserted: list[int] = []
        self.deleted: list[int] = []
        self.refused = 0

    def work(self) -> None:
        gone = len(COUNTED) + self.number
        for step in range(STEPS):
            first = self.chance.randrange(len(COUNTED))
            last = self.chance.randrange(first, len(COUNTED)) + 1
            within = f"k >= {first} AND k < {last}"
            match step % 3:
                case 0:
                    # Rows that somebody deletes are updated, too, and must not come back by that.
                    others = f"OR (k >= {len(COUNTED)} AND k < 100)"
                    self.run(f"UPDATE t SET n = n + 1 WHERE ({within}) {others}")
                    self.added.update(range(first, last))
                case 1:
                    keys = range(100 + step, 104 + step)
                    self.run(
                        "MERGE INTO t USING (SELECT CAST(id AS INT) AS k FROM "
                        f"range({keys.start}, {keys.stop}, 1, 1)) s ON t.k = s.k "
                        "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, 7)"
                    )
                    self.run(
                        "MERGE INTO t USING (SELECT CAST(id AS INT) AS k FROM "
                        f"range({first}, {last}, 1, 1)) s ON t.k = s.k "
                        "WHEN MATCHED THEN UPDATE SET n = t.n + 1"
                    )
                    self.added.update(range(first, last))
                case _:
                    own = 1000 + 100 * self.number + step
                    self.run(f"INSERT INTO t VALUES ({own}, 0)")
                    self.inserted.append(own)
                    if gone not in self.deleted:
                        self.run(f"DELETE FROM t WHERE k = {gone}")
                        self.deleted.append(gone)

    def run(self, text: str) -> None:
        """Run a statement until it is acknowledged."""
        for _ in range(ATTEMPTS_MAX):
            try:
                self.session.run(text)
            except OutdatedPlanError:
                self.refused += 1
            else:
                return
        raise AssertionError(f"refused {ATTEMPTS_MAX} times: {text}")


@pytest.mark.parametrize("kind", KINDS)
def test_four_sessions_and_a_compactor_keep_acknowledged_changes(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    with ExitStack() as opened:

        def session() -> Session:
            made = paimon_magics.connect(
                tmp_path, coordinator="embedded", spark=spark.newSession(), row_level_retries=5
            )
            return opened.enter_context(made)

        first, compactor, *others = [session() for _ in range(SESSIONS + 1)]
        keys = range(len(COUNTED) + SESSIONS)
        first.run(
            f"CREATE TABLE t (k INT NOT NULL, n INT) TBLPROPERTIES ({KINDS[kind]});"
            f"INSERT INTO t SELECT CAST(id AS INT), 0 FROM range({len(keys)})"
        )
        workers = [Worker(number, each) for number, each in enumerate((first, *others))]
        done = threading.Event()

        def compact() -> int:
            times = 0
            while not done.wait(0.5):
                full = "full" if times % 2 else "minor"
                try:
                    compactor.run(f"CALL sys.compact(table => 't', compact_strategy => '{full}')")
                    times += 1
                except CompactionConflictError:
                    continue
            return times

        with ThreadPoolExecutor(SESSIONS + 1) as pool:
            compactions = pool.submit(compact)
            works = [pool.submit(each.work) for each in workers]
            try:
                for work in works:
                    work.result()
            finally:
                done.set()
            print(kind, "compactions:", compactions.result())
        print(kind, "refused after all retries:", [each.refused for each in workers])
        actual = first.run("SELECT k, n FROM t").to_pylist()
        added = sum((each.added for each in workers), Counter[int]())
        gone = {key for each in workers for key in each.deleted}
        merged = {100 + step + more for step in range(STEPS) if step % 3 == 1 for more in range(4)}
        expected = {
            **{key: added[key] for key in COUNTED},
            **dict.fromkeys(merged, 7),
            **{key: 0 for each in workers for key in each.inserted},
        }
        assert len(gone) == SESSIONS
        assert sorted((row["k"], row["n"]) for row in actual) == sorted(expected.items())
    table = Catalog.open({"warehouse": str(tmp_path)}).load(TableName("t", "default"))
    assert missing(table) == set()
    wait_until(lambda: unreachable(table) == set(), 60)
