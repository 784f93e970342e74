"""Scripts and styles of the widgets, part of the package and sent by the kernel, and parts of
static HTML: no scripts, no links, and colors for light and dark pages.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WIDGET = "application/vnd.jupyter.widget-view+json"
PROGRESS = "application/vnd.paimon-magics.progress+json"
"""The MIME type that marks the output of a progress widget, which has no static page."""
_STATIC = Path(__file__).with_name("static")


@cache
def script(name: str) -> str:
    """A widget's JavaScript module, after the parts that all widgets share."""
    parts = (_STATIC / "elements.js", _STATIC / f"{name}.js")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


@cache
def style(name: str) -> str:
    """A widget's style sheet, after the parts that all widgets share."""
    parts = (_STATIC / "elements.css", _STATIC / f"{name}.css")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def with_widget(bundle: dict[str, Any], view: Any) -> dict[str, Any]:
    """Return the bundle of text and static page, with the widget added if it can be shown."""
    repr_mimebundle = view._repr_mimebundle_()
    data = repr_mimebundle[0] if isinstance(repr_mimebundle, tuple) else repr_mimebundle
    return {**bundle, WIDGET: data[WIDGET]} if data and WIDGET in data else bundle


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
