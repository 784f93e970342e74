"""Writes rows of an append table into Parquet files, in the order in which they come.

The rows of each partition and bucket wait until they fill a row group; together they take
`_WAITING_BYTES_MAX` at most, since the largest part is written when they take more. A file is
finished at about `target-file-size`. Source: `AppendOnlyWriter`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.planning.compaction.append_tables import AppendRules
from paimon_magics.planning.schemas.feature_rules import is_blob_column
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import VectorType
from paimon_magics.tables.writing.bucket_assignment import Partition
from paimon_magics.tables.writing.key_value_files import KeyValueFileWriter, level_files, unsliced
from paimon_magics.tables.writing.open_files import OpenFiles, WritableTable

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

_WAITING_BYTES_MAX = 128 * 2**20  # in memory, before encoding
_ROW_GROUP_ROWS = 256 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class AppendTable(WritableTable):
    """How to write an append table. Rows whose bucket does not matter lie in bucket 0."""

    def writer(self, commit_user: str, *, overwrite: bool) -> AppendWriter:
        """A writer of new files; see `NativeTable.writer`."""
        del commit_user, overwrite  # the commit names it, and numbers the rows
        return AppendWriter(self)


class AppendWriter(OpenFiles[KeyValueFileWriter]):
    """Writes rows as they come, with the interface of `NativeWriter`."""

    def __init__(self, table: AppendTable) -> None:
        super().__init__(table)
        self._table = table
        self._required = [f.name for f in table.files.stored_schema() if not f.nullable]

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of one partition. Raises ValueError for rows that the table can't take."""
        for name in self._required:
            if rows.column(name).null_count:
                raise ValueError(f"column `{name}` is NOT NULL, and a row has NULL in it")
        self.writer(rows, bucket or 0).write(unsliced(rows))
        while sum(writer.waiting_bytes for writer in self._open.values()) > _WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda writer: writer.waiting_bytes).write_waiting()

    def opened(self, partition: Partition, bucket: int, folder: str) -> KeyValueFileWriter:
        """A new writer. Its name is unique: files are told apart without their folders."""
        stem = f"{self._table.prefixes[0]}{uuid.uuid4()}"
        return KeyValueFileWriter(self._table.files, folder, stem)


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
    rules = replace(files.rules, format="parquet", row_group_rows=_ROW_GROUP_ROWS)
    target_bytes = AppendRules.of(schema).target_bytes
    files = replace(files, rules=rules, target_bytes=target_bytes, system="none")
    return AppendTable.of(table, file_prefix, files)
