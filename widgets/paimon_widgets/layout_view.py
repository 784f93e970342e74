"""A layout as a widget: a map of buckets to look at, to move through by keys, and to open.

The browser gets only the grid, and asks for the contents of a cell. The kernel answers from the
layout that it has read, which does not change.

The same as a static page is what nbconvert, GitHub and a notebook without a kernel show.
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
from paimon_widgets.running import AnsweringView

if TYPE_CHECKING:
    from paimon_magics.session.reports.layout import Layout


import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy.typing as npt

from paimon_magics.planning.formatting import age_text
from paimon_widgets.assets import amount, paragraph, table

if TYPE_CHECKING:
    import pyarrow as pa

    from paimon_magics.session.reports.layout import Layout

_Grid = npt.NDArray[np.uint8]

_DRAWN = (60, 160)  # the most rows and columns of a static picture
_ROWS_MAX = 20
_LABEL_MAX = 32
_TITLES = ("partition", "bucket", "size", "rows", "files", "small", "level 0", "sorted runs")


_SIDE_MAX = 2_000
_EMPTY_MAX = 4
_AREA_MAX = 1_000_000 // 8  # the grids of all metrics stay below 1 MB
_SPAN_MIN = 8.0
"""A scale spans at least this ratio, so that values that differ little look alike."""
_LEAST = 32  # the least byte of a positive number, visibly different from zero's
_ANCHORS = ((0, 32, 77), (64, 77, 107), (124, 123, 120), (188, 174, 108), (255, 234, 70))
"""Colors from little to much, distinct also with color vision deficiency and in gray."""


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
    labels, left = _page_labels(packed, layout, side) if rows == packed.height else ("", 0)
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
    """Draw the cells as squares, with one path for each color: a quarter of the text that one
    rectangle for each cell would need."""
    paths: dict[int, list[str]] = {}
    wide = side - 1
    for y, x in np.argwhere(drawn).tolist():
        square = f"M{left + x * side} {y * side}h{wide}v{wide}h-{wide}z"
        paths.setdefault(int(drawn[y, x]), []).append(square)
    return "".join(
        f'<path fill="{colour(value)}" d="{"".join(squares)}"/>'
        for value, squares in sorted(paths.items())
    )


def _page_labels(packed: PackedCells, layout: Layout, side: int) -> tuple[str, int]:
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
    shrunk: _Grid = np.maximum.reduceat(np.maximum.reduceat(grid, down, axis=0), across, axis=1)
    return shrunk


# A layout's cells, the buckets of its partitions, as a grid of bytes.
#
# The browser and the static page draw it. A grid has a row for each partition and a column for each
# bucket. If that would be mostly empty or far too long, the cells are laid out in lines instead, in
# the order of partition and bucket. A value is a byte on a logarithmic scale; 1 stands for zero, 0
# for no cell.


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric by which cells are colored: the layout's column, and its title."""

    column: str
    title: str

    def text(self, number: int) -> str:
        """A number of the metric in words."""
        match self.column:
            case "file_size_in_bytes":
                return size_text(number)
            case "age_seconds":
                return age_text(number)
            case _:
                return f"{number:,}"


METRICS = (
    Metric("file_size_in_bytes", "bytes"),
    Metric("record_count", "rows"),
    Metric("file_count", "files"),
    Metric("small_file_count", "small files"),
    Metric("level_0_file_count", "level-0 files"),
    Metric("sorted_run_count", "sorted runs"),
    Metric("age_seconds", "age since the newest"),
)


@dataclass(frozen=True, slots=True)
class PackedCells:
    """A grid of `height` rows and `width` columns.

    `places` has the place of each cell of the layout, in the layout's order; places are counted
    along rows. `values` has one grid for each of METRICS, `ends` the least and the largest number
    of each: the ends of its color scale.
    """

    width: int
    height: int
    is_matrix: bool
    places: npt.NDArray[np.int64]
    values: bytes
    ends: tuple[tuple[int, int], ...]

    @property
    def sent_bytes(self) -> int:
        """The number of bytes that are sent to a browser."""
        return len(self.values)

    def grid(self, metric: int) -> npt.NDArray[np.uint8]:
        """The grid of one metric, by row and column."""
        size = self.width * self.height
        flat = np.frombuffer(self.values, dtype=np.uint8, count=size, offset=metric * size)
        return flat.reshape(self.height, self.width)


def packed_cells(layout: Layout) -> PackedCells:
    """Return the grid of a layout."""
    data = layout.data
    if not data.num_rows:
        return PackedCells(0, 0, True, np.empty(0, np.int64), b"", ((0, 0),) * len(METRICS))
    codes = np.asarray(data.column("partition").combine_chunks().dictionary_encode().indices)
    buckets, columns = np.unique(np.asarray(data.column("bucket")), return_inverse=True)
    height, width = int(codes.max()) + 1, len(buckets)
    area_max = min(_EMPTY_MAX * len(codes), max(_AREA_MAX, len(codes)))
    is_matrix = height * width <= area_max and max(height, width) <= _SIDE_MAX
    if is_matrix:
        places = codes.astype(np.int64) * width + columns
    else:
        width = int(np.ceil(np.sqrt(len(codes))))
        height = -(-len(codes) // width)
        places = np.arange(len(codes))
    parts, ends = [], []
    for metric in METRICS:
        numbers = _numbers(data, metric)
        grid = np.zeros(width * height, dtype=np.uint8)
        grid[places] = _scaled(numbers)
        parts.append(grid.tobytes())
        ends.append((int(numbers.min()), int(numbers.max())))
    return PackedCells(width, height, is_matrix, places, b"".join(parts), tuple(ends))


def _scaled(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Scale numbers to bytes: 1 for zero, `_LEAST` to 255 by logarithm for positive numbers. The
    largest is 255; the least is `_LEAST` if it is `_SPAN_MIN` times smaller, and more otherwise."""
    scaled = np.ones(len(numbers), dtype=np.uint8)
    is_more = numbers > 0
    if is_more.any():
        logarithms = np.log(numbers[is_more])
        high = logarithms.max()
        low = min(logarithms.min(), high - np.log(_SPAN_MIN))
        share = (logarithms - low) / (high - low)
        scaled[is_more] = _LEAST + np.round((255 - _LEAST) * share)
    return scaled


def colour(value: int) -> str:
    """The color of a byte of the grid, as `#rrggbb`."""
    share = (value - 1) / 254 * (len(_ANCHORS) - 1)
    low = min(int(share), len(_ANCHORS) - 2)
    mixed = (
        round(a + (b - a) * (share - low))
        for a, b in zip(_ANCHORS[low], _ANCHORS[low + 1], strict=True)
    )
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _numbers(data: pa.Table, metric: Metric) -> npt.NDArray[np.float64]:
    if metric.column != "age_seconds":
        return np.asarray(data.column(metric.column)).astype(np.float64)
    times = np.asarray(data.column("last_update_time")).astype("datetime64[ms]").astype(np.int64)
    ages: npt.NDArray[np.float64] = (times.max() - times) / 1000
    return ages


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
