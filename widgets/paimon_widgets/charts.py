"""Charts of a report as SVG: the same in a widget and in a static page.

Text takes the page's color. Every bar has its amount or letter beside it, so that color is never
the only sign.
"""

from __future__ import annotations

import html

from paimon_magics.session.reports.report import Bar, Chart, Shape

_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""A palette for people with color vision deficiency, by Okabe and Ito."""
_OWN = {"small": "#e69f00", "some small": "#f0c566"}
_PLAIN = "#7c7b78"
_BAR_PX = 260
_COLUMN_PX, _HEIGHT_PX, _COLUMNS_MAX = 26, 90, 40
_LETTER_PX = 7


def chart_svg(chart: Chart) -> str:
    """Return the chart with its title; "" if there is nothing to draw."""
    if not chart.bars:
        return ""
    colours = {kind: _COLOURS[place % len(_COLOURS)] for place, kind in enumerate(_kinds(chart))}
    colours |= _OWN
    drawn = _columns(chart, colours) if chart.shape is Shape.COLUMNS else _bars(chart, colours)
    return f"<p>{html.escape(chart.title)}</p>{drawn}"


def _kinds(chart: Chart) -> list[str]:
    return sorted({bar.kind for bar in chart.bars if bar.kind})


def _colour(bar: Bar, colours: dict[str, str]) -> str:
    return colours.get(bar.kind, _PLAIN)


def _bars(chart: Chart, colours: dict[str, str]) -> str:
    most = max(bar.value for bar in chart.bars) or 1
    left = min(320, _LETTER_PX * max(len(bar.label) for bar in chart.bars) + 8)
    lines = []
    for place, bar in enumerate(chart.bars):
        y = place * 18
        width = max(1.0, _BAR_PX * bar.value / most) if bar.value else 0
        lines.append(
            f'<text x="{left}" y="{y + 13}" text-anchor="end">{html.escape(_cut(bar.label))}</text>'
            f'<rect x="{left + 8}" y="{y + 3}" width="{width:.1f}" height="12" '
            f'fill="{_colour(bar, colours)}"/>'
            f'<text x="{left + 14 + width:.1f}" y="{y + 13}">{html.escape(bar.amount)}</text>'
        )
    widest = max(len(bar.amount) for bar in chart.bars)
    width_px = left + _BAR_PX + 24 + _LETTER_PX * widest
    return _svg(chart.title, width_px, 18 * len(chart.bars) + 4, lines)


def _columns(chart: Chart, colours: dict[str, str]) -> str:
    """Draw columns upwards from the zero line, and downwards for negative amounts."""
    bars = chart.bars[-_COLUMNS_MAX:]
    most, least = (max(0.0, *(sign * bar.value for bar in bars)) for sign in (1, -1))
    scale = _HEIGHT_PX / ((most + least) or 1)
    zero = 16 + scale * most  # the zero line, from the top
    bottom = zero + max(2.0, scale * least) + (14 if least else 0)
    lines = []
    if least:
        width = len(bars) * _COLUMN_PX + 8
        lines.append(f'<rect x="0" y="{zero:.1f}" width="{width}" height="1" fill="{_PLAIN}"/>')
    for place, bar in enumerate(bars):
        x = place * _COLUMN_PX + 4
        height = max(2.0, scale * abs(bar.value))
        is_down = bar.value < 0
        top = zero if is_down else zero - height
        letter = top + height + 12 if is_down else top - 4
        middle = x + (_COLUMN_PX - 6) / 2
        lines.append(
            f'<rect x="{x}" y="{top:.1f}" width="{_COLUMN_PX - 6}" '
            f'height="{height:.1f}" fill="{_colour(bar, colours)}">'
            f"<title>{html.escape(f'{bar.label}: {bar.amount}')}</title></rect>"
            f'<text x="{middle}" y="{letter:.1f}" text-anchor="middle">'
            f"{html.escape(bar.kind)}</text>"
            f'<text x="{middle}" y="{bottom + 14:.1f}" text-anchor="middle">'
            f"{html.escape(bar.label)}</text>"
        )
    return _svg(chart.title, len(bars) * _COLUMN_PX + 8, round(bottom) + 20, lines)


def _svg(title: str, width: int, height: int, lines: list[str]) -> str:
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="12" fill="currentColor">{"".join(lines)}</svg>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= 44 else text[:43] + "…"
