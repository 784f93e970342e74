"""The time that a session adds to a warm query: parsing, resolving names, planning, making views.

The peer is `spark.sql` on the same text over the same frames, registered as views by hand. The
difference of the two medians is our overhead. Neither side fetches rows.
"""

from __future__ import annotations

import statistics
import tempfile

from measure import median_ms, report

import paimon_magics

_RUNS = 200
_WARM_UP = 60
_QUERIES = (
    ("one table", "SELECT k, v FROM facts WHERE part = 3 AND k < :most"),
    (
        "two tables, join and aggregate",
        "SELECT facts.part, keys.v, count(*) FROM facts JOIN keys ON facts.k = keys.k "
        "WHERE facts.k < :most GROUP BY facts.part, keys.v",
    ),
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = paimon_magics.connect(folder, master="local[2]")
        session.run(
            "CREATE TABLE facts (k INT, v STRING, part INT) PARTITIONED BY (part); "
            "INSERT INTO facts SELECT CAST(id AS INT), 'v' || id, CAST(id % 12 AS INT) "
            "FROM range(100000); "
            "CREATE TABLE keys (k INT NOT NULL, v STRING) "
            "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2'); "
            "INSERT INTO keys SELECT CAST(id AS INT), 'v' || id FROM range(1000)"
        )
        spark = session.spark
        session.table("facts").createOrReplaceTempView("plain_facts")
        session.table("keys").createOrReplaceTempView("plain_keys")
        for what, query in _QUERIES:
            plain = query.replace("FROM facts", "FROM plain_facts AS facts")
            plain = plain.replace("JOIN keys", "JOIN plain_keys AS keys")

            def ours(query: str = query) -> None:
                session.run(query, {"most": 500})

            def sparks(plain: str = plain) -> None:
                spark.sql(plain, args={"most": 500})

            median_ms(ours, runs=_WARM_UP)
            median_ms(sparks, runs=_WARM_UP)
            # Alternate, so that a busy moment of the machine hits both.
            pairs = [
                (median_ms(ours, runs=1, warm_up=0), median_ms(sparks, runs=1, warm_up=0))
                for _ in range(_RUNS)
            ]
            mine = statistics.median(pair[0] for pair in pairs)
            theirs = statistics.median(pair[1] for pair in pairs)
            report(f"added to a warm query, {what}", mine - theirs)
            print(f"  {mine:.1f} ms in all, {theirs:.1f} ms of them Spark's own for the same text")
        session.close(stop_spark=True)


if __name__ == "__main__":
    main()
