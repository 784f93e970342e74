"""A layout as a widget: a map of buckets to look at, to move through by keys, and to open.

The browser gets only the grid, and asks for the contents of a cell. The kernel answers from the
layout that it has read, which does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import traitlets

from paimon_magics.columnar.time_zones import clock_text
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.reports.layout import histogram_chart
from paimon_widgets.assets import script, style, with_widget
from paimon_widgets.charts import chart_svg
from paimon_widgets.layout_page import METRICS, PackedCells, layout_html, packed_cells
from paimon_widgets.running import AnsweringView

if TYPE_CHECKING:
    from paimon_magics.session.reports.layout import Layout

_LISTED_MAX = 100
_LABELS_MAX = 400
_QUESTIONS = ("cell", "files", "partition")
_FILE_TITLES = ("level", "rows", "size")
_BUCKET_TITLES = ("bucket", "rows", "size", "files", "small", "level 0", "sorted runs")


class LayoutView(AnsweringView):
    """The widget. `data` and `sql` are the layout's. `selected` is the partition and bucket that
    were opened last. `rows` and `columns` are the partitions' names and the buckets' numbers beside
    the map, if they are few enough to be legible."""

    _esm = script("layout")
    _css = style("layout")

    summary = traitlets.Unicode().tag(sync=True)
    sql = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int().tag(sync=True)
    height = traitlets.Int().tag(sync=True)
    is_matrix = traitlets.Bool().tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    columns = traitlets.List(traitlets.Int()).tag(sync=True)
    metrics = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    chart = traitlets.Unicode().tag(sync=True)
    values = traitlets.Bytes().tag(sync=True)
    selected = traitlets.Tuple(allow_none=True, default_value=None)

    def __init__(self, layout: Layout) -> None:
        packed = packed_cells(layout)
        self.layout_shown = layout
        self._cell_at = np.full(packed.width * packed.height, -1, dtype=np.int64)
        self._cell_at[packed.places] = np.arange(len(packed.places))
        self._places = packed.places
        rows, columns = _labels(layout, packed)
        super().__init__(
            summary="; ".join(filter(None, (layout.summary(), layout.skew()))),
            sql=layout.sql,
            width=packed.width,
            height=packed.height,
            is_matrix=packed.is_matrix,
            rows=rows,
            columns=columns,
            metrics=[
                [metric.title, metric.text(least), metric.text(most)]
                for metric, (least, most) in zip(METRICS, packed.ends, strict=True)
            ],
            chart=chart_svg(histogram_chart(layout.histogram, layout.name)),
            values=packed.values,
        )

    @property
    def data(self) -> pa.Table:
        """A row for each bucket."""
        return self.layout_shown.data

    def answer(self, question: Any) -> dict[str, Any] | None:
        """Answer a browser's question: {"ask": "cell" | "files" | "partition", "place": N}. None
        for an invalid question or a place without a cell."""
        if not isinstance(question, dict) or question.get("ask") not in _QUESTIONS:
            return None
        place = question.get("place")
        if not isinstance(place, int) or not 0 <= place < len(self._cell_at):
            return None
        index = int(self._cell_at[place])
        if index < 0:
            return {"place": place, "text": "no bucket"}
        cell = self.data.slice(index, 1).to_pylist()[0]
        answer = {"place": place, "text": _cell_text(cell)}
        if question["ask"] == "files":
            self.selected = cell["partition"], cell["bucket"]
            answer.update(self._files(cell))
        elif question["ask"] == "partition":
            answer.update(self._buckets(cell))
        return answer

    def _buckets(self, cell: dict[str, Any]) -> dict[str, Any]:
        """The buckets of a cell's partition, the largest first, with their places on the map."""
        is_there = pc.equal(self.data.column("partition"), cell["partition"])
        buckets = self.data.append_column("place", pa.array(self._places)).filter(is_there)
        order = [("file_size_in_bytes", "descending"), ("bucket", "ascending")]
        listed = buckets.sort_by(order).slice(0, _LISTED_MAX).to_pylist()
        title = f"Buckets of {cell['partition'] or 'the table'}"
        return {
            "title": title + _of_all(len(listed), buckets.num_rows),
            "titles": _BUCKET_TITLES,
            "places": [row["place"] for row in listed],
            "rows": [
                [
                    str(row["bucket"]),
                    f"{row['record_count']:,}",
                    size_text(row["file_size_in_bytes"]),
                    f"{row['file_count']:,}",
                    f"{row['small_file_count']:,}",
                    f"{row['level_0_file_count']:,}",
                    f"{row['sorted_run_count']:,}",
                ]
                for row in listed
            ],
        }

    def _files(self, cell: dict[str, Any]) -> dict[str, Any]:
        files = self.layout_shown.files_of(cell["partition"], cell["bucket"])
        listed = files.slice(0, _LISTED_MAX)
        title = f"Files of {_place(cell)}{_of_all(listed.num_rows, files.num_rows)}"
        rows = [
            [
                str(row["level"]),
                f"{row['record_count']:,}",
                size_text(row["file_size_in_bytes"]),
                clock_text(row["creation_time"].replace(microsecond=0)),
            ]
            for row in listed.to_pylist()
        ]
        zone = files.schema.field("creation_time").type.tz
        return {"title": title, "titles": [*_FILE_TITLES, f"created ({zone})"], "rows": rows}


def layout_bundle(layout: Layout, *, live: bool = True) -> dict[str, Any]:
    """Return what a notebook shows: text, a static page, and the widget if it is live."""
    bundle: dict[str, Any] = {"text/plain": str(layout), "text/html": layout_html(layout)}
    has_cells = layout.data.num_rows > 0
    return with_widget(bundle, LayoutView(layout)) if live and has_cells else bundle


def _labels(layout: Layout, packed: PackedCells) -> tuple[list[str], list[int]]:
    """The labels beside the rows and above the columns of a map."""
    if not packed.is_matrix:
        return [], []
    rows = layout.partitions().column("partition").to_pylist()
    columns = np.unique(np.asarray(layout.data.column("bucket"))).tolist()
    return (
        rows if len(rows) <= _LABELS_MAX and any(rows) else [],
        columns if len(columns) <= _LABELS_MAX else [],
    )


def _of_all(listed: int, count: int) -> str:
    return f", the largest {listed:,} of {count:,}" if listed < count else ""


def _place(cell: dict[str, Any]) -> str:
    bucket = f"bucket {cell['bucket']}"
    return f"{cell['partition']}, {bucket}" if cell["partition"] else bucket


def _cell_text(cell: dict[str, Any]) -> str:
    return (
        f"{_place(cell)}: {count_text(cell['record_count'], 'row')}, "
        f"{size_text(cell['file_size_in_bytes'])}, {count_text(cell['file_count'], 'file')}, "
        f"{cell['small_file_count']:,} small, {cell['level_0_file_count']:,} at level 0, "
        f"{count_text(cell['sorted_run_count'], 'sorted run')}"
    )
