"""Manifest entries as pypaimon's metadata of files, for commits that name files which exist.

Rows (bounds and keys) keep their stored bytes: nothing is decoded, so that every writer's metadata
comes out as it went in.
"""

from __future__ import annotations

import pyarrow as pa
from pypaimon.data.timestamp import Timestamp
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.table.row.binary_row import BinaryRow

__all__ = ["file_metas"]


def file_metas(files: pa.Table) -> list[DataFileMeta]:
    """The metadata of `files` (columns of MANIFEST_ENTRIES), in their order.

    Their rows can be stored again, but have no fields by which their values could be asked for.
    """
    columns = {
        name: _numbers(files, name) if pa.types.is_timestamp(kind) else files[name].to_pylist()
        for name, kind in zip(files.schema.names, files.schema.types, strict=True)
    }
    return [
        _meta(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def _numbers(files: pa.Table, name: str) -> list[int | None]:
    found: list[int | None] = files[name].cast(pa.int64()).to_pylist()
    return found


def _meta(entry: dict[str, object]) -> DataFileMeta:
    created_ms = entry["creation_time"]
    return DataFileMeta(
        file_name=entry["file_name"],
        file_size=entry["file_size"],
        row_count=entry["row_count"],
        min_key=BinaryRow(entry["min_key"], []),
        max_key=BinaryRow(entry["max_key"], []),
        key_stats=_statistics(entry, "key"),
        value_stats=_statistics(entry, "value"),
        min_sequence_number=entry["min_sequence_number"],
        max_sequence_number=entry["max_sequence_number"],
        schema_id=entry["schema_id"],
        level=entry["level"],
        extra_files=entry["extra_files"] or [],
        creation_time=None if created_ms is None else Timestamp.from_epoch_millis(created_ms),
        delete_row_count=entry["delete_row_count"],
        embedded_index=entry["embedded_file_index"],
        file_source=entry["file_source"],
        value_stats_cols=entry["value_stats_cols"],
        external_path=entry["external_path"],
        first_row_id=entry["first_row_id"],
        write_cols=entry["write_cols"],
    )


def _statistics(entry: dict[str, object], kind: str) -> SimpleStats:
    return SimpleStats(
        BinaryRow(entry[f"{kind}_min_values"], []),
        BinaryRow(entry[f"{kind}_max_values"], []),
        entry[f"{kind}_null_counts"],
    )
