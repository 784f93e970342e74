"""The constants of PARTITION clauses, as texts of the values that are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.spark.casting import ansi_casts, type_text
from paimon_magics.spark.losses import first_loss, reason
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.queries.query_text import with_markers_apart

__all__ = ["partition_values"]

_ONE_ROW = "VALUES (0) AS __paimon_magics(__paimon_magics_one)"


def partition_values(
    spark: SparkSession,
    items: Sequence[tuple[Column, str]],
    parameters: Mapping[str, object],
    null_text: str,
) -> dict[str, str | None]:
    """The values of PARTITION items `(column, SQL text)` as text that casts back to the same value,
    as it is stored: that of a CHAR column is padded.

    Spark evaluates them without a job, with `parameters` bound. None is NULL, as is `null_text`
    (the option partition.default-name). Raises what Spark
    raises for a text that is not a constant or does not fit the column's type. Raises
    InvalidValueError for a value that the column would cut, which would name another partition.
    """
    if not items:
        return {}
    with ansi_casts(spark):
        # Each constant is cast to its column's type first: '01' for an INT column is 1.
        named = ", ".join(f"({sql}) AS c{position}" for position, (_, sql) in enumerate(items))
        # FROM a local relation, which Spark folds: a SELECT without FROM runs as a job.
        query = with_markers_apart(f"SELECT {named} FROM {_ONE_ROW}")
        constants = spark.sql(query, args=dict(parameters))
        row = constants.select(
            *(
                F.nullif(F.col(field.name), F.lit(null_text)).alias(field.name)
                if isinstance(field.dataType, StringType)
                else F.col(field.name)
                for field in constants.schema
            )
        )
        _check_exact(row, [column for column, _ in items])
        texts = [
            _text(F.col(f"c{position}").cast(spark_type(column.type)), column)
            for position, (column, _) in enumerate(items)
        ]
        values = row.select(*texts).collect()[0]
    return {column.name: value for (column, _), value in zip(items, values, strict=True)}


def _check_exact(row: DataFrame, columns: Sequence[Column]) -> None:
    loss = first_loss(row, [column.type for column in columns])
    if loss is not None:
        column = columns[loss.position]
        raise InvalidValueError(
            f"Column `{column.name}` is {type_text(column.type)}, but PARTITION has {loss.value}: "
            f"{reason(column.type)}.",
            hint="Nothing was written. Give a value that the column can hold.",
        )


def _text(value: SparkColumn, column: Column) -> SparkColumn:
    match column.type:
        case AtomicType(name="CHAR", parameters=(length,)):
            return F.rpad(value.cast("string"), length, " ")
        case AtomicType(name="TIMESTAMP_LTZ"):
            # The same instant for readers in any zone.
            in_utc = F.to_utc_timestamp(value, F.current_timezone()).cast("string")
            return F.concat(in_utc, F.lit("Z"))
        case _:
            return value.cast("string")
