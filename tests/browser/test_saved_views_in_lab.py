"""A saved view, opened in JupyterLab where its kernel is gone."""

from __future__ import annotations

import pytest

from tests.browser.lab import Lab, browser_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

REPORT = """%load_ext paimon_magics
import pyarrow as pa
from paimon_magics.session.reports import Report, Section
Report("THING", "all is well", (Section("", pa.table({"item": ["tea"]}), "shop.items"),))"""


def test_a_saved_view_is_its_static_page(lab: Lab) -> None:
    lab.write("saved.ipynb", REPORT)
    with browser_page() as (page, elsewhere):
        lab.open(page, "saved.ipynb")
        lab.run_all(page)
        page.locator(".paimon-report td").get_by_text("tea").wait_for(timeout=60_000)
        page.keyboard.press("Control+s")
        page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')", timeout=20_000)
        page.goto("about:blank")
        lab.end_kernels()
        lab.open(page, "saved.ipynb")
        output = page.locator(".jp-OutputArea-output").first
        output.get_by_text("all is well").wait_for(timeout=30_000)
        assert output.locator("td").inner_text() == "tea"
        assert page.locator(".paimon-view").count() == 0, "no widget, but the page"
        assert elsewhere == []
