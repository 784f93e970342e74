"""What a frame reads, and how much work that is, from the plans of its reads and Spark's estimates.

The work is computed when a job takes long enough for a progress display; that runs no job.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.planning.job_progress import Work
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.planning.writes.distributions import (
    ByAssigner,
    ByBucket,
    Distribution,
    Gathered,
    OneWriter,
)
from paimon_magics.spark.sizes import estimated_sources

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.splits.planning import PlannedSplits


@dataclass(frozen=True, slots=True)
class Reads:
    """What a frame reads: the names in its query, and the plans of the Paimon tables. `leases` keep
    their snapshots: each ends when the last Reads that has it is gone. `rows_at_most` is the upper
    bound on the frame's rows; None if unknown. `plan` is set if the frame's rows are those of one
    table, and come from the tasks of that plan."""

    names: tuple[str, ...] = ()
    planned: tuple[PlannedSplits, ...] = ()
    leases: tuple[object, ...] = ()
    rows_at_most: int | None = None
    plan: ReadPlan | None = None


_reads: weakref.WeakKeyDictionary[DataFrame, Reads] = weakref.WeakKeyDictionary()


def note_reads(frame: DataFrame, reads: Reads) -> DataFrame:
    """Remember what a frame reads for as long as the frame exists. Returns the frame."""
    _reads[frame] = reads
    return frame


def reads_of(frame: DataFrame) -> Reads:
    """Return what `note_reads` noted for the frame, or empty Reads."""
    return _reads.get(frame, Reads())


def made_of(frame: DataFrame, *sources: DataFrame) -> DataFrame:
    """Record that a frame is made of others: it reads what they read, and keeps their snapshots,
    even after they are gone. Returns the frame."""
    reads = [reads_of(source) for source in sources]
    return note_reads(
        frame,
        Reads(
            tuple(name for read in reads for name in read.names),
            tuple(plan for read in reads for plan in read.planned),
            tuple(lease for read in reads for lease in read.leases),
        ),
    )


def planned_bytes(reads: Reads) -> int:
    """The size of the files of Paimon's tables that are read."""
    return _amounts(reads.planned)[1]


def work_of(
    frame: DataFrame, distribution: Callable[[], Distribution | None] | None = None
) -> Callable[[], Work]:
    """Return a function that computes the work of a job on the frame. `distribution` gives that of
    the writers that follow, None for a query."""
    reads = reads_of(frame)

    def work() -> Work:
        rule = distribution() if distribution is not None else None
        spark = estimated_sources(frame)
        sources = tuple(dict.fromkeys(reads.names))
        target = "" if distribution is None else "files"
        if isinstance(rule, (ByBucket, ByAssigner)):
            target = "buckets"
        amounts: tuple[int | None, int | None, int | None] = None, None, None
        if spark.has_functions:
            pass  # Python functions follow the reads: rows read are not rows done
        elif reads.planned and len(reads.planned) == len(reads.names):
            amounts = _amounts(reads.planned)
        else:
            amounts = spark.rows, spark.size_bytes, None
        plain = not spark.shuffles and not isinstance(rule, ByAssigner)
        return Work(sources, *amounts, _shuffle(rule), target, plain)

    return work


def _shuffle(distribution: Distribution | None) -> str:
    match distribution:
        case ByBucket() | ByAssigner():
            return "by bucket"
        case OneWriter():
            return "to one task"
        case Gathered(()):
            return "to few tasks"
        case Gathered(keys):
            return f"by {', '.join(keys)}"
        case _:
            return ""


def _amounts(planned: tuple[PlannedSplits, ...]) -> tuple[int, int, int]:
    """Rows, bytes and files to read. Rows are stored rows; merging may leave fewer."""
    rows = size_bytes = files = 0
    for read in planned:
        for raw in read.raw:
            rows += sum(raw.row_counts)
            size_bytes += sum(raw.sizes_bytes)
            files += len(raw.paths)
        for split in read.splits:
            rows += sum(file.rows for file in split.files)
            size_bytes += sum(file.size_bytes for file in split.files)
            files += len(split.files)
    return rows, size_bytes, files
