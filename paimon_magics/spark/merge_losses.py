"""The values of a MERGE that the columns of its table would round or cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics.planning.row_changes.merge_query import CLAUSE_COLUMN, source_name, value_name
from paimon_magics.planning.row_changes.merges import ByField, FromSource, FromText, MergePlan
from paimon_magics.planning.schemas.column_paths import type_at
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import LOSSES
from paimon_magics.spark.losses import Entry, loss_entry, losses_column
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import DataType

__all__ = ["merge_losses"]


def merge_losses(
    joined: DataFrame, plan: MergePlan, columns: Sequence[Column]
) -> list[SparkColumn]:
    """The column LOSSES over the joined rows, whose values the clauses give to `columns`; [] where
    none can be changed. A source that has such a column, of values that were cast before, keeps
    it."""
    types = {field.name: field.dataType for field in joined.schema.fields}
    clause = F.col(quoted(CLAUSE_COLUMN))
    entries: list[Entry] = []
    writing = []
    for number, one in enumerate(plan.clauses):
        if one.effect == "delete":
            continue
        writing.append(number)
        for name, target, column in _given(plan, number, columns):
            found = loss_entry(F.col(quoted(name)), types[name], target, column)
            if found is not None:
                lost, entry = found
                entries.append(((clause == number) & lost, entry))
    if LOSSES in plan.source_columns:
        cast = F.col(quoted(source_name(plan.source_columns.index(LOSSES))))
        entries.append((clause.isin(writing) & cast.isNotNull(), cast))
    return losses_column(entries)


def _given(
    plan: MergePlan, number: int, columns: Sequence[Column]
) -> Iterator[tuple[str, DataType, str]]:
    """The joined rows' columns whose values a clause stores: the type and the column that get
    each."""
    for at, value in enumerate(plan.clauses[number].values):
        column = columns[at]
        match value:
            case FromSource(position=position):
                yield source_name(position), column.type, column.name
            case FromText():
                yield value_name(number, at), column.type, column.name
            case ByField(fields=fields):
                for position, (path, one) in enumerate(fields):
                    if isinstance(one, FromText):
                        target = type_at(columns, (column.name, *path))
                        yield value_name(number, at, position), target, column.name
