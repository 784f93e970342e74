"""Whether the tasks of a read have buckets of their own, so that they can write them, too.

The tasks of a merge read are known. Spark divides the files of a raw scan itself: a file stays in
one task if it is no larger than what Spark puts into one (`FilePartition.maxSplitBytes`), and tasks
get whole files. Whoever relies on this looks again at what the tasks have done: files of one bucket
can lie in two folders (`data-file.external-paths`), and Spark may do otherwise some day.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from paimon_magics.planning.reads.scans import RawScan, ReadPlan

__all__ = ["ScanSizes", "have_own_buckets"]

_TASKS_PER_SLOT_MAX = 4
"""Each task that writes begins a Python worker. With more of them a shuffle is no larger part."""

_TASK_BUCKETS_MAX = 64
"""A writer keeps something open for each bucket until its task ends."""


@dataclass(frozen=True, slots=True)
class ScanSizes:
    """Spark's settings for the tasks of a scan: the most bytes of one, what opening a file counts
    as, and the number of tasks that run at once."""

    task_bytes_max: int = 128 << 20
    open_bytes: int = 4 << 20
    slots: int = 1

    def task_bytes(self, scan: RawScan) -> int:
        """How much of a scan a task gets. A larger file is split."""
        share = self.weight(scan) // max(self.slots, 1)
        return min(self.task_bytes_max, max(self.open_bytes, share))

    def weight(self, scan: RawScan) -> int:
        """The bytes of a scan, with what opening its files counts as."""
        return sum(scan.sizes_bytes) + self.open_bytes * len(scan.sizes_bytes)


def have_own_buckets(plan: ReadPlan, sizes: ScanSizes) -> bool:
    """Whether no two tasks read rows of one bucket, and there are few enough of both that each task
    may write its buckets."""
    if plan.local or plan.known_rows is not None:
        return False
    tasks = len(plan.tasks) + sum(
        math.ceil(sizes.weight(scan) / sizes.task_bytes(scan)) for scan in plan.raw_scans
    )
    if tasks > sizes.slots * _TASKS_PER_SLOT_MAX:
        return False
    if any(max(scan.sizes_bytes) > sizes.task_bytes(scan) for scan in plan.raw_scans):
        return False
    seen: set[str] = set()
    for folders in _folders(plan):
        if len(folders) > _TASK_BUCKETS_MAX or not seen.isdisjoint(folders):
            return False
        seen |= folders
    return True


def _folders(plan: ReadPlan) -> Iterator[set[str]]:
    """The folders of what certainly is in one task: a file of a scan, the splits of a task. Each
    bucket has a folder of its own."""
    for scan in plan.raw_scans:
        for path in scan.paths:
            yield {_folder(path)}
    for task in plan.tasks:
        yield {_folder(file.path) for split in task for file in split.files}


def _folder(path: str) -> str:
    """The folder of a file, without the scheme, which Spark may spell otherwise."""
    return (path.partition(":")[2] or path).rpartition("/")[0].lstrip("/")
