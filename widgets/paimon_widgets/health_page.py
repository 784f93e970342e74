"""The health of tables as a static page: findings in words, the statement that would help, and how
the sizes of files are spread."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from paimon_magics.planning.health import Severity
from paimon_magics.session.layouts import histogram_chart
from paimon_widgets.charts import chart_svg
from paimon_widgets.static_pages import amount, code, paragraph, table

if TYPE_CHECKING:
    from paimon_magics.session.layouts import Health, Layout

__all__ = ["health_bundle", "health_html"]

_MARKS = {Severity.GOOD: "✓", Severity.NOTICE: "!", Severity.SERIOUS: "‼"}
_WORST_MAX = 10


def health_bundle(health: Health, *, live: bool = True) -> dict[str, Any]:
    """What a notebook shows of it: a page, `live` or not."""
    return {"text/plain": str(health), "text/html": health_html(health)}


def health_html(health: Health) -> str:
    """The page: a part for each table."""
    if not health.layouts:
        return paragraph("There are no tables.")
    parts = []
    for layout, found in zip(health.layouts, health.findings.values(), strict=True):
        lines = []
        for finding in found:
            mark = _MARKS[finding.severity]
            lines.append(
                f"<li>{mark} <b>{finding.severity.word}</b>: {html.escape(finding.text)}"
                + (code(finding.statement) if finding.statement else "")
                + "</li>"
            )
        sizes = chart_svg(histogram_chart(layout.histogram, layout.name))
        parts.append(
            f"{paragraph(layout.summary())}<ul>{''.join(lines)}</ul>"
            f"{sizes}{_worst_partitions(layout)}"
        )
    return f'<div class="paimon-health">{"".join(parts)}</div>'


def _worst_partitions(layout: Layout) -> str:
    """The partitions with the most small files, with their share of all."""
    found = layout.partitions()
    if found.num_rows < 2 or not layout.figures.small_files:
        return ""
    order = [("small_file_count", "descending"), ("partition", "ascending")]
    rows = [
        (
            row["partition"],
            row["file_count"],
            row["small_file_count"],
            amount(f"{row['small_file_count'] / row['file_count']:.0%}"),
        )
        for row in found.sort_by(order).slice(0, _WORST_MAX).to_pylist()
        if row["small_file_count"]
    ]
    return table(
        ("partition", "files", "small files", "share"), rows, "Partitions with the most small files"
    )
