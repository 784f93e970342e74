"""Computes the bucket of each row, and groups the rows of a batch by partition and bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.bucket_hash import default_bucket, hive_bucket, mod_bucket

Partition = tuple[Any, ...]
"""Partition values as Python values, as both engines give them."""

Rows = npt.NDArray[np.int64]
"""Positions of rows in a batch, ascending."""


_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class BucketRule:
    """How a row's bucket follows from its key columns. `function` is default, mod or hive.

    `by_partition` has the number of buckets of the partitions where it is not `buckets`.
    """

    keys: tuple[str, ...]
    buckets: int
    function: str = "default"
    by_partition: tuple[tuple[Partition, int], ...] = ()

    def owners(self, batch: pa.RecordBatch, partition_keys: Sequence[str]) -> npt.NDArray[np.int32]:
        """The bucket of each row. All rows of a bucket must go to the same task."""
        if not self.by_partition:
            return self._of(batch, self.buckets)
        counts = dict(self.by_partition)
        partitions = [batch.column(key) for key in partition_keys]
        if not partitions:
            return self._of(batch, counts.get((), self.buckets))
        owners = np.empty(batch.num_rows, dtype=np.int32)
        for rows in row_groups(partitions):
            count = counts.get(values_at(partitions, rows[0]), self.buckets)
            owners[rows] = self._of(batch.take(pa.array(rows)), count)
        return owners

    def _of(self, batch: pa.RecordBatch, buckets: int) -> npt.NDArray[np.int32]:
        if not self.keys:
            # An append table that Paimon 0.7 or before created. It has one bucket by default, and
            # needs no bucket key: its rows may be in any bucket.
            return np.zeros(batch.num_rows, dtype=np.int32)
        columns = [batch.column(key) for key in self.keys]
        if self.function == "mod":
            return mod_bucket(columns[0], buckets)
        if self.function == "hive":
            return hive_bucket(columns, buckets)
        return default_bucket(columns, buckets)


def row_groups(columns: Sequence[pa.Array]) -> list[Rows]:
    """Group rows by their values: the positions of the rows of each group, ascending."""
    if not len(columns[0]):
        return []
    codes, count = _codes(columns[0])
    for column in columns[1:]:
        more, count_of_more = _codes(column)
        codes, count = codes * count_of_more + more, count * count_of_more
        if count > _SMALL:  # number them without gaps, so that products of many columns fit
            values, codes = np.unique(codes, return_inverse=True)
            count = len(values)
    if count <= _SMALL:
        codes = codes.astype(np.uint16)  # NumPy sorts them by radix
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, edges)


def _codes(column: pa.Array) -> tuple[npt.NDArray[np.int64], int]:
    """A code for each value, equal for equal values and for NULLs, and the number of codes."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def values_at(columns: Sequence[pa.Array], row: int) -> Partition:
    """The values of one row as Python values."""
    return tuple(column[int(row)].as_py() for column in columns)
