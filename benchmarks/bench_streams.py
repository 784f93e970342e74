"""Streams from table to table: catching up with many snapshots, and one small micro-batch; beside
those of Paimon's Spark connector where the environment variable PAIMON_SPARK_JAR names its jar.

Each peer has a process with a Spark of its own, and they take turns: both know the format `paimon`.
PAIMON_MAGICS_BENCH_SNAPSHOTS, _ROWS (of a snapshot) and _RUNS change the size. Kinds of tables as
arguments run only these.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from connector import JAR, SLOTS, submit_arguments
from measure import report
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import paimon_magics

SNAPSHOTS = int(os.environ.get("PAIMON_MAGICS_BENCH_SNAPSHOTS", "40"))
ROWS = int(os.environ.get("PAIMON_MAGICS_BENCH_ROWS", "10000"))
RUNS = int(os.environ.get("PAIMON_MAGICS_BENCH_RUNS", "3"))
COLUMNS = "k BIGINT NOT NULL, a INT, b DOUBLE, c STRING"
TABLES = {
    "append": "'bucket' = '-1'",
    "keyed": "'primary-key' = 'k', 'bucket' = '2', 'write-only' = 'true'",
}
"""Without compactions: each snapshot is an INSERT's, for the case of a single one."""
LIMITS = {"whole": {}, "ten each": {"read.stream.maxFilesPerTrigger": "20"}}
"""How much of the source a micro-batch takes. (Two files of a snapshot: the connector has no limit
of snapshots.)"""
SMALL = "one snapshot"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        fill(folder)
        peers = ["ours", *(["connector"] if JAR else [])]
        running = {peer: opened.enter_context(peer_process(folder, peer)) for peer in peers}
        for table in sys.argv[1:] or TABLES:
            for case in (*LIMITS, SMALL):
                compare(running, table, case)


def fill(folder: str) -> None:
    """Make the sources, and an empty copy for each run of each peer."""
    session = ours(folder)
    for table, options in TABLES.items():
        session.run(f"CREATE TABLE {table} ({COLUMNS}) TBLPROPERTIES ({options})")
        for number in range(SNAPSHOTS):
            session.run(
                f"INSERT INTO {table} SELECT id, CAST(id % 100 AS INT), id * 0.5D, concat('v', id) "
                f"FROM range({number * ROWS}, {(number + 1) * ROWS}, 1, 1)"
            )
    session.close(stop_spark=True)


def compare(running: dict[str, subprocess.Popen[str]], table: str, case: str) -> None:
    """Print the medians of a case, whose runs take turns; all of them write the same rows."""
    seconds: dict[str, list[float]] = {peer: [] for peer in running}
    for run in range(RUNS + 1):
        for peer in running:
            told = ask(running[peer], {"table": table, "case": case, "run": run})
            expected = ROWS * (1 if case == SMALL else SNAPSHOTS)
            assert told["rows"] == expected, (peer, table, case, told)
            if run:  # the first one warms up
                seconds[peer].append(told["seconds"])
    medians = {peer: statistics.median(each) * 1000 for peer, each in seconds.items()}
    rows = f"{ROWS:,} rows" if case == SMALL else f"{SNAPSHOTS} snapshots of {ROWS:,} rows"
    report(f"{table}: {case}, {rows}", medians["ours"], "connector", medians.get("connector"))


@contextlib.contextmanager
def peer_process(folder: str, peer: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, __file__, "--peer", folder, peer]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    try:
        yield started
    finally:
        started.communicate()


def ask(peer: subprocess.Popen[str], question: dict[str, Any]) -> dict[str, Any]:
    assert peer.stdin is not None and peer.stdout is not None
    peer.stdin.write(json.dumps(question) + "\n")
    peer.stdin.flush()
    line = peer.stdout.readline()
    assert line, "the peer has ended"
    answer: dict[str, Any] = json.loads(line)
    return answer


def answer(folder: str, peer: str) -> None:
    """Run what is asked for on standard input, with a target and a checkpoint of its own each."""
    session = ours(folder) if peer == "ours" else None
    made = with_connector(folder) if session is None else session.spark
    for number, line in enumerate(sys.stdin):
        document = json.loads(line)
        target = f"{document['table']}_{peer}_{number}"
        statement = f"CREATE TABLE {target} ({COLUMNS}) TBLPROPERTIES ({TABLES[document['table']]})"
        checkpoint = f"{folder}/checkpoints/{target}"
        first = SNAPSHOTS if document["case"] == SMALL else 1
        options = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(first)}
        options |= LIMITS.get(document["case"], {})
        if session is not None:
            session.run(statement)
            began = time.perf_counter()
            stream = session.write_stream(
                session.stream(document["table"], **options), target, checkpoint=checkpoint
            )
            stream.process_all()
            seconds = time.perf_counter() - began
            stream.stop()
            rows = session.table(target).count()
        else:
            made.sql(statement.replace(target, f"connector.default.{target}", 1))
            began = time.perf_counter()
            query = of_connector(made, folder, document["table"], target, options, checkpoint)
            query.processAllAvailable()
            seconds = time.perf_counter() - began
            query.stop()
            rows = made.table(f"connector.default.{target}").count()
        print(json.dumps({"seconds": seconds, "rows": rows}), flush=True)
    made.stop()


def of_connector(
    made: SparkSession,
    folder: str,
    table: str,
    target: str,
    options: dict[str, str],
    checkpoint: str,
) -> StreamingQuery:
    """The query of the connector from table to table, in append mode."""
    home = f"{folder}/default.db"
    frame = made.readStream.format("paimon").options(**options).load(f"{home}/{table}")
    writer = frame.writeStream.format("paimon").option("checkpointLocation", checkpoint)
    return writer.start(f"{home}/{target}")


def ours(folder: str) -> paimon_magics.Session:
    """A session in a Spark that has no connector."""
    return paimon_magics.connect(folder, master=f"local[{SLOTS}]", coordinator="in-process")


def with_connector(folder: str) -> SparkSession:
    """A Spark of the same size that has only the connector."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(folder)
    builder = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "2g")
    builder = builder.config("spark.sql.warehouse.dir", str(Path(folder, "spark-warehouse")))
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        answer(*sys.argv[2:])
    else:
        main()
