"""Conversion of the JSON documents of Paimon's REST catalog to this project's values, and back.

Reading is strict: a document of another shape raises MalformedDocumentError, which names the place.
Field ids in a new table's schema are reassigned, as by Paimon's `Schema.Builder`. Unknown keys
are ignored, as in Paimon's own servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema, nested_field_count
from paimon_magics.statements.data_types import DataType, as_nullable
from paimon_magics.statements.table_changes import (
    AddColumn,
    DropColumn,
    RenameColumn,
    ReorderColumn,
    RetypeColumn,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullability,
    SetOptions,
    TableChange,
    UnsetOptions,
)
from paimon_magics.statements.types.type_text import from_paimon, to_paimon
from paimon_magics.tables.catalog.lookup import REST_ADDS
from paimon_magics.tables.table import StoredTable

# The owner is an option of the stored schema, as in Paimon's own catalog in a file system.
_STORED_OPTIONS = ("path", "owner")


class MalformedDocumentError(Exception):
    """A JSON document that does not follow the protocol; the message says what is wrong, and
    where."""


# ---- reading ----


def mapping_of(value: Any, where: str) -> dict[str, Any]:
    """`value` as a JSON object."""
    if not isinstance(value, dict):
        raise MalformedDocumentError(f"{where} must be an object, not {_kind(value)}.")
    return value


def sequence_of(value: Any, where: str, *, optional: bool = False) -> list[Any]:
    """`value` as a JSON array; if it is `optional`, null counts as an empty array."""
    if optional and value is None:
        return []
    if not isinstance(value, list):
        raise MalformedDocumentError(f"{where} must be an array, not {_kind(value)}.")
    return value


def text_of(document: Mapping[str, Any], key: str, where: str) -> str:
    """The string under `key`, which must be there."""
    value = document.get(key)
    if not isinstance(value, str):
        raise MalformedDocumentError(f"{where}.{key} must be a string, not {_kind(value)}.")
    if "\0" in value:  # no file's name, and not every database, can have it
        raise MalformedDocumentError(f"{where}.{key} has a NUL character.")
    return value


def optional_text(document: Mapping[str, Any], key: str, where: str) -> str | None:
    """The string under `key`; None if it is null or missing."""
    return None if document.get(key) is None else text_of(document, key, where)


def integer_of(document: Mapping[str, Any], key: str, where: str) -> int:
    """The 64-bit integer under `key`, which must be there."""
    value = document.get(key)
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise MalformedDocumentError(f"{where}.{key} must be an integer, not {_kind(value)}.")
    return value


def texts_of(value: Any, where: str, *, optional: bool = False) -> list[str]:
    """`value` as an array of strings; if it is `optional`, null counts as an empty array."""
    items = sequence_of(value, where, optional=optional)
    for item in items:
        if not isinstance(item, str):
            raise MalformedDocumentError(f"{where} must hold strings, not {_kind(item)}.")
    return items


def string_map(value: Any, where: str) -> dict[str, str]:
    """`value` as an object whose values are strings; null counts as an empty object."""
    document = {} if value is None else mapping_of(value, where)
    return {key: text_of(document, key, where) for key in document}


def schema_from_document(document: Any) -> TableSchema:
    """A schema document as the schema of a new table.

    Columns of the primary key become NOT NULL. Raises InvalidTableError for a type that Paimon does
    not have, UnsupportedStatementError for a type that this project does not support.
    """
    schema = mapping_of(document, "schema")
    options = string_map(schema.get("options"), "schema.options")
    primary_keys = texts_of(schema.get("primaryKeys"), "schema.primaryKeys", optional=True)
    next_id = 0
    columns = []
    for position, item in enumerate(sequence_of(schema.get("fields"), "schema.fields")):
        column = _column(item, f"schema.fields[{position}]", next_id)
        if column.name in primary_keys:
            column = replace(column, type=as_nullable(column.type, False))
        columns.append(column)
        next_id += 1 + nested_field_count(column.type)
    return TableSchema(
        columns=tuple(columns),
        partition_keys=tuple(
            texts_of(schema.get("partitionKeys"), "schema.partitionKeys", optional=True)
        ),
        primary_keys=tuple(primary_keys),
        options=tuple(
            (k, v) for k, v in options.items() if k in _STORED_OPTIONS or k not in REST_ADDS
        ),
        comment=optional_text(schema, "comment", "schema"),
    )


def check_fields(documents: Any, where: str) -> None:
    """Raise for fields that are not Paimon's (`DataField`), such as those of a view, and what
    `schema_from_document` raises for a type."""
    names: set[str] = set()
    for position, item in enumerate(sequence_of(documents, where)):
        place = f"{where}[{position}]"
        column = _column(item, place, integer_of(mapping_of(item, place), "id", place))
        if column.id < 0:
            raise MalformedDocumentError(f"{place}.id must not be negative: {column.id}.")
        if not column.name or column.name in names:
            problem = "is there twice" if column.name else "is empty"
            raise MalformedDocumentError(f"{place}.name {problem}: '{column.name}'.")
        names.add(column.name)


def _column(document: Any, where: str, id: int) -> Column:
    field = mapping_of(document, where)
    return Column(
        id,
        text_of(field, "name", where),
        _type(field.get("type"), f"{where}.type"),
        optional_text(field, "description", where),
        optional_text(field, "defaultValue", where),
    )


def changes_from_documents(documents: Any, schema: TableSchema) -> list[TableChange]:
    """The schema changes of an alter request, in order; `schema` is the table's present schema.

    Raises UnsupportedStatementError for changes that this project does not support.
    """
    changes: list[TableChange] = []
    for position, item in enumerate(sequence_of(documents, "changes")):
        where = f"changes[{position}]"
        changes += _changes(mapping_of(item, where), where, schema)
    return changes


def _changes(change: Mapping[str, Any], where: str, schema: TableSchema) -> Iterable[TableChange]:
    action = text_of(change, "action", where)
    match action:
        case "setOption":
            key = text_of(change, "key", where)
            return [SetOptions(((key, text_of(change, "value", where)),), may_be_unknown=True)]
        case "removeOption":
            return [UnsetOptions((text_of(change, "key", where),), if_exists=True)]
        case "updateComment":
            comment = optional_text(change, "comment", where)
            if comment is None:
                return [UnsetOptions(("comment",), if_exists=True)]
            return [SetOptions((("comment", comment),))]
        case "addColumn":
            return [_added_column(change, where, schema)]
        case "renameColumn":
            return [RenameColumn(_path(change, where), text_of(change, "newName", where))]
        case "dropColumn":
            return [DropColumn(_path(change, where))]
        case "updateColumnType":
            path = _path(change, where)
            data_type = _type(change.get("newDataType"), f"{where}.newDataType")
            retyped: list[TableChange] = [RetypeColumn(path, data_type)]
            if change.get("keepNullability") is False:
                retyped.append(SetColumnNullability(path, data_type.nullable))
            return retyped
        case "updateColumnNullability":
            nullable = change.get("newNullability")
            if not isinstance(nullable, bool):
                raise MalformedDocumentError(f"{where}.newNullability must be true or false.")
            return [SetColumnNullability(_path(change, where), nullable)]
        case "updateColumnComment":
            comment = optional_text(change, "newComment", where)
            return [SetColumnComment(_path(change, where), comment or "")]
        case "updateColumnDefaultValue":
            # "" is Spark's DROP DEFAULT. Paimon's own catalogs keep it as the default of a text,
            # and refuse it for other types.
            default = optional_text(change, "newDefaultValue", where) or None
            return [SetColumnDefault(_path(change, where), default)]
        case "updateColumnPosition":
            name, first, after = _move(change.get("move"), f"{where}.move", schema)
            return [ReorderColumn((name,), first=first, after=after)]
        case "dropPrimaryKey":
            raise UnsupportedStatementError(
                "Dropping a primary key is not offered.",
                hint="Create a table without one and copy the rows.",
            )
        case _:
            raise MalformedDocumentError(f"{where}.action: the change '{action}' is unknown.")


def _added_column(change: Mapping[str, Any], where: str, schema: TableSchema) -> TableChange:
    path = _path(change, where)
    first, after = False, None
    if change.get("move") is not None:
        _, first, after = _move(change["move"], f"{where}.move", schema)
    return AddColumn(
        path,
        _type(change.get("dataType"), f"{where}.dataType"),
        optional_text(change, "comment", where),
        first=first,
        after=after,
    )


def _move(document: Any, where: str, schema: TableSchema) -> tuple[str, bool, str | None]:
    """The name of the moved column, whether it goes first, and the column that it goes after."""
    move = mapping_of(document, where)
    name = text_of(move, "fieldName", where)
    others = [column for column in schema.column_names if column != name]
    match text_of(move, "type", where):
        case "FIRST":
            return name, True, None
        case "AFTER":
            return name, False, text_of(move, "referenceFieldName", where)
        case "BEFORE":
            reference = text_of(move, "referenceFieldName", where)
            position = others.index(schema.column(reference).name) if others else 0
            return name, position == 0, others[position - 1] if position else None
        case "LAST":
            return name, not others, others[-1] if others else None
        case kind:
            raise MalformedDocumentError(f"{where}.type: the move '{kind}' is unknown.")


def _path(change: Mapping[str, Any], where: str) -> tuple[str, ...]:
    path = texts_of(change.get("fieldNames"), f"{where}.fieldNames")
    if not path:
        raise MalformedDocumentError(f"{where}.fieldNames must name a column.")
    return tuple(path)


def _type(document: Any, where: str) -> DataType:
    if not isinstance(document, str | dict):
        raise MalformedDocumentError(f"{where} must be a type, not {_kind(document)}.")
    try:
        return from_paimon(document)
    except PaimonMagicsError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedDocumentError(f"{where} is not a type of Paimon: {error!r}") from error


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null or missing"
        case bool():
            return "a boolean"
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return "a string"
        case _:
            return f"the number {value}"


# ---- writing ----


def field_document(
    id: int, name: str, data_type: DataType, comment: str | None, default: str | None = None
) -> dict[str, Any]:
    """A `DataField`, without members that have no value: Paimon's `DataTypeJsonParser` reads a null
    as the text `null`."""
    members = {"description": comment, "defaultValue": default}
    return {
        "id": id,
        "name": name,
        "type": to_paimon(data_type),
        **{key: value for key, value in members.items() if value is not None},
    }


def schema_document(schema: TableSchema) -> dict[str, Any]:
    """The schema of a new table, as `schema_from_document` reads it."""
    return {
        "fields": [
            field_document(column.id, column.name, column.type, column.comment, column.default)
            for column in schema.columns
        ],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def table_document(table: StoredTable) -> dict[str, Any]:
    """A table as the answer to a request for it (`GetTableResponse`)."""
    schema = table.schema
    options: Mapping[str, str] = schema.get("options") or {}
    fields: Sequence[Any] = schema["fields"]
    return {
        "id": table.table_id,
        "database": table.name.database,
        "name": table.name.object_name,
        "path": table.location,
        "isExternal": False,
        "schemaId": table.schema_id,
        "schema": {
            "fields": fields,
            "partitionKeys": schema.get("partitionKeys") or [],
            "primaryKeys": schema.get("primaryKeys") or [],
            "options": {k: v for k, v in options.items() if k not in REST_ADDS},
            "comment": schema.get("comment"),
        },
        "owner": options.get("owner", ""),
        "createdAt": table.created_at_ms,
        "createdBy": "",
        "updatedAt": table.updated_at_ms,
        "updatedBy": "",
    }
