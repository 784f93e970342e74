"""Writes rows of a primary-key table that get their buckets later, by a compaction.

They lie in the folder `bucket-postpone` of their partition, neither sorted nor merged. All files of
one writer share a prefix and are read in their order, so that the rows of a key keep theirs.
Source: `PostponeBucketFileStoreWrite`, `PostponeBucketWriter`.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.planning.schemas.format_rules import fits_format
from paimon_magics.planning.writes.file_rules import NO_STATISTICS, data_file_rules
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.writing.bucket_assignment import values_at
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, level_files
from paimon_magics.tables.writing.open_files import OpenFiles
from paimon_magics.tables.writing.row_kinds import KindRule, kind_rule

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

POSTPONED_BUCKET = -2
"""The bucket of rows that wait for theirs (`BucketMode.POSTPONE_BUCKET`)."""

_WRITER = "-w-"


@dataclass(frozen=True, slots=True)
class PostponedTable:
    """How to write one table in a task. `body` is a pickle of pypaimon's table. `prefix` begins the
    names of files."""

    name: str
    body: bytes
    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    prefix: str
    kinds: KindRule
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"PostponedTable({self.name})"  # the pickle may hold credentials

    def writer(self, commit_user: str, *, overwrite: bool) -> PostponedWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del overwrite  # rows are numbered anew in any case
        return PostponedWriter(self, commit_user)

    def with_file_prefix(self, addition: str) -> PostponedTable:
        """The same table with `addition` appended to the prefix of its new files' names."""
        return replace(self, prefix=self.prefix + addition)


class PostponedWriter(OpenFiles):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: PostponedTable, commit_user: str) -> None:
        # The pickle was made by `postponed_table`, for this job.
        super().__init__(pickle.loads(table.body), table.files)
        self._table = table
        identity = uuid.uuid4()
        number = identity.int % (2**31 - 1)
        self._stem = f"{table.prefix}u-{commit_user}-s-{number}{_WRITER}{identity}"
        self._rows = 0

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises ValueError for rows that the table can't take."""
        del bucket  # they wait for it
        rows, kinds = self._table.kinds.applied(rows)
        if not rows.num_rows:
            return
        keys = [rows.column(key) for key in self._table.partition_keys]
        partition = values_at(keys, 0) if keys else ()
        numbers = np.arange(self._rows, self._rows + rows.num_rows, dtype=np.int64)
        self._rows += rows.num_rows
        rows = rows.append_column(SEQUENCE, pa.array(numbers))
        writer = self.writer(partition, POSTPONED_BUCKET, self._stem)
        writer.write(rows.append_column(KIND, pa.array(kinds)))


def postponed_table(table: Table, file_prefix: str) -> PostponedTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`.

    Files are Avro where that holds the table's types, without statistics of values.
    """
    schema = table.schema
    rules = data_file_rules(schema, 0)
    file_format = "avro" if fits_format(schema, "avro") else rules.format
    rules = replace(
        rules,
        format=file_format,
        statistics=dict.fromkeys(schema.column_names, NO_STATISTICS),
    )
    return PostponedTable(
        name=str(table.name),
        body=pickle.dumps(table.paimon),
        files=replace(level_files(table, 0), rules=rules, indexes=None),
        partition_keys=schema.partition_keys,
        prefix=f"{file_prefix}data-",
        kinds=kind_rule(schema),
        io_options=tuple(sorted((store_options(table.paimon) or {}).items())),
    )


def postponed_writer_of(file_name: str) -> str:
    """The prefix that all files of a writer share (`getWriterPrefix`); the whole name for a file
    that is named otherwise."""
    return file_name.rpartition(_WRITER)[0] or file_name
