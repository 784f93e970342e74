"""COPY INTO of CSV files, compared with Paimon's Spark connector where the environment variable
PAIMON_SPARK_JAR names its jar: with its COPY INTO, and with its INSERT … SELECT from a view on the
files whose columns have types, which reads them once and checks less.

The files have six columns and together PAIMON_MAGICS_BENCH_MB (200) megabytes. All sides load them
in turn, PAIMON_MAGICS_BENCH_RUNS (3) times, after a small load of each that does not count.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from connector import JAR, connect
from measure import in_turns, report

import paimon_magics

MEGABYTES = int(os.environ.get("PAIMON_MAGICS_BENCH_MB", "200"))
RUNS = int(os.environ.get("PAIMON_MAGICS_BENCH_RUNS", "3"))
FILES = 8
COLUMNS = "id BIGINT, item STRING, amount DECIMAL(12, 2), rate DOUBLE, day DATE, at TIMESTAMP"
FORM = "FILE_FORMAT = (TYPE = CSV)"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = connect(f"{folder}/warehouse")
        small = write_files(Path(folder) / "small", 1)
        files = write_files(Path(folder) / "files", MEGABYTES)
        for name in ("ours", "theirs", "selected"):
            session.run(f"CREATE TABLE {name} ({COLUMNS})")
        sides: list[Callable[[str], object]]
        sides = [lambda path: session.run(f"COPY INTO ours FROM '{path}' {FORM} FORCE = TRUE")]
        if JAR:
            sides += theirs(session)
        in_turns(*(lambda side=side: side(small) for side in sides), runs=1, warm_up=1)
        found = in_turns(*(lambda side=side: side(files) for side in sides), runs=RUNS, warm_up=0)
        times = [ms for ms, _ in found]
        names = ("the connector's COPY INTO", "the connector's INSERT … SELECT")
        what = f"COPY INTO of {MEGABYTES:,} MB of CSV"
        if not JAR:
            report(what, times[0])
        for name, ms in zip(names, times[1:], strict=False):
            report(what, times[0], name, ms)
        counts = {session.table(name).count() for name in ("ours", "theirs", "selected") if JAR}
        assert len(counts) < 2, counts
        session.close(stop_spark=True)


def theirs(session: paimon_magics.Session) -> list[Callable[[str], object]]:
    """The connector's two ways."""
    spark = session.spark

    def copy(path: str) -> None:
        spark.sql(f"COPY INTO connector.default.theirs FROM '{path}' {FORM} FORCE = TRUE").collect()

    def select(path: str) -> None:
        spark.read.schema(COLUMNS).csv(path).createOrReplaceTempView("lines")
        spark.sql("INSERT INTO connector.default.selected SELECT * FROM lines")

    return [copy, select]


def write_files(folder: Path, megabytes: int) -> str:
    """Write CSV files of so many megabytes together; return their folder."""
    folder.mkdir()
    number = 0
    for file in range(FILES):
        with (folder / f"part-{file}.csv").open("w") as lines:
            while lines.tell() < megabytes * 1_000_000 / FILES:
                lines.writelines(map(line, range(number, number + 1000)))
                number += 1000
    return str(folder)


def line(number: int) -> str:
    """A line of some 80 characters."""
    day = f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}"
    return (
        f"{number},item {number % 9973} of the shop,{number % 100000}.{number % 90 + 10},"
        f"{number * 0.5},{day},{day} {number % 24:02}:{number % 60:02}:00\n"
    )


if __name__ == "__main__":
    main()
