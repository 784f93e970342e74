"""The memory of a stream that catches up with 100 snapshots, and with 1,000, ten in a micro-batch.

Each stream has a driver of its own, with two executors of Spark's local cluster, whose processes
are looked at while it runs: Python's and Java's of the driver, what plans micro-batches, executors
and Python workers. A row for each kind has the most of resident memory, and for the driver's JVM
the most of its heap that a collection leaves. PAIMON_MAGICS_BENCH_SNAPSHOTS names other numbers,
PAIMON_MAGICS_BENCH_ROWS the rows of a snapshot. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import resident_mb
from pyspark.sql import SparkSession

import paimon_magics

SNAPSHOTS = os.environ.get("PAIMON_MAGICS_BENCH_SNAPSHOTS", "100,1000")
ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "1000"))
EACH = 10
KINDS = {
    "executors": b"CoarseGrainedExecutorBackend",
    "driver, Java": b"org.apache.spark.deploy.SparkSubmit",
    "planner of micro-batches": b"streaming_source_runner",
    "Python workers": b"pyspark.daemon",
}


def main() -> None:
    if "--one" in sys.argv:
        one(sys.argv[-1], int(sys.argv[-2]))
        return
    for snapshots in SNAPSHOTS.split(","):
        with tempfile.TemporaryDirectory() as folder:
            fill(folder, int(snapshots))
            command = [sys.executable, __file__, "--one", snapshots, folder]
            subprocess.run(command, check=True)


def fill(folder: str, snapshots: int) -> None:
    """Make the table `t`, with so many snapshots, without Spark."""
    import pyarrow as pa
    from pypaimon import CatalogFactory
    from pypaimon.schema.schema import Schema

    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    pypaimon = CatalogFactory.create({"warehouse": folder})
    pypaimon.create_database("default", True)
    pypaimon.create_table("default.t", Schema.from_pyarrow_schema(schema), True)
    for number in range(snapshots):
        keys = range(number * ROWS, (number + 1) * ROWS)
        builder = pypaimon.get_table("default.t").new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(pa.table([list(keys), [f"v{key}" for key in keys]], schema=schema))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


def one(folder: str, snapshots: int) -> None:
    """Let a stream catch up, and print the most memory of its processes."""
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": f"{folder}/spark-warehouse",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    session = paimon_magics.connect(folder, spark=spark, coordinator="in-process")
    session.run("CREATE TABLE kept (k BIGINT, v STRING)")
    limits = {"scan.snapshot-id": 1, "read.stream.maxSnapshotsPerTrigger": EACH}
    began = time.perf_counter()
    stream = session.write_stream(
        session.stream("t", **limits), "kept", checkpoint=f"{folder}/checkpoint"
    )
    most: dict[str, float] = {}
    looks = 0
    while stream.progress.epochs < snapshots // EACH and not stream.wait(0.5):
        found = sizes()
        looks += 1
        if looks % 10 == 0:
            found["driver, Java, live heap"] = live_heap_mb(spark)
        for kind, size in found.items():
            most[kind] = max(most.get(kind, 0), size)
    seconds = time.perf_counter() - began
    stream.stop()
    assert session.table("kept").count() == snapshots * ROWS
    print(f"{snapshots} snapshots of {ROWS:,} rows, {EACH} each, {seconds:.0f} s", flush=True)
    for kind in sorted(most):
        print(f"  {kind:<30} {most[kind]:>8.0f} MB", flush=True)
    session.close(stop_spark=True)


def sizes() -> dict[str, float]:
    """The memory of this process and its descendants by kind, in MB; all processes of a kind
    together."""
    found = {"driver, Python": resident_mb(os.getpid())}
    mine = {os.getpid()}
    parents: dict[int, tuple[int, bytes]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(folder.name)] = int(fields[1]), (folder / "cmdline").read_bytes()
        except OSError:
            continue
    while more := {pid for pid, (parent, _) in parents.items() if parent in mine} - mine:
        mine |= more
    for pid in mine - {os.getpid()}:
        kind = next((name for name, word in KINDS.items() if word in parents[pid][1]), None)
        if kind is not None:
            try:
                found[kind] = found.get(kind, 0) + resident_mb(pid)
            except OSError:
                continue
    return found


def live_heap_mb(spark: SparkSession) -> float:
    """What the driver's heap holds after a collection, in MB."""
    java = spark._jvm.java.lang  # type: ignore[union-attr]
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


if __name__ == "__main__":
    main()
