from __future__ import annotations

import pytest

from paimon_magics.planning.reads.scans import plan_read
from paimon_magics.planning.reads.splits import RawFiles
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import ArrayType, AtomicType, DataType, RowField, RowType

COLUMN = Column(0, "id", AtomicType("BIGINT"))


def files(count: int, size_bytes: int) -> RawFiles:
    paths = tuple(f"file:/t/bucket-0/data-{number}.parquet" for number in range(count))
    return RawFiles(0, "parquet", paths, (10,) * count, (size_bytes,) * count)


@pytest.mark.parametrize(
    ("count", "size_bytes", "by_spark"),
    [
        pytest.param(10_000, 1_000, False, id="many small files"),
        pytest.param(10, 1_000, True, id="few small files"),
        pytest.param(10_000, 10_000_000, True, id="many files of some size"),
    ],
)
def test_many_small_files_use_the_merge_read(
    count: int, size_bytes: int, *, by_spark: bool
) -> None:
    raw = [files(count, size_bytes)]
    plan = plan_read([COLUMN], {0: [COLUMN]}, raw, [], slots=2, spark_opens_store=True)
    assert (plan.raw_file_count, plan.merge_file_count) == ((count, 0) if by_spark else (0, count))
    assert len(plan.tasks) == (0 if by_spark else 2)
    assert ("small" in str(plan.unscanned)) is not by_spark


def test_files_unreachable_for_spark_use_the_merge_read() -> None:
    raw = [files(1, 10_000_000)]
    plan = plan_read([COLUMN], {0: [COLUMN]}, raw, [], slots=2, spark_opens_store=False)
    assert (plan.raw_file_count, plan.merge_file_count) == (0, 1)


MENDED = f"/t/bucket-0/pm-{'0' * 32}-mdata-abc-0.parquet"
FLOATING = [
    AtomicType("FLOAT"),
    AtomicType("DOUBLE"),
    RowType((RowField("s", RowType((RowField("x", AtomicType("DOUBLE")),))),)),
]


@pytest.mark.parametrize(
    ("data_type", "apart"),
    [
        *((data_type, True) for data_type in FLOATING),
        (AtomicType("BIGINT"), False),
        (ArrayType(AtomicType("DOUBLE")), False),
    ],
)
def test_files_with_doubtful_float_bounds_are_scanned_separately(
    data_type: DataType, *, apart: bool
) -> None:
    column = Column(0, "c", data_type)
    own, older = MENDED.replace("mdata", "wdata"), MENDED.replace("mdata", "data")
    paths = (MENDED, own, "/t/bucket-0/data-0.parquet", older, f"{MENDED[:-8]}.orc")
    raw = [RawFiles(0, "parquet", paths, (1,) * 5, (10, 20, 30, 40, 50))]
    plan = plan_read([column], {0: [column]}, raw, [], slots=2, spark_opens_store=True)
    actual = [(scan.true_bounds, scan.paths, scan.sizes_bytes) for scan in plan.raw_scans]
    if apart:
        assert actual == [(True, paths[:2], (10, 20)), (False, paths[2:], (30, 40, 50))]
    else:
        assert actual == [(True, paths, (10, 20, 30, 40, 50))]
