"""Plans ALTER TABLE: applies its changes to a schema.

`plan_alteration` applies the changes one after the other as Paimon's `SchemaManager` does, and
refuses what that refuses; the result is checked like a new schema. A `TableSchema` has no field ids
of nested columns: the code that stores the result assigns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paimon_magics.errors import InvalidTableError, UnknownNameError
from paimon_magics.planning.schemas.column_paths import (
    resolve,
    resolved_name,
    siblings_at,
    type_at,
    type_name,
    with_field,
    with_siblings,
    with_type,
)
from paimon_magics.planning.schemas.defaults import retyped_default, stored_default
from paimon_magics.planning.schemas.feature_rules import is_blob_column
from paimon_magics.planning.schemas.option_changes import (
    renamed_in_options,
    set_option,
    unset_option,
)
from paimon_magics.planning.schemas.rules import check_structure, is_of_an_engine
from paimon_magics.planning.schemas.table_schema import (
    Column,
    TableSchema,
    column_list,
    nested_field_count,
)
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.statements.data_types import (
    AtomicType,
    RowField,
    as_nullable,
)
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

_INDEX_OPTIONS = (
    "pk-vector.index.columns",
    "pk-btree.index.columns",
    "pk-bitmap.index.columns",
    "pk-full-text.index.columns",
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The schema after the changes, and the changes that have an effect.

    `changes` have exact column names. Changes without effect are left out: DROP IF EXISTS of a
    missing column, or the type that the column has. If none is left, `schema` is unchanged.
    """

    schema: TableSchema
    changes: tuple[TableChange, ...]


def plan_alter_table(
    schema: TableSchema, changes: Sequence[TableChange], *, has_snapshots: bool = True
) -> TableSchema:
    """Return the schema after the changes; see `plan_alteration`."""
    return plan_alteration(schema, changes, has_snapshots=has_snapshots).schema


def plan_alteration(
    schema: TableSchema, changes: Sequence[TableChange], *, has_snapshots: bool = True
) -> Alteration:
    """Plan changes of columns and options.

    While `has_snapshots` is false, options that are fixed on a table with data may change.

    Raises UnknownNameError for a column or option that does not exist, InvalidTableError for what
    Paimon refuses, and ValueError for RenameTable and DropPartitions, which change no schema.
    """
    planned = schema
    left: list[TableChange] = []
    for change in changes:
        resolved, after = _apply(planned, change, has_snapshots)
        if after != planned:
            left.append(resolved)
            planned = after
    if not left:
        return Alteration(schema, ())
    check_structure(planned, from_engine=is_of_an_engine(schema))
    return Alteration(replace(planned, schema_id=schema.schema_id + 1), tuple(left))


def _apply(
    schema: TableSchema, change: TableChange, has_snapshots: bool
) -> tuple[TableChange, TableSchema]:
    match change:
        case AddColumn():
            parents = resolve(schema.columns, change.path[:-1])
            change = replace(change, path=(*parents, change.path[-1]))
            return _add(schema, change)
        case DropColumn(path=path, if_exists=True) if not _exists(schema, path):
            return change, schema
        case SetOptions(options=options, may_be_unknown=unknown):
            for key, value in options:
                schema = set_option(schema, key, value, has_snapshots, may_be_unknown=unknown)
            return change, schema
        case UnsetOptions(keys=keys, if_exists=if_exists):
            for key in keys:
                schema = unset_option(schema, key, if_exists, has_snapshots)
            return change, schema
        case RenameTable() | DropPartitions() | AddPartitions():
            raise ValueError(f"{type(change).__name__} changes no definition")
        case _:
            change = replace(change, path=resolve(schema.columns, change.path))
    match change:
        case DropColumn():
            return change, _drop(schema, change)
        case RenameColumn():
            return change, _rename(schema, change)
        case RetypeColumn():
            return change, _retype(schema, change, has_snapshots)
        case SetColumnNullability():
            return change, _set_nullability(schema, change)
        case SetColumnComment():
            return change, with_field(
                schema, change.path, lambda field: replace(field, comment=change.comment)
            )
        case SetColumnDefault():
            return _set_default(schema, change)
        case ReorderColumn():
            return _reorder(schema, change)


# ---- columns ----


