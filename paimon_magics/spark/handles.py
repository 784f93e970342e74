"""What sessions hold of PySpark and hand on, for their annotations: only this package calls it."""

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession"]
