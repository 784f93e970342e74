"""The numbers by which written rows are spread over tasks and sorted in them, as texts of SQL.

Texts, because PySpark asks the JVM several times for each part of an expression that is built of
columns.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types

from paimon_magics.statements.clauses.names import quoted
from paimon_magics.tables.writing.writer import GROUP_BITS, GROUP_SHIFT

__all__ = ["group_text", "ordinal_text", "spread_text"]

_MODULUS = 1_000_003  # keeps sums of partition numbers far from overflow


def group_text(partition: str) -> str:
    """The high bits of the sort key, as SQL text: they bring the partitions of a task one after the
    other, or a few at a time. The writer separates the buckets of a partition batch by batch.

    One LONG is the whole key, with the order of the rows in its low bits: Spark has a radix sort
    for one number, and compares rows to sort by several columns.
    """
    number = f"pmod(CAST({partition} AS BIGINT), {1 << GROUP_BITS}L)"
    return f"shiftleft(CAST({number} AS BIGINT), {GROUP_SHIFT})"


def ordinal_text(number: str) -> str:
    """The low bits of the sort key: the statement's order of rows, which a shuffle loses. `number`
    is (source partition, position), as Spark numbers each row. The job fails where it would reach
    into the high bits."""
    beyond = "raise_error('more source partitions than the order of a statement can number')"
    held = f"{number} < {1 << GROUP_SHIFT}L"
    return f"CASE WHEN {held} THEN {number} ELSE CAST({beyond} AS BIGINT) END"


def spread_text(frame: DataFrame, partition_keys: tuple[str, ...]) -> str:
    """A number for each partition that spreads partitions almost evenly over the tasks, as the SQL
    text of a LONG.

    A hash would often give one of two tasks three of four partitions. The values of partitions tend
    to be consecutive, so numbers, days and the last digits of texts are used as they are.
    """
    total = "0L"
    for key in partition_keys:
        value = quoted(key)
        match frame.schema[key].dataType:
            case spark_types.IntegralType():
                number = f"pmod(CAST({value} AS BIGINT), {_MODULUS})"
            case spark_types.DateType():
                number = f"CAST(unix_date({value}) AS BIGINT)"
            case spark_types.StringType():
                tens = f"ascii(substring({value}, -2, 1)) * 10"
                before = f"hash(substring({value}, 1, length({value}) - 2))"
                ones = f"ascii(substring({value}, -1, 1))"
                number = f"CAST({before} AS BIGINT) + {tens} + {ones}"
            case _:
                number = f"CAST(hash({value}) AS BIGINT)"
        total = f"{total} + coalesce({number}, 0L)"
    return total
