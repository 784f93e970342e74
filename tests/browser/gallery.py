"""Makes the pictures of docs/gallery.md anew, from a run of a tutorial in JupyterLab.

`python -m tests.browser.gallery [FOLDER]`: light and dark, cut to what is shown.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.lab import Lab, browser_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "07_views.ipynb"
TALLEST_PX = 820
_PATIENCE_MS = 120_000  # other work may go on beside it
KEPT = "import shutil"  # the last cell closes what is looked at

PICTURES = {
    "grid": "SELECT * FROM orders",
    "layout": "%paimon layout orders",
    "health": "%paimon health",
    "partitions": "%paimon partitions",
    "files": "%paimon files",
    "snapshots": "%paimon snapshots",
    "diff": "%paimon diff orders",
    "changes": "%paimon changes",
    "profile": "%paimon profile orders",
    "explain": "%paimon explain",
    "queue": "%paimon queue",
}
"""By the name of a picture, how the cell is told whose output it shows."""


def main(folder: Path) -> None:
    """Run the notebook, work a little with what it shows, and take the pictures."""
    place = Path(tempfile.mkdtemp(prefix="paimon-gallery-"))
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    os.environ["XDG_STATE_HOME"] = str(place / ".state")
    lab = Lab(place)
    try:
        kept = [source for source in sources if not source.startswith(KEPT)]
        # Looked at while it waits, not after it was loaded; by a coordinator of its own.
        kept = [source for source in kept if "session.flush" not in source]
        own = "warehouse={warehouse} coordinator=embedded"
        lab.write("gallery.ipynb", *(each.replace("warehouse={warehouse}", own) for each in kept))
        with browser_page() as (page, elsewhere):
            page.set_viewport_size({"width": 1180, "height": 2400})
            page.set_default_timeout(_PATIENCE_MS)
            lab.open(page, "gallery.ipynb")
            lab.run_all(page)
            last = page.locator(".jp-CodeCell .jp-InputPrompt").last
            last.get_by_text(re.compile(r"\[\d+\]:")).wait_for(timeout=300_000)
            page.get_by_text("| Idle").first.wait_for(timeout=60_000)
            page.wait_for_timeout(3_000)
            _work(page)
            for theme in ("Light", "Dark"):
                _choose(page, theme)
                for name, source in PICTURES.items():
                    _take(_output(page, source), folder / f"{name}-{theme.lower()}.png")
            assert elsewhere == []
    finally:
        lab.stop()
        for announced in place.glob(".state/paimon-magics/*/running.json"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(json.loads(announced.read_text())["pid"], signal.SIGTERM)
        shutil.rmtree(place, ignore_errors=True)


def _output(page: Page, source: str) -> Locator:
    cell = page.locator(".jp-CodeCell").filter(
        has=page.locator(".jp-InputArea").filter(has_text=source)
    )
    return cell.first.locator(".jp-OutputArea-output").last


def _work(page: Page) -> None:
    """What the pictures show beyond a first sight: an order, an open bucket, a comparison."""
    grid = _output(page, PICTURES["grid"])
    grid.get_by_role("button", name="price DECIMAL(8, 2)").click()
    grid.get_by_text("ORDER BY `price`").wait_for(timeout=60_000)
    canvas = _output(page, PICTURES["layout"]).locator("canvas")
    canvas.click(position={"x": 30, "y": 60})
    health = _output(page, PICTURES["health"])
    health.get_by_role("option").filter(has_text="default.orders").click()
    health.get_by_role("option").filter(has_text="day=2026-11-19").click()
    health.get_by_text("Sizes of the files of day=2026-11-19").wait_for(timeout=60_000)
    timeline = _output(page, PICTURES["snapshots"])
    for row in ("row 1", "row 4"):
        timeline.get_by_label(row, exact=True).check()
    timeline.get_by_role("button", name="Compare the two", exact=True).click()
    timeline.locator(".more table").first.wait_for(timeout=120_000)
    page.wait_for_timeout(1_000)


def _choose(page: Page, theme: str) -> None:
    wanted = f"JupyterLab {theme}"
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.get_by_text("Theme", exact=True).hover()
    page.locator(".lm-Menu-itemLabel").get_by_text(wanted, exact=True).click()
    page.locator(f'body[data-jp-theme-name="{wanted}"]').wait_for(state="attached")
    page.wait_for_timeout(1_500)  # its styles come after its name


def _take(shown: Locator, path: Path) -> None:
    shown.scroll_into_view_if_needed()
    box = shown.bounding_box()
    assert box is not None
    height = min(box["height"], TALLEST_PX)
    area = {"x": box["x"], "y": box["y"], "width": box["width"], "height": height}
    shown.page.screenshot(path=path, clip=area)  # type: ignore[arg-type]
    print(f"{path.name}: {area['width']:.0f} x {height:.0f}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"
    chosen.mkdir(parents=True, exist_ok=True)
    main(chosen)
