"""Writes finished Parquet files of the native writer again, in the format that the table asks for.

Of primary-key tables that the native writer writes (`table_write.flushes_itself`): it knows Parquet
only (for changelog files Avro, too). The order of rows, keys, bounds and sequence numbers stay, so
that only the name and the size of a file change in its message.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.planning.writes.file_rules import (
    FileRules,
    changelog_file_rules,
    data_file_rules,
)
from paimon_magics.tables.schema.arrow_casting import conform
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.file_indexes import FinishedFiles
from paimon_magics.tables.writing.format_writers import FormatWriter, open_format_writer
from paimon_magics.tables.writing.key_value_files import SYSTEM_FIELDS
from paimon_magics.tables.writing.new_files import file_path

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

_PARQUET = "parquet"
_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class FileConversion(FinishedFiles):
    """How new files are converted: data files by `data`, changelog files by `changelog`; None
    leaves them as they are."""

    data: FileRules | None
    changelog: FileRules | None

    def _change(self, paimon: Any, message: Any, written: list[str]) -> None:
        kinds = ((message.new_files, self.data), (message.changelog_files, self.changelog))
        for files, rules in kinds:
            if rules is not None:
                for file in files:
                    self._convert(paimon, message, file, rules, written)

    def _own_files(self, message: Any) -> Iterable[str]:
        return (file.file_name for file in (*message.new_files, *message.changelog_files))

    def _convert(
        self, paimon: Any, message: Any, file: Any, rules: FileRules, written: list[str]
    ) -> None:
        source_path = file_path(paimon, tuple(message.partition), message.bucket, file.file_name)
        name = f"{file.file_name.rpartition('.')[0]}.{rules.format}"
        path = f"{source_path.rpartition('/')[0]}/{name}"
        written.append(path)
        with contextlib.closing(paimon.file_io.new_input_stream(source_path)) as source:
            file.file_size = self._written(paimon, source, path, rules)
        file.file_name = name
        paimon.file_io.delete_quietly(source_path)

    def _written(self, paimon: Any, source: Any, path: str, rules: FileRules) -> int:
        """Write the rows of a Parquet file; return the size of the new file."""
        import pyarrow.parquet as pq

        columns = pa.ipc.read_schema(pa.py_buffer(self.schema))
        schema = pa.schema([*SYSTEM_FIELDS, *columns])
        writer: FormatWriter | None = None
        with paimon.file_io.new_output_stream(path) as sink, pq.ParquetFile(source) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                rows = pa.Table.from_batches([conform(batch, schema)])
                writer = writer or open_format_writer(sink, rows, rules, ())
                writer.write(rows)
            assert writer is not None  # no file is empty
            writer.close()
        return int(paimon.file_io.get_file_size(path))


def file_conversion(table: Table) -> FileConversion | None:
    """What the native writer's files of a primary-key table are converted to; None for those that
    stay. Raises InvalidTableError for an option's value that can't be read."""
    schema = table.schema
    if not schema.is_primary_key_table:
        return None
    data, changelog = data_file_rules(schema, 0), changelog_file_rules(schema, 0)
    converts_data = data.format != _PARQUET
    converts_changelog = schema.changelog_producer == "input" and changelog.format != _PARQUET
    if not (converts_data or converts_changelog):
        return None
    return FileConversion(
        pickle.dumps(table.paimon),
        arrow_schema(schema).serialize().to_pybytes(),
        data if converts_data else None,
        changelog if converts_changelog else None,
    )
