"""The planning of a read of a table of 100,000 files, without and with cached manifests.

The aims: under 4 s without, under 0.5 s with them, and under 500 MB in this process. `FILES` in the
environment sets the number of files. The peer is pypaimon's planning of the same table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from bench_system_tables import FILES, NAME, fill
from measure import median_ms, report, resident_mb

from paimon_magics.statements.statement import ColumnFilter, FilterValue
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        # Each file in a bucket of its own, so that none of them overlap.
        fill(Catalog.open({"warehouse": folder}), buckets=True)
        subprocess.run([sys.executable, __file__, folder], check=True)


def measure(folder: str) -> None:
    """Measure, in a process that has not made the table."""
    table = Catalog.open({"warehouse": folder}).load(NAME)
    before = resident_mb(os.getpid())
    manifests = ManifestCache(table.paimon)
    partition = (ColumnFilter("p", "=", (FilterValue("string", "7"),)),)
    for what, filters in (("all files", ()), ("one of 10 partitions", partition)):

        def cold(filters: tuple[ColumnFilter, ...] = filters) -> None:
            plan_data_read(table, ReadRequest(filters=filters))

        def warm(filters: tuple[ColumnFilter, ...] = filters) -> None:
            plan_data_read(table, ReadRequest(filters=filters), manifests=manifests)

        report(f"planning {FILES:,} files, {what}", median_ms(cold, runs=3))
        report(f"the same with kept manifests, {what}", median_ms(warm, runs=5))
    after = resident_mb(os.getpid())
    print(f"memory: {before:.0f} MB before, {after:.0f} MB after", flush=True)
    builder = table.paimon.new_read_builder()
    report("pypaimon", median_ms(lambda: builder.new_scan().plan().splits(), runs=1, warm_up=0))


if __name__ == "__main__":
    main()
