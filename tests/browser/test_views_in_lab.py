"""The views in JupyterLab in a browser: they are drawn, and answer clicks and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.browser.lab import Lab, browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.browser]

TABLE = """%load_ext paimon_magics
%paimon connect warehouse=lake master=local[1]
import paimon_magics
from paimon_magics.session.reports.report import Report
session = paimon_magics.active_session()
session.run(
    "CREATE TABLE orders (day STRING NOT NULL, id INT NOT NULL, item STRING) "
    "PARTITIONED BY (day) TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '3', "
    "'write-only' = 'true', 'num-sorted-run.compaction-trigger' = '3')"
)
for day in ("mon", "tue", "tue", "tue"):
    rows = ", ".join(f"('{day}', {id}, if({id} = 7, NULL, '<i>tea'))" for id in range(30))
    session.run(f"INSERT INTO orders VALUES {rows}")"""
GRID = "%%paimon\nSELECT id, item FROM orders WHERE day = 'tue' ORDER BY id"
LIVE = "times = []\ndef now():\n    times.append(1)\n" + (
    "    return Report('LIVE', f'looked {len(times)} times', (), refresh=now, seconds=0.3)\nnow()"
)
STREAM = (
    "session.run('CREATE DATABASE other')\n"
    "session.run('CREATE TABLE other.kept (day STRING, id INT, item STRING)')\n"
    "changes = session.stream('orders')\n"
    "session.write_stream(changes, 'other.kept', checkpoint='checkpoints/kept')"
)
SLOW = """import os, time
mark = os.path.abspath("slow")
def rows(frames):
    for frame in frames:
        time.sleep(120 if os.path.exists(mark) else 0)
        yield frame
