"""What is done with the frame of a table, and the query that gives the same rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["CREATE", "INSERT", "STEPS", "Steps"]

CREATE = """CREATE TABLE kept (k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d DECIMAL(12,2),
e DATE, p INT NOT NULL, `we ird` CHAR(3)) PARTITIONED BY (p)
TBLPROPERTIES ('primary-key' = 'k,p', 'bucket' = '2', 'write-only' = 'true')"""
INSERT = """INSERT INTO kept SELECT id, CAST(id % 10 AS INT), id * 0.5D, concat('v ', id % 7),
CAST(id AS DECIMAL(12,2)), date_add(DATE'2024-01-01', CAST(id % 30 AS INT)), CAST(id % 4 AS INT),
'abc' FROM range(200)"""


@dataclass(frozen=True)
class Steps:
    """`made` makes the frame, `sql` gives its rows. `columns` are those that may be read at most,
    None for all; `prunes` tells that the files of other partitions than 1 are left out."""

    made: Callable[[DataFrame], DataFrame]
    sql: str
    columns: str | None = None
    prunes: bool = False


def _later(frame: DataFrame) -> DataFrame:
    made = frame.select("k", (frame.a + 1).alias("z"))
    return made.withColumn("w", made.z * 2).where(made.z > 3)


def _joined_with_itself(frame: DataFrame) -> DataFrame:
    one = frame.where("p = 1").select("k", F.col("c").alias("c2"))
    return frame.select("k", "a").join(one, "k")


DAY = datetime.date(2024, 1, 6)
STEPS: Mapping[str, Steps] = {
    "columns by name": Steps(lambda t: t.select("a", "c"), "SELECT a, c FROM kept", "a c"),
    "columns of the frame": Steps(
        lambda t: t.select(t.k, (t.a + 1).alias("z")), "SELECT k, a + 1 FROM kept", "k a"
    ),
    "an odd name": Steps(lambda t: t.select("`we ird`"), "SELECT `we ird` FROM kept", "we ird"),
    "a text": Steps(
        lambda t: t.where("p = 1 AND a > 3").select("k"),
        "SELECT k FROM kept WHERE p = 1 AND a > 3", "k a p", True,
    ),
    "a column": Steps(
        lambda t: t.filter(F.col("P") == 1).select("K"), "SELECT k FROM kept WHERE p = 1",
        "k a p", True,
    ),
    "columns joined by &": Steps(
        lambda t: t.where((t.p == 1) & (t.a > 2) & t.c.like("v%")).select(t.k),
        "SELECT k FROM kept WHERE p = 1 AND a > 2 AND c LIKE 'v%'", "k a c p", True,
    ),
    "an item": Steps(
        lambda t: t[t.p == 1][["k", "c"]], "SELECT k, c FROM kept WHERE p = 1", "k c p", True
    ),
    "a list": Steps(
        lambda t: t.where(F.col("p").isin(1)).select("k"), "SELECT k FROM kept WHERE p = 1",
        "k p", True,
    ),
    "text, day and decimal": Steps(
        lambda t: t.where((t.c == "v 5") & (t.e == DAY) & (t.d == Decimal("5.00"))).select("k"),
        "SELECT k FROM kept WHERE c = 'v 5' AND e = DATE'2024-01-06' AND d = 5.00", "k c e d",
    ),
    "after a selection": Steps(
        lambda t: t.select("k", "p").where("p = 1"), "SELECT k, p FROM kept WHERE p = 1",
        "k p", True,
    ),
    "another column of that name": Steps(
        lambda t: t.select("k", (t.p + 1).alias("p")).where("p = 1"),
        "SELECT k, 1 FROM kept WHERE p = 0", "k p",
    ),
    "an overwritten column": Steps(
        lambda t: t.withColumn("p", t.p + 1).where("p = 1").select("k"),
        "SELECT k FROM kept WHERE p = 0", "k p",
    ),
    "a literal like a column": Steps(
        lambda t: t.select("k", F.lit("p").alias("q")).where("q = 'p'"),
        "SELECT k, 'p' FROM kept", "k p",
    ),
    "behind a window": Steps(
        lambda t: t.withColumn("n", F.row_number().over(Window.partitionBy("a").orderBy("k")))
        .where("p = 1").select("k", "n"),
        "SELECT k, n FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY k) AS n FROM kept) "
        "WHERE p = 1", "k a p",
    ),
    "behind a limit": Steps(
        lambda t: t.orderBy("k").limit(7).where("p = 1").select("k"),
        "SELECT k FROM (SELECT * FROM kept ORDER BY k LIMIT 7) WHERE p = 1", "k p",
    ),
    "groups": Steps(
        lambda t: t.groupBy(t.p).agg(F.sum(t.b).alias("s")).where("s > 3").orderBy("p"),
        "SELECT p, sum(b) FROM kept GROUP BY p HAVING sum(b) > 3", "p b",
    ),
    "counted groups": Steps(
        lambda t: t.where(t.p == 1).groupBy("a").count(),
        "SELECT a, count(*) FROM kept WHERE p = 1 GROUP BY a", "a p", True,
    ),
    "groups with a pivot": Steps(
        lambda t: t.where("p = 1").groupBy("a").pivot("p", [1]).agg(F.sum("b")),
        "SELECT a, sum(b) FROM kept WHERE p = 1 GROUP BY a", None, True,
    ),
    "a computed column": Steps(
        lambda t: t.withColumn("x", F.col("a") * 2).groupBy("x").agg(F.count("*").alias("n")),
        "SELECT a * 2, count(*) FROM kept GROUP BY a", "a",
    ),
    "an aggregate": Steps(
        lambda t: t.agg(F.max("p").alias("p")).where("p = 3"), "SELECT 3", "p"
    ),
    "expressions": Steps(
        lambda t: t.selectExpr("a * 2 AS x", "p").where("p = 1"),
        "SELECT a * 2, p FROM kept WHERE p = 1", "a p", True,
    ),
    "an alias": Steps(
        lambda t: t.alias("o").where(F.col("o.a") == 3).select("o.k"),
        "SELECT k FROM kept WHERE a = 3", "k a",
    ),
    "a column that is not selected": Steps(
        lambda t: t.select("a").where(t.p == 1), "SELECT a FROM kept WHERE p = 1"
    ),
    "columns of a made frame": Steps(
        _later, "SELECT k, a + 1, (a + 1) * 2 FROM kept WHERE a + 1 > 3", "k a"
    ),
    "dropped columns": Steps(
        lambda t: t.drop("b", "c", "d", "e", "we ird").where("p = 1"),
        "SELECT k, a, p FROM kept WHERE p = 1", None, True,
    ),
    "a join": Steps(
        lambda t: t.where("p = 1").select("k", "a").join(
            t.sparkSession.range(20).withColumnRenamed("id", "k"), "k"
        ),
        "SELECT k, a FROM kept WHERE p = 1 AND k < 20", "k a p", True,
    ),
    "a join with itself": Steps(
        _joined_with_itself, "SELECT k, a, c FROM kept WHERE p = 1"
    ),
    "a union with itself": Steps(
        lambda t: t.select("k").where("k < 5").union(t.where("p = 1").select("k")),
        "SELECT k FROM kept WHERE k < 5 UNION ALL SELECT k FROM kept WHERE p = 1", "k p",
    ),
    "distinct values": Steps(
        lambda t: t.select("p").distinct(), "SELECT DISTINCT p FROM kept", "p"
    ),
}  # fmt: skip
