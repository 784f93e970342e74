"""A report, or the rows of an Outcome, as a widget: tables to page through, sort, filter and copy.

The browser has one page of rows of each table, and asks the kernel for more. The kernel answers
from the rows that it has, or by one Spark job for the rows of a query.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import traitlets

from paimon_magics.columnar.time_zones import zones_of
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.row_filters import Condition, Kind, Order, RowFilter
from paimon_magics.session.rendering import (
    cut_text,
    is_number,
    shown_value,
    shown_values,
    type_text,
    zones_text,
)
from paimon_magics.session.reports.paging import ArrowRows, Page, QueryRows, Rows, rows_of
from paimon_magics.session.reports.report import Action, Report, Section
from paimon_widgets.assets import Cell, code, paragraph, script, style, table, with_widget
from paimon_widgets.charts import chart_svg
from paimon_widgets.running import AnsweringView

if TYPE_CHECKING:
    from paimon_magics.session.outcome import Outcome
    from paimon_magics.session.streams import Stream


_PAGE_ROWS = 20
_PAGE_ROWS_MAX = 100
_CELL_MAX = 200
_WHOLE_MAX = 100_000
_CHANGED = "\0changed"
_STOPPED = "Stopped: these are the rows from before."


_ROWS_MAX = 20


@dataclass
class _Sheet:
    """One table in its current state: rows, page, order and conditions."""

    rows: Rows
    names: tuple[str, ...]
    size: int
    page: Page
    row_filter: RowFilter
    actions: tuple[Action, ...] = ()


class ReportView(AnsweringView):
    """The widget. `data` and `sql` are those of the first table: the rows of the page that is
    shown, and the table's query with the chosen order and conditions."""

    _esm = script("report")
    _css = style("report")

    report = traitlets.Dict().tag(sync=True)
    seconds = traitlets.Float(0.0).tag(sync=True)

    def __init__(self, shown: Report | Outcome) -> None:
        self._sheets: list[_Sheet] = []
        self._refresh: Callable[[], Report | None] | None = None
        seconds = 0.0
        if isinstance(shown, Report):
            self._refresh = shown.refresh
            seconds = shown.seconds if shown.refresh is not None else 0.0
            document = self._report(shown)
        else:
            document = self._outcome(shown)
        super().__init__(report=document, seconds=seconds)

    @property
    def data(self) -> pa.Table:
        """The rows of the page that the first table shows."""
        return self._sheets[0].page.rows if self._sheets else pa.table({})

    @property
    def sql(self) -> str:
        """The query that gives the first table as it is shown."""
        return self._sheets[0].rows.sql(self._sheets[0].row_filter) if self._sheets else ""

    def answer(self, question: Any) -> dict[str, Any] | None:
        """Answer a browser's question: {"ask": "page" | "cell" | "act" | "refresh" | "stop", …}.
        None for an invalid question, and for one that has no answer of its own. Errors are answers
        too: {"problem": …}."""
        try:
            if question["ask"] == "stop":
                self._running.stop()
                return None
            understood = self._understood(question)
        except (KeyError, TypeError, ValueError, IndexError):
            return None  # our own page asks no such question
        if understood is None:
            return None
        sheet = question.get("sheet", -1)
        answer = self._running.run(understood, {"sheet": sheet}, _STOPPED, _in_a_line)
        return {"of": question["ask"], "sheet": sheet, **answer}

    def _understood(self, question: Any) -> Callable[[], dict[str, Any]] | None:
        """Return the function that finds the answer, None if there is nothing to answer. Raises
        KeyError, TypeError, ValueError or IndexError for an invalid question."""
        if question["ask"] == "refresh" and self._refresh is not None:
            return self._anew
        number = question["sheet"]
        if not isinstance(number, int) or not 0 <= number < len(self._sheets):
            return None
        sheet = self._sheets[number]
        match question["ask"]:
            case "page":
                row_filter, offset = _row_filter(question)
                return lambda: _turned(sheet, row_filter, offset)
            case "cell":
                text = _whole(sheet, question)
                return lambda: {"text": text}
            case "act":
                action, rows = _picked(sheet, question)
                return lambda: {"report": self._report(action.run(rows))}
        return None

    def _anew(self) -> dict[str, Any]:
        assert self._refresh is not None
        refresh = self._refresh()
        if refresh is None:
            return {"over": True}
        self._sheets.clear()
        return {"report": self._report(refresh)}

    def _may_run_jobs(self, question: Any) -> bool:
        if not isinstance(question, dict) or question.get("ask") not in ("page", "act"):
            return False
        sheets = dict(enumerate(self._sheets))
        sheet = sheets.get(question.get("sheet", -1))
        return question["ask"] == "act" or (sheet is not None and isinstance(sheet.rows, QueryRows))

    def _report(self, report: Report) -> dict[str, Any]:
        return {
            "summary": report.summary,
            "notes": list(report.notes),
            "sheets": [self._section(section) for section in report.sections],
        }

    def _section(self, section: Section) -> dict[str, Any]:
        # Hidden columns come last.
        names = tuple(name for name in section.rows.column_names if name not in section.hidden)
        rows = section.rows.select([*names, *section.hidden])
        if any(section.changed):
            rows = rows.append_column(_CHANGED, pa.array(section.changed, pa.list_(pa.string())))
        return self._sheet(
            ArrowRows(rows, section.query, section.in_query),
            names,
            _PAGE_ROWS,
            section.actions,
            heading=section.heading,
            note=section.note,
            charts=[chart_svg(chart) for chart in section.charts],
        )

    def _outcome(self, outcome: Outcome) -> dict[str, Any]:
        size = min(max(outcome.display_rows, 1), _PAGE_ROWS_MAX)
        rows = rows_of(outcome)
        sheet = self._sheet(rows, tuple(outcome.page().column_names), size)
        return {"summary": "", "notes": list(outcome.notes), "sheets": [sheet]}

    def _sheet(
        self,
        rows: Rows,
        names: tuple[str, ...],
        size: int,
        actions: tuple[Action, ...] = (),
        *,
        heading: str = "",
        note: str = "",
        charts: Sequence[str] = (),
    ) -> dict[str, Any]:
        row_filter = RowFilter()
        sheet = _Sheet(rows, names, size, rows.page(row_filter, 0, size), row_filter, actions)
        self._sheets.append(sheet)
        kinds = rows.kinds
        return {
            "id": len(self._sheets) - 1,
            "heading": heading,
            "note": note,
            "charts": list(charts),
            "sql": rows.sql(row_filter),
            "size": size,
            "columns": [
                {
                    "name": field.name,
                    "type": _type_line(field),
                    "right": kinds[field.name].kind.is_number,
                    "sortable": kinds[field.name].kind is not Kind.OTHER,
                    "operators": list(kinds[field.name].kind.operators),
                }
                for field in _shown(sheet).schema
            ],
            "actions": [{"label": action.label, "picks": action.picks} for action in actions],
            "page": _page(sheet),
        }


