"""Encodes and decodes changes of a table's tags, branches and history as JSON documents.

This module does no I/O. `kind` is the name of the change's class. Decoding a malformed document
raises InvalidValueError, which names the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any, get_args

from paimon_magics.coordinator.protocol.members import member
from paimon_magics.errors import InvalidValueError
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

__all__ = ["change_document", "change_of", "version_receipt_document", "version_receipt_of"]

_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(VersionChange)}
# The annotations of the members of changes, and the types of the JSON values that they accept.
_MEMBERS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "tuple[str, ...]": (list,),
}


def change_document(change: VersionChange) -> dict[str, Any]:
    """The document of a change."""
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(change).items()}
    return {"kind": type(change).__name__, **values}


def change_of(document: Any) -> VersionChange:
    """The change in a document."""
    name = member(document, "kind", str)
    kind = _KINDS.get(name)
    if kind is None:
        raise InvalidValueError(f"The member `kind` names no change: `{name}`.")
    values = {}
    for field in fields(kind):
        if field.name in document or field.default is MISSING:
            values[field.name] = _value(document, field)
    change: VersionChange = kind(**values)
    return change


def version_receipt_document(receipt: VersionReceipt) -> dict[str, Any]:
    """The document of a change's receipt."""
    return {**asdict(receipt), "changed": list(receipt.changed)}


def version_receipt_of(document: Any) -> VersionReceipt:
    """The receipt in a document."""
    values = {
        field.name: _value(document, field)
        for field in fields(VersionReceipt)
        if isinstance(document, Mapping)
    }
    return VersionReceipt(**values)


def _value(document: Mapping[str, Any], field: Field[Any]) -> Any:
    kinds = _MEMBERS[str(field.type)]
    value = document.get(field.name)
    is_right = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if is_right and isinstance(value, list):
        is_right = all(isinstance(item, str) for item in value)
    if not is_right:
        raise InvalidValueError(f"The member `{field.name}` must be {field.type}.")
    return tuple(value) if isinstance(value, list) else value
