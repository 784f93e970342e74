"""INSERT SELECT of 2 million rows into every layout, compared with Paimon's Spark connector where
the environment variable PAIMON_SPARK_JAR names its jar, else with pypaimon in the same Spark tasks.

Rows have 7 columns and go to 4 partitions; shuffle, statement order and commit are included. The
peer in pypaimon shuffles by partition, and one writer has all buckets of a partition. Beside the
connector each layout is written by SQL and by a frame, both sides in turn, the median of
PAIMON_MAGICS_BENCH_RUNS (7); `append`, `fixed` or `dynamic` as an argument measures that layout
alone. To cut the size, set PAIMON_MAGICS_BENCH_ROWS. `--scale` measures growth to
20 million rows and 5,000 partitions instead, and one core against two (each in its own process).
"""

from __future__ import annotations

import os
import pickle
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pyarrow as pa
from connector import JAR, SLOTS, connect
from measure import median_ms, report, timed
from pyspark.sql import DataFrame

import paimon_magics

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
RUNS = int(os.environ.get("PAIMON_MAGICS_BENCH_RUNS", "7"))
COLUMNS = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d DECIMAL(12,2), e DATE, part INT"
SELECT = (
    "SELECT id AS k, CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, CAST(id % {parts} AS INT) AS part FROM range({rows})"
)
LAYOUTS = {
    "append": "",
    "fixed buckets": "'primary-key' = 'k,part', 'bucket' = '2'",
    # Without a number of assigners the connector uses one for each of 200 shuffle partitions.
    "dynamic buckets": "'primary-key' = 'k,part', 'dynamic-bucket.assigner-parallelism' = '2'",
}


def main() -> None:
    if "--scale" in sys.argv:
        scale()
        return
    with tempfile.TemporaryDirectory() as folder:
        session = connect(folder)
        query = SELECT.format(rows=ROWS, parts=4)
        chosen = sys.argv[1:]
        for layout, options in LAYOUTS.items():
            if chosen and layout.split()[0] not in chosen:
                continue
            name = layout.replace(" ", "_")
            for owner in ("ours", "peer"):
                create(session, f"{name}_{owner}", options)
            what = f"INSERT OVERWRITE … SELECT, {layout}, {ROWS:,} rows"
            if JAR:
                beside_connector(session, name, query, what)
                continue
            ours_ms = median_ms(
                lambda n=name: session.run(f"INSERT OVERWRITE {n}_ours {query}"), runs=5
            )
            runs = 5 if layout == "append" else 1  # pypaimon's keyed writers take a minute
            peer_ms = median_ms(
                lambda n=name: peer_write(session, session.spark.sql(query), f"{n}_peer"),
                runs=runs,
                warm_up=1 if runs > 1 else 0,
            )
            report(what, ours_ms, "pypaimon", peer_ms)
        if chosen and "dynamic" not in chosen:
            session.close(stop_spark=True)
            return
        upsert = f"INSERT INTO dynamic_buckets_ours {query}"
        report(
            f"upsert into dynamic buckets with an index, {ROWS:,} rows",
            median_ms(lambda: session.run(upsert), runs=3),
        )
        session.close(stop_spark=True)


def beside_connector(session: paimon_magics.Session, name: str, query: str, what: str) -> None:
    """Measure a layout by SQL and by a frame, both sides in turn."""
    spark = session.spark
    ours, peer = f"{name}_ours", f"connector.default.{name}_peer"
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "SQL": (
            lambda: session.run(f"INSERT OVERWRITE {ours} {query}"),
            lambda: spark.sql(f"INSERT OVERWRITE {peer} {query}"),
        ),
        "a frame": (
            lambda: session.write(spark.sql(query), ours, mode="overwrite"),
            lambda: spark.sql(query).write.mode("overwrite").insertInto(peer),
        ),
    }
    for way, pair in pairs.items():
        times: tuple[list[float], list[float]] = ([], [])
        for run in range(RUNS + 1):
            for side, action in zip(times, pair, strict=True):
                took_ms, _ = timed(action)
                if run:  # the first one warms up
                    side.append(took_ms)
        ours_ms, peer_ms = map(statistics.median, times)
        report(f"{what}, {way}", ours_ms, "connector", peer_ms)


def create(session: paimon_magics.Session, name: str, options: str) -> None:
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (part)"
        + (f" TBLPROPERTIES ({options})" if options else "")
    )


def peer_write(session: paimon_magics.Session, source: DataFrame, name: str) -> None:
    """Write as a user would by hand: with pypaimon's own writer in the tasks of a Spark job."""
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": session.warehouse})
    table = catalog.get_table(f"default.{name}").copy({"dynamic-partition-overwrite": "false"})
    blob = pickle.dumps(table)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pypaimon.schema.data_types import PyarrowFieldParser

        loaded = pickle.loads(blob)
        schema = PyarrowFieldParser.from_paimon_schema(loaded.fields)
        writer = loaded.new_batch_write_builder().overwrite().new_write()
        for batch in batches:
            writer.write_arrow(pa.Table.from_batches([batch]).cast(schema))
        messages = writer.prepare_commit()
        writer.close()
        yield pa.record_batch({"messages": pa.array([pickle.dumps(messages)], pa.binary())})

    owned = source.repartition(SLOTS, "part")  # one writer for each partition, all its buckets
    rows = owned.mapInArrow(write, "messages binary").collect()
    messages = [message for row in rows for message in pickle.loads(bytes(row[0]))]
    table.new_batch_write_builder().overwrite().new_commit().commit(messages)


def scale() -> None:
    if "--one" in sys.argv:
        _, _, _, layout, rows, parts, warm_up = sys.argv
        with tempfile.TemporaryDirectory() as folder:
            session = connect(folder)
            create(session, "t", LAYOUTS[layout])
            session.run(f"INSERT OVERWRITE t {SELECT.format(rows=10_000, parts=2)}")
            statement = f"INSERT OVERWRITE t {SELECT.format(rows=rows, parts=parts)}"
            runs = 5 if int(warm_up) else 1
            ms = median_ms(lambda: session.run(statement), runs=runs, warm_up=int(warm_up))
            print(f"{ms / 1000:.2f}")
            session.close(stop_spark=True)
        return
    for layout in LAYOUTS:
        for rows, parts in ((1_000_000, 4), (5_000_000, 4), (20_000_000, 4), (2_000_000, 5_000)):
            seconds = run_one(layout, rows, parts)
            print(f"{layout:<16} {rows:>11,} rows {parts:>6,} partitions {seconds:>8.2f} s")
        one = run_one(layout, ROWS, 4, "taskset", "-c", "0", warm_up=3)
        two = run_one(layout, ROWS, 4, "taskset", "-c", "0,1", warm_up=3)
        print(f"{layout:<16} one core {one:.2f} s, two {two:.2f} s: {one / two:.2f} x")


def run_one(layout: str, rows: int, parts: int, *prefix: str, warm_up: int = 0) -> float:
    """The seconds of one statement in a process of its own; with `warm_up`, the median of five
    after that many others."""
    script = [sys.executable, __file__, "--scale", "--one"]
    command = [*prefix, *script, layout, str(rows), str(parts), str(warm_up)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
