"""Views in JupyterLab whose kernel is gone: saved ones that are opened, and open ones whose kernel
ends."""

from __future__ import annotations

import pytest

from tests.browser.lab import Lab, browser_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

REPORT = """%load_ext paimon_magics
import pyarrow as pa
from paimon_magics.session.reports.report import Report, Section
Report("THING", "all is well", (Section("", pa.table({"item": ["tea"]}), "shop.items"),))"""


# What is shown while a job runs, without the job; then the kernel is killed.
KILLED = """import os, time
from paimon_magics.planning.job_progress import Progress, StageProgress
from paimon_magics.spark.streaming_queries import listener
listener()(Progress(2.0, (StageProgress(4, 1, 2, rows_read=1234),)))
while not os.path.exists("seen"):
    time.sleep(0.1)
os.kill(os.getpid(), 9)"""


def test_views_of_ended_kernel_become_static_pages_without_progress(lab: Lab) -> None:
    lab.write("killed.ipynb", REPORT, KILLED)
    with browser_page() as (page, elsewhere):
        lab.open(page, "killed.ipynb")
        lab.run_all(page)
        view = page.locator(".jp-CodeCell").first.locator(".jp-OutputArea-output")
        view.locator(".paimon-report button").first.wait_for(timeout=60_000)
        running = page.locator(".jp-CodeCell").nth(1)
        running.locator(".paimon-progress").get_by_text("1,234 rows read").wait_for(timeout=20_000)
        assert running.locator("progress").get_attribute("value") == "0.250"
        page.keyboard.press("Control+s")
        (lab.folder / "seen").touch()
        view.get_by_text("The kernel was restarted: run the cell again").wait_for(timeout=30_000)
        assert view.locator("td").inner_text() == "tea"
        assert view.locator("button").count() == 0, "nothing that looks as if it did something"
        assert page.locator("progress").count() == 0
        page.keyboard.press("Escape")  # the word about the kernel that died
        page.keyboard.press("Control+s")
        page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')", timeout=20_000)
        assert "1,234" not in (lab.folder / "killed.ipynb").read_text()
        page.goto("about:blank")
        lab.end_kernels()
        lab.open(page, "killed.ipynb")
        view.get_by_text("The kernel is gone: run the cell again").wait_for(timeout=30_000)
        assert "all is well" in view.inner_text() and view.locator("td").inner_text() == "tea"
        assert page.locator(".paimon-view").count() == 0, "no widget, but the page"
        again = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
        assert "".join(again.all_inner_texts()).strip() == ""
        assert elsewhere == []
