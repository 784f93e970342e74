"""Writes ORC and Avro, which the native writer does not offer, with pypaimon's own writer.

For append tables only. pypaimon is imported in the task, which takes a second once per worker.
Values that other engines would read back differently are refused. `planning.schemas.format_rules`
decides beforehand which types a format can hold.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.tables.pypaimon_internals import (
    numbers_from_zero,
    take_buckets_below,
    with_commit_user,
    write_whole_structs,
)
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.writing.format_writers import check_orc_times

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

_UNCOMPRESSED = ("none", "uncompressed", "null")
_NO_COMPRESSION = {"orc": "uncompressed", "avro": "null"}  # the word of each format's library


@dataclass(frozen=True, slots=True)
class PythonTable:
    """How to open one table with pypaimon in a task. `body` is a pickle of pypaimon's table;
    `io_options` reach the store."""

    name: str
    body: bytes
    io_options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"PythonTable({self.name})"  # the pickle may hold credentials

    def writer(self, commit_user: str, *, overwrite: bool) -> PythonWriter:
        """A writer of new files; see `NativeTable.writer`."""
        table = pickle.loads(self.body)  # made by `python_table`, on the driver of this very job
        builder = with_commit_user(table.new_batch_write_builder(), commit_user)
        return PythonWriter(table, builder.overwrite({}) if overwrite else builder)

    def with_file_prefix(self, addition: str) -> PythonTable:
        """The same table with `addition` appended to the prefixes of its new files' names."""
        table = pickle.loads(self.body)
        options = table.table_schema.options
        longer = {
            key: f"{options[key]}{addition}"
            for key in ("data-file.prefix", "changelog-file.prefix")
            if key in options
        }
        return replace(self, body=pickle.dumps(table.copy(longer)))


class PythonWriter:
    """pypaimon's writer with the interface of `NativeWriter`."""

    def __init__(self, table: Any, builder: Any) -> None:
        self._table = table
        self._builder = builder
        self._writer = builder.new_write()
        numbers_from_zero(self._writer)
        self._is_orc = table.options.file_format() == "orc"
        if self._is_orc:
            write_whole_structs(table)
        self._messages: list[Any] | None = None

    def write(self, rows: pa.RecordBatch, bucket: int | None) -> None:
        """Write rows of `bucket`, or of any buckets if it is None.

        Raises InvalidValueError, naming the column, for a value that the format can't hold.
        """
        if self._is_orc:
            check_orc_times(rows)
        self._writer.write_arrow(rows, bucket)

    def messages(self) -> list[bytes]:
        """Finish and return the commit messages; nothing may be written after."""
        from paimon_magics.tables.writing.commit_messages import write_message

        self._messages = list(self._writer.prepare_commit())
        for message in self._messages:
            for file in message.new_files:
                _drop_float_bounds(file.value_stats)
        return [write_message(self._table, message) for message in self._messages]

    def abort(self) -> None:
        """Delete the files of the messages that were returned; they must not be committed."""
        self._builder.new_commit().abort(self._messages)

    def close(self) -> None:
        """Close the writer, and delete files that are in no returned message."""
        if self._messages is None:
            self._writer.abort()
        self._writer.close()


def python_table(table: Table, options: dict[str, str]) -> PythonTable:
    """The description of `table`; `options` override those stored with it."""
    bucket = options.pop("bucket", None)
    schema = table.schema
    compression = (schema.stored_option("file.compression") or "").lower()
    if compression in _UNCOMPRESSED:
        options = {**options, "file.compression": _NO_COMPRESSION[schema.file_format]}
    paimon = table.paimon.copy(options)
    if bucket is not None:
        take_buckets_below(paimon, int(bucket))
    return PythonTable(
        name=str(table.name),
        body=pickle.dumps(paimon),
        io_options=io_options(table.paimon),
    )


def _drop_float_bounds(statistics: Any) -> None:
    # pypaimon ignores NaN in the bounds, so that other engines would prune files that have NaN. It
    # lacks the option that omits the statistics of one column.
    for row in (statistics.min_values, statistics.max_values):
        for place, field in enumerate(getattr(row, "fields", ())):
            if str(field.type).startswith(("FLOAT", "DOUBLE")):
                row.values[place] = None
