"""Texts that are too long for their place."""

from __future__ import annotations

__all__ = ["shortened"]


def shortened(text: str, width: int) -> str:
    """The text, where it is longer than `width` cut off with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"
