"""Selects columns that are given as texts of SQL, with few questions to the JVM.

PySpark asks the JVM three times and more for each column that is an object, and once for a text.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["selected_columns"]


def selected_columns(frame: DataFrame, columns: Sequence[SparkColumn | str]) -> DataFrame:
    """`frame.select` of columns and of texts of SQL for columns. Raises what Spark raises."""
    texts = [one for one in columns if isinstance(one, str)]
    if len(texts) == len(columns):
        return frame.selectExpr(*texts)
    return frame.select(*(F.expr(one) if isinstance(one, str) else one for one in columns))
