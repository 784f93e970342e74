"""Spark's estimates of a query's sources and result before it runs."""

from __future__ import annotations

import io
import re
import sys
import threading
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TextIO

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.options.values import memory_size_bytes
from paimon_magics.planning.reads.scans import ScanSizes

COMPRESSED_AT_MOST = 16
"""How many times as large as a file its rows are taken to be where they have to fit somewhere."""

_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.]+(?:E\+?\d+)?) (\w+)")
_LEAF = re.compile(r"[\s:|+-]*(?:Range |Relation |LocalRelation |LogicalRDD |InMemoryRelation )")
_ROWS = re.compile(r"rowCount=([\d.]+(?:E\+?\d+)?)")
# Not MapInArrow: our own tasks are that, too, and report their progress themselves.
_FUNCTIONS = re.compile(r"EvalPython|MapInPandas|InPandas|WindowInPandas")
# What makes more rows of a row, or takes any time for one.
_WORK = re.compile(r"EvalPython|In(?:Arrow|Pandas)\b|Generate\b|ScriptTransformation")
_FILES = re.compile(r"(?<!\w)Relation ")
# Files are compressed, so that their rows may be many times as large.
_FILES_BYTES_MAX = 256 * 2**10
_SHUFFLE = re.compile(r"Exchange ")
_SCAN_SETTINGS = {
    "spark.sql.files.maxPartitionBytes": "task_bytes_max",
    "spark.sql.files.openCostInBytes": "open_bytes",
    "spark.sql.files.minPartitionNum": "slots",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


# Streams write in threads of their own: two that replaced sys.stdout at once would each put back
# what the other had put there.
_TURN = threading.Lock()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Spark's estimate of the size of a frame in bytes, None if it has none. `tells_work` is
    whether the bytes approximate the work: no Python function processes the rows, no function makes
    several rows from one row, and the files are small. `rows_bytes` is an upper bound on the size
    of the rows, None if unknown: Python functions may generate many rows."""

    size_bytes: float | None = None
    tells_work: bool = False
    rows_bytes: float | None = None


def estimate(frame: DataFrame) -> Estimate:
    """The `Estimate` of `frame`.

    Runs no job. The size is accurate for scans and ranges, and far too high after most joins.
    """
    try:
        plan = printed_plan(frame, "cost")
    except PySparkException:
        return Estimate()
    match = _SIZE.search(plan)
    if match is None or match[2] not in _UNITS:
        return Estimate()
    size_bytes = float(match[1]) * 1024.0 ** _UNITS.index(match[2])
    is_work_told = _WORK.search(plan) is None
    reads_files = _FILES.search(plan) is not None
    rows_bytes = size_bytes * (COMPRESSED_AT_MOST if reads_files else 1) if is_work_told else None
    small = size_bytes <= _FILES_BYTES_MAX or not reads_files
    return Estimate(size_bytes, is_work_told and small, rows_bytes)


def estimated_bytes(frame: DataFrame) -> float | None:
    """The size of `estimate` alone."""
    return estimate(frame).size_bytes


def scan_sizes(spark: SparkSession, slots: int) -> ScanSizes | None:
    """How Spark divides files into tasks, of which `slots` run at once; None if a setting can't
    be read."""
    sizes = {"slots": slots}
    for key, name in _SCAN_SETTINGS.items():
        text = spark.conf.get(key, None)
        if text is None:
            continue
        try:
            sizes[name] = memory_size_bytes(key, text)
        except InvalidTableError:
            return None
    return ScanSizes(**sizes)


@dataclass(frozen=True, slots=True)
class Sources:
    """Spark's information about a query's sources: rows and bytes to read, None if unknown, and the
    number of shuffles. `has_functions` is whether Python functions of the user process the rows, so
    that reading the rows is not all the work."""

    rows: int | None = None
    size_bytes: int | None = None
    shuffles: int = 0
    has_functions: bool = False


def estimated_sources(frame: DataFrame) -> Sources:
    """The `Sources` of `frame`. Runs no job."""
    try:
        optimized, _, physical = printed_plan(frame, "cost").partition("== Physical Plan ==")
    except PySparkException:
        return Sources()
    leaves = [line for line in optimized.splitlines() if _LEAF.match(line)]
    counts = [_ROWS.search(line) for line in leaves]
    sizes = [_SIZE.search(line) if "Relation " in line else None for line in leaves]
    rows = sum(int(float(count[1])) for count in counts if count is not None)
    size_bytes = sum(
        float(size[1]) * 1024.0 ** _UNITS.index(size[2])
        for size in sizes
        if size is not None and size[2] in _UNITS
    )
    return Sources(
        rows if counts and None not in counts else None,
        int(size_bytes) if sizes and None not in sizes else None,
        len(_SHUFFLE.findall(physical)),
        _FUNCTIONS.search(physical) is not None,
    )


# The texts of Spark's plans, which its public interface prints and does not return.


def printed_plan(frame: DataFrame, mode: str) -> str:
    """The plan of `frame` as `explain` prints it; `mode` is one of Spark's: `simple`, `extended`,
    `cost`, `codegen` or `formatted`. Output of other threads is still printed.

    EXPLAIN COST also returns the text, but plans an additional statement, which takes several times
    as long.
    """
    with _TURN:
        printed = _PrintedHere(sys.stdout)
        with redirect_stdout(printed):
            frame.explain(mode=mode)
    return printed.text.getvalue()


class _PrintedHere(io.TextIOBase):
    """Keeps what this thread prints; what other threads print goes to `stream`."""

    def __init__(self, stream: TextIO) -> None:
        self.text = io.StringIO()
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        here = threading.get_ident() == self._thread
        return (self.text if here else self._stream).write(text)

    def flush(self) -> None:
        if threading.get_ident() != self._thread:
            self._stream.flush()
