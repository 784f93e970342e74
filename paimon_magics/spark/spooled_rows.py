"""Transfers rows through temporary files: those of a stream of Arrow batches to Spark, and those of
buckets from the tasks that have them to the tasks that write them.

A stream may hold more than fits into memory. A few rows go to Spark as those of a table do (module
`rows`): Spark's driver has them in memory. If there are more, and Spark's tasks run on this
machine, they are written to temporary files, which the tasks read. Where tasks run elsewhere all
rows go to Spark's driver.

Where all tasks run in one JVM on this machine, a task puts rows of buckets into Arrow once, divides
them among the tasks that write, and appends those of each to a file of its own (`SpoolTasks`). A
writer reads its files in the order of the tasks that wrote them, which is the order of the
statement (`SpooledWriteTasks`). Spark's own shuffle copies, compresses and sorts each row by
itself, and puts it into Arrow afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from paimon_magics.columnar.time_zones import UTC, in_zone
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.spark.sessions import runs_here
from paimon_magics.temporary_folders import OwnedFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


import uuid
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark_types

from paimon_magics.errors import sent_to_driver
from paimon_magics.spark.decimal_columns import HashedDecimals
from paimon_magics.spark.writing_tasks import WriteTasks
from paimon_magics.tables.writing.bucket_counts import row_groups
from paimon_magics.tables.writing.writer import gathered

_IN_MEMORY_BYTES_MAX = 32 << 20
# Of Arrow data, before it is compressed; a task reads one file.
_FILE_BYTES = 64 << 20


class SpooledRows:
    """A folder of temporary files, removed when nothing refers to this object any more, when Python
    ends, or before."""

    def __init__(self) -> None:
        self._owned = OwnedFolder("rows")
        self.folder = self._owned.path

    def remove(self) -> None:
        """Remove the folder."""
        self._owned.remove()


def frame_of_stream(
    spark: SparkSession, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[DataFrame, SpooledRows | None]:
    """Return a frame of the batches in their order, and the files that it reads, if there are any:
    the user of the frame keeps them as long as the frame is used. Batches have Spark's types, as
    those of `frame_of_rows`.

    Raises what reading the batches raises.
    """
    import pyarrow as pa

    first, rest, size = [], iter(batches), 0
    spools = runs_here(spark)
    for batch in rest:
        first.append(batch)
        size += batch.nbytes
        if spools and size > _IN_MEMORY_BYTES_MAX:
            break
    else:
        return frame_of_rows(spark, pa.Table.from_batches(first, schema)), None
    spooled = SpooledRows()
    try:
        files = _write(spooled.folder, chain(_emptied(first), rest))
    except BaseException:
        # At once: the error's traceback, which a notebook keeps, refers to the files.
        spooled.remove()
        raise
    return _frame(spark, schema, files), spooled


def _emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batches.reverse()
    while batches:
        yield batches.pop()


def _write(folder: Path, batches: Iterator[pa.RecordBatch]) -> tuple[str, ...]:
    files: list[str] = []
    for first in batches:
        files.append(str(folder / f"{len(files):06}.arrow"))
        write_file(files[-1], first, batches)
    return tuple(files)


def write_file(path: str, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> None:
    """Write a batch, and those that follow it until the file is large."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(path, "wb") as sink,
        pa.ipc.new_stream(sink, first.schema, options=options) as writer,
    ):
        size = 0
        for batch in chain([first], batches):
            writer.write_batch(batch)
            size += batch.nbytes
            if size >= _FILE_BYTES:
                break


def _frame(spark: SparkSession, schema: pa.Schema, files: tuple[str, ...]) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    numbers = spark.range(0, len(files), 1, len(files))
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return numbers.mapInArrow(_ReadFiles(files), kinds)


@dataclass(frozen=True)
class _ReadFiles:
    """Runs in the task. The row that it is given is the number of the file."""

    files: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                with pa.OSFile(self.files[number]) as source, pa.ipc.open_stream(source) as reader:
                    for rows in reader:
                        yield from in_zone(pa.Table.from_batches([rows]), UTC).to_batches()
        keep_modules()


_GROUP_ROWS_MIN = 4096  # rows of smaller groups stay together

SPOOLED = spark_types.StructType(
    [
        spark_types.StructField("source", spark_types.IntegerType()),
        spark_types.StructField("writer", spark_types.IntegerType()),
        spark_types.StructField("path", spark_types.StringType()),
    ]
)
"""What SpoolTasks return: the source partition, the number of the task that writes, and a file."""


@dataclass(frozen=True)
class SpoolTasks:
    """Runs in the task: writes its rows into files in `folder`, one for each task that writes.

    `writer_column` has the number of that task, and is left out of the files. Rows with the same
    values in `owners` are put together where that makes batches large enough.
    """

    folder: str
    writer_column: str
    owners: tuple[str, ...]
    decimals: HashedDecimals

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, of SPOOLED, that name the files."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        files: dict[int, str] = {}
        # Attempts of a task must not meet in a file.
        stem = f"{self.folder}/{context.partitionId():06}-{uuid.uuid4().hex[:12]}"
        with sent_to_driver(), ExitStack() as opened:
            writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
            for batch in self.decimals.restored(gathered(batches)):
                for writer, rows in self._divided(batch):
                    if writer not in writers:
                        files[writer] = f"{stem}-{writer}.arrow"
                        sink = opened.enter_context(pa.OSFile(files[writer], "wb"))
                        writers[writer] = opened.enter_context(pa.ipc.new_stream(sink, rows.schema))
                    writers[writer].write_batch(rows)
        yield pa.RecordBatch.from_pydict(
            {
                "source": [context.partitionId()] * len(files),
                "writer": list(files),
                "path": list(files.values()),
            },
            schema=pa.schema(
                [("source", pa.int32()), ("writer", pa.int32()), ("path", pa.string())]
            ),
        )
        keep_modules()

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each task that writes, in their order."""
        writers = batch.column(self.writer_column)
        numbers = np.asarray(writers)
        batch = batch.drop_columns([self.writer_column])
        groups = row_groups([writers, *(batch.column(name) for name in self.owners)])
        if len(groups) * _GROUP_ROWS_MIN > batch.num_rows:
            groups = row_groups([writers])
        for rows in groups:
            yield int(numbers[rows[0]]), batch.take(pa.array(rows))


@dataclass(frozen=True)
class SpooledWriteTasks:
    """Runs in the task: `tasks` on the rows of files. The row that it is given is the number of the
    writer in `files`."""

    files: tuple[tuple[str, ...], ...]
    tasks: WriteTasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row, with a TaskWritten, for all files."""
        (number,) = (number for batch in batches for number in batch.column(0).to_pylist())
        yield from self.tasks(self._rows(number))

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for path in self.files[number]:
            with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
                yield from reader
