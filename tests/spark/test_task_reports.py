"""What tasks tell of themselves while they run, heard on the driver's machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.task_reports import (
    Reporter,
    TaskCounts,
    heard,
    read_reports,
    reports_folder,
)

pytestmark = pytest.mark.spark


def telling(spark: SparkSession) -> None:
    """Runs two tasks, which have 10 rows each and tell so."""
    folder = reports_folder()

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reporter = Reporter(folder, writes=True)
        for batch in batches:
            reporter.add(batch.num_rows, batch.nbytes)
            yield batch
        reporter.end()

    spark.range(0, 20, 1, 2).mapInArrow(tasks, "id BIGINT").collect()


def test_task_reports_are_read_while_listening_and_leave_no_files(spark: SparkSession) -> None:
    folder = Path(reports_folder())
    telling(spark)
    assert not folder.exists(), "nobody listens"
    with heard():
        with heard():
            telling(spark)
        ended: dict[tuple[int, int, bool], TaskCounts] = {}
        told = read_reports(ended)
        assert [(each.rows, each.size_bytes, each.writes) for each in told] == [(10, 80, True)] * 2
        assert {each.partition for each in told} == {0, 1}
        assert sorted(ended.values(), key=lambda each: each.partition) == sorted(
            read_reports(ended), key=lambda each: each.partition
        )
    assert not folder.exists()
    assert read_reports({}) == []


def test_half_written_report_is_not_read() -> None:
    with heard():
        (Path(reports_folder()) / "3-0-r").write_bytes(b"\0" * 5)
        assert read_reports({}) == []
