"""DELETE, UPDATE and MERGE on tables of 2 million rows, compared with Paimon's Spark connector in
the same Spark session where the environment variable PAIMON_SPARK_JAR names its jar.

Each run changes a copy of the same table. To cut the size, set PAIMON_MAGICS_BENCH_ROWS (rows of
the table; a tenth of them is the source of the MERGE) and PAIMON_MAGICS_BENCH_RUNS. Names of tables
as arguments run only these.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from connector import JAR, connect
from measure import report

import paimon_magics

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
RUNS = int(os.environ.get("PAIMON_MAGICS_BENCH_RUNS", "5"))
COLUMNS = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d DECIMAL(12,2), e DATE, f BIGINT"
QUERY = (
    "SELECT {key} AS k, CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, id * 7 AS f FROM range({rows})"
)
TABLES = {
    "primary key": "'primary-key' = 'k', 'bucket' = '8'",
    "append": "'write-only' = 'false'",
    "append with vectors": "'deletion-vectors.enabled' = 'true'",
}
KEYED_TABLE = "primary key"


@dataclass(frozen=True)
class Change:
    """A statement, with `{table}` for its table; the same by the session's Python methods."""

    statement: str
    frame: Callable[[paimon_magics.Session, str], object] | None = None
    keyed: bool = False
    """Only of interest where a row is found by its key."""


CHANGES = {
    "DELETE of 1 %": Change(
        "DELETE FROM {table} WHERE k % 100 = 3",
        lambda session, table: session.delete(table, "k % 100 = 3"),
    ),
    "UPDATE of 1 %": Change(
        "UPDATE {table} SET b = b + 1, c = concat(c, '!') WHERE k % 100 = 4",
        lambda session, table: session.update(
            table, {"b": "b + 1", "c": "concat(c, '!')"}, "k % 100 = 4"
        ),
    ),
    "MERGE of a tenth": Change(
        "MERGE INTO {table} t USING source s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        lambda session, table: (
            session.merge(session.spark.table("source"), table, on="t.k = s.k")
            .when_matched_update()
            .when_not_matched_insert()
            .run()
        ),
    ),
    "DELETE of one key": Change(
        f"DELETE FROM {{table}} WHERE k = {ROWS // 3}",
        lambda session, table: session.delete(table, f"k = {ROWS // 3}"),
        keyed=True,
    ),
    "UPDATE of one key": Change(
        f"UPDATE {{table}} SET a = a + 1 WHERE k = {ROWS // 3}",
        lambda session, table: session.update(table, {"a": "a + 1"}, f"k = {ROWS // 3}"),
        keyed=True,
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = connect(folder, driver_memory="4g")
        # Half of the source's keys are in the table.
        source = QUERY.format(key=f"id * 10 + {ROWS // 2 // 10 * 10}", rows=ROWS // 10)
        session.spark.sql(source).cache().createOrReplaceTempView("source")
        session.spark.table("source").count()
        for name in sys.argv[1:] or TABLES:
            run(session, Path(folder), name)
        session.close(stop_spark=True)


def run(session: paimon_magics.Session, folder: Path, name: str) -> None:
    table = name.replace(" ", "_")
    session.run(f"CREATE TABLE {table} ({COLUMNS}) TBLPROPERTIES ({TABLES[name]})")
    session.run(f"INSERT INTO {table} {QUERY.format(key='id', rows=ROWS)}")
    if name == KEYED_TABLE:
        session.run(f"CALL sys.compact('{table}')")
    for what, change in CHANGES.items():
        if not change.keyed or name == KEYED_TABLE:
            measure(session, folder / "default.db", table, what, change)


def measure(
    session: paimon_magics.Session, home: Path, table: str, what: str, change: Change
) -> None:
    """Print the medians of a change by SQL and by Python, each beside the connector's SQL; all of
    them find the same rows in the end."""
    ways: dict[str, Callable[[str], object]] = {
        "SQL": lambda copy: session.run(change.statement.format(table=copy)),
    }
    if change.frame:
        frame = change.frame
        ways["Python"] = lambda copy: frame(session, copy)
    if JAR:
        ways["connector"] = lambda copy: session.spark.sql(
            change.statement.format(table=f"connector.default.{copy}")
        ).collect()
    times: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, object] = {}
    for number in range(RUNS + 1):
        for way, action in ways.items():
            copy = f"{table}_{way}_{number}".lower()
            shutil.copytree(home / table, home / copy)
            began = time.perf_counter()
            action(copy)
            seconds = time.perf_counter() - began
            if number:  # the first run warms up
                times[way].append(seconds * 1000)
            else:
                found[way] = state(session, copy)
            shutil.rmtree(home / copy)
    if len(set(map(str, found.values()))) > 1:
        raise AssertionError(f"The ways do not agree on {what} on {table}: {found}")
    peer_ms = statistics.median(times["connector"]) if JAR else None
    for way in ways:
        if way != "connector":
            line = f"{table}: {what}, {ROWS:,} rows, by {way}"
            report(line, statistics.median(times[way]), "connector", peer_ms)


def state(session: paimon_magics.Session, table: str) -> object:
    """The number of rows of a table, and a hash of all of them."""
    query = f"SELECT count(*), bit_xor(hash(k, a, b, c, d, e, f)), sum(k) FROM {table}"
    return session.run(query).to_pylist()


if __name__ == "__main__":
    main()
