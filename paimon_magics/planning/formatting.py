"""Amounts and long texts, formatted for a person."""

from __future__ import annotations


def count_text(number: int, what: str) -> str:
    """A count with its noun: `1 file`, `1,204 files`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def stored_rows_text(number: int, *, is_merged: bool) -> str:
    """The number of rows in files: `9 rows`, or `9 stored rows` where a read merges them into fewer
    (a primary-key table's bucket with several sorted runs)."""
    return count_text(number, "stored row" if is_merged else "row")


def age_text(seconds: int) -> str:
    """An age in the largest unit that makes it at least 2: `119 s`, `5 min`, `47 h`, `2 days`."""
    for unit_seconds, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_seconds:
            return f"{seconds // unit_seconds:,} {unit}"
    return f"{seconds} s"


def size_text(size_bytes: int) -> str:
    """A size in a binary unit: `0 B`, `1.5 KiB`, `128 MiB`."""
    amount, units = float(size_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    whole = amount >= 10 or amount == int(amount)
    return f"{amount:.0f} {units[0]}" if whole else f"{amount:.1f} {units[0]}"


def shortened(text: str, width: int) -> str:
    """The text, cut to `width` characters with an ellipsis if it is longer."""
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """The text; with control characters, line ends and changes of direction escaped, if it has
    any."""
    return text if text.isprintable() else ascii(text)[1:-1]
