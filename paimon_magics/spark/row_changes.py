"""The rows that DELETE and UPDATE write, as expressions over the rows that they select."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.row_changes.assignments import AssignedPath
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import DataType, RowType
from paimon_magics.statements.row_changes import VALUE_PREFIX

__all__ = ["row_counts", "with_assigned", "with_kind"]


def with_assigned(
    selected: DataFrame, columns: Sequence[Column], paths: Sequence[AssignedPath]
) -> DataFrame:
    """The rows with their new values, in `columns`. The assigned values follow the columns in
    `selected`. A STRUCT that is NULL becomes one of NULLs where a field of it is assigned, as in
    Spark."""
    return selected.select(
        *(
            _assigned(
                F.col(quoted(column.name)),
                column.type,
                [(path.fields, path.number) for path in paths if path.column == column],
            ).alias(column.name)
            for column in columns
        )
    )


def row_counts(frame: DataFrame, by: str | None) -> tuple[int, int]:
    """How many rows there are, and how many values of the column `by` they have; by one job."""
    values = F.lit(0) if by is None else F.count_distinct(F.col(quoted(by)))
    (row,) = frame.agg(F.count(F.lit(1)).alias("rows"), values.alias("values")).collect()
    return int(row["rows"]), int(row["values"])


def with_kind(frame: DataFrame, kind: int) -> DataFrame:
    """The rows with a column of their kind, Paimon's number."""
    return frame.withColumn(KIND, F.lit(kind).cast("tinyint"))


def _assigned(
    value: SparkColumn, data_type: DataType, paths: Sequence[tuple[tuple[str, ...], int]]
) -> SparkColumn:
    if not paths:
        return value
    fields, number = paths[0]
    if not fields:
        return F.col(quoted(f"{VALUE_PREFIX}{number}"))
    assert isinstance(data_type, RowType)
    return F.struct(
        *(
            _assigned(
                value.getField(field.name),
                field.type,
                [(rest[1:], number) for rest, number in paths if rest[0] == field.name],
            ).alias(field.name)
            for field in data_type.fields
        )
    )
