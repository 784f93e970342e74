"""Hashes of keys computed in the JVM: equal to the kernel's, which are tested with Java."""

from __future__ import annotations

import datetime
import itertools

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.spark.writing import row_hash

pytestmark = pytest.mark.spark

DAYS = [
    datetime.date(1, 1, 1),
    datetime.date(1969, 12, 31),
    datetime.date(1970, 1, 1),
    datetime.date(9999, 12, 31),
]


def integers(bits: int) -> list[int]:
    top = 2 ** (bits - 1)
    return [-top, -top // 3, -1, 0, 1, 42, top // 2, top - 1]


COLUMNS = {
    "flag": (pa.bool_(), [False, True]),
    "tiny": (pa.int8(), integers(8)),
    "small": (pa.int16(), integers(16)),
    "plain": (pa.int32(), integers(32)),
    "large": (pa.int64(), [*integers(64), *integers(33)]),
    "day": (pa.date32(), DAYS),
}


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_jvm_hashes_keys_like_the_kernel(spark: SparkSession, ansi: str) -> None:
    values = list(itertools.product(*(values for _, values in COLUMNS.values())))[::97]
    columns = zip(COLUMNS.items(), zip(*values, strict=True), strict=True)
    rows = pa.table({name: pa.array(column, kind) for (name, (kind, _)), column in columns})
    keys = [[name] for name in COLUMNS] + [["large", "day"], [*COLUMNS, "large", "small"]]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame(rows)
        for index, names in enumerate(keys):
            fields = [pa.field(name, COLUMNS[name][0], nullable=False) for name in names]
            hashed = row_hash(fields)
            assert hashed is not None
            frame = frame.withColumn(f"hash_{index}", F.expr(hashed))
        actual = frame.toArrow()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    for index, names in enumerate(keys):
        expected = binary_row_hash([actual[name].combine_chunks() for name in names])
        assert actual[f"hash_{index}"].to_pylist() == expected.tolist(), names


def test_jvm_hashes_null_keys_like_the_kernel(spark: SparkSession) -> None:
    rows = pa.table(
        {
            name: pa.array([None, values[0], None, values[-1]], kind)
            for name, (kind, values) in COLUMNS.items()
        }
    )
    frame = spark.createDataFrame(rows)
    keys = [[name] for name in COLUMNS] + [["small", "day"], list(COLUMNS)]
    for index, names in enumerate(keys):
        hashed = row_hash([pa.field(name, COLUMNS[name][0]) for name in names])
        assert hashed is not None
        frame = frame.withColumn(f"hash_{index}", F.expr(hashed))
    actual = frame.toArrow()
    for index, names in enumerate(keys):
        expected = binary_row_hash([actual[name].combine_chunks() for name in names])
        assert actual[f"hash_{index}"].to_pylist() == expected.tolist(), names


def test_keys_without_jvm_hash_are_left_to_the_kernel() -> None:
    number, word = pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string(), False)
    assert row_hash([number, word]) is None
    assert row_hash([pa.field("amount", pa.decimal128(9, 2))]) is None
    assert row_hash([number] * 9) is None
