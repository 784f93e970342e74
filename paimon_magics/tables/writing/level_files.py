"""How the data files of a primary-key table are written on each level, by the table's options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.float_bounds import floating_columns
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.file_rules import changelog_file_rules, data_file_rules
from paimon_magics.planning.writes.index_rules import file_indexes_of
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.writing.key_value_files import KeyValueFiles
from paimon_magics.tables.writing.new_file_sinks import FileCreation

if TYPE_CHECKING:
    from paimon_magics.tables.table import Table

__all__ = ["changelog_files", "level_files", "target_bytes"]

_TARGET_BYTES = 128 << 20  # Paimon's default of target-file-size for tables with a primary key
_FIELD_ID = b"PARQUET:field_id"


def level_files(table: Table, level: int) -> KeyValueFiles:
    """How data files of a level are written. Raises InvalidTableError for an option's value that
    can't be read."""
    schema = table.schema
    columns = [
        field.with_metadata({_FIELD_ID: str(column.id).encode()})
        for field, column in zip(arrow_schema(schema), schema.columns, strict=True)
    ]
    is_local = local_path(table.location) is not None
    return KeyValueFiles(
        creation=FileCreation(None if is_local else table.paimon.file_io),
        schema=pa.schema(columns).serialize().to_pybytes(),
        keys=schema.trimmed_primary_keys,
        floats=floating_columns(schema.columns),
        rules=data_file_rules(schema, level),
        target_bytes=target_bytes(schema),
        schema_id=int(table.paimon.table_schema.id),
        level=level,
        indexes=file_indexes_of(schema),
    )


def changelog_files(table: Table, level: int) -> KeyValueFiles:
    """How changelog files beside data files of a level are written. Raises as `level_files`."""
    rules = changelog_file_rules(table.schema, level)
    return replace(level_files(table, level), rules=rules, is_changelog=True)


def target_bytes(schema: TableSchema) -> int:
    """The size at which a file of a primary-key table is finished: `target-file-size`."""
    text = schema.option("target-file-size")
    return _TARGET_BYTES if text is None else memory_size_bytes("target-file-size", text)
