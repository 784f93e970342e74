"""The beginning of a tutorial in JupyterLab in a browser, run by "Run All Cells": it shows what the
saved one shows.
Behind it a long cell: its progress moves, the stop button stops it, and nothing of the progress is
left, on the page or in the file."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Lab, browser_page

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.browser]

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "03_overwrite.ipynb"
CLOSING = "import shutil"  # the last cell, which closes what the long one needs
CELLS = 6  # so many come before the long one: a preview, a frame and an overwrite among them

# Four tasks: the first two end soon, the others don't.
SLOW = """import time

def rows(frames):
    for frame in frames:
        yield frame
        time.sleep(3 if frame["id"].iloc[0] < 50 else 120)

session.spark.range(0, 100, 1, 4).mapInPandas(rows, "id BIGINT").createOrReplaceTempView("slow")"""
TABLE = "%%paimon\nCREATE TABLE t (id BIGINT)"
INSERT = "%%paimon\nINSERT INTO t SELECT id FROM slow"


class _Cells(HTMLParser):
    """What stands in the cells of a page's tables."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "td":
            self._inside = True
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data


def saved_texts(cell: dict[str, Any]) -> list[str]:
    """What a cell of the saved tutorial shows: what is in its tables, else its text."""
    for output in cell["outputs"]:
        if "text/html" in output.get("data", {}):
            page = "".join(output["data"]["text/html"])
            return _Cells(page).texts or ["".join(output["data"]["text/plain"])]
    return []


def test_tutorial_runs_in_lab_and_stop_button_interrupts_long_cell(lab: Lab) -> None:
    saved = json.loads(TUTORIAL.read_text())
    cells = [each for each in saved["cells"] if each["cell_type"] == "code"]
    sources = ["".join(each["source"]) for each in cells]
    assert sources[-1].startswith(CLOSING)
    closing, cells, sources = sources[-1], cells[:CELLS], sources[:CELLS]
    lab.write("long.ipynb", *sources, SLOW, TABLE, INSERT, closing)
    with browser_page() as (page, elsewhere):
        lab.open(page, "long.ipynb")
        lab.run_all(page)
        cell = page.locator(".jp-CodeCell").nth(len(sources) + 2)
        progress = cell.locator(".paimon-progress")
        progress.get_by_text("0 of 4 tasks").wait_for(timeout=300_000)
        progress.get_by_text("2 of 4 tasks").wait_for(timeout=60_000)
        # Half of the first stage; a second one sorts and writes the rows.
        assert progress.locator("progress").get_attribute("value") == "0.167"
        page.screenshot(path=lab.folder / "running.png")
        page.locator(".jp-Toolbar [data-command='notebook:interrupt-kernel']").click()
        cell.get_by_text("KeyboardInterrupt: the cell was stopped").wait_for(timeout=30_000)
        assert progress.count() == 0
        assert "Traceback" not in cell.inner_text()
        page.screenshot(path=lab.folder / "stopped.png")

        for place, item in enumerate(cells):
            ran = page.locator(".jp-CodeCell").nth(place)
            shown = ran.locator(".jp-OutputArea-output")
            if expected := saved_texts(item):
                actual = shown.locator("td").all_text_contents() or shown.all_text_contents()
                assert [text.strip() for text in actual] == expected, sources[place]
            else:
                assert shown.count() == 0, sources[place]

        cell.locator(".cm-content").click()
        page.keyboard.press("Control+a")
        page.keyboard.type("%%paimon\nSELECT count(*) AS found FROM t")
        page.keyboard.press("Control+Enter")
        cell.locator("th", has_text="found").wait_for(timeout=60_000)
        assert cell.locator("td").inner_text() == "0"
        last = page.locator(".jp-CodeCell").last
        last.locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        last.get_by_text("]:").wait_for(timeout=10_000)
        page.get_by_text("| Idle").first.wait_for(timeout=60_000)
        page.keyboard.press("Control+s")
        page.get_by_text("Saving completed").first.wait_for(timeout=20_000)
        assert "paimon-progress" not in (lab.folder / "long.ipynb").read_text()
        assert elsewhere == []
