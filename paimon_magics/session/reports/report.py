"""A report, the result of a verb: a summary line, tables, charts, and further actions.

A Report is a value. Its text is made here and is the same for the same table; `paimon_widgets`
shows it as a page and as a widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.row_filters import kinds_of
from paimon_magics.columnar.time_zones import in_zone, moments_in_zone
from paimon_magics.planning.reads.row_filters import RowFilter, filter_sql
from paimon_magics.session.rendering import render_text

_SHOWN = 20
_BAR = 24


class Shape(Enum):
    """How a chart is drawn: bars below each other, or columns in time order."""

    BARS = "bars"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length (a column below zero is drawn downwards), the amount in words,
    and the kind that colors it (one or two letters, which are also shown)."""

    label: str
    value: float
    amount: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Amounts to compare, as bars."""

    title: str
    bars: tuple[Bar, ...]
    shape: Shape = Shape.BARS


@dataclass(frozen=True, slots=True)
class Action:
    """A further question on `picks` rows of a section. `run` takes those rows as dictionaries, in
    the section's order, and returns a report."""

    label: str
    picks: int
    run: Callable[[Sequence[dict[str, object]]], Report]


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a report. `query` is the query or table that gives its rows, "" if no SQL does.
    `changed` names, for each row after an update, the columns that differ from the row before.

    `in_query` names the columns that the query gives, None for all. `shown` columns are in the
    text; the others, such as times and paths, differ between runs or are too many. `hidden` columns
    are in the data, but in no view. An `only_live` section is about this run only, and left out of
    text and static pages.
    """

    heading: str
    rows: pa.Table
    query: str
    shown: tuple[str, ...] = ()
    changed: tuple[tuple[str, ...], ...] = ()
    actions: tuple[Action, ...] = ()
    charts: tuple[Chart, ...] = ()
    note: str = ""
    only_live: bool = False
    hidden: tuple[str, ...] = ()
    in_query: tuple[str, ...] | None = None

    @property
    def sql(self) -> str:
        """The query that gives the rows; "" where none does."""
        return filter_sql(self.query, RowFilter(), kinds_of(self.rows.schema), self.in_query)

    def text_rows(self) -> pa.Table:
        """The rows with the columns that are shown as text."""
        names = self.shown or self.rows.column_names
        return self.rows.select([name for name in names if name not in self.hidden])

    def text(self) -> str:
        """The section as text: heading, bar charts, first rows and note."""
        rows = self.text_rows()
        lines = []
        if self.heading:
            lines.append(self.heading)
        for chart in self.charts:
            if chart.shape is Shape.BARS:
                lines += [chart.title, *bar_lines(chart), ""]
        if rows.num_columns:
            lines.append(render_text(self._marked(rows), _SHOWN))
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _marked(self, rows: pa.Table) -> pa.Table:
        """The rows; if they are changes, with a column that names the changed columns."""
        if not any(self.changed):
            return rows
        names = [", ".join(columns) or None for columns in self.changed]
        return rows.append_column("changed", pa.array(names, pa.string()))


@short_errors
@dataclass(frozen=True)
class Report:
    """The result of a verb. `summary` is one line. If the subject keeps changing, `refresh` reads
    everything again, every `seconds` seconds, and returns None once the session is closed."""

    kind: str
    summary: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    refresh: Callable[[], Report | None] | None = field(default=None, compare=False)
    seconds: float = 2.0

    @property
    def data(self) -> pa.Table:
        """The rows of the first section."""
        return self.sections[0].rows if self.sections else pa.table({})

    @property
    def sql(self) -> str:
        """The query that gives `data`; "" if there is none."""
        return self.sections[0].sql if self.sections else ""

    def __str__(self) -> str:
        sections = [section for section in self.sections if not section.only_live]
        parts = [self.summary, *(section.text() for section in sections), *self.notes]
        return "\n\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return str(self)


def report_in_zone(report: Report, zone: Callable[[], str]) -> Report:
    """Return the report with instants, those in its texts too, in the current zone, which `zone`
    returns. The reports of its actions and refreshes are converted to the zone of their time."""
    now = zone()

    def anew() -> Report | None:
        assert report.refresh is not None
        renewed = report.refresh()
        return None if renewed is None else report_in_zone(renewed, zone)

    def converted(run: Callable[..., Report]) -> Callable[..., Report]:
        return lambda *picks: report_in_zone(run(*picks), zone)

    sections = tuple(
        replace(
            section,
            rows=in_zone(section.rows, now),
            heading=moments_in_zone(section.heading, now),
            note=moments_in_zone(section.note, now),
            actions=tuple(replace(action, run=converted(action.run)) for action in section.actions),
        )
        for section in report.sections
    )
    refresh = None if report.refresh is None else anew
    return replace(
        report,
        summary=moments_in_zone(report.summary, now),
        notes=tuple(moments_in_zone(note, now) for note in report.notes),
        sections=sections,
        refresh=refresh,
    )


def bar_lines(chart: Chart) -> list[str]:
    """The chart's bars, a line of text each."""
    most = max((bar.value for bar in chart.bars), default=0)
    if not most:
        return []
    width = max(len(bar.label) for bar in chart.bars)
    lines = []
    for bar in chart.bars:
        drawn = "█" * max(1 if bar.value else 0, round(_BAR * bar.value / most))
        lines.append(f"{bar.label:>{width}}  {drawn:<{_BAR}}  {bar.amount}".rstrip())
    return lines
