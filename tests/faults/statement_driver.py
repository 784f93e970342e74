"""A session in a process of its own, whose executors may be processes, too.

Each line of its input is a statement, as a JSON string, or `{"streams": […], "finish": …}`, where
a stream is `{"source", "columns", "options", "target", "checkpoint"}`, and for counts of the values
of a column `{"counts", "mode"}`: those that do not run are started, and with `finish` all are
stopped when they have what their sources have. Each line of its
output is a JSON object: `{"snapshot": …}`, `{"started": number}`, or `{"error": type, "message":
…}`. Its SQL has the function `killing`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_magics import Session
    from paimon_magics.session.streams import Stream


def killing(number: int, at: int) -> str:
    """Return 'new'; but the first attempt of the task with the row `at` kills its executor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if number == at and context.attemptNumber() == 0:
        process = os.getpid()
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(process, signal.SIGKILL)
        time.sleep(600)
    return "new"


def run_streams(session: Session, streams: dict[str, Stream], asked: dict[str, Any]) -> int:
    """Start the streams that do not run, and with `finish` end all; the number of started ones."""
    started = 0
    for each in asked["streams"]:
        known = streams.get(each["target"])
        if known is None or not known.is_active:
            frame = session.stream(each["source"], **each["options"]).selectExpr(*each["columns"])
            if "counts" in each:
                frame = frame.groupBy(each["counts"]).count()
            streams[each["target"]] = session.write_stream(
                frame,
                each["target"],
                checkpoint=each["checkpoint"],
                mode=each.get("mode", "append"),
            )
            started += 1
    for stream in streams.values() if asked.get("finish") else ():
        stream.process_all()
        stream.stop()
    return started


def main(folder: str, master: str) -> None:
    from pyspark.sql import SparkSession

    import paimon_magics
    from paimon_magics.session.writes import compaction

    # Compactions are jobs, however small.
    compaction._IN_PROCESS_BYTES_MAX = compaction._APPENDS_IN_PROCESS_BYTES_MAX = 0
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{folder}/spark-warehouse")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        # (A speculative attempt never runs beside the first: both would be on one host.)
        .config("spark.speculation", "true")
        # Executors die here more often than a cluster's master would tolerate.
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.excludeOnFailure.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    session = paimon_magics.connect(spark=spark)  # the environment names the coordinator
    spark.udf.register("killing", killing, "string")
    streams: dict[str, Stream] = {}
    print(json.dumps({"connected": os.getpid()}), flush=True)
    for line in sys.stdin:
        try:
            document = json.loads(line)
            if isinstance(document, dict):
                answer: dict[str, object] = {"started": run_streams(session, streams, document)}
            else:
                answer = {"snapshot": session.run(document).snapshot_id}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    session.close(stop_spark=True)


if __name__ == "__main__":
    from tests.faults.statement_driver import main as imported_main

    imported_main(*sys.argv[1:])
