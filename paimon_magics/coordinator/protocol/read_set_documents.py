"""Encodes and decodes the read set of a commit request as a JSON document.

Values of conditions keep their types, each as an object with one member. Does no I/O. Decoding a
malformed document raises InvalidValueError.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from paimon_magics.coordinator.protocol.members import member
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.read_sets import Found, ReadSet
from paimon_magics.planning.reads.predicates import ColumnPredicate, PredicateValue

__all__ = ["read_set_document", "read_set_of"]

_WITHOUT_VALUES = ("is null", "is not null")
_OPERATORS = ("=", "<", "<=", ">", ">=", "in", *_WITHOUT_VALUES)


def read_set_document(read: ReadSet) -> dict[str, Any]:
    """The document of a read set."""
    return {
        "snapshot_id": read.snapshot_id,
        "manifest_list": read.manifest_list,
        "files": None if read.files is None else list(read.files),
        "written_keys": read.written_keys,
        "found": None
        if read.found is None
        else {
            "adds_missing": read.found.adds_missing,
            "conditions": [
                {
                    "column": one.column,
                    "operator": one.operator,
                    "values": [_value_document(value) for value in one.values],
                }
                for one in read.found.conditions
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
    found = member(document, "found", object)
    if files is None and found is None:
        raise InvalidValueError("Without `files` the member `found` must say what was looked for.")
    return ReadSet(
        snapshot_id=member(document, "snapshot_id", int),
        files=files,
        written_keys=member(document, "written_keys", bool),
        found=None if found is None else _found_of(found),
        manifest_list=member(document, "manifest_list", str),
    )


def _found_of(document: Any) -> Found:
    conditions = member(document, "conditions", Sequence)
    return Found(tuple(map(_condition_of, conditions)), member(document, "adds_missing", bool))


def _condition_of(document: Any) -> ColumnPredicate:
    operator = member(document, "operator", str)
    values = tuple(map(_value_of, member(document, "values", Sequence)))
    if operator not in _OPERATORS:
        raise InvalidValueError(f"The member `operator` is {operator!r}, which compares nothing.")
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
        raise InvalidValueError(f"{value!r} is no {kind}.") from error
    if kind == "value" and isinstance(value, bool | int | str):
        return value
    raise InvalidValueError(f"A value can't be {document!r}.")
