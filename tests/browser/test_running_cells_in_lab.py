"""A long cell in JupyterLab in a browser: its progress moves, the stop button stops it, and nothing
of the progress is left, on the page or in the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.lab import Lab, browser_page

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.browser]

# Four tasks, two at once: the first two end soon, the others wait.
SLOW = """%load_ext paimon_magics
%paimon connect warehouse=lake master=local[2]
import time, paimon_magics
spark = paimon_magics.active_session().spark

def rows(frames):
    for frame in frames:
        yield frame
        time.sleep(3 if frame["id"].iloc[0] < 50 else 120)

spark.range(0, 100, 1, 4).mapInPandas(rows, "id BIGINT").createOrReplaceTempView("slow")"""


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


def test_a_long_cell_shows_how_far_it_is_and_is_stopped_by_one_click(lab: Lab) -> None:
    table = "%%paimon\nCREATE TABLE t (id BIGINT)"
    lab.write("long.ipynb", SLOW, table, "%%paimon\nINSERT INTO t SELECT id FROM slow")
    with browser_page() as (page, elsewhere):
        lab.open(page, "long.ipynb")
        lab.run_all(page)
        cell = page.locator(".jp-CodeCell").nth(2)
        progress = cell.locator(".paimon-progress")
        progress.get_by_text("0 of 4 tasks").wait_for(timeout=120_000)
        progress.get_by_text("2 of 4 tasks").wait_for(timeout=60_000)
        assert progress.locator("progress").get_attribute("value") == "0.500"
        page.screenshot(path=lab.folder / "running.png")
        page.locator(".jp-Toolbar [data-command='notebook:interrupt-kernel']").click()
        cell.get_by_text("KeyboardInterrupt: the cell was stopped").wait_for(timeout=30_000)
        assert progress.count() == 0
        assert "Traceback" not in cell.inner_text()
        page.screenshot(path=lab.folder / "stopped.png")

        cell.locator(".cm-content").click()
        page.keyboard.press("Control+a")
        page.keyboard.type("%%paimon\nSELECT count(*) AS found FROM t")
        page.keyboard.press("Control+Enter")
        cell.locator("th", has_text="found").wait_for(timeout=60_000)
        assert cell.locator("td").inner_text() == "0"
        page.keyboard.press("Control+s")
        page.get_by_text("Saving completed").first.wait_for(timeout=20_000)
        assert "paimon-progress" not in (lab.folder / "long.ipynb").read_text()
        assert elsewhere == []
