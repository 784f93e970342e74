"""A session in a process of its own, to be interrupted and killed. It prints how far it is.

Each INSERT waits in its tasks after the first thousand rows; a marker file tells that it began.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import paimon_magics
from paimon_magics import Session


def wait_in_tasks(session: Session, marker: Path, seconds: float) -> None:
    """Register the view `slow`, whose tasks return some rows, touch `marker` and then wait."""

    def wait(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for number, frame in enumerate(frames):
            yield frame
            if number == 0:
                marker.touch()
                time.sleep(seconds)

    rows = session.spark.range(0, 200_000, 1, 2).mapInPandas(wait, "id BIGINT")
    rows.createOrReplaceTempView("slow")


def main(warehouse: str, marker: str) -> None:
    session = paimon_magics.connect(warehouse, master="local[2]")
    session.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    wait_in_tasks(session, Path(marker), seconds=30)
    print("connected", flush=True)
    try:
        session.run("INSERT INTO t SELECT id, 'interrupted' FROM slow")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.stdin.readline()
    outcome = session.run("INSERT INTO t VALUES (-1, 'after the interrupt')")
    print(outcome.snapshot_id, flush=True)
    Path(marker).unlink()
    session.run("INSERT OVERWRITE t SELECT id, 'killed' FROM slow")
    print("not killed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