def report_bundle(report: Report, *, live: bool = True) -> dict[str, Any]:
    """Return what a notebook shows of a report: text, a static page, and the widget if live."""
    bundle: dict[str, Any] = {"text/plain": str(report), "text/html": report_html(report)}
    return with_widget(bundle, ReportView(report)) if live else bundle


def outcome_bundle(outcome: Outcome, *, live: bool = True) -> dict[str, Any]:
    """The same for an Outcome; an Outcome without rows has no widget."""
    bundle: dict[str, Any] = {"text/plain": str(outcome), "text/html": outcome._repr_html_()}
    if not live or not outcome.shows_rows or not outcome.page().num_columns:
        return bundle
    return with_widget(bundle, ReportView(outcome))


def stream_bundle(stream: Stream, *, live: bool = True) -> dict[str, Any]:
    """The same for a stream: its report, and as text the one line that it is without a notebook."""
    return report_bundle(stream.report(), live=live) | {"text/plain": repr(stream)}


def _in_a_line(error: PaimonMagicsError) -> str:
    return f"{error.message} {error.hint}".strip()


def _shown(sheet: _Sheet) -> pa.Table:
    # By position: the columns of a query may share a name.
    return pa.Table.from_arrays(
        sheet.page.rows.columns[: len(sheet.names)],
        schema=pa.schema(list(sheet.page.rows.schema)[: len(sheet.names)]),
    )


