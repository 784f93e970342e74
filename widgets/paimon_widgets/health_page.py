"""The health of tables as a static page: findings in words, the statement that would help, and the
distribution of file sizes."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_magics.planning.reports.health import Finding, Severity
from paimon_magics.session.reports.health import rules_text, sizes_chart, worst_partitions
from paimon_widgets.charts import chart_svg
from paimon_widgets.static_pages import amount, code, paragraph, table

if TYPE_CHECKING:
    from paimon_magics.session.reports.health import Health
    from paimon_magics.session.reports.layout import Layout

__all__ = ["MARKS", "health_html"]

MARKS = {Severity.GOOD: "✓", Severity.NOTICE: "!", Severity.SERIOUS: "‼"}


def health_html(health: Health) -> str:
    """Return the page, with a part for each table."""
    if not health.layouts:
        return paragraph("There are no tables.")
    parts = []
    for layout, found in zip(health.layouts, health.findings.values(), strict=True):
        rules = paragraph(rules_text(layout)) if layout.figures.files else ""
        parts.append(
            f"{paragraph(layout.summary())}{_list(found)}{rules}"
            f"{chart_svg(sizes_chart(layout))}{_worst_partitions(layout)}"
        )
    return f'<div class="paimon-health">{"".join(parts)}</div>'


def _list(found: Sequence[Finding]) -> str:
    lines = [
        f"<li>{MARKS[one.severity]} <b>{one.severity.word}</b>: {html.escape(one.text)}"
        + (code(one.statement) if one.statement else "")
        + "</li>"
        for one in found
    ]
    return f"<ul>{''.join(lines)}</ul>"


def _worst_partitions(layout: Layout) -> str:
    """The partitions that need most attention, with the number of their files of each size."""
    found = worst_partitions(layout)
    if not found.num_rows:
        return ""
    rows = [
        [amount(value) if name == "share" else value for name, value in row.items()]
        for row in found.to_pylist()
    ]
    return table(found.column_names, rows, "Partitions with small files, and sizes of their files")
