"""The health of tables as a widget. For a chosen table and partition it shows the sizes of files
and the findings. It also shows the statement that would help, with a button that runs it.

The browser gets only what it lists, at most a hundred tables or partitions; others are found by
part of their name. The kernel answers from the layouts that it has read; after a statement has run,
it reads the layout of its table anew.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import traitlets

from paimon_magics.columnar.layouts import partition_sizes
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reports.health import Finding, Severity, worst
from paimon_magics.session.reports.health import (
    rules_text,
    sizes_chart,
    sizes_of,
    sizes_sql,
    worst_partitions,
)
from paimon_widgets.assets import amount, code, paragraph, script, style, table, with_widget
from paimon_widgets.charts import chart_svg
from paimon_widgets.running import AnsweringView

if TYPE_CHECKING:
    from paimon_magics.session.reports.health import Health
    from paimon_magics.session.reports.layout import Layout


_LISTED_MAX = 100
_STOPPED = (
    "Stopped. The statement left nothing behind unless it was committed already; "
    "%paimon history TABLE shows the commits."
)


MARKS = {Severity.GOOD: "✓", Severity.NOTICE: "!", Severity.SERIOUS: "‼"}


class HealthView(AnsweringView):
    """The widget. `data` has the partitions of the chosen table, `sql` is the query that gives
    them. `selected` is the chosen table's name and the chosen partition, "" for all."""

    _esm = script("health")
    _css = style("health")

    first = traitlets.Dict().tag(sync=True)
    selected = traitlets.Tuple(("", ""))

    def __init__(self, health: Health) -> None:
        self._turn = 0
        self._starting = threading.Lock()
        self._show(health)
        self._place = self._order[0]
        super().__init__(first=self._state())

    def _state(self) -> dict[str, Any]:
        """What a page begins with, also one that is loaded after a statement has run."""
        return {
            "tables": self._tables(""),
            "table": self._table(self._place),
            "turn": self._turn,
            "runs": self.health_shown.helper is not None,
        }

    def _show(self, health: Health) -> None:
        self.health_shown = health
        layouts = health.layouts
        self._severities = [worst(layout.findings()) for layout in layouts]
        self._order = sorted(
            range(len(layouts)),
            key=lambda place: (-self._severities[place], -layouts[place].small_share, place),
        )

    def _chosen(self) -> Layout:
        return self.health_shown.layouts[self._place]

    @property
    def data(self) -> pa.Table:
        """The sums of each partition of the chosen table."""
        return sizes_of(self._chosen())

    @property
    def sql(self) -> str:
        """The query that gives them."""
        return sizes_sql(self._chosen())

    def answer(self, question: Any) -> dict[str, Any] | None:
        """Answer a browser's question: {"ask": "tables" | "partitions", "find": TEXT}, or
        {"ask": "table", "table": N}, {"ask": "partition", "partition": NAME}, {"ask": "run",
        "statement": TEXT, "turn": N}, {"ask": "stop"}. None for an invalid question, and for one
        that has no answer of its own."""
        if not isinstance(question, dict):
            return None
        find = question.get("find", "")
        match question.get("ask"):
            case "tables" if isinstance(find, str):
                return {"of": "tables", **self._tables(find)}
            case "partitions" if isinstance(find, str):
                return {"of": "partitions", **_partitions(self._chosen(), find)}
            case "table":
                place = question.get("table")
                if isinstance(place, int) and 0 <= place < len(self._severities):
                    return {"of": "table", **self._table(place)}
            case "partition":
                return self._partition(question.get("partition"))
            case "run":
                return self._run(question.get("statement"), question.get("turn"))
            case "stop":
                self._running.stop()
        return None

    def _run(self, statement: Any, turn: Any) -> dict[str, Any] | None:
        """Run a statement that is offered for the chosen table. Each answer begins a new turn, so
        that a second click runs nothing."""
        helper = self.health_shown.helper
        name, partition = self.selected
        offered = {finding.statement for finding in self._findings(partition)} - {""}
        with self._starting:
            if helper is None or turn != self._turn or statement not in offered:
                return None
            self._turn += 1
            place = self._place

        def work() -> dict[str, Any]:
            outcome = str(helper.run(statement))
            self._replace(place, helper.look(name))
            return {"outcome": outcome}

        answer = {"of": "ran", **self._running.run(work, {}, _STOPPED)}
        # What is chosen now, which may be another table than that of the statement.
        _, partition = self.selected
        self.first = self._state()
        return {**answer, **self.first, "part": self._partition(partition)}

    def _replace(self, place: int, layout: Layout) -> None:
        layouts = list(self.health_shown.layouts)
        layouts[place] = layout
        self._show(replace(self.health_shown, layouts=tuple(layouts)))

    def _findings(self, partition: str) -> tuple[Finding, ...]:
        layout = self._chosen()
        return (layout.of_partition(partition) if partition else layout).findings(partition)

    def _tables(self, find: str) -> dict[str, Any]:
        layouts = self.health_shown.layouts
        places = [place for place in self._order if find.lower() in layouts[place].name.lower()]
        rows = [
            {
                "place": place,
                "mark": MARKS[self._severities[place]],
                "word": self._severities[place].word,
                "name": layouts[place].name,
                "files": layouts[place].figures.files,
                "small": layouts[place].figures.small_files,
            }
            for place in places[:_LISTED_MAX]
        ]
        return {"rows": rows, "count": len(places)}

    def _table(self, place: int) -> dict[str, Any]:
        self._place = place
        layout = self._chosen()
        self.selected = layout.name, ""
        return {
            "place": place,
            "summary": layout.summary(),
            "rules": rules_text(layout) if layout.figures.files else "",
            "findings": _finding_rows(layout.findings()),
            "chart": chart_svg(sizes_chart(layout)),
            "sql": self.sql,
            "partitions": _partitions(layout, "") if layout.has_partitions else None,
        }

    def _partition(self, name: Any) -> dict[str, Any] | None:
        layout = self._chosen()
        if not isinstance(name, str):
            return None
        part = layout.of_partition(name) if name else layout
        if name and not part.data.num_rows:
            return None
        self.selected = layout.name, name
        titles = (f"Sizes of the files of {name}",) if name else ()
        return {
            "of": "partition",
            "partition": name,
            "findings": _finding_rows(self._findings(name)),
            "chart": chart_svg(sizes_chart(part, *titles)),
        }

    def _may_run_jobs(self, question: Any) -> bool:
        return isinstance(question, dict) and question.get("ask") == "run"


