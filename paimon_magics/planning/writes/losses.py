"""Values that a write rounds or cuts because their columns' types hold less: their number and
columns.

The rows of a job have them in a column LOSSES, a text that is NULL where a row is stored as it is
(`spark/losses.py`). The writers count them (`tables/writing/row_counters.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.planning.formatting import count_text, shortened
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType, DataType, family_of
from paimon_magics.statements.types.type_text import to_spark_sql

LOSSES = "__paimon_magics_losses"
"""The column of a job's rows: for each changed value the name of its column, LOSS_IS, the value as
a text, and LOSS_END."""

LOSS_IS, LOSS_END = "\x1f", "\x1e"

_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class ColumnLoss:
    """How many rows have a changed value in a column, and one such value."""

    column: str
    rows: int
    example: str


def added_losses(losses: Iterable[ColumnLoss]) -> tuple[ColumnLoss, ...]:
    """The losses of several writers, one for each column."""
    by_column: dict[str, ColumnLoss] = {}
    for loss in losses:
        known = by_column.get(loss.column, ColumnLoss(loss.column, 0, loss.example))
        by_column[loss.column] = ColumnLoss(loss.column, known.rows + loss.rows, known.example)
    return tuple(by_column.values())


def in_order(columns: Sequence[Column], losses: Iterable[ColumnLoss]) -> tuple[ColumnLoss, ...]:
    """The losses in the order of the table's columns."""
    by_column = {loss.column: loss for loss in losses}
    return tuple(by_column[column.name] for column in columns if column.name in by_column)


def loss_texts(
    columns: Sequence[Column], losses: Iterable[ColumnLoss], be: str = "were"
) -> tuple[str, ...]:
    """A sentence for each column whose values were changed. `be` is "were", or "would be" where
    nothing has been committed."""
    texts = []
    by_name = {column.name: column for column in columns}
    for loss in in_order(columns, losses):
        column = by_name[loss.column]
        verb = "was" if loss.rows == 1 and be == "were" else be
        texts.append(
            f"{count_text(loss.rows, 'value')} of `{column.name}` {verb} {_how(column.type)} "
            f"{column_type(column)}, such as {shortened(loss.example, _SHOWN_MAX)}."
        )
    return tuple(texts)


def _how(data_type: DataType) -> str:
    match family_of(data_type):
        case "integer" | "time" | "date" | "timestamp" | "timestamp_ltz":
            return "cut to"
        case "decimal" | "float":
            return "rounded to"
    return "changed to"


def column_type(column: Column) -> str:
    """The type of a column as SQL, with the precision of timestamps."""
    match column.type:
        case AtomicType(name="TIMESTAMP", parameters=(digits,)):
            return f"TIMESTAMP_NTZ({digits})"
        case AtomicType(name="TIMESTAMP_LTZ", parameters=(digits,)):
            return f"TIMESTAMP_LTZ({digits})"
        case AtomicType(name="TIME"):
            return "TIME"
        case _:
            return to_spark_sql(column.type)
