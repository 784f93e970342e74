"""Writes rows with ids into the partitions that their values name, in a Spark task.

An UPDATE that assigns a partition column moves rows: they keep their ids, which their new file
stores. Light to import, because Spark's tasks load it; pypaimon is imported when a task writes.
Memory is bounded by a row group of each of `_OPEN_PARTITIONS_MAX` files. Source:
`UpdatePaimonTableCommand` with `PaimonSparkWriter.withRowTracking`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.faults import reach
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.compaction.row_files import RowFiles
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import writing_attempt
from paimon_magics.tables.writing.bucket_assignment import Partition, row_groups, values_at
from paimon_magics.tables.writing.key_value_files import KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile

__all__ = ["MovedFile", "MovingRowFiles", "moving_row_files"]

_OPEN_PARTITIONS_MAX = 16  # an open file holds a row group


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A new file, and the partition that it is in."""

    partition: Partition
    file: NewFile


@dataclass(frozen=True)
class MovingRowFiles:
    """How files of rows with ids are written as `rows` says, but into the partitions of the rows;
    picklable. `body` is a pickle of pypaimon's table, which knows where partitions lie."""

    rows: RowFiles
    body: bytes

    def __repr__(self) -> str:
        return f"MovingRowFiles({self.rows.stem})"  # the pickle may hold credentials

    def write(self, unit: AppendUnit, batches: Iterable[pa.RecordBatch]) -> tuple[MovedFile, ...]:
        """Write the rows of a unit, as one attempt. Raises as `RowFiles.write`."""
        rows = self.rows
        options = dict(rows.io_options)
        with writing_attempt(rows.attempts_folder, options, "attempt.written") as (running, open_):
            own = "" if running is None else f"{running.id}-"
            found: list[MovedFile] = []
            writers: dict[Partition, KeyValueFileWriter] = {}

            def finish() -> None:
                for partition, writer in writers.items():
                    found.extend(MovedFile(partition, file) for file in writer.finish())
                writers.clear()

            for batch in batches:
                keys = batch.select(list(rows.partition_keys))
                for places in row_groups(keys.columns):
                    first = int(places[0])
                    partition = values_at(keys.columns, first)
                    if partition not in writers:
                        if len(writers) == _OPEN_PARTITIONS_MAX:
                            finish()
                        if running is not None:
                            running.note(keys.slice(first, 1), pa.array([0], pa.int32()))
                            reach("attempt.noted")
                        stem = f"{rows.stem}{own}{unit.number}-{len(open_)}"
                        writers[partition] = KeyValueFileWriter(
                            rows.files, self._folder(partition), stem
                        )
                        open_.append(writers[partition])
                    whole = len(places) == batch.num_rows
                    writers[partition].write(batch if whole else batch.take(pa.array(places)))
            finish()
            return tuple(found)

    def _folder(self, partition: Partition) -> str:
        from pypaimon.utils.file_store_path_factory import canonical_data_file_path

        paimon = pickle.loads(self.body)  # made by `moving_row_files`, for this job
        return str(canonical_data_file_path(paimon, partition, 0, "file")).rpartition("/")[0]


def moving_row_files(table: Table, rows: RowFiles) -> MovingRowFiles:
    """How rows with ids are written into the partitions of their values."""
    return MovingRowFiles(rows, pickle.dumps(table.paimon))
