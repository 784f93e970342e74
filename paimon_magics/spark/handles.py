"""PySpark's classes for annotations outside this package, which alone calls their methods."""

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrame", "SparkSession"]
