"""Rewrites the files of an append unit, in a Spark task or in a thread.

Light to import, because Spark's tasks load it. The rows are read with their deletion vectors and in
the form of the table's current schema, and written by one writer, as rows of a statement are. What
the new files are called in the commit is the driver's business (`append_messages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from paimon_magics.tables.compaction.append_units import AppendUnit
from paimon_magics.tables.reading.data_files import FileReader
from paimon_magics.tables.writing.write_spec import WriteSpec, Written
from paimon_magics.tables.writing.writer import write_batches

__all__ = ["AppendRewrite", "RewrittenUnit"]

_BUCKET = "__paimon_magics_bucket"


@dataclass(frozen=True, slots=True)
class RewrittenUnit:
    """What the writer of the unit `number` wrote."""

    number: int
    written: Written


@dataclass(frozen=True)
class AppendRewrite:
    """Rewrites units: small and picklable. `reader` reads whole rows. With `has_buckets` the rows
    of a unit go to its bucket, which is not computed again."""

    reader: FileReader
    spec: WriteSpec
    has_buckets: bool

    def __call__(self, unit: AppendUnit) -> RewrittenUnit:
        """Rewrite a unit. Raises TableDamagedError for a file that can't be read, and what
        `write_batches` raises."""
        rows = self._rows(unit)
        bucket_column = _BUCKET if self.has_buckets else None
        return RewrittenUnit(
            unit.number, write_batches(self.spec, rows, bucket_column=bucket_column)
        )

    def _rows(self, unit: AppendUnit) -> Iterator[pa.RecordBatch]:
        for file in unit.files:
            for batch in self.reader.batches(file):
                if not self.has_buckets:
                    yield batch
                    continue
                bucket = np.full(batch.num_rows, unit.bucket, dtype=np.int32)
                yield batch.append_column(_BUCKET, pa.array(bucket))
