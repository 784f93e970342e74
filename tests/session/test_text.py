"""Pages of rows as text and HTML."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from paimon_magics.session.text import render_html, render_text, shown_value


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
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ([("k", decimal.Decimal("1.50"))], '{"k": "1.50"}'),
    ],
)
def test_a_value_is_shown_as_sql_would_write_it(value: object, text: str) -> None:
    assert shown_value(value) == text


def test_numbers_stand_to_the_right_and_the_rest_to_the_left() -> None:
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
def test_the_line_under_the_rows_tells_whether_more_follow(
    rows: int, rows_max: int, footer: str
) -> None:
    page = pa.table({"n": list(range(rows))})
    assert render_text(page, rows_max).splitlines()[-1] == footer
    assert render_html(page, rows_max).endswith(f"<p>{footer}</p>")


def test_the_zone_of_instants_is_named() -> None:
    instant = pa.array([0], pa.timestamp("us", "Asia/Tokyo"))
    page = pa.table([instant, instant, pa.array([0], pa.timestamp("us"))], names=["a", "a", "b"])
    assert render_text(page, 20).endswith("\n1 row; `a` in Asia/Tokyo")


def test_times_beyond_pythons_are_shown() -> None:
    far = 316_000_000_000_000_000  # microseconds: the year 11983
    page = pa.table({"t": pa.array([far, None], pa.timestamp("us")), "n": [1, 2]})
    assert "11983-08-" in render_text(page, 20)
    assert "NULL" in render_text(page, 20)


def test_html_is_escaped() -> None:
    page = pa.table({"<b>": ["<script>"]})
    assert "<script>" not in render_html(page, 20)
    assert ">&lt;b&gt;</th>" in render_html(page, 20)


def test_a_wide_value_is_cut_and_a_line_break_is_shown() -> None:
    shown = render_text(pa.table({"t": ["a\nb" + "x" * 100]}), 20).splitlines()[2]
    assert shown.startswith("a\\nbxxx")
    assert shown.endswith("…")
    assert len(shown) == 60
