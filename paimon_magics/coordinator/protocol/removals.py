"""What is to be removed from a table, and what was, as JSON documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from paimon_magics.coordinator.protocol.definition_changes import change_members, value_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.statements.removals import TableRemoval
from paimon_magics.tables.expiry.holders import Holder, RemovalReceipt

_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(TableRemoval)}


def removal_document(removal: TableRemoval) -> dict[str, Any]:
    """The document of what is to be removed."""
    return {"kind": type(removal).__name__, **change_members(removal)}


def removal_of(document: Any) -> TableRemoval:
    """What is to be removed, according to a document. Raises InvalidValueError for a malformed
    one."""
    removal: TableRemoval = value_of(document, _KINDS)
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
