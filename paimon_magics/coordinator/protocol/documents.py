"""Encodes and decodes the transaction protocol's requests and replies as JSON documents.

This module does no I/O. Decoding a malformed document raises InvalidValueError, which names the
member.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from typing import Any

from paimon_magics.coordinator.core.state import CompactedBucket
from paimon_magics.coordinator.core.values import Origin
from paimon_magics.coordinator.protocol.json_text import dataclass_members, member
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch
from paimon_magics.planning.commits.requests import (
    Analyze,
    Append,
    Change,
    CommitReceipt,
    CommitRequest,
    Compact,
    CompactManifests,
    MergeFrom,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.planning.reads.predicates import ColumnPredicate, PredicateValue
from paimon_magics.planning.row_changes.logged_changes import LoggedChange
from paimon_magics.statements.statement import NAME_BYTES_MAX, TableName

_TEXT_CHARACTERS_MAX = 500

_WITHOUT_VALUES = ("is null", "is not null")
_OPERATORS = ("=", "<", "<=", ">", ">=", "in", *_WITHOUT_VALUES)

OPTIONS_PATH = "/v1/coordinator/options"


def table_document(name: TableName) -> dict[str, Any]:
    """The document of a table's full name."""
    document = {"database": name.database, "table": name.table}
    return document if name.branch is None else {**document, "branch": name.branch}


def table_of(document: Any) -> TableName:
    """The table name in a document; each part must be a plain name."""
    branch = None
    if isinstance(document, Mapping) and document.get("branch") is not None:
        branch = _name(document, "branch")
    return TableName(_name(document, "table"), database=_name(document, "database"), branch=branch)


def transaction_document(transaction: Transaction) -> dict[str, Any]:
    """The document of an open transaction, with all that its owner needs."""
    return {**dataclass_members(transaction), "table": table_document(transaction.table)}


def transaction_of(document: Any) -> Transaction:
    """The transaction in a document."""
    folder = document.get("attempts_folder") if isinstance(document, Mapping) else None
    return Transaction(
        table=table_of(member(document, "table", Mapping)),
        commit_user=member(document, "commit_user", str),
        file_prefix=member(document, "file_prefix", str),
        base_snapshot_id=member(document, "base_snapshot_id", int),
        attempts_folder=None if folder is None else member(document, "attempts_folder", str),
        commit_identifier=member(document, "commit_identifier", int),
        # Older clients bring none of these.
        table_creation=member(document, "table_creation", str)
        if "table_creation" in document
        else "",
        base_manifest_list=member(document, "base_manifest_list", str)
        if "base_manifest_list" in document
        else "",
        base_schema=member(document, "base_schema", str) if "base_schema" in document else "",
    )


def origin_document(origin: Origin) -> dict[str, Any]:
    """The document of a transaction's origin."""
    return dataclass_members(origin)


def origin_of(document: Any) -> Origin:
    """The origin in a document; a member that is missing or not a string counts as unknown."""
    if not isinstance(document, Mapping):
        return Origin()
    known = {field.name: document.get(field.name) for field in fields(Origin)}
    return Origin(**{k: v[:_TEXT_CHARACTERS_MAX] for k, v in known.items() if isinstance(v, str)})


def request_document(request: CommitRequest) -> dict[str, Any]:
    """The document of a commit request without its transaction, which the request's path names."""
    read = request.read_set
    return {
        "change": _change_document(request.change),
        "messages": _encoded(request.messages),
        "properties": dict(request.properties),
        **({} if read is None else {"read_set": read_set_document(read)}),
    }


def request_of(transaction: Transaction, document: Any) -> CommitRequest:
    """The commit request in a document."""
    properties = member(document, "properties", Mapping)
    read = document.get("read_set")
    return CommitRequest(
        transaction=transaction,
        change=_change_of(member(document, "change", Mapping)),
        messages=_decoded(document, "messages"),
        properties=tuple((str(key), str(value)) for key, value in properties.items()),
        read_set=None if read is None else read_set_of(read),
    )


def request_body(request: CommitRequest) -> bytes:
    """A commit request as it is stored; equal requests give equal bytes."""
    return json.dumps(request_document(request), sort_keys=True, separators=(",", ":")).encode()


