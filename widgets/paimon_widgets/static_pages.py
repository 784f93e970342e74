"""Parts of static HTML: no scripts, no links, and colors for light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """Text in a table cell: aligned right like a number, or marked to draw attention."""

    text: str
    right: bool = False
    marked: bool = False


def amount(text: str) -> Cell:
    """A cell for the text of a number with its unit."""
    return Cell(text, right=True)


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>"


def code(text: str) -> str:
    """A statement, in a monospaced font."""
    font = "font-family:var(--jp-code-font-family, monospace)"
    return f'<pre style="{font}">{html.escape(text)}</pre>'


def table(names: Sequence[str], rows: Sequence[Sequence[object]], caption: str = "") -> str:
    """A table with a header; numbers get thousands separators and are aligned right."""
    cells = [[_cell(value) for value in row] for row in rows]
    sides = [_side(cell) for cell in cells[0]] if cells else ["left"] * len(names)
    head = "".join(
        f'<th scope="col" style="text-align:{side};padding:2px 8px">{html.escape(name)}</th>'
        for name, side in zip(names, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_td, row))}</tr>" for row in cells)
    title = f"<p><strong>{html.escape(caption)}</strong></p>" if caption else ""
    return (
        f'{title}<div style="overflow-x:auto"><table style="margin-left:0"><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: object) -> Cell:
    match value:
        case Cell():
            return value
        case int():
            return amount(f"{value:,}")
        case _:
            return Cell(str(value))


def _side(cell: Cell) -> str:
    return "right" if cell.right else "left"


def _td(cell: Cell) -> str:
    text = html.escape(cell.text)
    shown = f"<b><u>{text}</u></b>" if cell.marked else text
    return f'<td style="text-align:{_side(cell)};padding:2px 8px;white-space:nowrap">{shown}</td>'
