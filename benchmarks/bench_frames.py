"""Frames of a table that are pruned by what is done with them, compared with those of Paimon's
Spark connector where the environment variable PAIMON_SPARK_JAR names its jar.

Arguments choose some of: merge, log. See `read_tables` for the sizes.
"""

from __future__ import annotations

from typing import Any

from bench_writes import COLUMNS
from pyspark.sql import functions as F
from read_tables import ROWS, VALUES, compare_frames, compare_sql, run_parts

import paimon_magics

ALL = "bit_xor(hash(k, a, b, c, d, e, part))"


def main() -> None:
    run_parts({"merge": merge, "log": log})


def merge(session: paimon_magics.Session) -> None:
    partitioned(session, "framed")
    what = f"merge of {3 * ROWS:,} stored rows"
    compare_frames(session, f"{what}, 2 of 7 columns", "framed", two_columns)
    compare_frames(session, f"{what}, one of 4 partitions", "framed", one_partition)
    query = f"SELECT count(*) AS n, {ALL} AS h FROM {{}} WHERE part = 1"
    compare_sql(session, f"{what}, one of 4 partitions", "framed", query)
    compare_frames(session, f"{what}, a sum for each partition", "framed", sums)


def log(session: paimon_magics.Session) -> None:
    partitioned(session, "logged")
    what = f"audit log of {3 * ROWS:,} stored rows"
    name = "logged$audit_log"
    compare_frames(session, f"{what}, one of 4 partitions", name, one_partition)
    compare_frames(session, f"{what}, 2 of 8 columns", name, two_columns)


def partitioned(session: paimon_magics.Session, name: str) -> None:
    """Create a table of 4 partitions, whose buckets have three runs of the same keys."""
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (part) "
        "TBLPROPERTIES ('primary-key' = 'k,part', 'bucket' = '1', 'write-only' = 'true')"
    )
    for _ in range(3):
        session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range({ROWS})")


def two_columns(frame: Any) -> Any:
    chosen = frame.select("k", "a")
    return chosen.agg(F.expr("bit_xor(hash(k, a))").alias("h")).toArrow().to_pylist()


def one_partition(frame: Any) -> Any:
    rows = frame.where(frame.part == 1)
    return rows.agg(F.count("*").alias("n"), F.expr(ALL).alias("h")).toArrow().to_pylist()


def sums(frame: Any) -> Any:
    return frame.groupBy("part").agg(F.sum("b").alias("b")).orderBy("part").toArrow().to_pylist()


if __name__ == "__main__":
    main()
