"""How long the layout of a table of 100,000 buckets takes, and what a browser is sent of it.

The aims: computed in under 3 s, `health` in under 5 s, at most 1 MB for the browser. A bucket has a
file, which is an entry of one manifest; no data file is there, since none is opened. `FILES` in the
environment makes it fewer.
"""

from __future__ import annotations

import statistics
import tempfile

from bench_system_tables import FILES, NAME, fill, seconds

from paimon_magics.session.layouts import Health, layout_of
from paimon_magics.tables.catalog import Catalog

_RUNS = 5


def main() -> None:
    """Prints medians of five runs."""
    from paimon_widgets.heat_map import packed_cells
    from paimon_widgets.layout_page import layout_html

    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog.open({"warehouse": folder})
        fill(catalog, buckets=True)
        layouts = []
        computing = [
            seconds(lambda: layouts.append(layout_of(catalog, NAME, "files"))) for _ in range(_RUNS)
        ]
        layout = layouts[-1]
        assert layout.data.num_rows == FILES
        judging = [seconds(lambda: str(Health((layout,)))) for _ in range(_RUNS)]
        page = seconds(lambda: layout_html(layout))
        print(f"{'layout':22} {statistics.median(computing):6.2f} s for {FILES:,} buckets")
        print(f"{'health, beyond that':22} {statistics.median(judging):6.2f} s")
        print(f"{'static page':22} {page:6.2f} s, {len(layout_html(layout)):,} characters")
        print(f"{'sent to a browser':22} {packed_cells(layout).sent_bytes:,} bytes")


if __name__ == "__main__":
    main()
