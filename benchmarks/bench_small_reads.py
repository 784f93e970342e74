"""Reads that need few rows or none, by SQL and by a frame, compared with Paimon's Spark connector
where the environment variable PAIMON_SPARK_JAR names its jar.

Arguments choose some of: key, table, counts. See `read_tables` for the sizes.
"""

from __future__ import annotations

from bench_writes import COLUMNS
from read_tables import ROWS, VALUES, compare_frames, compare_sql, in_steps, run_parts

import paimon_magics


def main() -> None:
    run_parts({"key": key, "table": table, "counts": counts})


def key(session: paimon_magics.Session) -> None:
    """Measure the rows of a key that one of many files can have, and of some keys."""
    in_steps(session, "keys", ROWS)
    one = f"k = {ROWS // 2}"
    some = f"k IN ({', '.join(str(ROWS // 20 * number + 7) for number in range(10))})"
    for what, condition in (("one key", one), ("ten keys", some)):
        query = f"SELECT * FROM {{}} WHERE {condition}"
        compare_sql(session, f"{what} among 40 files", "keys", query)
        compare_frames(
            session, f"{what} among 40 files", "keys", lambda f, c=condition: f.where(c).collect()
        )


def table(session: paimon_magics.Session) -> None:
    append(session, "small", 1_000)
    what = "a table of 1,000 rows"
    compare_sql(session, what, "small", "SELECT * FROM {}")
    compare_frames(session, what, "small", lambda frame: frame.collect())


def counts(session: paimon_magics.Session) -> None:
    """Measure what manifests tell, and the first rows."""
    append(session, "large", 2 * ROWS)
    what = f"count of {2 * ROWS:,} rows"
    compare_sql(session, what, "large", "SELECT count(*) FROM {}")
    compare_frames(session, what, "large", lambda frame: frame.count())
    compare_sql(session, "min and max", "large", "SELECT min(k), max(k), min(e) FROM {}")
    compare_sql(session, "LIMIT 10", "large", "SELECT k, c FROM {} LIMIT 10", any_rows=True)
    compare_frames(session, "take(10)", "large", lambda frame: len(frame.take(10)))


def append(session: paimon_magics.Session, name: str, rows: int) -> None:
    session.run(f"CREATE TABLE {name} ({COLUMNS})")
    session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range({rows})")


if __name__ == "__main__":
    main()
