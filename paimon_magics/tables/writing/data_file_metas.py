"""pypaimon's `DataFileMeta` of files that are known as manifest columns, or that were just written.

Keys and bounds stay in their serialized form, so that they are neither lost nor changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pypaimon.data.timestamp import Timestamp
from pypaimon.manifest.schema.data_file_meta import DataFileMeta

from paimon_magics.tables.manifests.names import APPENDED, COMPACTED
from paimon_magics.tables.writing.new_files import NewFile, StoredBounds
from paimon_magics.tables.writing.stored_rows import StoredRow, StoredStatistics

_SAME_NAMES = (
    *("file_name", "file_size", "row_count", "min_sequence_number", "max_sequence_number"),
    *("schema_id", "level", "delete_row_count", "file_source", "value_stats_cols"),
    *("external_path", "first_row_id", "write_cols"),
)


def stored_metas(paimon: Any, files: pa.Table) -> list[DataFileMeta]:
    """The metas of stored files; `files` has the columns of `columns.MANIFEST_ENTRIES`.

    `paimon` is pypaimon's table.
    """
    keys = paimon.trimmed_primary_keys_fields
    by_name = {field.name: field for field in paimon.table_schema.fields}
    return [_stored_meta(row, keys, by_name) for row in files.to_pylist()]


def meta_of_new_file(paimon: Any, file: NewFile) -> DataFileMeta:
    """The meta of a file that a task has written."""
    keys = paimon.trimmed_primary_keys_fields
    fields = paimon.table_schema.fields
    if file.bounded_columns is not None:
        by_name = {field.name: field for field in fields}
        fields = [by_name[name] for name in file.bounded_columns]
    return DataFileMeta(
        file_name=file.name,
        file_size=file.size_bytes,
        row_count=file.rows,
        min_key=StoredRow(file.least_key, keys),
        max_key=StoredRow(file.greatest_key, keys),
        key_stats=_statistics(file.key_bounds, keys),
        value_stats=_statistics(file.value_bounds, fields),
        min_sequence_number=file.min_sequence_number,
        max_sequence_number=file.max_sequence_number,
        schema_id=file.schema_id,
        level=file.level,
        extra_files=list(file.extra_files),
        creation_time=Timestamp.from_epoch_millis(file.created_ms),
        delete_row_count=file.deleted_rows,
        embedded_index=file.embedded_index,
        file_source=COMPACTED if file.is_compacted else APPENDED,
        value_stats_cols=None if file.bounded_columns is None else list(file.bounded_columns),
    )


def _statistics(bounds: StoredBounds, fields: Sequence[Any]) -> StoredStatistics:
    return StoredStatistics.of(bounds.least, bounds.greatest, bounds.null_counts, fields)


def _stored_meta(row: dict[str, Any], keys: list[Any], by_name: dict[str, Any]) -> DataFileMeta:
    bounded = row["value_stats_cols"]
    names = list(by_name) if bounded is None else bounded
    # The schema of the file may lack columns of today: only the bytes of bounds are used.
    values = [by_name[name] for name in names if name in by_name]
    created = row["creation_time"]
    return DataFileMeta(
        **{name: row[name] for name in _SAME_NAMES},
        min_key=StoredRow(row["min_key"], keys),
        max_key=StoredRow(row["max_key"], keys),
        key_stats=StoredStatistics.of(
            row["key_min_values"], row["key_max_values"], row["key_null_counts"], keys
        ),
        value_stats=StoredStatistics.of(
            row["value_min_values"], row["value_max_values"], row["value_null_counts"], values
        ),
        extra_files=list(row["extra_files"] or ()),
        creation_time=None if created is None else Timestamp.from_local_date_time(created),
        embedded_index=row["embedded_file_index"],
    )
