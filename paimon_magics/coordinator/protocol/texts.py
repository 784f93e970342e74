"""Texts that clients send and that are stored: not every database can hold any of them."""

from __future__ import annotations

import re

__all__ = ["is_storable", "storable_text"]

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Whether each database can hold a text: it has no NUL and no lone surrogate."""
    return _UNSTORABLE.search(text) is None


def storable_text(text: str) -> str:
    """The text with � for each character that not every database can hold."""
    return _UNSTORABLE.sub("\ufffd", text)
