"""A write by a Spark job that stands still while something else happens to its table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paimon_magics import Session


def write_while(
    happens: Callable[[], object],
    session: Session,
    rows: Sequence[tuple[str, int, str]],
    folder: Path,
    mode: Any = "append",
) -> Any:
    """Write rows (p, k, v) to the table `t`; `happens` runs once the job has begun. Returns the
    outcome, or the error."""
    started, go = folder / "started", folder / "go"
    started.unlink(missing_ok=True)
    go.unlink(missing_ok=True)

    def held(batches: Any) -> Any:
        started.touch()
        while not go.exists():
            time.sleep(0.02)
        yield from batches

    frame = session.spark.createDataFrame(list(rows), "p string, k int, v string").repartition(1)
    found: list[Any] = []

    def write() -> None:
        try:
            found.append(session.write(frame.mapInArrow(held, frame.schema), "t", mode))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        happens()
    finally:
        go.touch()
        thread.join()
    return found[0]


def run_while(happens: Callable[[], object], session: Session, statement: str, folder: Path) -> Any:
    """Run a statement that calls `held(number)`; `happens` runs once its job has begun. Returns the
    outcome, or the error."""
    started, go = folder / "started", folder / "go"
    started.unlink(missing_ok=True)
    go.unlink(missing_ok=True)

    def held(number: int) -> int:
        started.touch()
        while not go.exists():
            time.sleep(0.02)
        return number

    session.spark.udf.register("held", held, "int")
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(session.run(statement))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 60
    while not (started.exists() or found) and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        happens()
    finally:
        go.touch()
        thread.join()
        session.spark.sql("DROP TEMPORARY FUNCTION held")
    return found[0]
