"""The map of a table's buckets, in JupyterLab in a browser: it is drawn, and answers clicks and
keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, browser_page

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.browser]

TABLE = """%load_ext paimon_magics
%paimon connect warehouse=lake master=local[1]
import paimon_magics
session = paimon_magics.active_session()
session.run(
    "CREATE TABLE orders (day STRING NOT NULL, id INT NOT NULL, item STRING) "
    "PARTITIONED BY (day) TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '3')"
)
for day in ("mon", "tue", "tue", "tue"):
    rows = ", ".join(f"('{day}', {id}, 'tea')" for id in range(30))
    session.run(f"INSERT INTO orders VALUES {rows}")"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.stop()


def test_the_map_is_drawn_and_answers_clicks_and_keys(lab: Lab) -> None:
    lab.write("layout.ipynb", TABLE, "%paimon layout orders")
    with browser_page() as (page, elsewhere):
        lab.open(page, "layout.ipynb")
        lab.run_all(page)
        view = page.locator(".paimon-layout-view")
        canvas = view.locator("canvas")
        canvas.wait_for(timeout=120_000)
        assert "2 partitions, 6 buckets" in (canvas.get_attribute("aria-label") or "")
        colours = canvas.evaluate(
            "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
        )
        assert len(colours) == 6 * 4
        assert all(colours[3::4]), "every bucket is drawn"
        assert len({tuple(colours[i : i + 3]) for i in range(0, 24, 4)}) > 1

        told = view.locator(".told")
        box = canvas.bounding_box()
        assert box is not None
        canvas.click(position={"x": box["width"] / 6, "y": box["height"] * 3 / 4})
        told.get_by_text("day=tue, bucket 0: ").wait_for(timeout=10_000)
        files = view.locator("table tr")
        files.nth(3).wait_for(timeout=10_000)
        assert files.count() == 1 + 3, "a header and three files"

        page.keyboard.press("ArrowRight")
        told.get_by_text("day=tue, bucket 1: ").wait_for(timeout=10_000)
        page.keyboard.press("ArrowUp")
        told.get_by_text("day=mon, bucket 1: ").wait_for(timeout=10_000)
        page.keyboard.press("Enter")
        view.locator("caption").get_by_text("Files of day=mon, bucket 1").wait_for(timeout=10_000)
        page.keyboard.press("End")
        told.get_by_text("day=tue, bucket 2: ").wait_for(timeout=10_000)

        before = canvas.evaluate("c => c.toDataURL()")
        view.get_by_label("coloured by", exact=True).select_option(label="files")
        assert canvas.evaluate("c => c.toDataURL()") != before
        page.screenshot(path=lab.folder / "layout.png", full_page=True)
        assert elsewhere == []
