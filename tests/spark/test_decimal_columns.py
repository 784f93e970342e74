"""DECIMAL columns that come to Python as hashes: each value is the one that Spark sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paimon_magics.spark.decimal_columns import with_hashed_decimals

pytestmark = pytest.mark.spark

EXACT = Context(prec=38)


def values(precision: int, scale: int, draw: random.Random) -> list[Decimal | None]:
    """The ends, numbers near powers of ten and two, and random ones of all lengths."""
    limit = 10**precision - 1
    numbers = {0, limit, -limit}
    for power in range(precision):
        numbers |= {10**power, -(10**power), 10**power - 1}
    numbers |= {sign * (1 << bits) for bits in range(60) for sign in (1, -1)}
    numbers |= {draw.randint(-(10**digits), 10**digits) for digits in range(1, precision + 1)}
    fitting = [number for number in sorted(numbers) if -limit <= number <= limit]
    return [*(Decimal(number).scaleb(-scale, EXACT) for number in fitting), None]


def test_decimals_of_every_precision_and_scale_are_restored(spark: SparkSession) -> None:
    draw = random.Random(18)
    kinds = [(precision, scale) for precision in range(1, 39) for scale in range(precision + 1)]
    kinds = [kind for kind in kinds if kind[0] <= 19 or kind[1] in (0, 9)]
    columns = {f"d{kind[0]}_{kind[1]}": values(*kind, draw) for kind in kinds}
    rows = max(map(len, columns.values()))
    table = pa.table(
        {
            name: pa.array((column * rows)[:rows], pa.decimal128(*kind))
            for (name, column), kind in zip(columns.items(), kinds, strict=True)
        }
    )
    hashed, decimals = with_hashed_decimals(spark.createDataFrame(table))
    assert [kind[1:] for kind in decimals.columns] == [each for each in kinds if each[0] <= 18]

    def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        came = pa.Table.from_batches(decimals.restored(batches))
        different = [each for each in table.column_names if not came[each].equals(table[each])]
        yield pa.record_batch({"rows": [came.num_rows], "different": [",".join(different)]})

    actual = hashed.coalesce(1).mapInArrow(compared, "rows long, different string").collect()
    assert [tuple(row) for row in actual] == [(rows, "")]


def test_columns_with_odd_names_and_not_null_columns_are_hashed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1.25BD AS `a.b`, CAST(NULL AS DECIMAL(3, 1)) AS `c``d`, 'x' AS t")
    hashed, decimals = with_hashed_decimals(frame)
    assert hashed.columns == frame.columns
    (batch,) = decimals.restored(hashed.toArrow().to_batches())
    assert batch.to_pylist() == [{"a.b": Decimal("1.25"), "c`d": None, "t": "x"}]


def test_columns_differing_only_in_case_are_not_hashed(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1.5BD AS d, 2.5BD AS D")
    hashed, decimals = with_hashed_decimals(frame)
    assert decimals.columns == ()
    assert hashed is frame
