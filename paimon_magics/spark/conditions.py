"""Evaluates a condition in SQL on rows of this process, by Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paimon_magics.errors import UnknownNameError
from paimon_magics.spark.failures import translate

_NUMBER = "__number"


def rows_where(spark: SparkSession, rows: pa.Table, condition: str) -> list[int]:
    """The numbers of the rows that meet a condition on their columns. Raises UnknownNameError for a
    condition that Spark can't read or that names other columns, and errors of ours for one that
    fails for a value."""
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    try:
        frame = spark.createDataFrame(numbered).where(F.expr(condition)).select(_NUMBER)
        return [int(row[0]) for row in frame.collect()]
    except (AnalysisException, ParseException) as error:
        columns = ", ".join(f"`{name}`" for name in rows.column_names)
        raise UnknownNameError(
            f"The condition {condition!r} can't be used: {translate(error).message}",
            hint=f"It may name the columns {columns} only.",
        ) from error
    except PySparkException as error:
        raise translate(error) from error
