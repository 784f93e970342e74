"""Changes of definitions as values and as JSON documents: creating, altering, renaming and dropping
tables and databases; tags, branches and history of tables.

This module does no I/O. `kind` is the name of the change's class. Decoding a malformed document
raises InvalidValueError, which names the member. `created_at_ms` is when the intended table was
created, and `base_schema_id` the schema on which the change was planned. A repeated request is
compared with them (see `service.definition_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, get_args

from paimon_magics.coordinator.protocol.documents import table_document, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.removals import TableRemoval
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import (
    AddPartitions,
    DropPartitions,
    RenameTable,
    TableChange,
)
from paimon_magics.statements.types.type_text import from_paimon, to_paimon
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.catalog.rest_documents import (
    MalformedDocumentError,
    schema_document,
    schema_from_document,
)
from paimon_magics.tables.expiry.holders import Holder, RemovalReceipt
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

_REMOVALS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(TableRemoval)}
_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(VersionChange)}


@dataclass(frozen=True, slots=True)
class TableCreation:
    """CREATE TABLE with a planned schema."""

    name: TableName
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class TableDrop:
    """DROP TABLE. With `only_empty` a table that has snapshots stays."""

    name: TableName
    if_exists: bool = False
    only_empty: bool = False
    created_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableRename:
    """ALTER TABLE … RENAME TO, also into another database."""

    name: TableName
    new_name: TableName
    created_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableAlteration:
    """Changes of a table's columns and options, which become one new schema."""

    name: TableName
    changes: tuple[TableChange, ...]
    base_schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaRestoration:
    """A table gets its earlier schema `schema_id` again, as the one after `base_schema_id`."""

    name: TableName
    schema_id: int
    base_schema_id: int


@dataclass(frozen=True, slots=True)
class DatabaseCreation:
    """CREATE DATABASE."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DatabaseAlteration:
    """ALTER DATABASE, COMMENT ON DATABASE: properties that are set, keys of those removed."""

    name: str
    updates: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseDrop:
    """DROP DATABASE; with `cascade` its tables go first."""

    name: str
    if_exists: bool = False
    cascade: bool = False


DefinitionChange = (
    TableCreation
    | TableDrop
    | TableRename
    | TableAlteration
    | TableReplacement
    | SchemaRestoration
    | DatabaseCreation
    | DatabaseAlteration
    | DatabaseDrop
)

_CHANGES: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(DefinitionChange)}
_TABLE_CHANGES: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in get_args(TableChange)
    if kind not in (RenameTable, DropPartitions, AddPartitions)  # they change no schema
}


def change_document(change: DefinitionChange | VersionChange) -> dict[str, Any]:
    """The document of a change."""
    return {"kind": type(change).__name__, **_members(change)}


def definition_change_of(document: Any) -> DefinitionChange:
    """The change in a document."""
    change: DefinitionChange = _value(document, _CHANGES)
    return change


def change_of(document: Any) -> VersionChange:
    """The change of a table's tags, branches or history in a document."""
    change: VersionChange = _value(document, _KINDS)
    return change


def version_receipt_document(receipt: VersionReceipt) -> dict[str, Any]:
    """The document of the receipt of such a change."""
    return _members(receipt)


def version_receipt_of(document: Mapping[str, Any]) -> VersionReceipt:
    """The receipt in a document."""
    return VersionReceipt(
        **{
            field.name: _member(document, field.name, str(field.type))
            for field in fields(VersionReceipt)
        }
    )


# What is to be removed from a table, and what was.


def removal_document(removal: TableRemoval) -> dict[str, Any]:
    """The document of what is to be removed."""
    return {"kind": type(removal).__name__, **_members(removal)}


def removal_of(document: Any) -> TableRemoval:
    """What is to be removed, according to a document. Raises InvalidValueError for a malformed
    one."""
    removal: TableRemoval = _value(document, _REMOVALS)
    return removal


def removal_receipt_document(receipt: RemovalReceipt) -> dict[str, Any]:
    """The document of a receipt."""
    return asdict(receipt)


def removal_receipt_of(document: Mapping[str, Any]) -> RemovalReceipt:
    """The receipt in a document."""
    holders = [
        Holder(member(item, "kind", str), member(item, "name", str), item.get("snapshot_id"))
        for item in member(document, "holders", Sequence)
    ]
    return RemovalReceipt(
        member(document, "snapshots", int),
        tuple(str(name) for name in member(document, "names", Sequence)),
        member(document, "files", int),
        member(document, "size_bytes", int),
        tuple(holders),
    )


def _members(value: Any) -> dict[str, Any]:
    return {
        field.name: _FORMS[str(field.type)][0](getattr(value, field.name))
        for field in fields(value)
    }


def _value(document: Any, kinds: Mapping[str, type[Any]]) -> Any:
    name = member(document, "kind", str)
    kind = kinds.get(name)
    if kind is None:
        raise InvalidValueError(f"The member `kind` names no change: `{name}`.")
    values = {}
    for field in fields(kind):
        if field.name in document or field.default is MISSING:
            values[field.name] = _member(document, field.name, str(field.type))
    return kind(**values)


def _member(document: Mapping[str, Any], name: str, type: str) -> Any:
    if name not in document:
        raise InvalidValueError(f"The member `{name}` is missing: it must be {type}.")
    try:
        return _FORMS[type][1](document[name])
    except PaimonMagicsError:
        raise
    except MalformedDocumentError as error:
        raise InvalidValueError(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidValueError(f"The member `{name}` must be {type}.") from error


def _same(value: Any) -> Any:
    return value


def _plain(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError
        return value

    return read


_text = _plain(str)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in _plain(list)(value))


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(key), _text(text)) for key, text in _plain(list)(value))


def _changes(value: Any) -> tuple[TableChange, ...]:
    return tuple(_value(item, _TABLE_CHANGES) for item in _plain(list)(value))


_FORMS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bool": (_same, _plain(bool)),
    "str": (_same, _text),
    "int": (_same, _plain(int)),
    "str | None": (_same, _plain(str, type(None))),
    "int | None": (_same, _plain(int, type(None))),
    "tuple[str, ...]": (list, _texts),
    "tuple[tuple[str, str], ...]": (list, _pairs),
    "DataType": (to_paimon, from_paimon),
    "TableName": (table_document, table_of),
    "TableSchema": (schema_document, schema_from_document),
    "tuple[TableChange, ...]": (
        lambda changes: [{"kind": type(change).__name__, **_members(change)} for change in changes],
        _changes,
    ),
}
"""How the values of members are written and read, by their annotations."""
