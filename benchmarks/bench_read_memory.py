"""The most memory that one task takes to merge a bucket of 50 million rows of a primary-key table.

Each key is in all of five sorted runs. The reader runs in a process of its own, without Spark, and
releases each batch as a Spark task does. PAIMON_MAGICS_BENCH_MEMORY_ROWS changes the number of
rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
from bench_write_memory import SCHEMA, batches
from measure import peak_mb

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_MEMORY_ROWS", "50000000"))
RUNS = 5


def main() -> None:
    if "--one" in sys.argv:
        print(read(sys.argv[-1]))
        return
    for rows in (ROWS // 10, ROWS):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(RUNS):
                write(folder, rows // RUNS)
            for what in ("table", "audit_log"):
                command = [sys.executable, __file__, "--one", f"{folder}:{what}"]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"{what:<10} {rows:>11,} stored rows: {done.stdout.strip()}", flush=True)


def write(folder: str, rows: int, every: int = 1, first: int = 0) -> None:
    """Write a sorted run into the table `t`; for the others see `batches`."""
    from pypaimon import CatalogFactory
    from pypaimon.schema.schema import Schema

    pypaimon = CatalogFactory.create({"warehouse": folder})
    pypaimon.create_database("default", True)
    options = {"bucket": "1", "write.native.enabled": "true", "write-only": "true"}
    schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["k"], options=options)
    pypaimon.create_table("default.t", schema, True)
    builder = pypaimon.get_table("default.t").new_batch_write_builder()
    writer = builder.new_write()
    for batch in batches(rows, every, first):
        writer.write_arrow_batch(batch)
    commit = builder.new_commit()
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def read(source: str) -> str:
    """Read all rows; return their number, this process's peak of memory, and the time, as text."""
    from paimon_magics.planning.reads.views import view_named
    from paimon_magics.settings import Settings
    from paimon_magics.statements.statement import TableName
    from paimon_magics.tables.catalog.catalog import Catalog
    from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
    from paimon_magics.tables.reading.spark_batches import spark_batches

    folder, _, kind = source.rpartition(":")
    view = view_named("" if kind == "table" else kind)
    assert view is not None
    pa.set_cpu_count(1)
    table = Catalog.open({"warehouse": folder}).load(TableName("t", "default"))
    batch_rows = Settings().batch_rows
    started = time.perf_counter()
    read = plan_data_read(table, ReadRequest(view), batch_rows=batch_rows)
    rows = sum(
        batch.num_rows
        for split in read.planned.splits
        for batch in spark_batches(read.reader.rows(split), batch_rows)
    )
    seconds = time.perf_counter() - started
    return f"{rows:,} rows, {peak_mb():.0f} MB at most, {seconds:.1f} s"


if __name__ == "__main__":
    main()
