"""Planned schemas as pypaimon's, to be stored."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.schema.schema import Schema
from pypaimon.schema.table_schema import TableSchema as StoredSchema
from pypaimon.table.file_store_table import FileStoreTable

from paimon_magics.planning.schemas.replacements import replacing_schema
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import field_from_column
from paimon_magics.tables.table import Table


def new_schema(schema: TableSchema) -> Schema:
    """A planned schema as pypaimon's, with the ids of its columns."""
    return Schema(
        fields=[field_from_column(column) for column in schema.columns],
        partition_keys=list(schema.partition_keys),
        primary_keys=list(schema.primary_keys),
        options=dict(schema.options),
        comment=schema.comment,
    )


def schema_after(table: Table, schema: TableSchema) -> StoredSchema:
    """The schema to store as the table's next one, in place of the one that it was loaded with."""
    present = table.paimon.table_schema
    planned = replacing_schema(table.schema, present.highest_field_id, schema)
    stored = StoredSchema.from_schema(planned.schema_id, new_schema(planned))
    # Later columns must not get the id of a column that files of earlier snapshots have.
    stored.highest_field_id = max(stored.highest_field_id, present.highest_field_id)
    return stored


def schema_again(table: Table, schema_id: int) -> StoredSchema:
    """An earlier schema of the table as its next one. Raises TableDamagedError if it is gone."""
    present = table.paimon.table_schema
    earlier = TableSchemas(table.paimon).schema(schema_id)
    stored = StoredSchema.from_schema(present.id + 1, earlier.to_schema())
    stored.highest_field_id = max(present.highest_field_id, earlier.highest_field_id)
    return stored


def table_after(table: Table, schema: TableSchema) -> Table:
    """The table as it will be when that schema has taken the place of its present one. Rows can be
    written for it before; they can be committed when the schema is stored."""
    stored = schema_after(table, schema)
    before = table.paimon
    paimon = FileStoreTable(
        before.file_io, before.identifier, before.table_path, stored, before.catalog_environment
    )
    return replace(table, schema=schema_of(stored), paimon=paimon)
