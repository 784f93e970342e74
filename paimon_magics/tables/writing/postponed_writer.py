"""Writes rows of a primary-key table that get their buckets later, by a compaction.

They lie in the folder `bucket-postpone` of their partition, neither sorted nor merged. All files of
one writer share a prefix and are read in their order, so that the rows of a key keep theirs.
Source: `PostponeBucketFileStoreWrite`, `PostponeBucketWriter`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.schemas.format_rules import fits_format
from paimon_magics.planning.writes.file_rules import NO_STATISTICS, data_file_rules
from paimon_magics.tables.writing.bucket_assignment import Partition
from paimon_magics.tables.writing.key_value_files import KeyValueFileWriter, level_files
from paimon_magics.tables.writing.open_files import OpenFiles, WritableTable
from paimon_magics.tables.writing.row_kinds import KindRule, kind_rule

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

POSTPONED_BUCKET = -2
"""The bucket of rows that wait for theirs (`BucketMode.POSTPONE_BUCKET`)."""

_WRITER = "-w-"


@dataclass(frozen=True, slots=True, repr=False)
class PostponedTable(WritableTable):
    """How to write a table whose rows wait for their buckets."""

    kinds: KindRule

    def writer(self, commit_user: str, *, overwrite: bool) -> PostponedWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del overwrite  # rows are numbered anew in any case
        return PostponedWriter(self, commit_user)


class PostponedWriter(OpenFiles[KeyValueFileWriter]):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: PostponedTable, commit_user: str) -> None:
        super().__init__(table)
        self._table = table
        identity = uuid.uuid4()
        number = identity.int % (2**31 - 1)
        self._stem = f"{table.prefixes[0]}u-{commit_user}-s-{number}{_WRITER}{identity}"
        self._rows = 0

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises ValueError for rows that the table can't take."""
        del bucket  # they wait for it
        rows, kinds = self._table.kinds.applied(rows)
        if not rows.num_rows:
            return
        numbers = np.arange(self._rows, self._rows + rows.num_rows, dtype=np.int64)
        self._rows += rows.num_rows
        writer = self.writer(rows, POSTPONED_BUCKET)
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        writer.write(rows.append_column(KIND, pa.array(kinds)))

    def opened(self, partition: Partition, bucket: int, folder: str) -> KeyValueFileWriter:
        """A new writer of the folder."""
        return KeyValueFileWriter(self._table.files, folder, self._stem)


def postponed_table(table: Table, file_prefix: str) -> PostponedTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`.

    Files are Avro where that holds the table's types, without statistics of values.
    """
    schema = table.schema
    rules = data_file_rules(schema, 0)
    rules = replace(
        rules,
        format="avro" if fits_format(schema, "avro") else rules.format,
        statistics=dict.fromkeys(schema.column_names, NO_STATISTICS),
    )
    files = replace(level_files(table, 0), rules=rules, indexes=None)
    spec = PostponedTable.of(table, file_prefix, files, kinds=kind_rule(schema))
    return replace(spec, prefixes=(f"{file_prefix}data-", ""))


def postponed_writer_of(file_name: str) -> str:
    """The prefix that all files of a writer share (`getWriterPrefix`); the whole name for a file
    that is named otherwise."""
    return file_name.rpartition(_WRITER)[0] or file_name
