"""What is told of the rows of tasks that have not ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from paimon_magics.planning.job_progress import Progress
from paimon_magics.spark.job_watching import watched
from paimon_magics.spark.listening import listen

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.spark

ROWS = 20_000


def until(path: Path) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """The same rows; their end waits until `path` is there."""
    name = str(path)

    def frames(given: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from os.path import exists

        for frame in given:
            yield frame
            deadline = time.monotonic() + 60
            while not exists(name):
                assert time.monotonic() < deadline, "nobody has told of the rows"
                time.sleep(0.02)

    return frames


def test_progress_counts_rows_of_running_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """In a stage that begins with Spark's own source, and in one that takes rows from a shuffle.
    Tasks tell them in each second of the tests' sessions."""
    read, fetched = tmp_path / "read", tmp_path / "fetched"

    def hear(progress: Progress | None) -> None:
        for stage in progress.stages if progress is not None else ():
            if stage.rows_read and not stage.tasks_done and not stage.rows_fetched:
                read.touch()
            if stage.rows_fetched and not stage.tasks_done:
                fetched.touch()

    rows = spark.range(0, ROWS, 1, 2).mapInPandas(until(read), "id BIGINT")
    shuffled = rows.repartition(2, "id").mapInPandas(until(fetched), "id BIGINT")
    listen(hear)
    try:
        with watched(spark, "running rows"):
            assert shuffled.count() == ROWS
    finally:
        listen(None)
    assert read.exists()
    assert fetched.exists()
