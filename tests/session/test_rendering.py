"""Pages of rows as text and HTML."""

from __future__ import annotations

import datetime
import decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from paimon_magics.session.rendering import render_html, render_text, shown_value

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (b"\x00\xff", "0x00ff"),
        (decimal.Decimal("0E-10"), "0.0000000000"),
        (datetime.datetime(2026, 11, 20, 1, 2, 3), "2026-11-20 01:02:03"),
        (datetime.datetime(2026, 11, 20, 1, 2, 3, 500_000), "2026-11-20 01:02:03.5"),
        (datetime.date(2026, 11, 20), "2026-11-20"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        # Only the hour that comes twice has its offset behind it.
        (datetime.datetime(2026, 7, 1, 12, tzinfo=BERLIN), "2026-07-01 12:00:00"),
        (datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "2026-10-25 02:30:00+02:00"),
        (
            datetime.datetime(2026, 10, 25, 2, 30, 0, 500_000, tzinfo=BERLIN, fold=1),
            "2026-10-25 02:30:00.5+01:00",
        ),
        ({}, "{}"),
        ({datetime.date(2026, 1, 2): float("inf")}, '{"2026-01-02": "Infinity"}'),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ([("k", decimal.Decimal("1.50"))], '{"k": "1.50"}'),
    ],
)
def test_a_value_is_shown_as_sql_would_write_it(value: object, text: str) -> None:
    assert shown_value(value) == text


def test_numbers_are_right_aligned_and_texts_left_aligned() -> None:
    page = pa.table({"n": [1, 200], "text": ["a", "bcd"]})
    assert render_text(page, 20) == "  n  text\n---  ----\n  1  a\n200  bcd\n2 rows"


@pytest.mark.parametrize(
    ("rows", "rows_max", "footer"),
    [
        (0, 20, "0 rows"),
        (1, 20, "1 row"),
        (2, 2, "2 rows"),
        (3, 2, "the first 2 rows; more follow"),
        (2, 1, "the first row; more follow"),
    ],
)
def test_footer_shows_whether_more_rows_follow(rows: int, rows_max: int, footer: str) -> None:
    page = pa.table({"n": list(range(rows))})
    assert render_text(page, rows_max).splitlines()[-1] == footer
    assert render_html(page, rows_max).endswith(f"<p>{footer}</p>")


def test_footer_names_zone_of_timestamps() -> None:
    instant = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    page = pa.table([instant, instant, pa.array([0], pa.timestamp("us"))], names=["a", "a", "b"])
    assert render_text(page, 20).endswith("\n1 row; `a` in Asia/Tokyo")


def test_times_beyond_python_range_are_shown() -> None:
    far = 316_000_000_000_000_000  # microseconds: the year 11983
    page = pa.table({"t": pa.array([far, None], pa.timestamp("us")), "n": [1, 2]})
    assert "11983-08-" in render_text(page, 20)
    assert "NULL" in render_text(page, 20)


def test_time_beyond_python_range_leaves_the_others_as_they_are() -> None:
    twice = [1_793_511_000_000_000, 1_793_514_600_250_000]  # 01:30 comes two times in New York
    far = [-62_135_596_800_000_000 - 9 * 3_600_000_000, 316_000_000_000_000_000]
    zoned = pa.timestamp("us", "America/New_York")
    alone = render_text(pa.table({"t": pa.array(twice, zoned)}), 20)
    among = render_text(pa.table({"t": pa.array([*far, *twice, None], zoned)}), 20)
    for text in ("2026-11-01 01:30:00-04:00", "2026-11-01 01:30:00.25-05:00"):
        assert text in alone and text in among
    assert ".000000" not in among and "0000-12-31" in among and "11983-08-" in among


def test_html_is_escaped() -> None:
    page = pa.table({"<b>": ["<script>"]})
    assert "<script>" not in render_html(page, 20)
    assert ">&lt;b&gt;</th>" in render_html(page, 20)


def test_wide_value_is_cut_and_line_break_is_escaped() -> None:
    shown = render_text(pa.table({"t": ["a\nb" + "x" * 100]}), 20).splitlines()[2]
    assert shown.startswith("a\\nbxxx")
    assert shown.endswith("…")
    assert len(shown) == 60


def test_float32_value_is_shown_with_its_own_digits() -> None:
    numbers = pa.array([1.1, 16777216.0, float("nan"), None], pa.float32())
    nested = pa.array([[1.1, None], [], None, [0.1]], pa.list_(pa.float32()))
    page = pa.table({"f": numbers, "a": nested, "d": pa.array([1.1, 0.1, 1e300, 0.0])})
    lines = [line.split() for line in render_text(page, 20).splitlines()[2:6]]
    assert [line[0] for line in lines] == ["1.1", "16777216.0", "NaN", "NULL"]
    assert [line[1:-1] for line in lines] == [["[1.1,", "null]"], ["[]"], ["NULL"], ["[0.1]"]]


def test_footer_names_zone_of_nested_timestamps() -> None:
    berlin = pa.timestamp("us", "Europe/Berlin")
    nested = pa.struct([("at", pa.map_(pa.string(), pa.list_(berlin)))])
    page = pa.table({"n": pa.array([{"at": [("x", [0])]}], nested)})
    text = render_text(page, 20)
    assert '{"at": {"x": ["1970-01-01 01:00:00"]}}' in text
    assert text.endswith("1 row; `n` in Europe/Berlin")


@pytest.mark.parametrize(
    ("columns", "rows", "kept"), [(1, 20_000, "1,000 rows"), (400, 60, "6 rows")]
)
def test_large_results_are_cut_for_the_notebook_with_a_note(
    columns: int, rows: int, kept: str
) -> None:
    page = pa.table({f"c{place}": ["x" * 90] * rows for place in range(columns)})
    for shown in (render_text(page, rows), render_html(page, rows)):
        assert len(shown) < 500_000
        assert f"the first {kept} of {rows:,}, more than a notebook should keep" in shown
        assert ".to_pandas() has all of them" in shown
    assert f"of more than {rows - 1:,}, more" in render_text(page, rows - 1)