def digest_of(body: bytes) -> str:
    """The digest of a `request_body`, which distinguishes a repeated request from a different
    request.
    """
    return hashlib.sha256(body).hexdigest()


def receipt_document(receipt: CommitReceipt) -> dict[str, Any]:
    """The document of a receipt."""
    return dataclass_members(receipt)


def receipt_of(document: Any) -> CommitReceipt:
    """The receipt in a document."""
    if not isinstance(document, Mapping):
        raise InvalidValueError("A receipt must be an object.")
    snapshot_id, kind, total, manifest_list = (
        document.get(key) for key in ("snapshot_id", "commit_kind", "total_rows", "manifest_list")
    )
    return CommitReceipt(
        snapshot_id, kind, total, member(document, "delta_rows", int), manifest_list
    )


def bucket_of(location: str, branch: str | None, document: Any) -> CompactedBucket:
    """The bucket in a document `{partition, bucket}` of the table at a location."""
    [partition] = _decoded({"partition": [member(document, "partition", str)]}, "partition")
    return CompactedBucket(location, branch, partition, member(document, "bucket", int))


def bucket_document(partition: bytes, bucket: int) -> dict[str, Any]:
    """The document of a bucket, by its serialised partition."""
    return {"partition": base64.b64encode(partition).decode(), "bucket": bucket}


def _name(document: Any, key: str) -> str:
    value: str = member(document, key, str)
    if not value or value in (".", "..") or any(c in value for c in "/\\\0$"):
        raise InvalidValueError(f"{value!r} is not a valid name of a {key}.")
    if len(value.encode(errors="replace")) > NAME_BYTES_MAX:
        raise InvalidValueError(f"No {key} has a name of more than {NAME_BYTES_MAX} bytes.")
    return value


def _encoded(messages: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(message).decode() for message in messages]


def _decoded(document: Any, key: str) -> tuple[bytes, ...]:
    texts = member(document, key, Sequence)
    try:
        return tuple(base64.b64decode(text, validate=True) for text in texts)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidValueError(f"`{key}` must be strings in Base64.") from error


def _change_document(change: Change) -> dict[str, Any]:
    match change:
        case Append(makes_snapshot=makes_snapshot):
            return {"kind": "append"} | ({"makes_snapshot": True} if makes_snapshot else {})
        case Compact(left_out=left_out, moves_keys=moves):
            moved = {"moves_keys": True} if moves else {}
            return {"kind": "compact", "left_out": _encoded(left_out), **moved}
        case Analyze(statistics=statistics):
            return {"kind": "analyze", "statistics": statistics}
        case CompactManifests(target_bytes=None):
            return {"kind": "compact-manifests"}
        case CompactManifests(target_bytes=target):
            return {"kind": "compact-manifests", "target_bytes": target}
        case MergeFrom(branch=branch):
            return {"kind": "merge-from", "branch": branch}
        case OverwriteTouched(swallow_newer=swallow, only_unchanged=only_unchanged):
            document = {"kind": "overwrite-touched", "swallow_newer": swallow}
            return {**document, "only_unchanged": True} if only_unchanged else document
        case OverwritePartitions(specs=specs, swallow_newer=swallow):
            return {
                "kind": "overwrite-partitions",
                "specs": [dict(spec) for spec in specs],
                "swallow_newer": swallow,
            }


def _change_of(document: Mapping[str, Any]) -> Change:
    match document.get("kind"):
        case "append":
            return Append(makes_snapshot=document.get("makes_snapshot") is True)
        case "compact":
            return Compact(
                _decoded(document, "left_out"), moves_keys=document.get("moves_keys") is True
            )
        case "analyze":
            return Analyze(member(document, "statistics", str))
        case "compact-manifests":
            is_given = document.get("target_bytes") is not None
            return CompactManifests(member(document, "target_bytes", int) if is_given else None)
        case "merge-from":
            return MergeFrom(member(document, "branch", str))
        case "overwrite-touched":
            only_unchanged = "only_unchanged" in document and member(
                document, "only_unchanged", bool
            )
            return OverwriteTouched(member(document, "swallow_newer", bool), only_unchanged)
        case "overwrite-partitions":
            specs = member(document, "specs", Sequence)
            if not all(isinstance(spec, Mapping) for spec in specs):
                raise InvalidValueError("`specs` must be a list of objects.")
            return OverwritePartitions(
                tuple(
                    tuple((str(k), None if v is None else str(v)) for k, v in spec.items())
                    for spec in specs
                ),
                member(document, "swallow_newer", bool),
            )
        case kind:
            raise InvalidValueError(f"The member `kind` names no change: {kind!r}.")


