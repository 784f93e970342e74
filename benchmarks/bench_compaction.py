"""CALL sys.compact on tables of millions of stored rows, compared with Paimon's Spark connector in
the same Spark session where the environment variable PAIMON_SPARK_JAR names its jar; then what
compaction gives to reads, and what the one after an INSERT costs.

Each run compacts a copy of the same table. To cut the size, set PAIMON_MAGICS_BENCH_ROWS (rows of
one of three writes) and PAIMON_MAGICS_BENCH_RUNS. Names of cases as arguments run only these.
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
from functools import partial
from pathlib import Path

from connector import JAR, connect
from measure import report

import paimon_magics
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.writing.table_write import write_spec
from paimon_magics.tables.writing.writer import write_batches

ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
RUNS = int(os.environ.get("PAIMON_MAGICS_BENCH_RUNS", "5"))
WRITES = 3
KEYED = "'primary-key' = 'k', 'write-only' = 'true', "
WIDE = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d DECIMAL(12,2), e DATE, f BIGINT"
WIDE_ROWS = (
    "SELECT {key} AS k, CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, id * 7 AS f FROM range({rows})"
)
NARROW = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING, d BIGINT"
NARROW_ROWS = (
    "SELECT {key} AS k, CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "id * 7 AS d FROM range({rows})"
)


@dataclass(frozen=True)
class Case:
    """A table, and the query of each of its writes: `{key}` is an expression that shifts keys."""

    columns: str
    options: str
    query: str
    writes: int = WRITES
    rows: int = ROWS
    files: int = 0
    """If not 0, the rows of the one write are in so many files."""
    settled_writes: int = 0
    """The table is compacted once after so many writes."""


CASES = {
    "8 buckets": Case(WIDE, f"{KEYED}'bucket' = '8'", WIDE_ROWS),
    "input changelog": Case(
        WIDE, f"{KEYED}'bucket' = '8', 'changelog-producer' = 'input'", WIDE_ROWS
    ),
    "one bucket": Case(NARROW, f"{KEYED}'bucket' = '1'", NARROW_ROWS),
    "partial update": Case(
        WIDE, f"{KEYED}'bucket' = '8', 'merge-engine' = 'partial-update'", WIDE_ROWS
    ),
    "lookup changelog": Case(
        WIDE,
        f"{KEYED}'bucket' = '8', 'changelog-producer' = 'lookup'",
        WIDE_ROWS,
        settled_writes=2,
    ),
    "deletion vectors": Case(
        WIDE,
        f"{KEYED}'bucket' = '8', 'deletion-vectors.enabled' = 'true'",
        WIDE_ROWS,
        settled_writes=2,
    ),
    "small files": Case(WIDE, "'write-only' = 'true'", WIDE_ROWS, 1, 2 * ROWS, files=2000),
    "nothing to do": Case(NARROW, f"{KEYED}'bucket' = '10000'", NARROW_ROWS, 1, 200_000),
}


READS = "reads"
INLINE = "inline"
INSERTS = 12
EVERY_VALUE = "SELECT count(*), bit_xor(hash(k, a, b, c, d, e, f)) FROM {}"


def main() -> None:
    chosen = sys.argv[1:] or [*CASES, READS, INLINE]
    with tempfile.TemporaryDirectory() as folder:
        session = connect(folder, driver_memory="4g")
        for name in chosen:
            if name == READS:
                reads(session)
            elif name == INLINE:
                inline(session)
            else:
                run(session, Path(folder), name, CASES[name])
        session.close(stop_spark=True)


def run(session: paimon_magics.Session, folder: Path, name: str, case: Case) -> None:
    table = name.replace(" ", "_")
    session.run(f"CREATE TABLE {table} ({case.columns}) TBLPROPERTIES ({case.options})")
    for number in range(case.writes):
        key = f"id + {number * case.rows // 4}"
        query = case.query.format(key=key, rows=case.rows)
        if case.files:
            write_files(session, folder, table, query, case.files)
        else:
            session.run(f"INSERT INTO {table} {query}")
        if number + 1 == case.settled_writes:
            session.run(f"CALL sys.compact('{table}')")
    if name == "nothing to do":
        session.run(f"CALL sys.compact('{table}')")
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(RUNS + 1):
        for who in ("ours", "peer") if JAR else ("ours",):
            copy = f"{table}_{who}_{number}"
            home = folder / "default.db"
            shutil.copytree(home / table, home / copy)
            seconds = timed(call(session, who, copy))
            shutil.rmtree(home / copy)
            if number:  # the first run warms up
                times[who].append(seconds)
    ours_ms = statistics.median(times["ours"]) * 1000
    peer_ms = statistics.median(times["peer"]) * 1000 if JAR else None
    report(
        f"CALL sys.compact, {name}, {case.writes * case.rows:,} rows", ours_ms, "connector", peer_ms
    )


def reads(session: paimon_magics.Session) -> None:
    """Read every value of a table that was compacted, and of one that INSERTs have compacted as
    they went; by SQL and as a frame, beside a raw scan of the same files."""
    compacted, inserted = "read_compacted", "read_inserted"
    for table, options, writes in (
        (compacted, f"{KEYED}'bucket' = '8'", WRITES),
        (inserted, "'primary-key' = 'k', 'bucket' = '8'", INSERTS),
    ):
        session.run(f"CREATE TABLE {table} ({WIDE}) TBLPROPERTIES ({options})")
        for number in range(writes):
            rows = WRITES * ROWS // writes
            query = WIDE_ROWS.format(key=f"id + {number * rows // 4}", rows=rows)
            session.run(f"INSERT INTO {table} {query}")
    session.run(f"CALL sys.compact('{compacted}')")
    for table in (compacted, inserted):
        listed = session.run(f"SELECT file_path FROM {table}$files")
        paths = [row["file_path"] for row in listed.to_pylist()]
        session.spark.read.parquet(*paths).createOrReplaceTempView("raw")
        session.table(table).createOrReplaceTempView("frame")
        ways: dict[str, Callable[[], object]] = {
            "raw": lambda: session.spark.sql(EVERY_VALUE.format("raw")).collect(),
            "SQL": lambda table=table: session.run(EVERY_VALUE.format(table)).to_pylist(),
            "frame": lambda: session.spark.sql(EVERY_VALUE.format("frame")).collect(),
        }
        found = medians(ways)
        for way in ("SQL", "frame"):
            what = f"{table.replace('_', ' ')}, {len(paths)} files, by {way}"
            report(what, found[way], "Spark's raw scan", found["raw"])


def inline(session: paimon_magics.Session) -> None:
    """INSERTs one after the other into a table that they compact, and into one that is
    `write-only`, in turn."""
    tables = {"compacting": "", "write-only": ", 'write-only' = 'true'"}
    for name, option in tables.items():
        session.run(
            f"CREATE TABLE `inline_{name}` ({WIDE}) TBLPROPERTIES "
            f"('primary-key' = 'k', 'bucket' = '8'{option})"
        )
    rows = ROWS // 10
    times: dict[str, list[float]] = {name: [] for name in tables}
    for number in range(2 * INSERTS):
        query = WIDE_ROWS.format(key=f"id + {number * rows // 4}", rows=rows)
        for name in tables:
            seconds = timed(partial(session.run, f"INSERT INTO `inline_{name}` {query}"))
            if number >= INSERTS:  # the others warm up
                times[name].append(seconds)
    ours, peer = (statistics.mean(times[name]) * 1000 for name in tables)
    report(f"INSERT of {rows:,} rows with inline compaction", ours, "without it", peer)


def medians(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median times of some actions in milliseconds, in turn, after a run that warms up."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(RUNS + 1):
        for way, action in ways.items():
            seconds = timed(action)
            if number:
                times[way].append(seconds * 1000)
    return {way: statistics.median(each) for way, each in times.items()}


def write_files(
    session: paimon_magics.Session, folder: Path, name: str, query: str, files: int
) -> None:
    """Write the rows of a query into so many files: one writer for each, and one commit."""
    committer = InProcessCommitter(Catalog.open({"warehouse": str(folder)}), Settings())
    table = Catalog.open({"warehouse": str(folder)}).load(TableName(name, "default"))
    transaction = committer.begin(table.name)
    spec = write_spec(table, transaction, overwrite=False, slots=1, settings=Settings())
    rows = session.spark.sql(query).toArrow().combine_chunks()
    part = -(-rows.num_rows // files)
    messages: list[bytes] = []
    for start in range(0, rows.num_rows, part):
        messages += write_batches(spec, rows.slice(start, part).to_batches()).messages
    committer.commit(CommitRequest(transaction, Append(), tuple(messages)))


def call(session: paimon_magics.Session, who: str, table: str) -> Callable[[], object]:
    if who == "ours":
        return lambda: session.run(f"CALL sys.compact('{table}')")
    return lambda: session.spark.sql(
        f"CALL connector.sys.compact(table => 'default.{table}')"
    ).collect()


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
