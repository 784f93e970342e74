"""Schemas that are made of others: CREATE OR REPLACE TABLE, CREATE TABLE … LIKE.

A replaced table keeps its snapshots and schemas, so that its history can be read. Paimon reads a
file of an earlier schema by the ids of its columns. Therefore a column of the new schema has the id
of an old one only if it is the same: else a rollback would show values of one column as another's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_magics.planning.schemas.table_schema import Column, TableSchema, nested_field_count
from paimon_magics.statements.data_types import AtomicType, as_nullable
from paimon_magics.statements.statement import ColumnDefinition, CreateTable, TableName


@dataclass(frozen=True, slots=True)
class TableReplacement:
    """CREATE OR REPLACE TABLE of a table that exists: its rows go, and `schema` takes the place of
    the schema `base_schema_id`. History stays, unless the table `is_dropped`: then another table
    takes its place.

    The removal of rows was planned on the snapshot `base_snapshot_id`, whose delta manifest list is
    `base_manifest_list`, as in a transaction; rows that others have added since go with
    `swallow_newer` only. `properties` are those of its snapshot.
    """

    name: TableName
    schema: TableSchema
    base_schema_id: int
    created_at_ms: int | None = None
    base_snapshot_id: int | None = None
    base_manifest_list: str = ""
    swallow_newer: bool = False
    is_dropped: bool = False
    properties: tuple[tuple[str, str], ...] = ()


def replacing_schema(present: TableSchema, highest_id: int, wanted: TableSchema) -> TableSchema:
    """`wanted` as the next schema of a table: with the next number, and with field ids.
    `highest_id` is the greatest field id that the table has given to a column so far."""
    known = {column.name: column for column in present.columns}
    next_id = highest_id + 1
    columns = []
    for column in wanted.columns:
        before = known.get(column.name)
        if before is not None and _is_same(before, column):
            columns.append(replace(column, id=before.id))
        else:
            columns.append(replace(column, id=next_id))
            next_id += 1 + nested_field_count(column.type)
    return replace(wanted, columns=tuple(columns), schema_id=present.schema_id + 1)


def has_replaced(before: TableSchema, after: TableSchema) -> bool:
    """Whether the schema `after` took the place of `before`, the one before it, so that rows of
    `before` don't fit it. An ALTER TABLE keeps keys and partition columns, and does not both add
    and drop columns; a column that it adds may be NULL."""
    old, new = ({column.id for column in schema.columns} for schema in (before, after))
    needs = any(not column.type.nullable and column.id not in old for column in after.columns)
    return (
        needs
        or (bool(old - new) and bool(new - old))
        or _ids_of(before, before.primary_keys) != _ids_of(after, after.primary_keys)
        or _ids_of(before, before.partition_keys) != _ids_of(after, after.partition_keys)
    )


def _ids_of(schema: TableSchema, names: tuple[str, ...]) -> list[int]:
    ids = {column.name: column.id for column in schema.columns}
    return [ids.get(name, -1) for name in names]


def keeps_partitions(present: TableSchema, wanted: TableSchema) -> bool:
    """Whether the table can get this schema and keep its history: Paimon identifies a partition by
    the values of its columns as they are stored, so that these columns must stay as they are."""

    def partition_columns(schema: TableSchema) -> list[tuple[str, object]]:
        columns = {column.name: column for column in schema.columns}
        keys = [columns[key] for key in schema.partition_keys if key in columns]
        return [(key.name, as_nullable(key.type, True)) for key in keys]

    return partition_columns(present) == partition_columns(wanted)


def _is_same(before: Column, column: Column) -> bool:
    """Whether rows of the old column can be read as rows of the new one. The fields of a nested
    type have ids of their own, which follow the column's."""
    if not isinstance(column.type, AtomicType):
        return False
    return as_nullable(before.type, True) == as_nullable(column.type, True)


def copied_definition(statement: CreateTable, source: TableSchema) -> CreateTable:
    """CREATE TABLE … LIKE as the CREATE TABLE with the source's definition. Options of the
    statement take the place of the source's, a location is not copied
    (`PaimonCreateTableLikeCommand`)."""
    own = dict(statement.options)
    options = {key: value for key, value in source.options if key != "path"} | own
    return replace(
        statement,
        columns=tuple(
            ColumnDefinition(column.name, column.type, column.comment, column.default)
            for column in source.columns
        ),
        partitioned_by=() if "partition" in own else source.partition_keys,
        primary_key=() if "primary-key" in own else source.primary_keys,
        options=tuple(options.items()),
        comment=None if "comment" in own else source.comment,
        like=None,
    )
