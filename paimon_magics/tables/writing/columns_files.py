"""Writes files of a data-evolution table that hold some columns of rows with ids.

The ids of a file's rows count from its first row id, which its metadata has. So rows must not be
left out, moved or divided among files. New values of a row are in a further file with all rows of
its range, which its snapshot makes the newest:

    ranges = row_ranges(table, snapshot)
    write = columns_write(table, transaction, ["v"], ranges)
    written = write.run(updated_rows(reader, ranges, updates))  # in a task
    messages = columns_messages(table, write, written, snapshot.id)

Ranges of different tasks must differ. If a process dies before its commit, files stay that no
snapshot names; the attempt noted their folders, so that they are removed when the transaction ends.
Sources: `DataEvolutionTableDataWrite`, `DataEvolutionPaimonWriter`,
`BaseAppendFileStoreWrite.withWriteType`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import TableDamagedError, UnsupportedStatementError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.scans import OWN_PREFIXES
from paimon_magics.planning.reads.splits import RowRange
from paimon_magics.planning.reads.views import ROW_ID
from paimon_magics.planning.schemas.feature_rules import is_blob_column
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.tables.manifests.names import APPENDED
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import writing_attempt
from paimon_magics.tables.writing.commit_messages import meta_of_new_file
from paimon_magics.tables.writing.key_value_files import (
    KeyValueFiles,
    KeyValueFileWriter,
    level_files,
)
from paimon_magics.tables.writing.new_files import NewFile, partition_values_row

_ONE_FILE_BYTES = 1 << 62  # never reached: `is_single` keeps all rows in one file


def stored_columns(schema: TableSchema) -> tuple[str, ...]:
    """The columns that data files have: without those of blob files."""
    inline = {
        name
        for key in ("blob-descriptor-field", "blob-view-field")
        for name in column_list(schema.option(key))
    }
    return tuple(
        column.name
        for column in schema.columns
        if column.name in inline or not is_blob_column(column.type)
    )


def columns_files(table: Table, columns: Sequence[str]) -> KeyValueFiles:
    """How a file of some columns is written, whatever its size. Raises InvalidTableError for an
    option's value that can't be read."""
    files = level_files(table, 0)
    whole = pa.ipc.read_schema(pa.py_buffer(files.schema))
    schema = pa.schema([field for field in whole if field.name in columns])
    return replace(
        files,
        schema=schema.serialize().to_pybytes(),
        floats=tuple(name for name in files.floats if name in columns),
        target_bytes=_ONE_FILE_BYTES,
        system="none",
        is_single=True,
    )


def meta_of_columns_file(table: Table, file: NewFile, columns: Sequence[str]) -> Any:
    """pypaimon's metadata of a file of some columns, in the order of the table's."""
    is_whole = tuple(columns) == tuple(table.schema.column_names)
    if file.bounded_columns is None and not is_whole:
        file = replace(file, bounded_columns=tuple(columns))
    meta = meta_of_new_file(table.paimon, file)
    meta.write_cols = None if is_whole else list(columns)
    return meta


WrittenColumns = tuple[int, NewFile]
"""A first row id, and the file that was written for the rows from it on."""


@dataclass(frozen=True)
class ColumnsWrite:
    """How new values of some columns are written; picklable, with the files of all ranges in it.

    `columns` are in the order of the table's. `ranges` may receive new values, in the order of
    their row ids. `partition_types` is the Arrow schema of the partition columns, serialized.
    `stem` begins the names of new files, and `attempts_folder` is the stem of the tasks' notes
    (module `attempts`). `table` is the table's name, for errors.
    """

    table: str
    files: KeyValueFiles
    columns: tuple[str, ...]
    ranges: tuple[RowRange, ...]
    partition_types: bytes
    stem: str
    attempts_folder: str | None
    io_options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"ColumnsWrite({self.stem})"  # io_options may hold credentials

    def run(self, batches: Iterable[pa.RecordBatch]) -> tuple[WrittenColumns, ...]:
        """Write all rows of some ranges, as one attempt. `batches` have `_ROW_ID` and the columns;
        the ids of a range ascend without a gap from its first to its last.

        Memory is bounded by a row group. Raises TableDamagedError for rows that are not a whole
        range, OSError for the store's failures, JobError when the transaction has ended, and what
        `batches` raises; files are deleted then.
        """
        with writing_attempt(self.attempts_folder, self.io_options) as running:
            written: list[WrittenColumns] = []
            places = {each.first_row_id: each for each in self.ranges}
            range_: RowRange | None = None
            next_id = 0
            for batch in batches:
                ids = np.asarray(batch.column(ROW_ID)).astype(np.int64)
                while len(ids):
                    if range_ is None:
                        next_id = int(ids[0])
                        range_ = places.pop(next_id, None)
                        if range_ is None:
                            raise self._not_whole(next_id)
                        if running.id:
                            running.note(self._partition(range_), [0])
                            reach("attempt.noted")
                        stem = f"{self.stem}{running.name_part}{next_id}"
                        writer = KeyValueFileWriter(self.files, range_.folder, stem)
                        running.writers.append(writer)
                    count = min(range_.next_row_id - next_id, len(ids))
                    if (ids[:count] != np.arange(next_id, next_id + count)).any():
                        raise self._not_whole(range_.first_row_id)
                    writer.write(batch.slice(0, count))
                    batch, ids, next_id = batch.slice(count), ids[count:], next_id + count
                    if next_id == range_.next_row_id:
                        (file,) = writer.finish()
                        written.append((range_.first_row_id, file))
                        range_ = None
            if range_ is not None:
                raise self._not_whole(range_.first_row_id)
            return tuple(written)

    def _partition(self, range_: RowRange) -> pa.RecordBatch:
        schema = pa.ipc.read_schema(pa.py_buffer(self.partition_types))
        values = zip(range_.partition, schema, strict=True)
        columns = [pa.array([value], field.type) for value, field in values]
        return partition_values_row(schema.names, columns)

    def _not_whole(self, row_id: int) -> TableDamagedError:
        return TableDamagedError(
            f"New values for rows of `{self.table}` must come with all rows of the file that has "
            f"the row id {row_id}, in their order. Nothing was committed.",
            hint="Run the statement again, and report this with the table's definition.",
        )


def columns_write(
    table: Table, transaction: Transaction, columns: Collection[str], ranges: Sequence[RowRange]
) -> ColumnsWrite:
    """How the transaction writes new values of some columns for rows of `ranges`.

    Raises UnsupportedStatementError for columns that are stored in separate files or in folder
    names, and for tables without data evolution; InvalidTableError for an option's value that can't
    be read.
    """
    schema = table.schema
    if not schema.data_evolution_enabled:
        raise UnsupportedStatementError(
            f"Single columns of `{table.name}` can't be written: its files hold whole rows.",
            hint="Such tables have 'data-evolution.enabled' = 'true'.",
        )
    stored = stored_columns(schema)
    for name in columns:
        if name in schema.partition_keys or name not in stored:
            what = "a partition column" if name in schema.partition_keys else "a BLOB column"
            raise UnsupportedStatementError(
                f"`{name}` of `{table.name}` is {what}, which can't be written separately.",
                hint="Write other columns, or whole rows.",
            )
    keys = [(key, arrow_type(schema.column(key).type)) for key in schema.partition_keys]
    chosen = tuple(name for name in stored if name in columns)
    return ColumnsWrite(
        table=str(table.name),
        files=columns_files(table, chosen),
        columns=chosen,
        ranges=tuple(ranges),
        partition_types=pa.schema(keys).serialize().to_pybytes(),
        stem=transaction.file_prefix + OWN_PREFIXES["data-file.prefix"],
        attempts_folder=transaction.attempts_folder,
        io_options=io_options(table.paimon),
    )


def columns_messages(
    table: Table, write: ColumnsWrite, written: Iterable[WrittenColumns], snapshot_id: int
) -> list[CommitMessage]:
    """The commit messages of the files that tasks wrote, one for each partition. Their commit is
    refused if the same columns of these rows, or their files, have changed since the snapshot
    `snapshot_id`, on which the values rest.

    Raises TableDamagedError if two tasks wrote the same rows.
    """
    places = {each.first_row_id: each for each in write.ranges}
    messages: dict[tuple[Any, ...], CommitMessage] = {}
    for first_row_id, new_file in written:
        range_ = places.pop(first_row_id, None)
        if range_ is None:
            raise TableDamagedError(
                f"Two tasks wrote the rows of `{table.name}` from the id {first_row_id} on. "
                "Nothing was committed.",
                hint="Run the statement again, and report this with the table's definition.",
            )
        file = meta_of_columns_file(table, new_file, write.columns)
        file.first_row_id = first_row_id
        file.file_source = APPENDED
        message = messages.get(range_.partition)
        if message is None:
            message = messages[range_.partition] = CommitMessage(
                range_.partition, 0, [], check_from_snapshot=snapshot_id
            )
        message.new_files.append(file)
    return list(messages.values())