def health_bundle(health: Health, *, live: bool = True) -> dict[str, Any]:
    """Return what a notebook shows: text, a static page, and the widget if it is live."""
    bundle: dict[str, Any] = {"text/plain": str(health), "text/html": health_html(health)}
    if not live or not health.layouts:
        return bundle
    return with_widget(bundle, HealthView(health))


def _finding_rows(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {
            "mark": MARKS[finding.severity],
            "word": finding.severity.word,
            "text": finding.text,
            "statement": finding.statement,
        }
        for finding in findings
    ]


def _partitions(layout: Layout, find: str) -> dict[str, Any]:
    """The partitions whose names contain `find`, those that need attention first, with the number
    of files of each in each step of sizes. `small` marks the steps in which all files are small."""
    partitions = sizes_of(layout)
    if find:
        partitions = partitions.filter(
            pc.match_substring(partitions.column("partition"), find, ignore_case=True)
        )
    listed = partitions.slice(0, _LISTED_MAX)
    names = listed.column("partition")
    files = layout.files.filter(pc.is_in(layout.files.column("partition"), names.combine_chunks()))
    counts = partition_sizes(files, layout.rules.target_bytes)
    rows = [
        {
            "name": row["partition"],
            "files": row["file_count"],
            "small": row["small_file_count"],
            "about": _about(layout, row),
            "sizes": counts[row["partition"]],
        }
        for row in listed.to_pylist()
    ]
    edges = (*layout.histogram.edges_bytes[1:], None)
    small = [edge is not None and edge <= layout.rules.small_below_bytes for edge in edges]
    return {"rows": rows, "count": partitions.num_rows, "small": small}


def _about(layout: Layout, row: dict[str, Any]) -> str:
    text = (
        f"{count_text(row['file_count'], 'file')}, {row['small_file_count']:,} small "
        f"({row['small_share']:.0%})"
    )
    if layout.rules.is_primary_key_table:
        return f"{text}, up to {count_text(row['sorted_run_count'], 'sorted run')} in a bucket"
    return text


# The health of tables as a static page: findings in words, the statement that would help, and the
# distribution of file sizes.


def health_html(health: Health) -> str:
    """Return the page, with a part for each table."""
    if not health.layouts:
        return paragraph("There are no tables.")
    parts = []
    for layout, finding in zip(health.layouts, health.findings.values(), strict=True):
        rules = paragraph(rules_text(layout)) if layout.figures.files else ""
        parts.append(
            f"{paragraph(layout.summary())}{_list(finding)}{rules}"
            f"{chart_svg(sizes_chart(layout))}{_worst_partitions(layout)}"
        )
    return f'<div class="paimon-health">{"".join(parts)}</div>'


def _list(findings: Sequence[Finding]) -> str:
    lines = [
        f"<li>{MARKS[finding.severity]} <b>{finding.severity.word}</b>: {html.escape(finding.text)}"
        + (code(finding.statement) if finding.statement else "")
        + "</li>"
        for finding in findings
    ]
    return f"<ul>{''.join(lines)}</ul>"


def _worst_partitions(layout: Layout) -> str:
    """The partitions that need most attention, with the number of their files of each size."""
    partitions = worst_partitions(layout)
    if not partitions.num_rows:
        return ""
    rows = [
        [amount(value) if name == "share" else value for name, value in row.items()]
        for row in partitions.to_pylist()
    ]
    return table(
        partitions.column_names, rows, "Partitions with small files, and sizes of their files"
    )
