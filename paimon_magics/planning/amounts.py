"""Amounts as text for a person."""

from __future__ import annotations

__all__ = ["size_text"]


def size_text(size_bytes: int) -> str:
    """A size with three digits or fewer: `0 B`, `1.5 KiB`, `128 MiB`."""
    amount, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    whole = amount >= 10 or amount == int(amount)
    return f"{amount:.0f} {units[0]}" if whole else f"{amount:.1f} {units[0]}"
