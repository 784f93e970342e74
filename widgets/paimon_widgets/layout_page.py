"""A layout as a static page: what nbconvert, GitHub and a notebook without a kernel show."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paimon_magics.planning.formatting import size_text
from paimon_magics.session.reports.layout import histogram_chart
from paimon_widgets.charts import chart_svg
from paimon_widgets.heat_map import PackedCells, colour, packed_cells
from paimon_widgets.static_pages import amount, paragraph, table

if TYPE_CHECKING:
    from paimon_magics.session.reports.layout import Layout

__all__ = ["layout_html"]

_Grid = npt.NDArray[np.uint8]

_DRAWN = (60, 160)  # the most rows and columns of a static picture
_ROWS_MAX = 20
_LABEL_MAX = 32
_TITLES = ("partition", "bucket", "size", "rows", "files", "small", "level 0", "sorted runs")


def layout_html(layout: Layout) -> str:
    """Return the page: a summary, the map of buckets, the sizes of files, the largest buckets."""
    if not layout.data.num_rows:
        return paragraph(layout.summary())
    largest = [
        (
            row["partition"],
            row["bucket"],
            amount(size_text(row["file_size_in_bytes"])),
            row["record_count"],
            row["file_count"],
            row["small_file_count"],
            row["level_0_file_count"],
            row["sorted_run_count"],
        )
        for row in layout.largest(_ROWS_MAX).to_pylist()
    ]
    first = 0 if layout.has_partitions else 1
    left_out = layout.data.num_rows - len(largest)
    parts = [
        paragraph(layout.summary()),
        *([paragraph(layout.skew())] if layout.skew() else []),
        _map_svg(packed_cells(layout), layout),
        chart_svg(histogram_chart(layout.histogram, layout.name)),
        table(
            _TITLES[first:],
            [row[first:] for row in largest],
            "Buckets, those with the most bytes first",
        ),
    ]
    if left_out:
        parts.append(paragraph(f"{left_out:,} more buckets with fewer bytes"))
    return f'<div class="paimon-layout">{"".join(parts)}</div>'


def _map_svg(packed: PackedCells, layout: Layout) -> str:
    grid = packed.grid(0)
    rows = min(grid.shape[0], _DRAWN[0])
    columns = min(grid.shape[1], _DRAWN[1])
    drawn = _shrunk(grid, rows, columns)
    side = max(4, min(16, 640 // columns))
    labels, left = _labels(packed, layout, side) if rows == packed.height else ("", 0)
    squares = _squares(drawn, left, side)
    what = "a row for each partition, a column for each bucket" if packed.is_matrix else "in order"
    title = html.escape(f"Bytes of each bucket of {layout.name}: {what}; yellow has most")
    width, height = left + columns * side, rows * side
    return (
        f'<p>{title}</p><svg role="img" aria-label="{title}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="11" fill="currentColor">'
        f"{labels}{squares}</svg>"
    )


def _squares(drawn: _Grid, left: int, side: int) -> str:
    """Draw the cells as squares, with one path for each colour: a quarter of the text that one
    rectangle for each cell would need."""
    found: dict[int, list[str]] = {}
    wide = side - 1
    for y, x in np.argwhere(drawn).tolist():
        square = f"M{left + x * side} {y * side}h{wide}v{wide}h-{wide}z"
        found.setdefault(int(drawn[y, x]), []).append(square)
    return "".join(
        f'<path fill="{colour(value)}" d="{"".join(squares)}"/>'
        for value, squares in sorted(found.items())
    )


def _labels(packed: PackedCells, layout: Layout, side: int) -> tuple[str, int]:
    """Return the partitions' names beside their rows, and their width; "" and 0 if they would not
    fit, or if there are none."""
    names = layout.partitions().column("partition").to_pylist()
    if not packed.is_matrix or side < 11 or not any(names):
        return "", 0
    cut = [name if len(name) <= _LABEL_MAX else name[: _LABEL_MAX - 1] + "…" for name in names]
    left = 7 * max(map(len, cut)) + 8
    texts = (
        f'<text x="{left - 6}" y="{bottom * side - 4}" text-anchor="end">{html.escape(name)}</text>'
        for bottom, name in enumerate(cut, 1)
    )
    return "".join(texts), left


def _shrunk(grid: _Grid, rows: int, columns: int) -> _Grid:
    """Reduce a grid to fewer rows and columns; each new cell has the maximum of its old cells."""
    down = np.linspace(0, grid.shape[0], rows + 1).astype(int)[:-1]
    across = np.linspace(0, grid.shape[1], columns + 1).astype(int)[:-1]
    found: _Grid = np.maximum.reduceat(np.maximum.reduceat(grid, down, axis=0), across, axis=1)
    return found
