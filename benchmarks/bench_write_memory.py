"""The most memory that one writer takes for a bucket of 20 million rows of a primary-key table.

The writer runs in a process of its own, without Spark, on batches as large as those of a Spark
task. PAIMON_MAGICS_BENCH_MEMORY_ROWS changes the number of rows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_MEMORY_ROWS", "20000000"))
BATCH_ROWS = 4096
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("a", pa.int32()),
        ("b", pa.float64()),
        ("c", pa.string()),
        ("d", pa.date32()),
    ]
)


def main() -> None:
    if "--one" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            print(write(folder, int(sys.argv[-1])))
        return
    for rows in (ROWS // 20, ROWS // 4, ROWS):
        command = [sys.executable, __file__, "--one", str(rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"a bucket of {rows:>11,} rows: {done.stdout.strip():>5} MiB at most", flush=True)


def write(folder: str, rows: int) -> int:
    """Write `rows` rows; return this process's peak of memory in MiB."""
    from pypaimon import CatalogFactory
    from pypaimon.schema.schema import Schema

    from paimon_magics.statements.statement import TableName
    from paimon_magics.tables.catalog.catalog import Catalog
    from paimon_magics.tables.writing.bucket_counts import BucketRule
    from paimon_magics.tables.writing.own_writers import flush_table
    from paimon_magics.tables.writing.write_spec import WriteSpec
    from paimon_magics.tables.writing.writer import write_batches

    pypaimon = CatalogFactory.create({"warehouse": folder})
    pypaimon.create_database("default", True)
    schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["k"], options={"bucket": "1"})
    pypaimon.create_table("default.t", schema, False)
    table = Catalog.open({"warehouse": folder}).load(TableName("t", "default"))
    task = WriteSpec(
        table=flush_table(table, "pm-benchmark-"),
        commit_user="benchmark",
        schema=SCHEMA.serialize().to_pybytes(),
        partition_keys=(),
        bucket_rule=BucketRule(("k",), 1),
        overwrite=False,
        attempts_folder=None,
    )
    assert write_batches(task, batches(rows)).rows == rows
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def batches(rows: int, every: int = 1, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Batches of rows whose keys are in no order: each of `every` numbers, from `first` on."""
    for start in range(0, rows, BATCH_ROWS):
        ids = np.arange(start, min(rows, start + BATCH_ROWS))
        yield pa.record_batch(
            [
                pa.array(ids * 7919 % rows * every + first),
                pa.array((ids % 1000).astype(np.int32)),
                pa.array(ids * 0.5),
                pc.binary_join_element_wise("value", pc.cast(pa.array(ids), pa.string()), "-"),
                pa.array((19_700 + ids % 365).astype(np.int32)).view(pa.date32()),
            ],
            schema=SCHEMA,
        )


if __name__ == "__main__":
    main()
