"""Scans and merges of whole tables by SQL, compared with Paimon's Spark connector where the
environment variable PAIMON_SPARK_JAR names its jar, else with pypaimon's own readers in the same
Spark tasks.

Both hash every value of the columns they read; the hashes must be equal. For comparison, Spark
alone runs the same query: over the same Parquet files, or over numbers that it makes. No reader
that hands its rows to Spark's query can be faster.

Arguments choose some of: raw, merge, audit, files. To cut the sizes, see `read_tables`, and set
PAIMON_MAGICS_BENCH_FILES, the greatest number of files in a table.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from avro_files import records_of, replace_records
from bench_writes import COLUMNS
from connector import JAR, SLOTS
from measure import median_ms, report, timed
from read_tables import ROWS, RUNS, VALUES, WARM_UP, compare_sql, keyed, run_parts, stored_files

import paimon_magics

FILES = int(os.environ.get("PAIMON_MAGICS_BENCH_FILES", "20000"))
AGGREGATE = "SELECT count(*), sum(a), max(c) FROM {} WHERE k % 3 = 0"
NUMBERS = "SELECT count(*), sum(a), sum(b) FROM {} WHERE k % 3 = 0"
FOUR = "SELECT count(*), bit_xor(hash(k, a, b, e)) FROM {}"
ALL = "SELECT count(*), bit_xor(hash(k, a, b, c, d, e, part)) FROM {}"


def main() -> None:
    run_parts({"raw": raw, "merge": merge, "audit": audit, "files": files})


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
    manifest. Its list and the snapshot tell sizes, up to which the connector reads the files."""
    session.run(f"CREATE TABLE {name} ({COLUMNS})")
    session.run(f"INSERT INTO {name} SELECT id AS k, {VALUES} FROM range(0, 20, 1, 1)")
    (file,) = map(Path, stored_files(session, name))
    folder = file.parent.parent
    (manifest,) = (m for m in folder.glob("manifest/manifest-*") if "list" not in m.name)
    (entry,) = records_of(manifest)
    entries = []
    for number in range(count):
        copy = f"{number:08}-{file.name}"
        os.link(file, file.with_name(copy))
        entries.append({**entry, "_FILE": {**entry["_FILE"], "_FILE_NAME": copy}})
    replace_records(manifest, entries)
    snapshot_file = folder / "snapshot" / "snapshot-1"
    snapshot = json.loads(snapshot_file.read_bytes())
    manifest_list = folder / "manifest" / snapshot["deltaManifestList"]
    (listed,) = records_of(manifest_list)
    size = manifest.stat().st_size
    replace_records(manifest_list, [{**listed, "_FILE_SIZE": size, "_NUM_ADDED_FILES": count}])
    snapshot["deltaManifestListSize"] = manifest_list.stat().st_size
    snapshot_file.write_text(json.dumps(snapshot))


def compare(
    session: paimon_magics.Session,
    what: str,
    table: str,
    query: str,
    *,
    runs: int = RUNS,
    peer_runs: int | None = None,
) -> None:
    """Report a query of ours and of the peer's, in turn; pypaimon's merge is run once."""
    if JAR:
        compare_sql(session, what, table, query, runs=runs)
        return
    ours_rows: list[Any] = []
    peer_rows: list[Any] = []

    def ours() -> None:
        ours_rows[:] = session.run(query.format(f"`{table}`")).to_arrow().to_pylist()

    def pypaimon() -> None:
        peer_rows[:] = peer_read(session, table, query)

    peer_runs = runs if peer_runs is None else peer_runs
    ours_ms = median_ms(ours, runs=runs, warm_up=WARM_UP)
    peer_ms = median_ms(pypaimon, runs=peer_runs, warm_up=1 if peer_runs > 1 else 0)
    report(what, ours_ms, "pypaimon", peer_ms)
    if ours_rows != peer_rows:
        raise SystemExit(f"{what}: ours {ours_rows}, pypaimon {peer_rows}")


def alone(session: paimon_magics.Session, what: str, query: str) -> None:
    """Report the time that Spark alone takes for a query."""
    taken_ms = median_ms(lambda: session.spark.sql(query).toArrow(), runs=RUNS, warm_up=WARM_UP)
    report(f"  {what}", taken_ms)


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
    result: list[Any] = session.spark.sql(query.format("peer")).toArrow().to_pylist()
    return result


if __name__ == "__main__":
    main()
