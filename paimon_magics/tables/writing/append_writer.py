"""Writes rows of an append table into Parquet files, in the order in which they come.

The rows of each partition and bucket wait until they fill a row group; together they take
`_WAITING_BYTES_MAX` at most, since the largest part is written when they take more. A file is
finished at about `target-file-size`. Source: `AppendOnlyWriter`.
"""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.schemas.feature_rules import is_blob_column
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import VectorType
from paimon_magics.tables.pypaimon_internals import store_options
from paimon_magics.tables.writing.bucket_assignment import values_at
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, level_files
from paimon_magics.tables.writing.open_files import OpenFiles

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

_WAITING_BYTES_MAX = 128 * 2**20  # in memory, before encoding
_ROW_GROUP_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True)
class AppendTable:
    """How to write one table in a task; picklable. `body` is a pickle of pypaimon's table. `prefix`
    begins the names of files. Rows whose bucket does not matter lie in bucket 0."""

    name: str
    body: bytes
    files: KeyValueFiles
    partition_keys: tuple[str, ...]
    prefix: str
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"AppendTable({self.name})"  # the pickle and io_options may hold credentials

    def writer(self, commit_user: str, *, overwrite: bool) -> AppendWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del commit_user, overwrite  # the commit names it, and numbers the rows
        return AppendWriter(self)

    def with_file_prefix(self, addition: str) -> AppendTable:
        """The same table with `addition` appended to the prefix of its new files' names."""
        return replace(self, prefix=self.prefix + addition)


class AppendWriter(OpenFiles):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: AppendTable) -> None:
        # The pickle was made by `append_table`, for this job.
        super().__init__(pickle.loads(table.body), table.files)
        self._table = table
        self._required = [one.name for one in table.files.stored_schema() if not one.nullable]

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises ValueError for rows that the table can't take."""
        for name in self._required:
            if rows.column(name).null_count:
                raise ValueError(f"column `{name}` is NOT NULL, and a row has NULL in it")
        keys = [rows.column(key) for key in self._table.partition_keys]
        if rows.get_total_buffer_size() > 2 * rows.nbytes:
            # A slice would keep the batch in memory that it was cut from.
            rows = rows.take(pa.array(np.arange(rows.num_rows)))
        # Each has a name of its own: files are told apart without their folders.
        stem = f"{self._table.prefix}{uuid.uuid4()}"
        self.writer(values_at(keys, 0) if keys else (), bucket or 0, stem).write(rows)
        while sum(one.waiting_bytes for one in self) > _WAITING_BYTES_MAX:
            max(self, key=lambda one: one.waiting_bytes).write_waiting()


def appends_itself(schema: TableSchema) -> bool:
    """Whether rows are written by this module: those of append tables in Parquet, whose files hold
    all columns and nothing else."""
    return (
        not schema.is_primary_key_table
        and schema.file_format == "parquet"
        and not schema.row_tracking_enabled
        and not schema.data_evolution_enabled
        and schema.stored_option("data-file.external-paths") is None
        and not any(
            is_blob_column(column.type) or isinstance(column.type, VectorType)
            for column in schema.columns
        )
    )


def append_table(table: Table, file_prefix: str) -> AppendTable:
    """The description of `table` for writers whose files' names begin with `file_prefix`. Raises
    InvalidTableError for an option's value that can't be read."""
    schema = table.schema
    files = level_files(table, 0)
    return AppendTable(
        name=str(table.name),
        body=pickle.dumps(table.paimon),
        files=replace(
            files,
            rules=replace(files.rules, format="parquet", row_group_rows=_ROW_GROUP_ROWS),
            target_bytes=AppendRules.of(schema).target_bytes,
            system="none",
        ),
        partition_keys=schema.partition_keys,
        prefix=file_prefix + OWN_PREFIXES["data-file.prefix"],
        io_options=tuple(sorted((store_options(table.paimon) or {}).items())),
    )
