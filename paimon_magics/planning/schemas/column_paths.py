"""Paths to nested columns, as ALTER TABLE writes them, and edits of the fields at such paths.

A path names a column, then a field of a struct, `element` of an array, or `value` of a map (Paimon
can't change the keys of a map). A name matches exactly, or else matches the only name that differs
in case alone. The edits expect a path that `resolve` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from paimon_magics.errors import InvalidTableError, UnknownNameError, nearest
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    VectorType,
)

_Field = TypeVar("_Field", Column, RowField)


def resolve(columns: Sequence[Column | RowField], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path with exact names. Raises UnknownNameError for a name that does not exist."""
    resolved: list[str] = []
    fields: Sequence[Column | RowField] = columns
    inside: DataType | None = None
    for token in path:
        match inside:
            case ArrayType(element=element):
                resolved.append(_step(token, "element", resolved))
                inside = element
                continue
            case MapType(value=value):
                resolved.append(_step(token, "value", resolved))
                inside = value
                continue
            case RowType(fields=row_fields):
                fields = row_fields
            case AtomicType() | MultisetType() | VectorType():
                raise UnknownNameError(
                    f"`{'.'.join(resolved)}` has no field `{token}`: its type is "
                    f"{type_name(inside)}.",
                    hint="Only arrays, maps and structs have fields.",
                )
            case None:
                pass
        name = resolved_name([f.name for f in fields], token, ".".join((*resolved, token)))
        inside = next(f.type for f in fields if f.name == name)
        resolved.append(name)
    return tuple(resolved)


def _step(token: str, wanted: str, path: list[str]) -> str:
    if token.lower() != wanted:
        raise UnknownNameError(
            f"`{'.'.join(path)}` has no field `{token}`.",
            hint=f"Its {wanted}s are named `{'.'.join(path)}.{wanted}`"
            + ("; the keys of a map can't be changed." if wanted == "value" else "."),
        )
    return wanted


def resolved_name(names: Sequence[str], name: str, shown: str) -> str:
    """Return the one of `names` that `name` means.

    Raises UnknownNameError if there is none; `shown` is the whole path for the message.
    """
    if name in names:
        return name
    same = [n for n in names if n.lower() == name.lower()]
    if len(same) == 1:
        return same[0]
    raise UnknownNameError(
        f"There is no column `{shown if shown.endswith(name) else name}`.",
        hint=nearest(name, names, what="columns"),
    )


def siblings_at(columns: Sequence[Column], parents: tuple[str, ...]) -> list[str]:
    """The names of the fields of the struct at `parents`, or of all columns if it is empty."""
    if not parents:
        return [column.name for column in columns]
    inside = type_at(columns, parents)
    if not isinstance(inside, RowType):
        raise UnknownNameError(
            f"`{'.'.join(parents)}` has no fields: its type is {type_name(inside)}.",
            hint="Fields of the structs in an array are named `….element.field`, in a map "
            "`….value.field`.",
        )
    return [field.name for field in inside.fields]


def type_at(columns: Sequence[Column | RowField], path: tuple[str, ...]) -> DataType:
    """The type at the end of the path."""
    inside = next(column.type for column in columns if column.name == path[0])
    for token in path[1:]:
        match inside:
            case ArrayType(element=part) | MapType(value=part):
                inside = part
            case RowType(fields=fields):
                inside = next(field.type for field in fields if field.name == token)
            case AtomicType() | MultisetType() | VectorType():
                raise AssertionError(f"{path} was resolved")
    return inside


def with_field(
    schema: TableSchema,
    path: tuple[str, ...],
    edit: Callable[[Column | RowField], Column | RowField],
) -> TableSchema:
    """Return the schema with the column or nested field at `path` edited."""
    if len(path) == 1:
        columns = tuple(_edited(schema.columns, path[0], edit))
        return replace(schema, columns=columns)
    if path[-1] in ("element", "value") and not isinstance(
        type_at(schema.columns, path[:-1]), RowType
    ):
        raise InvalidTableError(
            f"`{'.'.join(path)}` is not a field: only its type can be changed.",
            hint="Use ALTER COLUMN … TYPE, or SET or DROP NOT NULL.",
        )
    return replace(
        schema,
        columns=with_siblings(
            schema.columns, path[:-1], lambda fields: tuple(_edited(fields, path[-1], edit))
        ),
    )


def _edited(
    fields: Iterable[_Field], name: str, edit: Callable[[Column | RowField], Column | RowField]
) -> Iterator[_Field]:
    for field in fields:
        changed = edit(field) if field.name == name else field
        assert isinstance(changed, type(field))
        yield changed


def with_siblings(
    columns: tuple[Column, ...],
    parents: tuple[str, ...],
    edit: Callable[[tuple[RowField, ...]], tuple[RowField, ...]],
) -> tuple[Column, ...]:
    """Return the columns with the fields of the struct at `parents` edited."""
    siblings_at(columns, parents)

    def on_type(data_type: DataType) -> DataType:
        assert isinstance(data_type, RowType)
        return replace(data_type, fields=edit(data_type.fields))

    return tuple(
        replace(c, type=_changed(c.type, parents[1:], on_type)) if c.name == parents[0] else c
        for c in columns
    )


def with_type(
    schema: TableSchema, path: tuple[str, ...], edit: Callable[[DataType], DataType]
) -> TableSchema:
    """Return the schema with the type at `path` edited."""
    return replace(
        schema,
        columns=tuple(
            replace(c, type=_changed(c.type, path[1:], edit)) if c.name == path[0] else c
            for c in schema.columns
        ),
    )


def _changed(
    data_type: DataType, path: tuple[str, ...], edit: Callable[[DataType], DataType]
) -> DataType:
    if not path:
        return edit(data_type)
    match data_type:
        case ArrayType(element=element):
            return replace(data_type, element=_changed(element, path[1:], edit))
        case MapType(value=value):
            return replace(data_type, value=_changed(value, path[1:], edit))
        case RowType(fields=fields):
            return replace(
                data_type,
                fields=tuple(
                    replace(f, type=_changed(f.type, path[1:], edit)) if f.name == path[0] else f
                    for f in fields
                ),
            )
        case AtomicType() | MultisetType() | VectorType():
            raise AssertionError(f"{path} was resolved")


def type_name(data_type: DataType) -> str:
    """A short name of the type for messages, without its nested types."""
    match data_type:
        case AtomicType(name=name, parameters=parameters):
            return f"{name}({', '.join(map(str, parameters))})" if parameters else name
        case RowType():
            return "STRUCT"
    return type(data_type).__name__.removesuffix("Type").upper()
