"""Metadata system tables (`orders$snapshots`, `orders$files`, …) as Arrow tables.

They come from pypaimon's own system tables; where those differ from Paimon's Java side (the text
of partitions and statistics, `file_path`, `writer_version`) the result differs too. Types are ones
that Spark takes: timestamps in microseconds.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pypaimon.schema.data_types import PyarrowFieldParser
from pypaimon.table.system import system_table_loader

from paimon_magics.errors import UnknownNameError, UnsupportedStatementError, nearest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog import Catalog

__all__ = ["METADATA_TABLES", "metadata_table"]

METADATA_TABLES = tuple(sorted(system_table_loader.SYSTEM_TABLES))
# Paimon's other system tables: known, and not offered yet.
_NOT_YET = ("aggregation_fields", "audit_log", "binlog", "ro", "row_tracking", "statistics")


def metadata_table(catalog: Catalog, name: TableName) -> pa.Table:
    """The rows of the system table that `name.system_table` names, for its table and branch.

    Raises UnknownNameError for a name that is none (with the nearest, or all of them),
    UnsupportedStatementError for one that is not offered yet.
    """
    if name.system_table is None:
        raise ValueError(f"{name} names no system table")
    wanted = name.system_table.lower()
    table = catalog.load(replace(name, system_table=None))
    if wanted in _NOT_YET:
        raise UnsupportedStatementError(
            f"The system table `{name.object_name}` is not offered yet.",
            hint=f"These are: {', '.join(METADATA_TABLES)}.",
        )
    system_table = system_table_loader.load(wanted, table.paimon)
    if system_table is None:
        raise UnknownNameError(
            f"There is no system table `{name.object_name}`.",
            hint=nearest(wanted, (*METADATA_TABLES, *_NOT_YET), what="system tables"),
        )
    builder = system_table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    # The declared types: a table without rows can come with columns of the type null.
    declared = PyarrowFieldParser.from_paimon_schema(system_table.row_type().fields)
    return rows.cast(pa.schema([pa.field(f.name, _for_spark(f.type)) for f in declared]))


def _for_spark(data_type: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz=data_type.tz) if pa.types.is_timestamp(data_type) else data_type