def _add(schema: TableSchema, change: AddColumn) -> tuple[TableChange, TableSchema]:
    name = change.path[-1]
    shown = ".".join(change.path)
    if not change.type.nullable:
        raise InvalidTableError(
            f"The new column `{shown}` can't be NOT NULL: existing rows have no value for it.",
            hint="Leave out NOT NULL.",
        )
    if change.default is not None:
        raise InvalidTableError(
            f"The new column `{shown}` can't have a DEFAULT when it is added.",
            hint=f"Add it first, then ALTER TABLE … ALTER COLUMN {shown} SET DEFAULT …; the "
            "default is for new rows only.",
        )
    parents = change.path[:-1]
    siblings = siblings_at(schema.columns, parents)
    _refuse_same_name(siblings, name, shown)
    if change.after is not None:
        change = replace(change, after=resolved_name(siblings, change.after, shown))
    position = _position(schema, change, siblings)
    if not parents:
        column = Column(-1, name, change.type, change.comment)
        columns = (*schema.columns[:position], column, *schema.columns[position:])
    else:
        field = RowField(name, change.type, change.comment)
        columns = with_siblings(
            schema.columns,
            parents,
            lambda fields: (*fields[:position], field, *fields[position:]),
        )
    return change, _numbered(schema, columns)


def _position(schema: TableSchema, change: AddColumn, siblings: list[str]) -> int:
    if change.first:
        return 0
    if change.after is not None:
        return siblings.index(change.after) + 1
    if len(change.path) == 1 and schema.flag("add-column-before-partition"):
        return next(
            (i for i, name in enumerate(siblings) if name in schema.partition_keys),
            len(siblings),
        )
    return len(siblings)


def _drop(schema: TableSchema, change: DropColumn) -> TableSchema:
    path = change.path
    shown = ".".join(path)
    if len(path) == 1:
        _refuse_key(schema, path[0], "dropped", schema.primary_keys)
        _refuse_indexed(schema, path[0], "dropped")
    if len(siblings_at(schema.columns, path[:-1])) == 1:
        raise InvalidTableError(
            f"`{shown}` can't be dropped: no other column or field would be left.",
            hint="Add another column or field first.",
        )
    if len(path) == 1:
        left = tuple(c for c in schema.columns if c.name != path[0])
        return replace(schema, columns=left)
    columns = with_siblings(
        schema.columns,
        path[:-1],
        lambda fields: tuple(f for f in fields if f.name != path[-1]),
    )
    return replace(schema, columns=columns)


def _rename(schema: TableSchema, change: RenameColumn) -> TableSchema:
    path, new_name = change.path, change.new_name
    if path[-1] == new_name:
        return schema
    names = [n for n in siblings_at(schema.columns, path[:-1]) if n != path[-1]]
    _refuse_same_name(names, new_name, new_name)
    renamed = with_field(schema, path, lambda field: replace(field, name=new_name))
    if len(path) > 1:
        return renamed
    _refuse_key(schema, path[0], "renamed", ())
    _refuse_indexed(schema, path[0], "renamed")
    if is_blob_column(schema.column(path[0]).type):
        raise InvalidTableError(
            f"The BLOB column `{path[0]}` can't be renamed.", hint="Keep its name."
        )
    return replace(
        renamed,
        primary_keys=tuple(new_name if k == path[0] else k for k in schema.primary_keys),
        options=renamed_in_options(schema.options, path[0], new_name),
    )


def _retype(schema: TableSchema, change: RetypeColumn, has_snapshots: bool) -> TableSchema:
    path = change.path
    shown = ".".join(path)
    source = type_at(schema.columns, path)
    target = as_nullable(change.type, source.nullable)
    if source == target:
        return schema
    if len(path) == 1:
        _refuse_key(schema, path[0], "retyped", schema.primary_keys)
        _refuse_indexed(schema, path[0], "retyped")
        if has_snapshots and schema.bucket > 0 and path[0] in schema.bucket_keys:
            raise InvalidTableError(
                f"The bucket key `{path[0]}` can't be retyped: its rows would be in wrong buckets.",
                hint="Create a new table and copy the rows.",
            )
    if is_blob_column(source) or is_blob_column(target):
        raise InvalidTableError(
            f"`{shown}` can't be changed from or to a BLOB type.", hint="Add another column."
        )
    if not isinstance(source, AtomicType) and not isinstance(target, AtomicType):
        raise InvalidTableError(
            f"The nested column `{shown}` can't be retyped as a whole.",
            hint=f"Change its fields one by one, as in `{shown}.field`, `{shown}.element` or "
            f"`{shown}.value`.",
        )
    allow_explicit = not schema.flag("disable-explicit-type-casting")
    if not can_retype(source, target, allow_explicit=allow_explicit):
        raise InvalidTableError(
            f"`{shown}` can't be changed from {type_name(source)} to {type_name(target)}.",
            hint="Paimon has no such cast; add a column of the new type instead."
            if allow_explicit
            else "With 'disable-explicit-type-casting' = 'true' only casts without loss are "
            "allowed.",
        )
    retyped = with_type(schema, path, lambda _: target)
    if len(path) > 1:
        return retyped
    default = retyped_default(shown, target, schema.column(path[0]).default)
    return _with_default(retyped, path[0], default)


