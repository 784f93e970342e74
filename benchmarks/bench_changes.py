"""Reading the changes between two snapshots, by SQL and by a frame, compared with Paimon's Spark
connector where the environment variable PAIMON_SPARK_JAR names its jar.

Arguments choose some of: audit_log, binlog, ready. The last one is what Spark takes by itself for
the query over rows of a binlog that Python has ready: no reader that hands lists to Spark's query
can be faster. See `read_tables` for the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench_writes import COLUMNS, SLOTS
from measure import median_ms, report
from pyspark.sql import functions as F
from read_tables import ROWS, RUNS, VALUES, WARM_UP, compare_frames, compare_sql, run_parts

import paimon_magics

EACH = "count(*) AS n, bit_xor(hash(rowkind, k, a, b, c, d, e, part, op)) AS h"
WINDOW = {"incremental-between": "0,3"}


def main() -> None:
    run_parts({"audit_log": audit_log, "binlog": binlog, "ready": ready})


def audit_log(session: paimon_magics.Session) -> None:
    read(session, "audit_log")


def binlog(session: paimon_magics.Session) -> None:
    read(session, "binlog")


def read(session: paimon_magics.Session, view: str) -> None:
    """Measure all columns and three of them, and the changes of one key in a hundred."""
    changed(session, view, ROWS)
    name, what = f"{view}${view}", f"incremental {view}, {3 * ROWS:,} changes"
    compare_sql(session, what, name, f"SELECT {EACH} FROM {{}}", options=WINDOW)
    compare_frames(session, what, name, every_change, WINDOW)
    compare_frames(session, f"{what}, 3 of 9 columns", name, some_changes, WINDOW)


def every_change(frame: Any) -> Any:
    parts = EACH.split(" AS n, ")
    return frame.agg(F.expr(parts[0]).alias("n"), F.expr(parts[1])).toArrow().to_pylist()


def some_changes(frame: Any) -> Any:
    chosen = frame.select("rowkind", "k", "a")
    return chosen.agg(F.expr("bit_xor(hash(rowkind, k, a))").alias("h")).toArrow().to_pylist()


def changed(session: paimon_magics.Session, name: str, rows: int) -> None:
    """Create a table with three snapshots of `rows` changes each."""
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}, op STRING) TBLPROPERTIES ('primary-key' = 'k', "
        "'bucket' = '2', 'changelog-producer' = 'input', 'rowkind.field' = 'op')"
    )
    for _ in range(3):
        session.run(
            f"INSERT INTO {name} SELECT id div 2 AS k, {VALUES}, "
            f"IF(id % 2 = 0, '-U', '+U') AS op FROM range({rows})"
        )


def ready(session: paimon_magics.Session) -> None:
    rows = 3 * ROWS // 2
    frame = session.spark.range(0, SLOTS, 1, SLOTS).mapInArrow(pairs(rows), PAIRS)
    taken_ms = median_ms(lambda: every_change(frame), runs=RUNS, warm_up=WARM_UP)
    report(f"{rows:,} rows of a binlog that are ready in Python", taken_ms)


PAIRS = (
    "rowkind STRING, k ARRAY<BIGINT>, a ARRAY<INT>, b ARRAY<DOUBLE>, c ARRAY<STRING>, "
    "d ARRAY<DECIMAL(12,2)>, e ARRAY<DATE>, part ARRAY<INT>, op ARRAY<STRING>"
)


def pairs(rows: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A stage that returns the same batch of updates again and again, `rows` rows in all tasks."""

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 65536
        row = np.arange(2 * count)
        numbers = pa.array(row)
        offsets = pa.array(row[: count + 1] * 2, pa.int32())
        columns = {
            "k": numbers,
            "a": pa.array(row % 1000, pa.int32()),
            "b": pa.array(row * 0.5),
            "c": pc.binary_join_element_wise("value-", numbers.cast(pa.string()), ""),
            "d": numbers.cast(pa.float64()).cast(pa.decimal128(12, 2)),
            "e": pa.array(row % 365, pa.int32()).cast(pa.date32()),
            "part": pa.array(row % 4, pa.int32()),
            "op": pa.array(["-U", "+U"]).take(pa.array(row % 2)),
        }
        lists = [pa.ListArray.from_arrays(offsets, column) for column in columns.values()]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(["+U"]).take(pa.array(row[:count] * 0)), *lists], names=["rowkind", *columns]
        )
        for _ in batches:
            left = rows // SLOTS
            while left > 0:
                yield batch.slice(0, left)
                left -= count

    return made


if __name__ == "__main__":
    main()
