"""Units of a compaction of append tables run in the tasks of a job, and in threads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics.spark.task_units import run_units
from paimon_magics.tables.compaction.append_rewriting import AppendUnits
from paimon_magics.tables.compaction.plans import run_here
from tests.tables.compaction.append_compactions import SETTINGS, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Unit:
    """A unit of so many bytes."""

    size_bytes: int


@pytest.mark.spark
@pytest.mark.cluster
def test_an_append_table_is_compacted_by_a_job(spark: SparkSession, warehouse: Path) -> None:
    lake = Lake.of(warehouse, "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p)")
    for number in range(5):
        lake.append(*[(number * 10 + k, "abc"[k % 3]) for k in range(9)])
    before = sorted(lake.rows())
    plan = lake.plan()
    assert len(plan.units) == 3
    transaction = lake.committer.begin(lake.table.name)
    rewrite = plan.rewrite(transaction, slots=2, settings=SETTINGS)
    units = AppendUnits.of(rewrite, plan.units, 1)
    assert [len(group) for group in units.groups] == [1, 1, 1]
    done = run_units(spark, units)
    results = [item for each in done.results for item in each]
    lake.commit(transaction, plan.messages(results, transaction))
    assert sorted(lake.rows()) == before
    assert lake.files("row_count") == [(15,)] * 3


def test_threads_process_largest_unit_first() -> None:
    begun: list[int] = []

    def work(unit: Unit) -> int:
        begun.append(unit.size_bytes)
        return -unit.size_bytes

    actual = run_here(work, [Unit(1), Unit(3), Unit(2)], threads=1)
    assert (begun, actual) == ([3, 2, 1], [-3, -2, -1])
    both = threading.Barrier(2, timeout=30)
    assert run_here(lambda _: both.wait() >= 0, [Unit(1), Unit(2)], threads=2)


def test_failed_unit_prevents_start_of_further_units() -> None:
    begun: list[int] = []
    failed = threading.Event()

    def work(unit: Unit) -> None:
        begun.append(unit.size_bytes)
        if unit.size_bytes == 8:
            failed.set()
            raise OSError("the disk is full")
        failed.wait(30)
        time.sleep(0.2)

    with pytest.raises(OSError, match="the disk is full"):
        run_here(work, [Unit(size) for size in (9, 8, *range(7))], threads=2)
    assert len(begun) < 5
