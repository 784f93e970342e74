"""The most memory that one task takes to compact a bucket of 50 million rows.

The bucket has five sorted runs: either with the same keys, so that a fifth of the rows stays, or
each with keys of its own between those of the others, so that all rows stay. The task runs in a
process of its own, without Spark, for the whole bucket. PAIMON_MAGICS_BENCH_MEMORY_ROWS changes the
number of rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
from bench_read_memory import write
from measure import peak_mb

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_MEMORY_ROWS", "50000000"))
RUNS = 5


def main() -> None:
    if "--one" in sys.argv:
        print(compact(sys.argv[-1]))
        return
    for rows in (ROWS // 10, ROWS):
        for keys, every in (("the same keys", 1), ("keys of their own", RUNS)):
            with tempfile.TemporaryDirectory() as folder:
                for number in range(RUNS):
                    write(folder, rows // RUNS, every, number if every > 1 else 0)
                command = [sys.executable, __file__, "--one", folder]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{rows:>11,} rows in runs of {keys:<17}: {done.stdout.strip()}", flush=True)


def compact(folder: str) -> str:
    """Compact the bucket as one task; return its rows, this process's peak of memory, and the time,
    as text."""
    from paimon_magics.coordinator.client.in_process import InProcessCommitter
    from paimon_magics.planning.commits.requests import CommitRequest, Compact
    from paimon_magics.settings import Settings
    from paimon_magics.statements.statement import TableName
    from paimon_magics.tables.catalog.catalog import Catalog
    from paimon_magics.tables.compaction.planning import CompactionScope
    from paimon_magics.tables.compaction.plans import planned, rewritten_here
    from paimon_magics.tables.manifests.live_files import ManifestCache
    from paimon_magics.tables.writing.commit_messages import write_message

    pa.set_cpu_count(1)
    settings = Settings()
    catalog = Catalog.open({"warehouse": folder})
    table = catalog.load(TableName("t", "default"))
    committer = InProcessCommitter(catalog, settings)
    started = time.perf_counter()
    plan = planned(table, CompactionScope(is_full=True), ManifestCache(table.paimon))
    assert plan is not None
    transaction = committer.begin(table.name, plan.snapshot_id, compacts=True)
    messages = rewritten_here(plan, transaction, threads=1, settings=settings)
    bodies = tuple(write_message(table.paimon, message) for message in messages)
    committer.commit(CommitRequest(transaction, Compact(), bodies))
    seconds = time.perf_counter() - started
    rows = sum(file.row_count for message in messages for file in message.compact_after)
    return f"{rows:,} rows stay, {peak_mb():.0f} MB at most, {seconds:.1f} s"


if __name__ == "__main__":
    main()
