"""A report as a static page: what nbconvert, GitHub and a notebook without a kernel show."""

from __future__ import annotations

import html

from paimon_magics.session.rendering import (
    cut_text,
    is_number,
    shown_value,
    shown_values,
    zones_text,
)
from paimon_magics.session.reports.report import Report, Section
from paimon_widgets.charts import chart_svg
from paimon_widgets.static_pages import Cell, code, paragraph, table

__all__ = ["report_html"]

_ROWS_MAX = 20


def report_html(report: Report) -> str:
    """Return the page."""
    kept = [section for section in report.sections if not section.only_live]
    parts = [paragraph(report.summary), *map(_section, kept), *map(_note, report.notes)]
    return f'<div class="paimon-report">{"".join(parts)}</div>'


def _note(note: str) -> str:
    """A sentence, with the statement that would help below it."""
    said, _, statement = note.partition("\n")
    return paragraph(said) + (code(statement.strip()) if statement else "")


def _section(section: Section) -> str:
    rows = section.text_rows()
    parts = [f"<p><strong>{html.escape(section.heading)}</strong></p>"] if section.heading else []
    parts += [chart_svg(chart) for chart in section.charts]
    if rows.num_columns and not rows.num_rows:
        parts.append(paragraph("no rows"))
    elif rows.num_columns:
        shown = rows.slice(0, _ROWS_MAX)
        columns = [
            [(cut_text(shown_value(value)), right) for value in shown_values(column)]
            for column in shown.columns
            for right in (is_number(column.type),)
        ]
        marks = [set(names) for names in section.changed] or [set()] * shown.num_rows
        lines = [
            [
                Cell(text, right, name in changed)
                for name, (text, right) in zip(rows.column_names, line, strict=True)
            ]
            for line, changed in zip(zip(*columns, strict=True), marks, strict=False)
        ]
        parts.append(table(rows.column_names, lines))
        left_out = rows.num_rows - shown.num_rows
        said = [f"{left_out:,} more rows"] if left_out > 0 else []
        said += zones_text(shown.schema)
        if said:
            parts.append(paragraph("; ".join(said)))
    if section.note:
        parts.append(paragraph(section.note))
    return "".join(parts)
