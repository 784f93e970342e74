"""What a statement did, or did not do: the Spark jobs that ran and the files that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jobs(spark: SparkSession) -> set[int]:
    """The ids of the Spark jobs that ran so far: of the last hundred, which is what the tests'
    session remembers."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder below `folder`: size and time of change for files. Not the lease of a
    coordinator, which is renewed whatever a statement does."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        if path.is_file()
        else (-1, -1)
        for path in sorted(folder.rglob("*"))
        if not path.match(".paimon-magics/owner-*.json")
    }


@contextmanager
def nothing_happens(spark: SparkSession, warehouse: Path) -> Iterator[None]:
    """The body starts no Spark job, and leaves every file and folder of the warehouse as it is."""
    jobs_before, files_before = jobs(spark), files(warehouse)
    yield
    assert jobs(spark) - jobs_before == set()
    assert files(warehouse) == files_before
