"""A layout as text, as a static page and as a widget, all of the same figures."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

from paimon_magics.columnar.layouts import CELLS
from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import Layout
from paimon_widgets.layout_view import (
    METRICS,
    LayoutView,
    colour,
    layout_bundle,
    layout_html,
    packed_cells,
)
from tests.widgets.pages import Reader

WIDGET = "application/vnd.jupyter.widget-view+json"


def cells_of(rows: list[tuple[str, int]]) -> pa.Table:
    """Cells that have a row for each byte that they have, and that is their bucket and one more."""
    columns = {
        "partition": [p for p, _ in rows],
        "bucket": [b for _, b in rows],
        **{name: [b + 1 for _, b in rows] for name in CELLS.names[2:8]},
        "last_update_time": [0] * len(rows),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in CELLS], CELLS)


def test_text_lists_table_snapshot_totals_and_largest_buckets(layout: Layout) -> None:
    text = str(layout)
    assert text.startswith(
        "default.t, snapshot 8: 3 partitions, 12 buckets, 40 files, 200 stored rows, "
    )
    assert "day=2026-11-20       0" in text
    assert "12 rows" not in text
    assert "2 more buckets with fewer bytes" in text
    assert str(layout) == text


def test_picture_has_row_per_partition_and_column_per_bucket(
    layout: Layout,
) -> None:
    packed = packed_cells(layout)
    assert (packed.height, packed.width, packed.is_matrix) == (3, 4, True)
    files = packed.grid([metric.column for metric in METRICS].index("file_count"))
    assert (files[1] == 255).all(), "the day that was written to eight times has most"
    assert (files[[0, 2]] < 255).all()
    assert (files > 0).all()


def test_similar_values_get_similar_colours(layout: Layout) -> None:
    data = cells_of([("", bucket) for bucket in range(3)])
    sizes = pa.array([10_000, 10_100, 10_400], pa.int64())
    place = data.schema.get_field_index("file_size_in_bytes")
    even = packed_cells(
        dataclasses.replace(layout, data=data.set_column(place, "file_size_in_bytes", sizes))
    )
    assert (even.grid(0) > 245).all()


@pytest.mark.parametrize("count", [1, 7, 5_000])
def test_long_or_sparse_grids_are_packed_in_partition_and_bucket_order(
    layout: Layout, count: int
) -> None:
    data = cells_of([(f"p={n:05}", n) for n in range(count)])
    packed = packed_cells(dataclasses.replace(layout, data=data))
    assert packed.width * packed.height < 4 * count + 4
    assert len(set(packed.places.tolist())) == count
    grid = packed.grid(0).reshape(-1)[packed.places]
    assert (np.diff(grid.astype(int)) >= 0).all(), "in the order of partition and bucket"
    assert (packed.grid(0) > 0).sum() == count


def test_hundred_thousand_buckets_take_less_than_a_megabyte(layout: Layout) -> None:
    for partitions, buckets in ((1000, 100), (100_000, 1), (1, 100_000)):
        rows = [(f"p={p:06}", b) for p in range(partitions) for b in range(buckets)]
        many = dataclasses.replace(layout, data=cells_of(rows))
        bundle = json.dumps({"text": str(many), "page": layout_html(many)})
        assert packed_cells(many).sent_bytes + len(bundle) < 1_000_000


def test_colours_go_from_dark_to_light(layout: Layout) -> None:
    brightness = [sum(bytes.fromhex(colour(value)[1:])) for value in range(1, 256)]
    assert brightness == sorted(brightness)


def test_page_is_static_self_contained_and_escaped(layout: Layout) -> None:
    page = layout_html(layout)
    read = Reader(page)
    assert not {"script", "link", "img", "iframe", "b"} & set(read.tags)
    assert "http" not in page
    assert read.tags.count("svg") == 2
    assert page.count("M") >= 12 and page.count("z") >= 12, "a square for each bucket"
    assert "day=<b>&" in read.text
    assert page == layout_html(layout)


def test_a_bundle_has_text_page_and_widget(layout: Layout) -> None:
    bundle = layout_bundle(layout)
    assert bundle["text/plain"] == str(layout)
    assert bundle["text/html"] == layout_html(layout)
    assert bundle[WIDGET]["model_id"]
    json.dumps(bundle)


def test_widget_describes_cell_and_lists_its_files(layout: Layout) -> None:
    view = LayoutView(layout)
    assert view.data is layout.data
    assert view.sql.endswith(
        "FROM default.t$files) GROUP BY partition, bucket ORDER BY partition, bucket"
    )
    told = view.answer({"ask": "cell", "place": 4})
    assert told is not None
    assert told["text"].startswith("day=2026-11-20, bucket 0: ")
    assert "8 files, 8 small, 8 at level 0, 8 sorted runs" in told["text"]
    assert "rows" not in told
    assert view.selected is None
    opened = view.answer({"ask": "files", "place": 4})
    assert opened is not None
    assert opened["title"] == "Files of day=2026-11-20, bucket 0"
    assert len(opened["rows"]) == 8
    assert {len(row) for row in opened["rows"]} == {len(opened["titles"])}
    assert view.selected == ("day=2026-11-20", 0)


def test_widget_lists_buckets_of_partition_with_their_places(layout: Layout) -> None:
    view = LayoutView(layout)
    opened = view.answer({"ask": "partition", "place": 6})
    assert opened is not None
    assert opened["title"] == "Buckets of day=2026-11-20"
    assert [row[3:5] for row in opened["rows"]] == [["8", "8"]] * 4
    for row, place in zip(opened["rows"], opened["places"], strict=True):
        again = view.answer({"ask": "cell", "place": place})
        assert again is not None and f"day=2026-11-20, bucket {row[0]}: " in again["text"]
    json.dumps(opened)


def test_long_bucket_list_is_cut_to_a_page_with_a_note_in_its_title(layout: Layout) -> None:
    data = cells_of([("p=1", bucket) for bucket in range(150)])
    opened = LayoutView(dataclasses.replace(layout, data=data)).answer(
        {"ask": "partition", "place": 0}
    )
    assert opened is not None
    assert opened["title"] == "Buckets of p=1, the largest 100 of 150"
    assert [row[0] for row in opened["rows"][:2]] == ["149", "148"]


def test_map_has_axis_names_and_scale_bounds(layout: Layout) -> None:
    view = LayoutView(layout)
    assert view.rows == [f"day={day}" for day in ("2026-11-19", "2026-11-20", "<b>&")]
    assert view.columns == [0, 1, 2, 3]
    ends = {title: (least, most) for title, least, most in view.metrics}
    assert ends["files"] == ("1", "8")
    assert ends["bytes"][1].endswith("KiB") and ends["age since the newest"][0] == "0 s"
    assert "svg" in view.chart
    many = cells_of([(f"p={n:04}", b) for n in range(1000) for b in range(100)])
    assert LayoutView(dataclasses.replace(layout, data=many)).rows == []


def test_text_and_page_report_bucket_skew(layout: Layout) -> None:
    skewed = dataclasses.replace(
        layout,
        figures=dataclasses.replace(
            layout.figures, skewed_partition="day=x", bytes_max=3000, bytes_median=1000
        ),
    )
    said = "skew: the largest bucket of day=x has 2.9 KiB, 3.0 × the median one"
    assert said in str(skewed)
    assert said in layout_html(skewed)
    assert said in LayoutView(skewed).summary
    lone = dataclasses.replace(layout, figures=dataclasses.replace(layout.figures, cells=3))
    assert "skew" not in str(lone)


@pytest.mark.parametrize(
    "question",
    [None, "cell", {}, {"ask": "rows", "place": 0}, {"ask": "cell"}, {"ask": "cell", "place": "0"},
     {"ask": "cell", "place": -1}, {"ask": "cell", "place": 12}],
)  # fmt: skip
def test_malformed_question_gets_no_answer(layout: Layout, question: object) -> None:
    assert LayoutView(layout).answer(question) is None


def test_unpartitioned_table_has_no_partition_column(layout: Layout) -> None:
    data = cells_of([("", 0), ("", 1)])
    plain = dataclasses.replace(
        layout, data=data, partition_names=dataclasses.replace(layout.partition_names, keys=())
    )
    assert "\npartition " in str(layout) and "\npartition " not in str(plain)
    assert ">partition</th>" in layout_html(layout) and ">partition<" not in layout_html(plain)


def test_layout_of_empty_table_has_no_picture_and_no_widget(layout: Layout) -> None:
    empty = dataclasses.replace(
        layout, data=layout.data.slice(0, 0), files=layout.files.slice(0, 0)
    )
    bundle = layout_bundle(empty)
    assert "svg" not in bundle["text/html"]
    assert WIDGET not in bundle


def test_extension_formats_layouts_and_health_until_unloaded(
    layout: Layout, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    try:
        formatter = shell.display_formatter
        assert formatter is not None
        shell.run_cell("%load_ext paimon_magics").raise_error()
        assert set(formatter.format(layout)[0]) == {"text/plain", "text/html", WIDGET}
        assert set(formatter.format(Health((layout,)))[0]) == {"text/plain", "text/html", WIDGET}
        shell.run_cell("%unload_ext paimon_magics").raise_error()
        assert set(formatter.format(layout)[0]) == {"text/plain"}
    finally:
        InteractiveShell.clear_instance()
