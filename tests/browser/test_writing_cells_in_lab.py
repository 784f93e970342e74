"""Writing `%%paimon` cells in JupyterLab in a browser: shown as SQL, and completed by Tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import Lab, browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CELL = """%%paimon --limit 5
SELECT id, 'text' AS class FROM orders$files -- a remark
WHERE day = :day AND amount > 1.5 /* another
one */ AND import IS NOT NULL"""


def colours(cell: Locator) -> dict[str, str]:
    """The colour of each piece of text in a cell's editor."""
    result: dict[str, str] = cell.locator(".cm-line").evaluate_all(
        """lines => Object.fromEntries(lines.flatMap(line =>
            Array.from(line.querySelectorAll("span")).map(
                span => [span.textContent, getComputedStyle(span).color])))"""
    )
    return result


def test_cells_are_highlighted_as_sql_and_completed(lab: Lab) -> None:
    lab.write("writing.ipynb", "%load_ext paimon_magics", CELL, "import os  # from SELECT")
    with browser_page() as (page, elsewhere):
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        lab.open(page, "writing.ipynb")
        cells = page.locator(".jp-CodeCell")
        sql, python = colours(cells.nth(1)), colours(cells.nth(2))
        keyword, text, remark = python["import"], sql["'text'"], python["# from SELECT"]
        assert {sql[word] for word in ("SELECT", "AS", "FROM", "WHERE", "AND", "IS")} == {keyword}
        assert {sql["-- a remark"], sql["/* another"], sql["one */"]} == {remark}
        assert sql["1.5"] not in (keyword, text, remark)
        # What Python takes for words of its own is none here.
        assert sql.get("import") != keyword and sql.get("class") != keyword
        assert "SELECT" not in python

        last = cells.nth(2).locator(".cm-content")
        last.click()
        page.keyboard.press("Control+a")
        page.keyboard.type("%%paimon\nSELECT 1 AS one")
        assert colours(cells.nth(2))["SELECT"] == keyword
        page.keyboard.press("Control+a")
        page.keyboard.type("SELECT = 1")
        assert colours(cells.nth(2)).get("SELECT") != keyword

        cells.nth(0).locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        page.get_by_text("[1]:").first.wait_for(timeout=20_000)
        last.click()
        page.keyboard.press("Control+a")
        page.keyboard.type("%%paimon\nALTER TABLE t SET TBLPROPERTIES ('merge-")
        page.keyboard.press("Tab")
        menu = page.locator(".jp-Completer")
        menu.wait_for(timeout=10_000)
        shown = menu.inner_text()
        assert "merge-engine" in shown and "choice,\u00a0default\u00a0deduplicate" in shown
        page.screenshot(path=lab.folder / "writing.png")
        assert (errors, elsewhere) == ([], [])
