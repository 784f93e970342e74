"""Reading through a session, compared with Paimon's Spark connector where the environment variable
PAIMON_SPARK_JAR names its jar, else with pypaimon's own readers in the same Spark tasks.

Both read the same tables in one Spark session and hash every value of the columns they read; the
hashes must be equal. For comparison, Spark alone runs the same query: over the same Parquet files,
over numbers that it makes, or over batches that Python has ready. No reader that hands its rows to
Spark's query can be faster.

Arguments choose some of: raw, merge, audit, changes, frames, point, small, files. To cut the sizes,
set PAIMON_MAGICS_BENCH_ROWS, the number of rows after a merge, and PAIMON_MAGICS_BENCH_FILES, the
greatest number of files in a table.
"""

from __future__ import annotations

import io
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bench_writes import COLUMNS, JAR, SLOTS, connect
from measure import median_ms, report, timed
from pyspark.sql import functions as F

import paimon_magics
from paimon_magics.statements.statement import TableName

FILES = int(os.environ.get("PAIMON_MAGICS_BENCH_FILES", "20000"))
ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "2000000"))
RUNS = 5
WARM_UP = 8
VALUES = (
    "CAST(id % 1000 AS INT) AS a, id * 0.5D AS b, concat('value-', id) AS c, "
    "CAST(id % 100000 AS DECIMAL(12,2)) AS d, date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) "
    "AS e, CAST(id % 4 AS INT) AS part"
)
AGGREGATE = "SELECT count(*), sum(a), max(c) FROM {} WHERE k % 3 = 0"
NUMBERS = "SELECT count(*), sum(a), sum(b) FROM {} WHERE k % 3 = 0"
FOUR = "SELECT count(*), bit_xor(hash(k, a, b, e)) FROM {}"
ALL = "SELECT count(*), bit_xor(hash(k, a, b, c, d, e, part)) FROM {}"


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    with tempfile.TemporaryDirectory() as folder:
        session = connect(folder)
        for name in wanted:
            PARTS[name](session)
        session.close(stop_spark=True)


def raw(session: paimon_magics.Session) -> None:
    rows = 2 * ROWS
    session.run(f"CREATE TABLE append ({COLUMNS})")
    session.run(f"INSERT INTO append SELECT id AS k, {VALUES} FROM range({rows})")
    files = stored_files(session, "append")
    session.spark.read.parquet(*files).createOrReplaceTempView("plain")
    for what, query in (
        ("filter and aggregate", AGGREGATE),
        ("filter and aggregate of numbers", NUMBERS),
        ("all columns", ALL),
    ):
        compare(session, f"raw scan, {what}, {rows:,} rows", "append", query)
        alone(session, "Spark alone over the same files", query.format("plain"))


def merge(session: paimon_magics.Session) -> None:
    # pypaimon's merge takes a minute for a million rows.
    rows = ROWS if JAR else ROWS // 10
    keyed(session, "merged", rows)
    what = f"merge, {3 * rows:,} stored rows in 3 runs of each bucket"
    slow = RUNS if JAR else 1
    made = f"(SELECT id AS k, {VALUES} FROM range(0, {rows}, 1, {SLOTS}))"
    for columns, query in (("4 of 7 columns", FOUR), ("all columns", ALL)):
        compare(session, f"{what}, {columns}", "merged", query, peer_runs=slow)
        alone(session, f"the same query over {rows:,} rows that Spark makes", query.format(made))


def audit(session: paimon_magics.Session) -> None:
    if not JAR:
        return  # pypaimon has no audit log
    keyed(session, "audited", ROWS)
    query = ALL.replace("hash(", "hash(rowkind, ")
    compare(session, f"audit log, {3 * ROWS:,} stored rows", "audited$audit_log", query)


