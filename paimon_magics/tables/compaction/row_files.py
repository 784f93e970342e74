"""Writes the rows of an append unit into files that store the rows' ids and sequence numbers.

The native writer has no such columns. Memory is bounded by a row group. If the process dies, files
stay that no snapshot names; the transaction's attempt noted their folder, so that they are removed
when it ends. Light to import, because Spark's tasks load it. Source: `AppendCompactTask` with
`SpecialFields.rowTypeWithRowTracking` as the type of its writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.faults import reach
from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.writing.attempts import writing_attempt
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter
from paimon_magics.tables.writing.new_files import NewFile

__all__ = ["RowFiles"]


@dataclass(frozen=True)
class RowFiles:
    """How files of rows with ids are written; small and picklable.

    `partition_keys` are the table's. `stem` begins the names of new files, and `attempts_folder` is
    the stem of the tasks' notes (module `attempts`).
    """

    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"RowFiles({self.stem})"  # io_options may hold credentials

    def write(self, unit: AppendUnit, batches: Iterable[pa.RecordBatch]) -> tuple[NewFile, ...]:
        """Write the rows of a unit, as one attempt.

        Raises OSError for the store's failures, JobError when the transaction has ended, and what
        `batches` raises; files are deleted then.
        """
        options = dict(self.io_options)
        with writing_attempt(self.attempts_folder, options, "attempt.written") as (running, open_):
            own = "" if running is None else f"{running.id}-"
            stem = f"{self.stem}{own}{unit.number}-{unit.share}"
            writer = KeyValueFileWriter(self.files, unit.folder, stem)
            open_.append(writer)
            for count, batch in enumerate(batches):
                if running is not None and not count:
                    keys = batch.select(list(self.partition_keys)).slice(0, 1)
                    running.note(keys, pa.array([unit.bucket], pa.int32()))
                    reach("attempt.noted")
                writer.write(batch)
            return writer.finish()
