"""What a verb tells of a table: a line, tables below it, charts, and what can be asked next.

A Report is values: its text is made here and is the same for the same table, `paimon_widgets` shows
it as a page and as a widget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.columnar.row_filters import kinds_of
from paimon_magics.columnar.time_zones import in_zone
from paimon_magics.planning.reads.row_filters import RowFilter, filter_sql
from paimon_magics.session.rendering import render_text

__all__ = ["Action", "Bar", "Chart", "Report", "Section", "Shape", "bar_lines", "told_in_zone"]

_SHOWN = 20
_BAR = 24


class Shape(Enum):
    """How a chart is drawn: bars below each other, or columns in the order of time."""

    BARS = "bars"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, how long it is (a column below zero is drawn downwards), the amount
    in words, and the kind that colours it (a letter or two, which is shown as well)."""

    label: str
    value: float
    amount: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Amounts to compare."""

    title: str
    bars: tuple[Bar, ...]
    shape: Shape = Shape.BARS


@dataclass(frozen=True, slots=True)
class Action:
    """Something to ask about `picks` rows of a section: `run` is given them as dictionaries, in the
    order of the section, and says more."""

    label: str
    picks: int
    run: Callable[[Sequence[dict[str, object]]], Report]


@dataclass(frozen=True, slots=True)
class Section:
    """A table of a report. `query` is the query, or the table, whose rows it has, "" where no SQL
    gives them. `changed` names for each row the columns whose value is another than in the row
    before, of an update's rows.

    `in_query` names the columns that the query gives, where it does not give all.
    `shown` columns are in the text; the others, of times and paths, differ from run to run, or are
    too many. `hidden` ones are in no view, but in the data. `only_live`: it is of this run alone,
    and left out of text and static pages.
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
        """The rows with the columns that stay the same from run to run."""
        names = self.shown or self.rows.column_names
        return self.rows.select([name for name in names if name not in self.hidden])

    def text(self) -> str:
        """The first rows."""
        rows = self.text_rows()
        found = []
        if self.heading:
            found.append(self.heading)
        for chart in self.charts:
            if chart.shape is Shape.BARS:
                found += [chart.title, *bar_lines(chart), ""]
        if rows.num_columns:
            found.append(render_text(self._marked(rows), _SHOWN))
        if self.note:
            found.append(self.note)
        return "\n".join(found)

    def _marked(self, rows: pa.Table) -> pa.Table:
        """The rows, with a column that names what changed, where rows are changes."""
        if not any(self.changed):
            return rows
        names = [", ".join(one) or None for one in self.changed]
        return rows.append_column("changed", pa.array(names, pa.string()))


@short_errors
@dataclass(frozen=True)
class Report:
    """What was asked for. `summary` is one line; `refresh` reads everything anew, where it is about
    something that goes on, and returns None once its session is closed; `seconds` is how often that
    is of use."""

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
        """The query that gives them; "" where none does."""
        return self.sections[0].sql if self.sections else ""

    def __str__(self) -> str:
        kept = [section for section in self.sections if not section.only_live]
        parts = [self.summary, *(section.text() for section in kept), *self.notes]
        return "\n\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return str(self)


def told_in_zone(report: Report, zone: Callable[[], str]) -> Report:
    """The report, and those that come of it, with instants in what `zone` gives at that moment."""
    now = zone()

    def anew() -> Report | None:
        assert report.refresh is not None
        found = report.refresh()
        return None if found is None else told_in_zone(found, zone)

    def asked(run: Callable[..., Report]) -> Callable[..., Report]:
        return lambda *given: told_in_zone(run(*given), zone)

    sections = tuple(
        replace(
            section,
            rows=in_zone(section.rows, now),
            actions=tuple(replace(one, run=asked(one.run)) for one in section.actions),
        )
        for section in report.sections
    )
    refresh = None if report.refresh is None else anew
    return replace(report, sections=sections, refresh=refresh)


def bar_lines(chart: Chart) -> list[str]:
    """A line of text for each bar."""
    most = max((bar.value for bar in chart.bars), default=0)
    if not most:
        return []
    width = max(len(bar.label) for bar in chart.bars)
    lines = []
    for bar in chart.bars:
        drawn = "█" * max(1 if bar.value else 0, round(_BAR * bar.value / most))
        lines.append(f"{bar.label:>{width}}  {drawn:<{_BAR}}  {bar.amount}".rstrip())
    return lines
