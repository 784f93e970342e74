"""Units of a compaction run in the tasks of a job, and in threads."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics.errors import TableDamagedError
from paimon_magics.spark.compaction import run_units
from paimon_magics.spark.failures import translate
from paimon_magics.tables.compaction.local_units import run_here
from tests.tables.compaction.append_compactions import SETTINGS, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def own_size(unit: int) -> int:
    return unit


@pytest.mark.spark
@pytest.mark.cluster
def test_all_units_are_done_in_a_job(spark: SparkSession) -> None:
    done = run_units(spark, _doubled, range(1, 40), slots=2, size_bytes=own_size)
    assert sorted(number for number, _ in done.results) == [2 * n for n in range(1, 40)]
    assert not done.repeated_attempts
    assert os.getpid() not in {process for _, process in done.results}
    assert run_units(spark, _doubled, [], slots=2, size_bytes=own_size).results == ()


@pytest.mark.spark
def test_an_error_of_a_unit_reaches_the_driver(spark: SparkSession) -> None:
    with pytest.raises(Exception) as raised:
        run_units(spark, _failing, [1, 2], slots=2, size_bytes=own_size)
    error = translate(raised.value)
    assert isinstance(error, TableDamagedError)
    assert error.message == "the unit 2 is damaged"


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
    done = run_units(spark, rewrite, plan.units, slots=2, size_bytes=lambda unit: unit.size_bytes)
    lake.commit(transaction, plan.messages(done.results, transaction))
    assert sorted(lake.rows()) == before
    assert lake.files("row_count") == [(15,)] * 3


def test_threads_do_the_largest_unit_first() -> None:
    begun: list[int] = []

    def work(unit: int) -> int:
        begun.append(unit)
        return -unit

    found = run_here(work, [1, 3, 2], threads=1, size_bytes=own_size)
    assert (begun, found) == ([3, 2, 1], [-3, -2, -1])
    both = threading.Barrier(2, timeout=30)
    assert run_here(lambda _: both.wait() >= 0, [1, 2], threads=2, size_bytes=own_size)


def test_no_unit_is_begun_after_one_failed() -> None:
    begun: list[int] = []
    failed = threading.Event()

    def work(unit: int) -> None:
        begun.append(unit)
        if unit == 8:
            failed.set()
            raise OSError("the disk is full")
        failed.wait(30)
        time.sleep(0.2)

    with pytest.raises(OSError, match="the disk is full"):
        run_here(work, [9, 8, *range(7)], threads=2, size_bytes=own_size)
    assert len(begun) < 5


def _doubled(unit: int) -> tuple[int, int]:
    return 2 * unit, os.getpid()


def _failing(unit: int) -> None:
    if unit == 2:
        raise TableDamagedError("the unit 2 is damaged", hint="")
