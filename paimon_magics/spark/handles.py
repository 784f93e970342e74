"""PySpark's classes for annotations outside this package, which alone calls their methods."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

__all__ = ["DataFrame", "SparkSession", "StreamingQuery", "StructType"]
