"""Reads the members of JSON documents, each of the kind that is expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.errors import InvalidValueError

__all__ = ["member"]


def member(document: Any, key: str, kind: type) -> Any:
    """Return the member `key`. Raises InvalidValueError unless it is of `kind`; a number is one of
    64 bits."""
    if not isinstance(document, Mapping):
        raise InvalidValueError(f"An object with the member `{key}` is expected.")
    if key not in document:
        raise InvalidValueError(f"The member `{key}` is missing.")
    value = document[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise InvalidValueError(f"The member `{key}` must be {_KINDS.get(kind, kind.__name__)}.")
    if kind is Sequence and isinstance(value, str):
        raise InvalidValueError(f"The member `{key}` must be a list.")
    if kind is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidValueError(f"The member `{key}` must be a whole number of 64 bits.")
    return value


_KINDS: dict[type, str] = {
    dict: "an object",
    str: "a text",
    int: "a whole number",
    Mapping: "an object",
    Sequence: "a list",
    bool: "true or false",
}
