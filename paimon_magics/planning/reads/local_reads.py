"""Decides whether the process that plans a read also reads the rows itself.

Few rows of small files take some milliseconds there, where Spark's tasks take tenths of a second
before their first row. Spark then gets them as a local relation, for which it starts no task, and
evaluates the user's text over it as over any other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_magics.planning.reads.predicates import ColumnPredicate, few_values
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles, StoredFile, TaskSplit
from paimon_magics.planning.schemas.table_schema import TableSchema

__all__ = ["LocalLimits", "fixes_keys", "plain_splits", "stored_bytes"]

_KEYED_BYTES_MAX = 64 << 20
"""The size of the files that can hold the wanted keys. Of those only the keys are read, and the
values of the rows that are left; beyond that several cores and Spark's use of page indexes win."""


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """What the planning process reads at most: `rows_max` rows, which take `bytes_max` bytes in
    memory, from files of `bytes_max` bytes, and `files_max` files.

    With `by_key` the conditions leave few keys, so that files may be larger than the rows that are
    handed on. With `first_rows` that many rows are wanted, whichever: the rest is not read.
    """

    rows_max: int
    bytes_max: int
    files_max: int
    by_key: bool = False
    first_rows: int | None = None

    def take(self, raw: Sequence[RawFiles], splits: Sequence[TaskSplit]) -> bool:
        """Whether these files are few and small enough."""
        if not self.rows_max:
            return False
        counts = [len(files.paths) for files in raw] + [len(split.files) for split in splits]
        formats = {files.format for files in raw}
        formats |= {file.format for split in splits for file in split.files}
        is_small = sum(counts) <= self.files_max and stored_bytes(raw, splits) <= self.bytes_max
        streams = "orc" not in formats  # its reader takes a whole stripe into memory
        if self.first_rows is not None and self.first_rows <= self.rows_max:
            return is_small or streams
        if self.by_key and sum(counts) <= self.files_max and (is_small or streams):
            return stored_bytes(raw, splits) <= _KEYED_BYTES_MAX
        rows = sum(sum(files.row_counts) for files in raw)
        rows += sum(file.rows for split in splits for file in split.files)
        return is_small and rows <= self.rows_max


def fixes_keys(schema: TableSchema, predicates: Sequence[ColumnPredicate], keys_max: int) -> bool:
    """Whether the conditions leave a table with keys at most `keys_max` of them."""
    keys = schema.primary_keys
    return bool(keys) and few_values(predicates, keys, keys_max) is not None


def stored_bytes(raw: Sequence[RawFiles], splits: Sequence[TaskSplit]) -> int:
    """The size of the files of a read."""
    size = sum(sum(files.sizes_bytes) for files in raw)
    return size + sum(file.size_bytes for split in splits for file in split.files)


def plain_splits(files: RawFiles) -> Iterator[PlainSplit]:
    """Files that need no merge, each as a split of its own."""
    for path, rows, size in zip(files.paths, files.row_counts, files.sizes_bytes, strict=True):
        yield PlainSplit((StoredFile(path, files.format, files.schema_id, rows, size),))
