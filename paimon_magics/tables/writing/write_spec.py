"""The write specification that each writer of a transaction gets, and the result that it returns:
values that are pickled on their way to tasks and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.row_changes.merged_updates import ALL_SEEN, UnseenCounts
from paimon_magics.planning.writes.losses import ColumnLoss
from paimon_magics.planning.writes.row_origins import OriginCounts
from paimon_magics.tables.writing.bucket_counts import (
    BucketRule,
)
from paimon_magics.tables.writing.dynamic_buckets import (
    DynamicBuckets,
    IndexWritten,
)
from paimon_magics.tables.writing.file_conversion import FileConversion
from paimon_magics.tables.writing.file_indexes import FileIndexRules
from paimon_magics.tables.writing.float_bounds import FloatColumns
from paimon_magics.tables.writing.native_writer import NativeTable
from paimon_magics.tables.writing.own_writers import AppendTable, FlushTable, PostponedTable
from paimon_magics.tables.writing.python_writer import PythonTable


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """The specification for every writer of one statement; small and picklable.

    `schema` is the table's exact Arrow schema, serialized. Buckets follow from `bucket_rule` or are
    assigned by `dynamic_buckets`; they do not matter if both are None. With
    `single_writer_rows_max` one writer takes all rows and refuses more than that, because keys can
    move between partitions and it must know the partition of each key. With `overwrite` the files
    replace others, so that sequence numbers restart. `attempts_folder` is the stem of the
    writers' notes (module `attempts`). A writer that meets more than `partitions_max` partitions
    gives up. `float_columns`: see `float_bounds`, `file_indexes`: see the module of that name.
    `conversion` is for files that the native writer does not write in the table's format. Rows
    whose bucket does not matter lie in `common_bucket`.
    """

    table: NativeTable | PythonTable | PostponedTable | FlushTable | AppendTable
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
    file_indexes: FileIndexRules | None = None
    conversion: FileConversion | None = None
    common_bucket: int = 0

    def arrow_schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))

    def with_kinds(self) -> WriteSpec:
        """The same for rows of a primary-key table that have their kinds in a last column, KIND."""
        schema = self.arrow_schema().append(pa.field(KIND, pa.int8(), nullable=False))
        return replace(self, schema=schema.serialize().to_pybytes())


@dataclass(frozen=True, slots=True)
class Written:
    """The result of one writer: commit messages (Java's serializer, version 14) and rows taken.

    `index_files` belong to the messages, see `dynamic_buckets.put_index_files`. The columns
    `odd_floats` had NaN or -0.0, which makes bounds wrong, see `float_bounds.mend_messages`. For
    `unseen`, the rows of an UPDATE without visible effect, and `losses`, the values that were
    rounded or cut, see `row_counters`; `origins` are the rows by where they come from.
    """

    messages: tuple[bytes, ...]
    rows: int
    index_files: tuple[IndexWritten, ...] = ()
    odd_floats: frozenset[str] = frozenset()
    unseen: UnseenCounts = ALL_SEEN
    losses: tuple[ColumnLoss, ...] = ()
    origins: OriginCounts = ()
