"""JSON in UTF-8, as requests carry it: decoded, with members and texts of the expected kinds."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from paimon_magics.errors import InvalidValueError

EXACT_DIGITS = 15
"""A float keeps this many digits of any number."""

_MAY_BE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

LABEL_CHARACTERS_MAX = 128

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_value(body: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises ValueError for anything else, for an object that names a member twice, and for a text
    with half of a surrogate pair, which can't be written as UTF-8.
    """
    return _value(body, _STRICT, _SCAN)


def exact_json_value(body: bytes) -> Any:
    """Return the value as `json_value` does, with a `LongNumber` in place of each float that
    differs from the number in the text."""
    # Most bodies have no such number, and need no call for each of theirs.
    kinds = body.translate(_KINDS)
    if _LONG in kinds or _EXPONENT in kinds:
        return _value(body, _STRICT_EXACT, _EXACT_SCAN)
    return json_value(body)


class LongNumber(float):
    """The float that is nearest to a number, and differs from it: the number has more digits than
    a float keeps, or is larger than any, or smaller. Its `repr` is the number in the text."""

    __slots__ = ("_literal",)

    _literal: str

    def __new__(cls, literal: str) -> LongNumber:
        """The float for a number of JSON."""
        number = super().__new__(cls, literal)
        number._literal = literal
        return number

    def __repr__(self) -> str:
        return self._literal


def _value(body: bytes, strict: json.JSONDecoder, scan: _Scan) -> Any:
    try:
        text = body.decode().strip(_SPACE)
        try:
            value, end = scan(text, 0)
        except StopIteration:
            end = -1
        if end != len(text) or not _has_all_members(value, text):
            value = strict.decode(text)  # raises what is wrong
        if b"\\" in body and _MAY_BE_HALF.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _float(literal: str) -> float:
    number = float(literal)
    if repr(number) == literal:
        return number
    mantissa = literal.lower().partition("e")[0].replace(".", "")
    digits = mantissa.lstrip("-0").rstrip("0")
    is_kept = len(digits) <= EXACT_DIGITS and math.isfinite(number) and (number != 0 or not digits)
    return number if is_kept else LongNumber(literal)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _has_all_members(value: Any, text: str) -> bool:
    """Whether each member of the text is in its value, so that none is given twice; False also if a
    quick check can't decide. The check works for an object, and for lists of objects in it: it
    compares their members with an upper bound on the members in the text, deeper ones included. A
    call for each object would cost more.
    """
    members = 0
    if type(value) is dict:
        members = len(value)
        for item in value.values():
            if type(item) is list and item and type(item[0]) is dict:
                try:
                    members += sum(map(dict.__len__, item))
                except TypeError:  # there are other values beside them
                    return False
    # A time of day in a text has colons, but none behind a quote or a space.
    return text.count(":") == members or (
        text.count('":') == members and not any(f"{space}:" in text for space in _SPACE)
    )


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. No member may be given twice: only one of them would count."""
    document = dict(members)
    if len(document) < len(members):
        seen: set[str] = set()
        for twice, _ in members:
            if twice in seen:
                break
            seen.add(twice)
        raise ValueError(f"an object has the member {twice[:60]!r} twice")
    return document


# The kinds of characters of numbers, by which a text is searched for a long one.
_KINDS = bytes(
    ord("0" if chr(code) in "0123456789." else "e" if chr(code) in "eE" else " ")
    for code in range(256)
)
_LONG = b"0" * (EXACT_DIGITS + 2)  # one of them is the dot
_EXPONENT = b"0e"
_Scan = Callable[[str, int], tuple[Any, int]]
_SPACE = " \t\n\r"  # JSON's
# Making a decoder costs more than decoding, and so does all its work beside scanning.
_SCAN: _Scan
_SCAN = json.JSONDecoder(parse_constant=_no_constant).scan_once  # type: ignore[attr-defined]
_EXACT_SCAN: _Scan = json.JSONDecoder(  # type: ignore[attr-defined]
    parse_float=_float, parse_constant=_no_constant
).scan_once
_STRICT = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_object)
_STRICT_EXACT = json.JSONDecoder(
    parse_float=_float, parse_constant=_no_constant, object_pairs_hook=_object
)


# Dataclasses as JSON. `dataclasses.asdict` copies each value deeply: that takes longer than to
# write the text.


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def dataclass_members(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name. Its values are not copied, and dataclasses among them stay
    so. Raises TypeError for another value."""
    return {name: getattr(value, name) for name in _field_names(value.__class__)}


dataclass_json: Callable[[Any], str] = json.JSONEncoder(default=dataclass_members).encode
"""A dataclass as JSON: an object with a member for each field. Dataclasses in its fields become
objects, too.
"""


# Stored texts of clients: not every database can hold all of them.


def is_storable(text: str) -> bool:
    """Whether each database can hold a text: it has no NUL and no lone surrogate."""
    try:
        text.encode()  # an expression would take many times as long
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def storable_text(text: str) -> str:
    """The text with � in place of each character that not every database can hold."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)


# Reads the members of JSON documents, each of the kind that is expected.


def member(document: Any, key: str, kind: type) -> Any:
    """Return the member `key`. Raises InvalidValueError unless it is of `kind`; a number is one of
    64 bits."""
    if not isinstance(document, Mapping):
        raise InvalidValueError(f"An object with the member `{key}` is expected.")
    if key not in document:
        raise InvalidValueError(f"The member `{key}` is missing.")
    value = document[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise InvalidValueError(
            f"The member `{key}` must be {_KIND_TEXTS.get(kind, kind.__name__)}."
        )
    if kind is Sequence and isinstance(value, str):
        raise InvalidValueError(f"The member `{key}` must be a list.")
    if kind is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidValueError(f"The member `{key}` must be a whole number of 64 bits.")
    return value


_KIND_TEXTS: dict[type, str] = {
    dict: "an object",
    str: "a text",
    int: "a whole number",
    Mapping: "an object",
    Sequence: "a list",
    bool: "true or false",
}