def changes(session: paimon_magics.Session) -> None:
    if not JAR:
        return
    changed(session, "changed", ROWS)
    query = ALL.replace("hash(", "hash(rowkind, ").replace("part)", "part, op)")
    for table in ("audit_log", "binlog"):
        what = f"incremental {table}, {3 * ROWS:,} changes"
        name = f"changed${table}"
        compare(session, what, name, query, options={"incremental-between": "0,3"})
    ready = session.spark.range(0, SLOTS, 1, SLOTS).mapInArrow(pairs(3 * ROWS // 2), PAIRS)
    ready.createOrReplaceTempView("ready")
    what = f"the same query over {3 * ROWS // 2:,} rows of binlog that are ready in Python"
    alone(session, what, query.format("ready"))


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


def frames(session: paimon_magics.Session) -> None:
    """Measure what is done with frames in Python; both sides get the same calls."""
    if not JAR:
        return
    rows = ROWS // 2
    session.run(
        f"CREATE TABLE framed ({COLUMNS}) PARTITIONED BY (part) "
        "TBLPROPERTIES ('primary-key' = 'k,part', 'bucket' = '1', 'write-only' = 'true')"
    )
    for _ in range(3):
        session.run(f"INSERT INTO framed SELECT id AS k, {VALUES} FROM range({rows})")
    changed(session, "followed", rows)
    for what, table, steps, options in (
        ("2 of 7 columns of a merge", "framed", two_columns, {}),
        ("one of 4 partitions, all columns", "framed", one_partition, {}),
        ("groups of a merge", "framed", groups, {}),
        ("incremental audit log", "followed$audit_log", every_change, WINDOW),
        ("the same, 3 of 9 columns", "followed$audit_log", some_changes, WINDOW),
        ("incremental binlog", "followed$binlog", every_change, WINDOW),
        ("the same, 3 of 9 columns", "followed$binlog", some_changes, WINDOW),
    ):
        compare_frames(session, f"frame, {what}, {3 * rows:,} stored rows", table, steps, options)


WINDOW = {"incremental-between": "0,3"}
Steps = Callable[[Any], Any]


def two_columns(frame: Any) -> Any:
    return frame.select("k", "a").agg(F.expr("bit_xor(hash(k, a))").alias("h"))


def one_partition(frame: Any) -> Any:
    return frame.where(frame.part == 1).agg(
        F.expr("bit_xor(hash(k, a, b, c, d, e, part))").alias("h"), F.count("*").alias("n")
    )


def groups(frame: Any) -> Any:
    return frame.groupBy("part").agg(F.sum("b").alias("b")).orderBy("part")


def every_change(frame: Any) -> Any:
    return frame.agg(
        F.expr("bit_xor(hash(rowkind, k, a, b, c, d, e, part, op))").alias("h"),
        F.count("*").alias("n"),
    )


def some_changes(frame: Any) -> Any:
    return frame.select("rowkind", "k", "a").agg(F.expr("bit_xor(hash(rowkind, k, a))").alias("h"))


def compare_frames(
    session: paimon_magics.Session, what: str, table: str, steps: Steps, options: dict[str, str]
) -> None:
    """Report the medians of seven runs of each side in turn."""
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = steps(session.table(table, **options)).toArrow().to_pylist()

    def connector() -> None:
        reader = session.spark.read.format("paimon").options(**options)
        frame = reader.table(f"connector.default.`{table}`")
        found["peer"] = steps(frame).toArrow().to_pylist()

    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for number in range(3 + 7):
        for side, run in (("ours", ours), ("peer", connector)):
            taken_ms, _ = timed(run)
            if number >= 3:  # the JVM compiles code that both use
                times[side].append(taken_ms)
    report(what, median(times["ours"]), "connector", median(times["peer"]))
    if found["ours"] != found["peer"]:
        raise SystemExit(f"{what}: ours {found['ours']}, the peer {found['peer']}")


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


def point(session: paimon_magics.Session) -> None:
    """Measure a query for a key that one of many files can have."""
    session.run(
        f"CREATE TABLE points ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    )
    for start in range(0, ROWS, ROWS // 20):
        rows = f"range({start}, {start + ROWS // 20})"
        session.run(f"INSERT INTO points SELECT id AS k, {VALUES} FROM {rows}")
    query = f"SELECT * FROM {{}} WHERE k = {ROWS // 2}"
    compare(session, "one key among 40 files", "points", query)
    print(session.run("EXPLAIN " + query.format("points")))


def small(session: paimon_magics.Session) -> None:
    """Measure reads that need few rows or none, by SQL and by DataFrame, in turns."""
    session.run(
        f"CREATE TABLE keys ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
    )
    for start in range(0, ROWS, ROWS // 20):
        rows = f"range({start}, {start + ROWS // 20})"
        session.run(f"INSERT INTO keys SELECT id AS k, {VALUES} FROM {rows}")
    for name, count in (("small", 1_000), ("large", 2 * ROWS)):
        session.run(f"CREATE TABLE {name} ({COLUMNS})")
        session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range({count})")
    key = f"k = {ROWS // 2}"
    in_turns(session, "one key among 40 files", f"SELECT * FROM {{}} WHERE {key}", "keys")
    in_turns(session, "a table of 1,000 rows", "SELECT * FROM {}", "small")
    in_turns(session, f"count(*) of {2 * ROWS:,} rows", "SELECT count(*) FROM {}", "large")
    in_turns(session, "min and max", "SELECT min(k), max(k), min(e) FROM {}", "large")
    in_turns(session, "LIMIT 10", "SELECT k, c FROM {} LIMIT 10", "large", ordered=False)
    frames = session.spark.table
    for what, table, action in (
        ("one key", "keys", lambda frame: frame.where(key).collect()),
        ("a table of 1,000 rows", "small", lambda frame: frame.collect()),
        ("count", "large", lambda frame: frame.count()),
    ):
        alternate(
            f"{what}, by DataFrame",
            lambda t=table, a=action: a(session.table(t)),
            lambda t=table, a=action: a(frames(f"connector.default.{t}")),
        )


def in_turns(
    session: paimon_magics.Session, what: str, query: str, table: str, *, ordered: bool = True
) -> None:
    """Measure a query of ours and of the connector's alternately."""
    found = alternate(
        f"{what}, by SQL",
        lambda: session.run(query.format(table)).to_arrow(),
        lambda: session.spark.sql(query.format(f"connector.default.{table}")).toArrow(),
    )
    ours, peer = (sorted(map(repr, one.to_pylist())) for one in found)
    if JAR and ordered and ours != peer:
        raise SystemExit(f"{what}: ours {ours[:9]}, the peer {peer[:9]}")


def alternate(what: str, ours: Callable[[], Any], peer: Callable[[], Any]) -> tuple[Any, Any]:
    """Report the medians of seven runs each, one of ours and one of the peer's in turns."""
    times: dict[Callable[[], Any], list[float]] = {ours: [], peer: []}
    found: dict[Callable[[], Any], Any] = {ours: None, peer: None}
    for turn in range(WARM_UP + 7):
        for action in (ours, peer) if JAR else (ours,):
            started = time.perf_counter()
            found[action] = action()
            if turn >= WARM_UP:
                times[action].append((time.perf_counter() - started) * 1000)
    medians = [statistics.median(one) for one in times.values() if one]
    report(what, medians[0], *(("connector", medians[1]) if JAR else ()))
    return found[ours], found[peer] if JAR else found[ours]


def files(session: paimon_magics.Session) -> None:
    """Measure tables of many small files; the scan must take the time, not finding the files."""
    for count in (10, 1_000, FILES):
        name = f"files_{count}"
        many_files(session, name, count)
        planned_ms, _ = timed(lambda n=name: session.run(f"SELECT sum(a) FROM {n}"))
        report(f"until the scan of {count:,} files can start", planned_ms)
        runs = RUNS if count < FILES else 2
        query = "SELECT count(*), sum(a) FROM {}"
        compare(session, f"scan of {count:,} files", name, query, runs=runs)


def many_files(session: paimon_magics.Session, name: str, count: int) -> None:
    """Create a table of `count` files of 20 rows: links to one file, each with an entry in the
    manifest."""
    session.run(f"CREATE TABLE {name} ({COLUMNS})")
    session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range(0, 20, 1, 1)")
    (file,) = map(Path, stored_files(session, name))
    folder = file.parent.parent
    (manifest,) = (m for m in folder.glob("manifest/manifest-*") if "list" not in m.name)
    reader = fastavro.reader(io.BytesIO(manifest.read_bytes()))
    (entry,) = reader
    entries = []
    for number in range(count):
        copy = f"{number:08}-{file.name}"
        os.link(file, file.with_name(copy))
        entries.append({**entry, "_FILE": {**entry["_FILE"], "_FILE_NAME": copy}})
    out = io.BytesIO()
    fastavro.writer(out, reader.writer_schema, entries, codec="zstandard")  # type: ignore[arg-type]
    manifest.write_bytes(out.getvalue())


def keyed(session: paimon_magics.Session, name: str, rows: int) -> None:
    session.run(
        f"CREATE TABLE {name} ({COLUMNS}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', "
        "'write-only' = 'true')"
    )
    for _ in range(3):
        session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range({rows})")


def compare(
    session: paimon_magics.Session,
    what: str,
    table: str,
    query: str,
    *,
    options: dict[str, str] | None = None,
    runs: int = RUNS,
    peer_runs: int | None = None,
) -> None:
    ours_rows: list[Any] = []
    peer_rows: list[Any] = []
    hints = ", ".join(f"'{key}' = '{value}'" for key, value in (options or {}).items())
    source = f"`{table}`" + (f" WITH ({hints})" if hints else "")

    def ours() -> None:
        ours_rows[:] = session.run(query.format(source)).to_arrow().to_pylist()

    def connector() -> None:
        reader = session.spark.read.format("paimon").options(**(options or {}))
        reader.table(f"connector.default.`{table}`").createOrReplaceTempView("peer")
        peer_rows[:] = session.spark.sql(query.format("peer")).toArrow().to_pylist()

    def pypaimon() -> None:
        peer_rows[:] = peer_read(session, table, query)

    peer = connector if JAR else pypaimon
    peer_runs = runs if peer_runs is None else peer_runs
    for _ in range(WARM_UP if peer_runs > 1 else 0):  # the JVM compiles code that both use
        ours()
        peer()
    ours_ms = median_ms(ours, runs=runs)
    peer_ms = median_ms(peer, runs=peer_runs, warm_up=1 if peer_runs > 1 else 0)
    report(what, ours_ms, "connector" if JAR else "pypaimon", peer_ms)
    if ours_rows != peer_rows:
        raise SystemExit(f"{what}: ours {ours_rows}, the peer {peer_rows}")


def alone(session: paimon_magics.Session, what: str, query: str) -> None:
    """Report the time that Spark alone takes for a query."""
    taken_ms = median_ms(lambda: session.spark.sql(query).toArrow(), runs=RUNS, warm_up=WARM_UP)
    report(f"  {what}", taken_ms)


def stored_files(session: paimon_magics.Session, name: str) -> list[str]:
    """The data files of an unpartitioned table."""
    folder = Path(session.catalog.load(TableName(name, "default")).location)
    return [str(file) for file in folder.glob("bucket-*/*.parquet")]


def peer_read(session: paimon_magics.Session, name: str, query: str) -> list[Any]:
    """Read as a user would by hand: with pypaimon's own reader in the tasks of a Spark job."""
    from pypaimon import CatalogFactory

    catalog = CatalogFactory.create({"warehouse": session.warehouse})
    builder = catalog.get_table(f"default.{name}").new_read_builder()
    splits = builder.new_scan().plan().splits()
    blob = pickle.dumps((builder.new_read(), [splits[index::SLOTS] for index in range(SLOTS)]))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, groups = pickle.loads(blob)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                if groups[index]:
                    yield from reader.to_arrow(groups[index]).to_batches(65536)

    schema = session.table(name).schema
    tasks = session.spark.range(0, SLOTS, 1, SLOTS)
    tasks.mapInArrow(read, schema).createOrReplaceTempView("peer")
    found: list[Any] = session.spark.sql(query.format("peer")).toArrow().to_pylist()
    return found


PARTS = {
    "raw": raw,
    "merge": merge,
    "audit": audit,
    "changes": changes,
    "frames": frames,
    "point": point,
    "small": small,
    "files": files,
}


if __name__ == "__main__":
    main()
