"""Transfers the rows of buckets through files, from the tasks that have them to the tasks that
write them.

Where all tasks run in one JVM on this machine, a task puts its rows into Arrow once, divides them
among the tasks that write, and appends those of each to a file of its own (`SpoolTasks`). A writer
reads its files in the order of the tasks that wrote them, which is the order of the statement
(`SpooledWriteTasks`). Spark's own shuffle copies, compresses and sorts each row by itself, and puts
it into Arrow afterwards.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark_types

from paimon_magics.errors import sent_to_driver
from paimon_magics.spark.decimal_columns import HashedDecimals
from paimon_magics.spark.python_workers import keep_modules
from paimon_magics.spark.writing_tasks import WriteTasks
from paimon_magics.tables.writing.bucket_assignment import row_groups
from paimon_magics.tables.writing.writer import gathered

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
