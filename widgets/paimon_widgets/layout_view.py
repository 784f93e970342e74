"""A layout as a widget: a map of buckets to look at, walk through by keys, and open.

The browser gets the grid alone; what is in a cell it asks for. Cell by cell the kernel answers from
the layout that it has, which stays as it was when it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from paimon_magics.planning.amounts import count_text, size_text
from paimon_widgets.assets import script, style, with_widget
from paimon_widgets.heat_map import METRICS, packed_cells
from paimon_widgets.layout_page import layout_html

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.session.layouts import Layout

__all__ = ["LayoutView", "layout_bundle"]

_FILES_MAX = 100


class LayoutView(anywidget.AnyWidget):
    """The widget. `data` and `sql` are the layout's; `selected` is the partition and bucket that
    were opened last."""

    _esm = script("layout")
    _css = style("layout")

    summary = traitlets.Unicode().tag(sync=True)
    sql = traitlets.Unicode().tag(sync=True)
    width = traitlets.Int().tag(sync=True)
    height = traitlets.Int().tag(sync=True)
    is_matrix = traitlets.Bool().tag(sync=True)
    metrics = traitlets.List(traitlets.Unicode()).tag(sync=True)
    values = traitlets.Bytes().tag(sync=True)
    selected = traitlets.Tuple(allow_none=True, default_value=None)

    def __init__(self, layout: Layout) -> None:
        packed = packed_cells(layout)
        self.layout_shown = layout
        self._cell_at = np.full(packed.width * packed.height, -1, dtype=np.int64)
        self._cell_at[packed.places] = np.arange(len(packed.places))
        super().__init__(
            summary=layout.summary(),
            sql=layout.sql,
            width=packed.width,
            height=packed.height,
            is_matrix=packed.is_matrix,
            metrics=[metric.title for metric in METRICS],
            values=packed.values,
        )
        self.on_msg(self._asked)

    @property
    def data(self) -> pa.Table:
        """A row for each bucket."""
        return self.layout_shown.data

    def answer(self, question: Any) -> dict[str, Any] | None:
        """What is answered to a browser: {"ask": "cell" | "files", "place": N}; None for what is no
        question or asks for no cell."""
        if not isinstance(question, dict) or question.get("ask") not in ("cell", "files"):
            return None
        place = question.get("place")
        if not isinstance(place, int) or not 0 <= place < len(self._cell_at):
            return None
        index = int(self._cell_at[place])
        if index < 0:
            return {"place": place, "text": "no bucket"}
        cell = self.data.slice(index, 1).to_pylist()[0]
        found = {"place": place, "text": _told(cell)}
        if question["ask"] == "files":
            self.selected = cell["partition"], cell["bucket"]
            found["title"] = f"Files of {_place(cell)}"
            found["files"] = self._files(cell)
        return found

    def _files(self, cell: dict[str, Any]) -> list[list[str]]:
        files = self.layout_shown.files_of(cell["partition"], cell["bucket"])
        return [
            [
                str(row["level"]),
                f"{row['record_count']:,}",
                size_text(row["file_size_in_bytes"]),
                str(row["creation_time"].replace(microsecond=0)),
            ]
            for row in files.slice(0, _FILES_MAX).to_pylist()
        ]

    def _asked(self, _: Any, question: Any, __: Any) -> None:
        answer = self.answer(question)
        if answer is not None:
            self.send(answer)


def layout_bundle(layout: Layout, *, live: bool = True) -> dict[str, Any]:
    """What a notebook shows of a layout: text, a static page, and the widget where it is live."""
    bundle: dict[str, Any] = {"text/plain": str(layout), "text/html": layout_html(layout)}
    has_cells = layout.data.num_rows > 0
    return with_widget(bundle, LayoutView(layout)) if live and has_cells else bundle


def _place(cell: dict[str, Any]) -> str:
    bucket = f"bucket {cell['bucket']}"
    return f"{cell['partition']}, {bucket}" if cell["partition"] else bucket


def _told(cell: dict[str, Any]) -> str:
    return (
        f"{_place(cell)}: {count_text(cell['record_count'], 'row')}, "
        f"{size_text(cell['file_size_in_bytes'])}, {count_text(cell['file_count'], 'file')}, "
        f"{cell['small_file_count']:,} small, {cell['level_0_file_count']:,} at level 0, "
        f"{count_text(cell['sorted_run_count'], 'sorted run')}"
    )