def _page(sheet: _Sheet) -> dict[str, Any]:
    shown = _shown(sheet)
    texts = [
        [None if value is None else _cut(shown_value(value)) for value in shown_values(column)]
        for column in shown.columns
    ]
    page = sheet.page
    changed = []
    if _CHANGED in page.rows.column_names:
        places = {name: place for place, name in enumerate(sheet.names)}
        changed = [
            [places[n] for n in columns] for columns in page.rows.column(_CHANGED).to_pylist()
        ]
    return {
        "rows": [list(row) for row in zip(*texts, strict=True)],
        "offset": page.offset,
        "follow": page.follow,
        "total": page.total,
        "changed": changed,
    }


def _row_filter(question: dict[str, Any]) -> tuple[RowFilter, int]:
    row_filter = RowFilter(
        tuple(Order(str(item["column"]), bool(item["descending"])) for item in question["orders"]),
        tuple(
            Condition(str(item["column"]), str(item["operator"]), str(item["text"]))
            for item in question["conditions"]
        ),
    )
    offset = question["offset"]
    if not isinstance(offset, int) or offset < 0:
        raise ValueError(offset)
    return row_filter, offset


def _turned(sheet: _Sheet, row_filter: RowFilter, offset: int) -> dict[str, Any]:
    """Turn to another page; on an error the sheet stays unchanged."""
    page = sheet.rows.page(row_filter, offset, sheet.size)
    sheet.row_filter, sheet.page = row_filter, page
    return {"page": _page(sheet), "sql": sheet.rows.sql(row_filter)}


def _whole(sheet: _Sheet, question: dict[str, Any]) -> str:
    row, column = int(question["row"]), int(question["column"])
    if row < 0 or column < 0:
        raise IndexError(row)
    (value,) = shown_values(_shown(sheet).column(column).slice(row, 1))
    text = shown_value(value)
    return text if len(text) <= _WHOLE_MAX else text[:_WHOLE_MAX] + "…"


def _picked(sheet: _Sheet, question: dict[str, Any]) -> tuple[Action, list[dict[str, object]]]:
    action = sheet.actions[int(question["action"])]
    places = [int(place) for place in question["rows"]]
    if len(places) != action.picks or min(places, default=0) < 0:
        raise ValueError(places)
    rows = _shown(sheet).to_pylist()
    return action, [rows[place] for place in places]


def _type_line(field: pa.Field) -> str:
    """A column's type, with the zone in which its instants are shown."""
    zones = ", ".join(zones_of(pa.schema([field])))
    return f"{type_text(field.type)} in {zones}" if zones else type_text(field.type)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"


# A report as a static page: what nbconvert, GitHub and a notebook without a kernel show.


def report_html(report: Report) -> str:
    """Return the page."""
    sections = [section for section in report.sections if not section.only_live]
    parts = [paragraph(report.summary), *map(_section, sections), *map(_note, report.notes)]
    return f'<div class="paimon-report">{"".join(parts)}</div>'


def _note(note: str) -> str:
    """A sentence, with the statement that would help below it."""
    sentence, _, statement = note.partition("\n")
    return paragraph(sentence) + (code(statement.strip()) if statement else "")


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
        remarks = [f"{left_out:,} more rows"] if left_out > 0 else []
        remarks += zones_text(shown.schema)
        if remarks:
            parts.append(paragraph("; ".join(remarks)))
    if section.note:
        parts.append(paragraph(section.note))
    return "".join(parts)
