"""Pieces of static HTML: no script, no address, colours that work on light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cell", "amount", "paragraph", "table"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table: to the right as numbers stand, or marked as something to look at."""

    text: str
    right: bool = False
    marked: bool = False


def amount(text: str) -> Cell:
    """The text of a number with its unit."""
    return Cell(text, right=True)


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>"


def table(names: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """A table with a header; numbers get separators of thousands and stand to the right."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    match value:
        case int():
            cell = amount(f"{value:,}")
        case Cell():
            cell = value
        case _:
            cell = Cell(str(value))
    side = "right" if cell.right else "left"
    text = html.escape(cell.text)
    shown = f"<b><u>{text}</u></b>" if cell.marked else text
    return f'<td style="text-align:{side};padding:0 8px;white-space:nowrap">{shown}</td>'
