"""Literal rows, from VALUES or from a program, are stored unchanged or refused.

Spark's store assignment lets a number lose its fraction on the way into a column, which the author
of a literal did not ask for. The rows of a query are cast by Spark's policy
(`spark.sql.storeAssignmentPolicy`); the job that writes them counts the values that a cast changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import ColumnLoss, loss_texts
from paimon_magics.spark.losses import first_loss, may_lose, reason
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.types.type_text import to_spark_sql

if TYPE_CHECKING:
    from paimon_magics.session.connection import Connection
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.table import Table

__all__ = ["check_exact", "check_losses", "check_policy", "is_strict"]

_POLICY = "spark.sql.storeAssignmentPolicy"
_SHOWN_MAX = 60


def check_exact(frame: DataFrame, columns: Sequence[Column | None]) -> None:
    """Raise InvalidValueError for the first value of `frame` that storing would change; it names
    row, column and type. `columns` are the target columns of the frame's, None for none."""
    found = first_loss(frame, [None if one is None else one.type for one in columns])
    if found is None:
        return
    column = columns[found.position]
    assert column is not None
    wanted, value = to_spark_sql(column.type), shortened(found.value, _SHOWN_MAX)
    raise InvalidValueError(
        f"Column `{column.name}` is {wanted}, but row {found.row} has {value}: "
        f"{reason(column.type)}.",
        hint=f"Nothing was written. Give a value that fits, or convert this one"
        f"{_as(value, column.type)}. After connect(store_assignment='ansi') values are cast as "
        "Spark does.",
    )


def _as(value: str, data_type: DataType) -> str:
    """A hint: the literal that could be written instead."""
    match data_type:
        case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ"):
            return ", as date_trunc(…) does"
        case AtomicType(name="DATE" | "BOOLEAN"):
            return f", as CAST(… AS {data_type.name}) does"
        case AtomicType():
            return f", as CAST({value} AS {to_spark_sql(data_type)}) does"
        case _:
            return ", by casts in the statement"


def check_losses(connection: Connection, table: Table, losses: Sequence[ColumnLoss]) -> None:
    """Raise InvalidValueError for values that a job has changed, where the setting
    `store_assignment` refuses them; it names table, columns, how many rows, and a value of each."""
    if not losses or connection.settings.store_assignment != "exact":
        return
    told = loss_texts(table.schema.columns, losses, be="would be")
    raise InvalidValueError(
        f"`{table.name}` does not store all values as they are. {' '.join(told)}",
        hint="Nothing was written. Convert them in the statement, by CAST or round(…). After "
        "connect(store_assignment='exact-values') they are cast as Spark does, and counted.",
    )


def is_strict(spark: SparkSession) -> bool:
    """Whether Spark's policy is STRICT, which refuses types that may lose something."""
    return (spark.conf.get(_POLICY, "ANSI") or "").upper() == "STRICT"


def check_policy(spark: SparkSession, frame: DataFrame, columns: Sequence[Column | None]) -> None:
    """Raise InvalidValueError if Spark's policy is STRICT and a column of the query may lose
    something in its target column."""
    if not is_strict(spark):
        return
    for field, column in zip(frame.schema, columns, strict=True):
        if column is not None and may_lose(field.dataType, column.type):
            given = field.dataType.simpleString().upper()
            raise InvalidValueError(
                f"Column `{column.name}` is {to_spark_sql(column.type)}, but the query's "
                f"`{field.name}` is {given}, and {_POLICY} is STRICT.",
                hint=f"Cast it in the query: CAST({field.name} AS {to_spark_sql(column.type)}).",
            )
