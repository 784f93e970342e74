"""Bind parameters: the values of `:name` in a statement, checked before Spark gets them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from paimon_magics.errors import InvalidValueError, UnknownNameError, nearest

__all__ = ["bind"]

_TABLE_LIKE = ("DataFrame", "Series", "Table", "RecordBatch", "Outcome")


def bind(names: Sequence[str], values: Mapping[str, object], statement: str) -> dict[str, object]:
    """The values of `names`; raises UnknownNameError for a missing one, InvalidValueError for what
    is no value (a DataFrame, a function, …)."""
    bound: dict[str, object] = {}
    for name in names:
        if name not in values:
            visible = [key for key in values if not key.startswith("_")]
            raise UnknownNameError(
                f"The parameter `:{name}` has no value.",
                hint=_hint(name, visible),
                statement=statement,
                position=_position(statement, name),
            )
        value = values[name]
        if type(value).__name__ in _TABLE_LIKE or callable(value):
            raise InvalidValueError(
                f"The parameter `:{name}` is a {type(value).__name__}, not a value.",
                hint="Bind numbers, texts, dates, lists or dicts; read a DataFrame through a "
                "temporary view.",
                statement=statement,
                position=_position(statement, name),
            )
        bound[name] = value
    return bound


def _hint(name: str, visible: Sequence[str]) -> str:
    close = nearest(name, visible, what="names") if visible else ""
    advice = f"Define `{name}` first, or pass it among the parameters."
    return f"{close} {advice}" if close.startswith("Did you mean") else advice


def _position(statement: str, name: str) -> int | None:
    found = re.search(rf"(?<![:\w]):{re.escape(name)}\b", statement)
    return found.start() if found else None