session.spark.range(0, 100, 1, 2).mapInPandas(rows, "id BIGINT").createOrReplaceTempView("slow")"""
CELLS = (
    *(TABLE, "%paimon layout orders", GRID, "%paimon snapshots orders", LIVE, STREAM),
    *(SLOW, "%%paimon\nSELECT * FROM slow", "open(mark, 'w').close()"),
    *("session.run('CREATE TABLE bare (k INT)')", "%paimon health default.*"),
)


class Views(NamedTuple):
    """A page with a notebook that has run, the addresses elsewhere that it asked for, what it sent
    to its kernel, and its folder."""

    page: Page
    elsewhere: list[str]
    sent: list[str | bytes]
    folder: Path


@pytest.fixture(scope="module")
def views(lab: Lab) -> Iterator[Views]:
    lab.write("views.ipynb", *CELLS)
    with browser_page() as (page, elsewhere):
        sent: list[str | bytes] = []
        page.on(
            "websocket",
            lambda socket: socket.on("framesent", lambda data: sent.append(data)),
        )
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.set_viewport_size({"width": 1300, "height": 3000})
        lab.open(page, "views.ipynb")
        lab.run_all(page)
        page.locator(".paimon-health-view").wait_for(timeout=120_000)
        yield Views(page, elsewhere, sent, lab.folder)


def asked(sent: list[str | bytes]) -> list[str | bytes]:
    """The questions for something new among what was sent."""
    return [
        each for each in sent if b"refresh" in (each.encode() if isinstance(each, str) else each)
    ]


def said(view: Locator, text: str) -> None:
    view.locator(".told").get_by_text(text).wait_for(timeout=10_000)


def test_layout_map_is_drawn_and_responds_to_clicks_and_keys(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-layout-view")
    canvas = view.locator("canvas")
    assert "2 partitions, 6 buckets" in (canvas.get_attribute("aria-label") or "")
    colours = canvas.evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )
    assert len(colours) == 6 * 4
    assert all(colours[3::4]), "every bucket is drawn"
    assert len({tuple(colours[i : i + 3]) for i in range(0, 24, 4)}) > 1

    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] / 6, "y": box["height"] * 3 / 4})
    said(view, "day=tue, bucket 0: ")
    files = view.locator("table tr")
    files.nth(3).wait_for(timeout=10_000)
    assert files.count() == 1 + 3, "a header and three files"

    page.keyboard.press("ArrowRight")
    said(view, "day=tue, bucket 1: ")
    page.keyboard.press("ArrowUp")
    said(view, "day=mon, bucket 1: ")
    page.keyboard.press("Enter")
    caption = view.locator("caption")
    caption.get_by_text("Files of day=mon, bucket 1").wait_for(timeout=10_000)
    page.keyboard.press("End")
    said(view, "day=tue, bucket 2: ")

    # From the partition to its buckets, and from a bucket to its files.
    page.keyboard.press("p")
    caption.get_by_text("Buckets of day=tue").wait_for(timeout=10_000)
    assert files.count() == 1 + 3
    files.nth(1).get_by_role("button").click()
    caption.get_by_text("Files of day=tue, bucket").wait_for(timeout=10_000)
    view.locator(".names button", has_text="day=mon").click()
    caption.get_by_text("Buckets of day=mon").wait_for(timeout=10_000)

    wide = canvas.bounding_box()
    canvas.focus()
    page.keyboard.press("-")
    narrow = canvas.bounding_box()
    page.keyboard.press("+")
    assert wide is not None and narrow is not None and narrow["width"] < wide["width"]
    assert canvas.bounding_box() == wide

    before = canvas.evaluate("c => c.toDataURL()")
    view.get_by_label("coloured by", exact=True).select_option(label="files")
    assert canvas.evaluate("c => c.toDataURL()") != before


def test_rows_are_paged_sorted_filtered_and_copied(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-report").nth(0)
    rows = view.locator("tbody tr")
    first = view.locator('td[role="gridcell"]').first
    assert rows.count() == 20
    assert "rows 1–20" in view.inner_text()
    assert rows.nth(7).inner_text().split("\t") == ["7", "NULL"]
    assert rows.nth(8).inner_text().split("\t") == ["8", "<i>tea"], "text is no markup"

    first.click()
    page.keyboard.press("PageDown")
    view.get_by_text("rows 21–30 of 30").wait_for(timeout=30_000)
    assert rows.count() == 10
    assert first.evaluate("cell => cell === document.activeElement"), "the cursor is there too"
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Control+c")
    said(view, "4 cells copied")
    assert page.evaluate("navigator.clipboard.readText()") == "20\t<i>tea\n21\t<i>tea"

    view.get_by_role("button", name="id INT").click()
    view.get_by_role("button", name="id ▲ INT").click()
    view.get_by_text("ORDER BY `id` DESC NULLS LAST").wait_for(timeout=30_000)
    assert first.inner_text() == "29"
    assert view.locator("th").first.get_attribute("aria-sort") == "descending"
    view.get_by_label("column to filter by").select_option(label="item")
    view.get_by_label("condition", exact=True).select_option(label="is null")
    view.get_by_role("button", name="Filter", exact=True).click()
    view.get_by_text("rows 1–1 of 1").wait_for(timeout=30_000)
    assert first.inner_text() == "7"
    view.get_by_role("button", name="Clear", exact=True).click()
    view.get_by_text("rows 1–20").wait_for(timeout=30_000)


def test_slow_page_shows_progress_and_stops_by_button(views: Views) -> None:
    view = views.page.locator(".paimon-report").nth(4)
    progress = view.locator("progress")
    assert progress.is_hidden()
    view.get_by_role("button", name="Next").click()
    view.get_by_text("of 2 tasks").wait_for(timeout=60_000)
    assert progress.is_visible()
    view.get_by_role("button", name="Stop", exact=True).click()
    said(view, "Stopped: these are the rows from before.")
    assert progress.is_hidden()
    assert "rows 1–20" in view.inner_text()


def test_compare_button_compares_two_selected_snapshots(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-report").nth(1)
    compare = view.get_by_role("button", name="Compare the two", exact=True)
    assert compare.is_disabled()
    view.get_by_label("row 1", exact=True).check()
    view.locator('td[role="gridcell"]').first.click()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    compare.click()
    view.get_by_text("snapshot 1 to 4: rows 30 added").wait_for(timeout=60_000)
    assert view.locator(".more table").first.is_visible()


def test_health_view_shows_file_sizes_of_selected_table_and_partition(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-health-view")
    tables, partitions = view.get_by_role("listbox").all()
    assert tables.get_by_role("option").all_inner_texts()[1].startswith("✓\ndefault.bare")
    view.get_by_text("default.orders, snapshot 4: 2 partitions").wait_for()

    options = partitions.get_by_role("option")
    assert options.first.inner_text() == "all of the table"
    options.nth(1).click()
    view.get_by_text("Sizes of the files of day=tue").wait_for(timeout=10_000)
    assert view.get_by_text("9, small").count() == 1
    page.keyboard.press("ArrowDown")
    view.get_by_text("Sizes of the files of day=mon").wait_for(timeout=10_000)
    assert options.nth(2).get_attribute("aria-selected") == "true"
    page.keyboard.press("Home")
    view.get_by_text("Sizes of the files of default.orders").wait_for(timeout=10_000)

    view.get_by_label("part of a partition's name").fill("mon")
    page.wait_for_function(
        "() => document.querySelectorAll('.paimon-health-view .option').length === 3"
    )
    assert "day=mon" in options.first.inner_text()
    tables.focus()
    page.keyboard.press("ArrowDown")
    view.get_by_text("The table has no files.").wait_for(timeout=10_000)
    assert not partitions.is_visible()


def test_button_runs_suggested_statement(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-health-view")
    view.get_by_label("part of a table's name").fill("orders")
    view.get_by_role("option").filter(has_text="default.orders").click()
    view.get_by_role("option").filter(has_text="day=tue").click()
    statement = "CALL sys.compact(table => 'default.orders', partitions => 'day=tue')"
    button = view.get_by_role("button", name=f"Run {statement}", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    outcome = view.get_by_text("9 files became 3 files")
    outcome.wait_for(timeout=60_000)
    assert outcome.evaluate("one => one.parentElement === document.activeElement")
    assert view.locator("progress").is_hidden()
    assert button.count() == 0
    view.get_by_text("Files and buckets match the table's options.").wait_for()
    view.get_by_text("default.orders, snapshot 5: 2 partitions").wait_for()
    tue = view.get_by_role("option", selected=True).filter(has_text="day=tue")
    assert "3 files" in tue.inner_text()


def test_stream_view_shows_progress_and_stop_button_ends_stream(views: Views) -> None:
    view = views.page.locator(".paimon-report").nth(3)
    # (A compaction of the source by another test is an epoch without rows.)
    view.get_by_text(re.compile(r"other\.kept, running: \d epochs?, 60 rows")).wait_for(
        timeout=60_000
    )
    assert view.get_by_role("columnheader", name="snapshots_behind").count() == 1
    view.get_by_role("button", name="Stop", exact=True).click()
    ended = view.get_by_text(re.compile(r"other\.kept, ended: \d epochs?, 60 rows")).first
    ended.wait_for(timeout=20_000)


def test_live_view_refreshes_until_its_output_is_cleared(views: Views) -> None:
    page = views.page
    view = page.locator(".paimon-report").nth(2)
    view.get_by_text(re.compile(r"looked ([3-9]|\d\d+) times")).wait_for(timeout=20_000)
    page.screenshot(path=views.folder / "views.png", full_page=True)
    view.get_by_role("button", name="Pause", exact=True).click()
    page.wait_for_timeout(700)
    shown = view.inner_text()
    page.wait_for_timeout(700)
    assert view.inner_text() == shown

    view.get_by_role("button", name="Go on", exact=True).click()
    page.wait_for_function(
        "was => document.querySelectorAll('.paimon-report')[2].innerText !== was", arg=shown
    )
    page.get_by_role("menuitem", name="Edit", exact=True).click()
    page.get_by_text("Clear Outputs of All Cells", exact=True).click()
    view.wait_for(state="detached")
    before = len(asked(views.sent))
    assert before >= 3
    page.wait_for_timeout(1_500)
    assert len(asked(views.sent)) == before
    assert views.elsewhere == []


# What lies to the right of 480 pixels, and in nothing that is scrolled.
NARROW = """root => {
  root.style.width = "480px";
  const right = root.getBoundingClientRect().left + 481;
  return Array.from(root.querySelectorAll("*")).filter(part => {
    if (part.getBoundingClientRect().right <= right) return false;
    for (let outer = part.parentElement; outer !== root; outer = outer.parentElement)
      if (getComputedStyle(outer).overflowX !== "visible") return false;
    return true;
  }).map(part => part.outerHTML);
}"""


def test_narrow_views_cut_nothing_off(views: Views) -> None:
    page = views.page
    shown = page.locator(".paimon-health-view, .paimon-layout-view, .paimon-report")
    wide = shown.evaluate_all("roots => roots.map(root => root.style.width)")
    try:
        for view in shown.all():
            assert view.evaluate(NARROW) == []
        option = page.locator(".paimon-health-view .option").first
        name, about = (
            option.locator(".name").bounding_box(),
            option.locator(".about").bounding_box(),
        )
        assert name is not None and about is not None
        assert name["y"] + name["height"] <= about["y"], "a name has a line of its own"
    finally:
        shown.evaluate_all(
            "(roots, wide) => roots.forEach((root, at) => { root.style.width = wide[at] })", wide
        )


# What sticks out of an output to the right, and is in nothing of a view that is scrolled.
STICKING_OUT = """() => [...document.querySelectorAll(".paimon-view")].flatMap(area => {
  const right = area.closest(".jp-OutputArea-child").getBoundingClientRect().right + 1;
  return [...area.querySelectorAll("*")].filter(part => {
    if (part.getBoundingClientRect().right <= right) return false;
    for (let outer = part.parentElement; outer !== area; outer = outer.parentElement)
      if (getComputedStyle(outer).overflowX !== "visible") return false;
    return true;
  }).map(part => part.outerHTML);
})"""


def test_narrow_window_cuts_no_output_off(views: Views) -> None:
    page = views.page
    before = page.viewport_size
    assert before is not None
    output = page.locator(".jp-OutputArea-child").first
    try:
        page.set_viewport_size({"width": 480, "height": 3000})
        page.keyboard.press("Control+b")  # the files beside the notebook
        page.wait_for_function("node => node.offsetWidth > 250", arg=output.element_handle())
        width = output.evaluate("node => node.getBoundingClientRect().right")
        assert width <= 480
        assert page.evaluate(STICKING_OUT) == []
    finally:
        page.set_viewport_size(before)
        page.keyboard.press("Control+b")
