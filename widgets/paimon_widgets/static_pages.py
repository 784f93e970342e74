"""Pieces of static HTML: no script, no address, colours that work on light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["Amount", "paragraph", "table"]


class Amount(str):
    """The text of a number with its unit, which stands to the right."""


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
    side = "right" if isinstance(value, int | Amount) else "left"
    text = f"{value:,}" if isinstance(value, int) else html.escape(str(value))
    return f'<td style="text-align:{side};padding:0 8px;white-space:nowrap">{text}</td>'
