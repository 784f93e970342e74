"""Decoding of JSON in UTF-8, as requests carry it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

__all__ = ["json_value"]

_MAY_BE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def json_value(body: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises ValueError for anything else, for an object that names a member twice, and for a text
    with half of a surrogate pair, which can't be written as UTF-8.
    """
    try:
        text = body.decode().strip(_SPACE)
        try:
            value, end = _SCAN(text, 0)
        except StopIteration:
            end = -1
        if end != len(text):
            value = _DECODER.decode(text)  # raises what is wrong
        if _MAY_BE_HALF.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, none of whose members may be given twice: only one of them would count."""
    document = dict(members)
    if len(document) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the member {twice[:60]!r} twice")
    return document


_SPACE = " \t\n\r"  # JSON's
# Making a decoder costs more than decoding, and so does all that it does beside scanning.
_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)
_SCAN: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]