# Encodes and decodes the read set of a commit request as a JSON document.
#
# Values of conditions keep their types, each as an object with one member. Does no I/O. Decoding a
# malformed document raises InvalidValueError.


def read_set_document(read: ReadSet) -> dict[str, Any]:
    """The document of a read set."""
    return {
        "snapshot_id": read.snapshot_id,
        "manifest_list": read.manifest_list,
        "files": None if read.files is None else list(read.files),
        "written_keys": read.written_keys,
        "found": None
        if read.search is None
        else {
            "adds_missing": read.search.adds_missing,
            "conditions": [
                {
                    "column": condition.column,
                    "operator": condition.operator,
                    "values": [_value_document(value) for value in condition.values],
                }
                for condition in read.search.conditions
            ],
        },
    }


def read_set_of(document: Any) -> ReadSet:
    """The read set in a document."""
    files = None
    if member(document, "files", object) is not None:
        files = tuple(member(document, "files", Sequence))
        if not all(isinstance(name, str) for name in files):
            raise InvalidValueError("The member `files` must be a list of texts.")
    lookup = member(document, "found", object)
    if files is None and lookup is None:
        raise InvalidValueError("Without the member `files`, the member `found` is required.")
    return ReadSet(
        snapshot_id=member(document, "snapshot_id", int),
        files=files,
        written_keys=member(document, "written_keys", bool),
        search=None if lookup is None else _search_of(lookup),
        manifest_list=member(document, "manifest_list", str),
    )


def _search_of(document: Any) -> RowSearch:
    conditions = member(document, "conditions", Sequence)
    return RowSearch(tuple(map(_condition_of, conditions)), member(document, "adds_missing", bool))


def _condition_of(document: Any) -> ColumnPredicate:
    operator = member(document, "operator", str)
    values = tuple(map(_value_of, member(document, "values", Sequence)))
    if operator not in _OPERATORS:
        raise InvalidValueError(f"The member `operator` is {operator!r}, which is not an operator.")
    if bool(values) == (operator in _WITHOUT_VALUES):
        raise InvalidValueError(f"The operator {operator!r} can't have {len(values)} values.")
    return ColumnPredicate(member(document, "column", str), operator, values)


def _value_document(value: PredicateValue) -> dict[str, Any]:
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case datetime.date():
            return {"date": value.isoformat()}
        case _:
            return {"value": value}


def _value_of(document: Any) -> PredicateValue:
    if not isinstance(document, Mapping) or len(document) != 1:
        raise InvalidValueError("A value must be an object with one member.")
    [(kind, value)] = document.items()
    try:
        if kind == "decimal":
            return Decimal(value)
        if kind == "date":
            return datetime.date.fromisoformat(value)
    except (InvalidOperation, TypeError, ValueError) as error:
        raise InvalidValueError(f"{value!r} is not a valid {kind}.") from error
    if kind == "value" and isinstance(value, bool | int | str):
        return value
    raise InvalidValueError(f"A value can't be {document!r}.")


# Small changes as documents, as a client sends them and the log keeps them:
#
#     {"delete": {"columns": ["id"], "keys": [[7], [8]], "where": [["version", "<", 3]]}}
#     {"update": {"keys": [[7]], "set": {"state": "paid"}, "where": [["state", "is not null"]]}}
#
# Values have the forms of those of an insert. A condition is a column, an operator of
# `ColumnFilter` and its values; all of them must hold.


def change_document(change: LoggedChange) -> dict[str, Any]:
    """The document of a change."""
    document: dict[str, Any] = {
        "columns": list(change.columns),
        "keys": [[_json(value) for value in key] for key in change.keys],
    }
    if change.conditions:
        document["where"] = [
            [condition.column, condition.operator, *(_json(value) for value in condition.values)]
            for condition in change.conditions
        ]
    if change.assigned is None:
        return {"delete": document}
    return {"update": {**document, "set": {name: _json(value) for name, value in change.assigned}}}


def _json(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return value.isoformat()
        case _:
            return value
