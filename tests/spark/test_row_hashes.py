"""Hashes of keys computed in the JVM: equal to the kernel's, which are tested with Java."""

from __future__ import annotations

import datetime
import itertools

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.spark.row_hashes import with_row_hash

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
def test_the_jvm_hashes_keys_as_the_kernel_does(spark: SparkSession, ansi: str) -> None:
    values = list(itertools.product(*(values for _, values in COLUMNS.values())))[::97]
    columns = zip(COLUMNS.items(), zip(*values, strict=True), strict=True)
    rows = pa.table({name: pa.array(column, kind) for (name, (kind, _)), column in columns})
    keys = [[name] for name in COLUMNS] + [["large", "day"], ["tiny", "flag", "large", "small"]]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        frame = spark.createDataFrame(rows)
        for index, names in enumerate(keys):
            fields = [pa.field(name, COLUMNS[name][0], nullable=False) for name in names]
            hashed = with_row_hash(frame, fields, f"hash_{index}")
            assert hashed is not None
            frame = hashed
        found = frame.toArrow()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    for index, names in enumerate(keys):
        expected = binary_row_hash([found[name].combine_chunks() for name in names])
        assert found[f"hash_{index}"].to_pylist() == expected.tolist(), names


def test_keys_that_only_the_kernel_can_hash_are_left_to_it(spark: SparkSession) -> None:
    frame = spark.range(1).select(F.col("id"), F.lit("text").alias("word"))
    number, word = pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string(), False)
    assert with_row_hash(frame, [number.with_nullable(True)], "hash") is None
    assert with_row_hash(frame, [number, word], "hash") is None
    assert with_row_hash(frame, [number] * 5, "hash") is None
