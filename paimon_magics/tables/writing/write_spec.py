"""What each writer of a transaction is told, and what it gives back: values that are pickled for
their way to tasks and back."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.tables.writing.bucket_assignment import (
    BucketRule,
)
from paimon_magics.tables.writing.dynamic_buckets import (
    DynamicBuckets,
    IndexWritten,
)
from paimon_magics.tables.writing.float_bounds import FloatColumns
from paimon_magics.tables.writing.native_writer import NativeTable
from paimon_magics.tables.writing.python_writer import PythonTable

__all__ = ["WriteSpec", "Written"]


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """What every writer of one statement must know; small and picklable.

    `schema` is the table's exact Arrow schema, serialised. Buckets follow from `bucket_rule`, are
    assigned as `dynamic_buckets` says, or do not matter (neither is there). With
    `single_writer_rows_max` one writer must take all rows, and refuses more than so many (keys that
    can move between partitions: it has to know where each one lives). `overwrite` tells that the
    files replace others, so that sequence numbers start anew. `attempts_folder` is what the paths
    of the writers' notes begin with (module `attempts`); `float_columns`: see `float_bounds`.
    """

    table: NativeTable | PythonTable
    commit_user: str
    schema: bytes
    partition_keys: tuple[str, ...]
    bucket_rule: BucketRule | None
    overwrite: bool
    attempts_folder: str | None
    dynamic_buckets: DynamicBuckets | None = None
    single_writer_rows_max: int | None = None
    partitions_max: int | None = None
    float_columns: FloatColumns | None = None

    def arrow_schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True, slots=True)
class Written:
    """What one writer made: commit messages (Java's serializer, version 14) and rows taken.

    `index_files` belong to the messages, see `dynamic_buckets.put_index_files`. The columns
    `odd_floats` had values that bounds are wrong about, see `float_bounds.mend_messages`.
    """

    messages: tuple[bytes, ...]
    rows: int
    index_files: tuple[IndexWritten, ...] = ()
    odd_floats: frozenset[str] = frozenset()
