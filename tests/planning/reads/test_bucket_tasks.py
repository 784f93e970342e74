from __future__ import annotations

import pytest

from paimon_magics.planning.reads.scans import RawScan, ReadPlan, ScanSizes, have_own_buckets
from paimon_magics.planning.reads.splits import PlainSplit, StoredFile, TaskSplit

MIB = 1 << 20
SIZES = ScanSizes(slots=2)


def scan(*buckets: int, size_bytes: int = MIB) -> RawScan:
    paths = tuple(f"file:/t/bucket-{each}/{at}.parquet" for at, each in enumerate(buckets))
    return RawScan("parquet", (), paths, (size_bytes,) * len(paths))


def split(*buckets: int) -> TaskSplit:
    paths = [f"/t/bucket-{each}/{at}.parquet" for at, each in enumerate(buckets)]
    return PlainSplit(tuple(StoredFile(path, "parquet", 0, 1, 1) for path in paths))


def plan(*scans: RawScan, tasks: tuple[tuple[TaskSplit, ...], ...] = ()) -> ReadPlan:
    return ReadPlan(scans, tasks)


@pytest.mark.parametrize(
    ("read", "own"),
    [
        pytest.param(plan(scan(0, 1, 2)), True, id="a file each"),
        pytest.param(plan(scan(0, 1, 1)), False, id="two files of a bucket may be in two tasks"),
        pytest.param(plan(scan(0), scan(1)), True, id="scans of two schemas"),
        pytest.param(plan(scan(0), scan(0)), False, id="a bucket in two scans"),
        pytest.param(plan(scan(*range(8), size_bytes=100 * MIB)), True, id="large files"),
        pytest.param(plan(scan(0, 1, size_bytes=130 * MIB)), False, id="files that are split"),
        pytest.param(plan(scan(0, size_bytes=30 * MIB)), False, id="one file for two slots"),
        pytest.param(plan(scan(*range(10), size_bytes=100 * MIB)), False, id="too many tasks"),
        pytest.param(plan(tasks=((split(0, 0), split(1)), (split(2),))), True, id="merges"),
        pytest.param(plan(tasks=((split(0),), (split(0),))), False, id="a bucket in two tasks"),
        pytest.param(plan(tasks=((split(*range(65)),),)), False, id="too many buckets of a task"),
        pytest.param(plan(scan(0, 1), tasks=((split(2),),)), True, id="both"),
        pytest.param(plan(scan(0, 1), tasks=((split(1),),)), False, id="a bucket read both ways"),
        pytest.param(ReadPlan((), (), known_rows=7), False, id="no rows"),
        pytest.param(ReadPlan((), (), local=(split(0),)), False, id="read in this process"),
    ],
)
def test_tasks_own_their_buckets_where_no_bucket_is_split(read: ReadPlan, *, own: bool) -> None:
    assert have_own_buckets(read, SIZES) is own
