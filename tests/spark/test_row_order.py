"""The order of a statement's rows, as numbers that Spark sorts by."""

from __future__ import annotations

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from paimon_magics.spark.writing import ordinal_text
from paimon_magics.tables.writing.writer import GROUP_SHIFT

pytestmark = pytest.mark.spark


def test_row_order_beyond_its_bits_fails_the_job_with_a_reason(spark: SparkSession) -> None:
    last = (1 << GROUP_SHIFT) - 1
    assert spark.range(last, last + 1).selectExpr(ordinal_text("id")).first() == (last,)
    with pytest.raises(SparkRuntimeException, match="more partitions than a statement's row order"):
        spark.range(last + 1, last + 2).selectExpr(ordinal_text("id")).first()
