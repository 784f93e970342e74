"""Python functions that run where a Spark Connect server has its local files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from paimon_magics.spark.failures import translate

if TYPE_CHECKING:
    import pyarrow as pa


def run_on_server(spark: SparkSession, work: Callable[[], object]) -> None:
    """Run `work` in a task; Spark retries it if it fails, and finally raises a
    PaimonMagicsError."""
    try:
        spark.range(0, 1, 1, 1).mapInArrow(_Run(work), "id BIGINT").collect()
    except Exception as error:
        raise translate(error) from error


@dataclass(frozen=True)
class _Run:
    """Runs in the task."""

    work: Callable[[], object]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.work()
            yield batch
