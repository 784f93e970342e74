"""Which task writes which rows of a statement."""

from __future__ import annotations

import pytest

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.distributions import (
    ByAssigner,
    ByBucket,
    Distribution,
    Gathered,
    InPlace,
    OneWriter,
    distribution_of,
)

MIB = 2.0**20
SLOTS = 8


def planned(
    schema: TableSchema,
    partitions_max: int | None = None,
    estimated_bytes: float | None = None,
    *,
    tells_work: bool = False,
) -> Distribution:
    return distribution_of(
        schema,
        slots=SLOTS,
        single_writer_rows_max=1000,
        partitions_max=partitions_max,
        estimated_bytes=estimated_bytes,
        tells_work=tells_work,
    )


def keyed(bucket: str, primary_keys: tuple[str, ...] = ("p", "k")) -> TableSchema:
    return TableSchema((), ("p",), primary_keys, (("bucket", bucket),))


@pytest.mark.parametrize(
    ("schema", "distribution"),
    [
        (keyed("3"), ByBucket(("k",), 3)),
        (keyed("-2"), ByBucket(("k",), None)),
        (keyed("-1"), ByAssigner(("k",))),
        (keyed("-1", ("k",)), OneWriter(1000)),
        (
            TableSchema((), options=(("bucket", "4"), ("bucket-key", "a,b"))),
            ByBucket(("a", "b"), 4),
        ),
    ],
    ids=["fixed", "postponed", "dynamic", "keys that move", "append with a bucket key"],
)
def test_keyed_rows_are_distributed_by_bucket(
    schema: TableSchema, distribution: Distribution
) -> None:
    assert planned(schema) == distribution
    assert planned(schema, 1, 1000 * MIB) == distribution


@pytest.mark.parametrize(
    ("estimated_bytes", "distribution"),
    [
        (SLOTS * 4 * MIB, InPlace(SLOTS, None)),
        (SLOTS * 4 * MIB - 1, Gathered((), SLOTS)),
        (4 * MIB, Gathered((), 1)),
        (0, Gathered((), 1)),
        (None, InPlace(SLOTS, None)),
    ],
    ids=["many rows", "few rows", "a file", "none", "nobody knows"],
)
def test_unpartitioned_rows_are_gathered_to_avoid_small_files(
    estimated_bytes: float | None, distribution: Distribution
) -> None:
    assert planned(TableSchema(()), None, estimated_bytes) == distribution


@pytest.mark.parametrize(
    ("partitions_max", "estimated_bytes", "distribution"),
    [
        (8, 8 * SLOTS * 4 * MIB, InPlace(SLOTS, 8)),
        (8, 8 * SLOTS * 4 * MIB - 1, Gathered(("p",), 16 * SLOTS)),  # small files
        (9, 64_000 * MIB, Gathered(("p",), 1000)),  # too many files
        (None, 64_000 * MIB, Gathered(("p",), 1000)),
        (None, 0, Gathered(("p",), 16 * SLOTS)),
        (8, None, Gathered(("p",))),
    ],
)
def test_partitioned_rows_stay_in_place_if_files_are_few_and_large(
    partitions_max: int | None, estimated_bytes: float | None, distribution: Distribution
) -> None:
    assert planned(TableSchema((), ("p",)), partitions_max, estimated_bytes) == distribution


PARTITIONED = TableSchema((), ("p",))


@pytest.mark.parametrize(
    ("schema", "partitions_max", "estimated_bytes", "distribution"),
    [
        (PARTITIONED, None, 4 * MIB, InPlace(1, 64)),
        (PARTITIONED, 64, 0, InPlace(1, 64)),
        (PARTITIONED, 65, 4 * MIB, Gathered(("p",), 128)),
        (PARTITIONED, 4, 4 * MIB + 1, Gathered(("p",), 128)),
        (TableSchema(()), None, 4 * MIB, InPlace(1, None)),
        (TableSchema(()), None, 4 * MIB + 1, Gathered((), 2)),
    ],
)
def test_few_cheap_rows_are_written_by_the_computing_task(
    schema: TableSchema,
    partitions_max: int | None,
    estimated_bytes: float,
    distribution: Distribution,
) -> None:
    assert planned(schema, partitions_max, estimated_bytes, tells_work=True) == distribution
