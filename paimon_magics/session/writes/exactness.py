"""Literal rows, from VALUES or from a program, are stored unchanged or refused.

Spark's store assignment lets a number lose its fraction on the way into a column, which the author
of a literal did not ask for. The rows of a query are cast by Spark's policy
(`spark.sql.storeAssignmentPolicy`); the job that writes them counts the values that a cast changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.losses import ColumnLoss, loss_texts
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.losses import first_loss, may_lose, reason
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.statement import DeleteAction, MergeInto
from paimon_magics.statements.types.type_text import to_spark_sql

if TYPE_CHECKING:
    from paimon_magics.session.scope import StatementScope
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.table import Table


_POLICY = "spark.sql.storeAssignmentPolicy"
_SHOWN_MAX = 60


_OF_SOURCE = re.compile(r"[\s(]*s\s*\.\s*(?:`((?:[^`]|``)+)`|(\w+))[\s)]*", re.IGNORECASE)


def check_exact(frame: DataFrame, columns: Sequence[Column | None]) -> None:
    """Raise InvalidValueError for the first value of `frame` that storing would change; it names
    row, column and type. `columns` are the target columns of the frame's, None for none."""
    loss = first_loss(frame, [None if column is None else column.type for column in columns])
    if loss is None:
        return
    column = columns[loss.position]
    assert column is not None
    wanted, value = to_spark_sql(column.type), shortened(loss.value, _SHOWN_MAX)
    raise InvalidValueError(
        f"Column `{column.name}` is {wanted}, but row {loss.row} has {value}: "
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


def check_losses(scope: StatementScope, table: Table, losses: Sequence[ColumnLoss]) -> None:
    """Raise InvalidValueError for values that a job has changed, where the setting
    `store_assignment` refuses them; it names table, columns, how many rows, and a value of each."""
    if not losses or scope.settings.store_assignment != "exact":
        return
    texts = loss_texts(table.schema.columns, losses, be="would be")
    raise InvalidValueError(
        f"`{table.name}` does not store all values as they are. {' '.join(texts)}",
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
            type_name = field.dataType.simpleString().upper()
            raise InvalidValueError(
                f"Column `{column.name}` is {to_spark_sql(column.type)}, but the query's "
                f"`{field.name}` is {type_name}, and {_POLICY} is STRICT.",
                hint=f"Cast it in the query: CAST({field.name} AS {to_spark_sql(column.type)}).",
            )


# Rows that a program gives to a MERGE are stored unchanged or refused, like those of a write.
#
# A value that a clause computes is cast as Spark casts it; one that a clause takes from the frame
# as it is, `s.price` or `*`, is the program's own.


def check_own_rows(scope: StatementScope, merge: MergeInto, source: DataFrame) -> None:
    """Raise InvalidValueError for the first value of `source`, the MERGE's `s`, that a column would
    change. It names row, column and type."""
    if scope.settings.store_assignment == "ansi":
        return
    schema = scope.load(merge.target, merge.text, merge.target_position).schema
    places = {name.lower(): place for place, name in enumerate(source.columns)}
    stored: dict[int, list[Column]] = {}
    for name, column in dict.fromkeys(_taken(merge, schema)):
        if name.lower() in places:
            stored.setdefault(places[name.lower()], []).append(column)
    while stored:
        check_exact(source, [stored.get(at, [None])[-1] for at in range(len(places))])
        stored = {at: columns[:-1] for at, columns in stored.items() if columns[1:]}


def _taken(merge: MergeInto, schema: TableSchema) -> Iterator[tuple[str, Column]]:
    """The source's columns that clauses take as they are, with the columns that store them."""
    by_name = {column.name.lower(): column for column in schema.columns}
    for clause in merge.clauses:
        action = clause.action
        if isinstance(action, DeleteAction):
            continue
        if action.assignments is None:
            yield from ((column.name, column) for column in schema.columns)
            continue
        for assignment in action.assignments:
            column = by_name.get(assignment.path[-1].lower())
            value = assignment.value
            if column is None or value is None:
                continue
            taken = _OF_SOURCE.fullmatch(merge.text[value.start : value.end])
            if taken is not None:
                yield (taken[1] or "").replace("``", "`") or taken[2], column