def _set_nullability(schema: TableSchema, change: SetColumnNullability) -> TableSchema:
    shown = ".".join(change.path)
    source = type_at(schema.columns, change.path)
    if source.nullable == change.nullable:
        return schema
    if change.nullable and change.path[0] in schema.primary_keys and len(change.path) == 1:
        raise InvalidTableError(
            f"`{shown}` is in the primary key: it can't hold NULL.", hint="Keep NOT NULL."
        )
    if not change.nullable and schema.flag("alter-column-null-to-not-null.disabled"):
        raise InvalidTableError(
            f"`{shown}` can't become NOT NULL: existing rows may hold NULL.",
            hint="If no row holds NULL, first set the option "
            "'alter-column-null-to-not-null.disabled' = 'false'.",
        )
    return with_type(schema, change.path, lambda t: as_nullable(t, change.nullable))


def _set_default(schema: TableSchema, change: SetColumnDefault) -> tuple[TableChange, TableSchema]:
    if len(change.path) > 1:
        raise InvalidTableError(
            f"The nested field `{'.'.join(change.path)}` can't have a default.",
            hint="Only a whole column can have a default.",
        )
    column = schema.column(change.path[0])
    default = stored_default(column.name, column.type, change.default)
    return replace(change, default=default), _with_default(schema, column.name, default)


def _with_default(schema: TableSchema, column: str, default: str | None) -> TableSchema:
    columns = (replace(c, default=default) if c.name == column else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def _reorder(schema: TableSchema, change: ReorderColumn) -> tuple[TableChange, TableSchema]:
    if len(change.path) > 1:
        raise InvalidTableError(
            f"The nested field `{'.'.join(change.path)}` can't be moved.",
            hint="Only a whole column can be moved.",
        )
    column = schema.column(change.path[0])
    others = [c for c in schema.columns if c.name != column.name]
    position = 0
    if change.after is not None:
        after = resolved_name(schema.column_names, change.after, column.name)
        if after == column.name:
            raise InvalidTableError(
                f"`{after}` can't be moved after itself.", hint="Name another column."
            )
        position = [c.name for c in others].index(after) + 1
        change = replace(change, after=after)
    columns = (*others[:position], column, *others[position:])
    return change, replace(schema, columns=columns)


def _numbered(schema: TableSchema, columns: tuple[Column, ...]) -> TableSchema:
    # A preview: only the stored schema knows the highest id ever given.
    highest = max((c.id + nested_field_count(c.type) for c in schema.columns), default=-1)
    return replace(
        schema,
        columns=tuple(replace(c, id=highest + 1) if c.id == -1 else c for c in columns),
    )


# ---- refusals ----


def _refuse_key(schema: TableSchema, name: str, what: str, primary_keys: tuple[str, ...]) -> None:
    for keys, kind in ((schema.partition_keys, "a partition key"), (primary_keys, "in the "
                       "primary key")):  # fmt: skip
        if name in keys:
            raise InvalidTableError(
                f"`{name}` is {kind}: it can't be {what}.",
                hint="Create a new table and copy the rows.",
            )


def _refuse_indexed(schema: TableSchema, name: str, what: str) -> None:
    for key in _INDEX_OPTIONS:
        if name in column_list(schema.stored_option(key)):
            raise InvalidTableError(
                f"`{name}` has a primary-key index ('{key}'): it can't be {what}.",
                hint=f"Take it out of '{key}' first.",
            )


def _refuse_same_name(names: Sequence[str], name: str, shown: str) -> None:
    for existing in names:
        if existing.lower() == name.lower():
            raise InvalidTableError(
                f"There is a column `{existing}` already."
                if existing == name
                else f"The column `{existing}` differs from `{shown}` in case only.",
                hint="Choose another name.",
            )


def _exists(schema: TableSchema, path: tuple[str, ...]) -> bool:
    try:
        resolve(schema.columns, path)
    except UnknownNameError:
        return False
    return True
