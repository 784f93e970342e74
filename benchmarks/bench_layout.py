"""The time of the layout of a table of 100,000 buckets, the bytes that a browser is sent, and how
soon and how smoothly it shows them.

The aims: computed in under 3 s, `health` in under 5 s, at most 1 MB for the browser, painted within
300 ms of the data, no frame of more than 50 ms while the user scrolls, zooms or moves by keys. Each
bucket has a file, which is an entry of one manifest; there are no data files, since none is opened.
`FILES` in the environment sets their number. Without Chromium the browser is left out.
"""

from __future__ import annotations

import base64
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench_system_tables import FILES, NAME, fill, seconds

from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import Layout, layout_of
from paimon_magics.tables.catalog.catalog import Catalog

_RUNS = 5
_BROWSERS = ("chromium", "google-chrome")
# The page's kernel answers at once: the browser is measured, and not the way to it.
_PAGE = """<!doctype html><body><div id="view"></div><script type="module">
%(script)s
const state = %(state)s;
const packed = Uint8Array.from(atob(state.values), (one) => one.charCodeAt(0));
state.values = new DataView(packed.buffer);
let heard = null;
const model = {
  get: (name) => state[name],
  on: (_, told) => { heard = told; },
  off: () => {},
  send: (asked) => setTimeout(() => heard({ place: asked.place, text: "a bucket" }), 1),
};
const frame = () => new Promise((done) => requestAnimationFrame(() => done(performance.now())));
const el = document.getElementById("view");
window.shown = async () => {
  el.replaceChildren();
  await frame();
  const began = performance.now();
  render({ model, el });
  await frame();
  return (await frame()) - began; // the second frame begins when the first is painted
};
async function frames(step) {
  const found = [];
  let before = await frame();
  for (let i = 0; i < 90; i += 1) {
    step(i);
    const now = await frame();
    found.push(now - before);
    before = now;
  }
  return found;
}
const press = (key) =>
  el.querySelector("canvas").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const map = () => el.querySelector(".map");
window.measured = async () => ({
  "walk by keys": await frames((i) => press(i %% 30 < 15 ? "ArrowDown" : "ArrowRight")),
  "colour anew": await frames((i) => {
    const choice = el.querySelector("select");
    choice.selectedIndex = i %% choice.length;
    choice.dispatchEvent(new Event("change"));
  }),
  zoom: await frames((i) => press(i %% 16 < 8 ? "+" : "-")),
  scroll: await frames((i) => {
    if (i === 0) for (let n = 0; n < 8; n += 1) press("+");
    map().scrollTop = i * 40;
    map().scrollLeft = i * 40;
  }),
});
window.ready = true;
</script><style>%(style)s</style>"""


def main() -> None:
    """Print the medians of five runs."""
    from paimon_widgets.health_view import health_bundle
    from paimon_widgets.layout_view import layout_html

    with tempfile.TemporaryDirectory() as folder:
        fill(Catalog.open({"warehouse": folder}), buckets=True)
        layouts = []

        def compute() -> None:
            layouts.append(layout_of(Catalog.open({"warehouse": folder}), NAME, "files"))

        def judge() -> None:
            health_bundle(Health((layout_of(Catalog.open({"warehouse": folder}), NAME, "files"),)))

        computing = [seconds(compute) for _ in range(_RUNS)]
        layout = layouts[-1]
        assert layout.data.num_rows == FILES
        judging = [seconds(judge) for _ in range(_RUNS)]
        page = seconds(lambda: layout_html(layout))
        print(f"{'layout':22} {statistics.median(computing):6.2f} s for {FILES:,} buckets")
        print(f"{'health, text and page':22} {statistics.median(judging):6.2f} s")
        print(f"{'static page':22} {page:6.2f} s, {len(layout_html(layout)):,} characters")
        _in_a_browser(layout, Path(folder))


def _sent_bytes(layout: Layout, packed: bytes, state: dict[str, Any]) -> int:
    """The bytes that a notebook's page gets: the widget's state, its text and its static page."""
    from paimon_widgets.layout_view import layout_html

    beside = {"text/plain": str(layout), "text/html": layout_html(layout)}
    return len(packed) + len(json.dumps(state)) + len(json.dumps(beside))


def _in_a_browser(layout: Layout, folder: Path) -> None:
    from paimon_widgets.assets import script, style
    from paimon_widgets.layout_view import LayoutView

    view = LayoutView(layout)
    names = [name for name in view.keys if not name.startswith("_")]
    state: dict[str, Any] = {
        name: getattr(view, name) for name in names if name not in ("layout", "tabbable", "tooltip")
    }
    packed = state.pop("values")
    print(f"{'sent to a browser':22} {_sent_bytes(layout, packed, state):,} bytes")
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        print("no Chromium: how it is painted was not measured")
        return
    state["values"] = base64.b64encode(packed).decode()
    code = script("layout").replace("export default { render };", "")
    made = _PAGE % {"script": code, "state": json.dumps(state), "style": style("layout")}
    (folder / "page.html").write_text(made)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        page.goto((folder / "page.html").as_uri())
        page.wait_for_function("window.ready")
        first = [page.evaluate("shown()") for _ in range(_RUNS)]
        median = statistics.median(first)
        print(f"{'painted':22} {median:6.0f} ms after the data, at first {first[0]:.0f}")
        for what, found in page.evaluate("measured()").items():
            taken = sorted(found)
            print(
                f"{what:22} {statistics.median(taken):6.0f} ms a frame, 95 % of them within "
                f"{taken[int(len(taken) * 0.95)]:.0f} ms, the longest {taken[-1]:.0f}"
            )
        browser.close()


if __name__ == "__main__":
    main()
