"""Planned changes as pypaimon's schema changes, and the schema that results from them.

pypaimon applies the changes and assigns field ids. Features that it lacks (defaults, renaming
columns in all the options that name them) come from the plan. If the result differs from the
planned schema, nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pypaimon.schema.data_types import AtomicInteger, DataField
from pypaimon.schema.schema_change import Move, SchemaChange, UpdateColumnDefaultValue
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.planning.schemas.alterations import Alteration
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.table_changes import (
    AddColumn,
    AddPartitions,
    DropColumn,
    DropPartitions,
    RenameColumn,
    RenameTable,
    ReorderColumn,
    RetypeColumn,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullability,
    SetOptions,
    TableChange,
    UnsetOptions,
)
from paimon_magics.tables.pypaimon_internals import changed_schema
from paimon_magics.tables.schema.types import column_from_field, to_paimon_type


def schema_of(schema: StoredSchema) -> TableSchema:
    """A pypaimon schema as this project's TableSchema."""
    return TableSchema(
        columns=tuple(column_from_field(field) for field in schema.fields),
        partition_keys=tuple(schema.partition_keys),
        primary_keys=tuple(schema.primary_keys),
        options=tuple((str(k), str(v)) for k, v in schema.options.items()),
        comment=schema.comment,
        schema_id=schema.id,
    )


def schema_changes(changes: Sequence[TableChange], *, for_rest: bool = False) -> list[SchemaChange]:
    """Resolved changes as pypaimon's, in order; with `for_rest` in the form that its REST client
    can send."""
    translated = [paimon_change for change in changes for paimon_change in _translated(change)]
    for paimon_change in translated if for_rest else ():
        move = getattr(paimon_change, "move", None)
        if move is not None:
            # pypaimon can't write its own enumeration as JSON: its name is sent instead.
            move.type = move.type.value
    return translated


def altered_schema(
    manager: SchemaManager, before: StoredSchema, alteration: Alteration
) -> StoredSchema:
    """The schema to store for an alteration that was planned on `before`. Raises InvalidTableError
    or UnsupportedStatementError if pypaimon refuses the changes or their result is another.

    Types of whole columns come from the plan: pypaimon refuses casts that its own reader lacks
    (BIGINT to DECIMAL(10, 2)), but Paimon's reader has, and this project's.
    """
    planned = alteration.schema
    changes = [
        change
        for change in schema_changes([c for c in alteration.changes if not _is_planned(c)])
        if not isinstance(change, UpdateColumnDefaultValue)
    ]
    try:
        after = changed_schema(manager, before, changes)
    except Exception as error:
        raise InvalidTableError(
            f"The table can't be changed in this way: {error}",
            hint="Correct the change, or create a new table and copy the rows.",
        ) from error
    after.options = dict(planned.options)
    after.fields = [
        DataField(
            f.id,
            f.name,
            to_paimon_type(column.type, AtomicInteger(-1))
            if isinstance(column.type, AtomicType)
            else f.type,
            f.description,
            column.default,
        )
        for f, column in zip(after.fields, planned.columns, strict=True)
    ]
    stored = schema_of(after)
    if _without_ids(stored) != _without_ids(planned):
        raise UnsupportedStatementError(
            "These changes can't be made together: the stored schema would differ from the planned "
            "one.",
            hint="Make the changes one by one.",
        )
    return after


def _is_planned(change: TableChange) -> bool:
    """Whether a change gives a whole column an atomic type."""
    return (
        isinstance(change, RetypeColumn)
        and len(change.path) == 1
        and isinstance(change.type, AtomicType)
    )


def _without_ids(schema: TableSchema) -> TableSchema:
    return replace(schema, columns=tuple(replace(c, id=0) for c in schema.columns))


def _translated(change: TableChange) -> list[Any]:
    match change:
        case AddColumn(path=path):
            move = None
            if change.first:
                move = Move.first(path[-1])
            elif change.after is not None:
                move = Move.after(path[-1], change.after)
            # pypaimon assigns the ids inside the type when it applies the change.
            data_type = to_paimon_type(change.type, AtomicInteger(-1))
            return [SchemaChange.add_column(list(path), data_type, change.comment, move)]
        case DropColumn(path=path):
            return [SchemaChange.drop_column(list(path))]
        case RenameColumn(path=path, new_name=new_name):
            return [SchemaChange.rename_column(list(path), new_name)]
        case RetypeColumn(path=path):
            data_type = to_paimon_type(change.type, AtomicInteger(-1))
            return [SchemaChange.update_column_type(list(path), data_type, True)]
        case SetColumnNullability(path=path, nullable=nullable):
            return [SchemaChange.update_column_nullability(list(path), nullable)]
        case SetColumnComment(path=path, comment=comment):
            return [SchemaChange.update_column_comment(list(path), comment)]
        case SetColumnDefault(path=path, default=default):
            return [UpdateColumnDefaultValue(list(path), default)]
        case ReorderColumn(path=path, after=after):
            move = Move.first(path[0]) if after is None else Move.after(path[0], after)
            return [SchemaChange.update_column_position(move)]
        case SetOptions(options=options):
            return [
                SchemaChange.update_comment(value)
                if key == "comment"
                else SchemaChange.set_option(key, value)
                for key, value in options
            ]
        case UnsetOptions(keys=keys):
            return [
                SchemaChange.update_comment(None)
                if key == "comment"
                else SchemaChange.remove_option(key)
                for key in keys
            ]
        case RenameTable() | DropPartitions() | AddPartitions():
            raise ValueError(f"{type(change).__name__} changes no schema")
