"""The rows that a MERGE writes, as expressions over the rows of its query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.views import (
    DELETE,
    INSERT,
    OLDER,
    PARTLY,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATED_KINDS,
)
from paimon_magics.planning.row_changes.merge_query import (
    CLAUSE_COLUMN,
    source_name,
    target_name,
    value_name,
)
from paimon_magics.planning.row_changes.merged_updates import ALL_SEEN, MergedUpdate, UnseenCounts
from paimon_magics.planning.row_changes.merges import (
    ByField,
    Effect,
    FromSource,
    FromText,
    MergePlan,
    ToDefault,
    Unchanged,
    Value,
)
from paimon_magics.planning.schemas.column_paths import type_at
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import LOSSES
from paimon_magics.spark.casting import ansi_casts, check_stored_types, selected_columns, stored
from paimon_magics.spark.losses import Entry, loss_entry, losses_column
from paimon_magics.spark.struct_names import (
    has_all_fields,
    with_assigned_fields,
    with_fields_by_name,
    with_fields_kept,
)
from paimon_magics.spark.types import spark_type
from paimon_magics.spark.updated_rows import before_columns, with_merged_kinds
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType

KIND_NUMBERS: dict[Effect, int] = {
    "insert": INSERT,
    "update": UPDATE_AFTER,
    "delete": DELETE,
}
"""Paimon's `RowKind` of the rows that each effect writes to a primary-key table."""


def marked(frame: DataFrame, name: str) -> DataFrame:
    """The frame with a column that is true in each row; after an outer join it is NULL where the
    frame has no row."""
    return frame.withColumn(name, F.lit(True))


def given_values(plan: MergePlan, columns: Sequence[Column]) -> list[tuple[str, Column]]:
    """The columns of the joined rows that are stored as they are, with the columns or fields that
    store them."""
    clauses = range(len(plan.clauses))
    values = (value for number in clauses for value in _clause_values(plan, number, columns))
    return [(name, target) for name, target, _ in values]


def _clause_values(
    plan: MergePlan, number: int, columns: Sequence[Column]
) -> Iterator[tuple[str, Column, str]]:
    """The same for one clause, each with the name of the table's column."""
    for at, value in enumerate(plan.clauses[number].values):
        column = columns[at]
        match value:
            case FromSource(position=position):
                yield source_name(position), column, column.name
            case FromText():
                yield value_name(number, at), column, column.name
            case ByField(fields=fields):
                for position, (names, part) in enumerate(fields):
                    path = (column.name, *names)
                    if isinstance(part, FromText):
                        field = Column(0, ".".join(path), type_at(columns, path))
                        yield value_name(number, at, position), field, column.name


def changed_rows(
    spark: SparkSession,
    joined: DataFrame,
    plan: MergePlan,
    columns: Sequence[Column],
    more: Sequence[str] = (),
    merged: MergedUpdate | None = None,
) -> DataFrame:
    """Return the changed rows: the target's `columns` with their new values (a deleted row's as
    they are), and `KIND` with the kind of row that a primary-key table gets; then the columns
    `more` that the target's view has after its own, NULL in inserted rows. `merged` defines how the
    merge engine merges updated rows, in a table with keys.

    Values are cast and checked as those of an INSERT, but only in rows that get them. Raises
    InvalidValueError for a value whose type can't be cast to its column's type, and the errors of
    `with_fields_by_name` for structs.
    """
    types = _types_with_gaps(joined, plan, columns)
    joined = _by_name(joined, plan, columns)
    names = set(joined.columns)
    assigned: list[tuple[Column, _Value]] = []
    chosen = []
    with ansi_casts(spark):
        for at, column in enumerate(columns):
            before = quoted(target_name(at)) if target_name(at) in names else None
            values: dict[int, _Value] = {}
            for number, clause in enumerate(plan.clauses):
                value: Value = clause.values[at] if clause.values else Unchanged()
                new = _new_value(value, column, before, (number, at))
                is_star = isinstance(value, FromSource) and clause.effect == "update"
                if isinstance(new, str) and new in types and before and is_star:
                    new = with_fields_kept(F.col(new), types[new], column.type, F.col(before))
                if new is not None:
                    assigned.append((column, new))
                    values[number] = stored(column, new)
            chosen.append(_chosen(values, before, column))
        kinds: dict[int, _Value] = {
            n: f"{KIND_NUMBERS[clause.effect]}Y" for n, clause in enumerate(plan.clauses)
        }
        kind = _case(kinds, "CAST(NULL AS TINYINT)", KIND)
        others = [
            f"{quoted(target_name(at))} AS {quoted(name)}"
            for at, name in enumerate(more, len(columns))
        ]
        try:
            losses = merge_losses(joined, plan, columns)
            if merged is None or merged.is_plain:
                return selected_columns(joined, [*chosen, kind, *others, *losses])
            old_names = before_columns(merged)
            places = {column.name: at for at, column in enumerate(columns)}
            old = [
                f"{quoted(target_name(places[name]))} AS {quoted(to)}"
                for name, to in old_names.items()
            ]
            rows = selected_columns(joined, [*chosen, kind, *old, *losses])
            return with_merged_kinds(rows, columns, merged, old_names)
        except AnalysisException:
            # Look for the value only now: each attempt takes Spark some milliseconds.
            check_stored_types(joined, assigned)
            raise


COUNTED: tuple[Effect, ...] = ("insert", "update", "delete")
"""What MatchCounts counts, in its order."""


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """The number of inserted, updated and deleted rows, and the maximum number of changes to one
    target row. The update of `unseen` rows would change them only in part or not at all."""

    inserted: int
    updated: int
    deleted: int
    matches_max: int
    unseen: UnseenCounts = ALL_SEEN


def match_counts(changed: DataFrame, identity: Sequence[str]) -> MatchCounts:
    """Count the changed rows by one job. `identity` are the columns that identify a target row."""
    kinds = [str(KIND_NUMBERS[effect]) for effect in COUNTED]
    kinds[COUNTED.index("update")] = ", ".join(map(str, UPDATED_KINDS))
    kinds += map(str, (OLDER, UNCHANGED, PARTLY))
    counts = [f"count_if({KIND} IN ({kind})) AS n{at}" for at, kind in enumerate(kinds)]
    matches = f"count_if({KIND} <> {KIND_NUMBERS['insert']}) AS {_MATCHES}"
    each = changed.groupBy(*map(quoted, identity)).agg(*map(F.expr, [*counts, matches]))
    totals = [*(f"sum(n{at})" for at in range(len(kinds))), f"max({_MATCHES})"]
    total = [int(effect or 0) for effect in each.agg(*map(F.expr, totals)).collect()[0]]
    inserted, updated, deleted, older, unchanged, partly, matches_max = total
    unseen = UnseenCounts(older, unchanged, partly)
    return MatchCounts(inserted, updated, deleted, matches_max, unseen)


_MATCHES = "matches"
_Value = SparkColumn | str


def _by_name(joined: DataFrame, plan: MergePlan, columns: Sequence[Column]) -> DataFrame:
    """The rows with the fields of the values' structs as the target has them."""
    wanted = dict(given_values(plan, columns))
    taken = [wanted.get(name) for name in joined.columns]
    return with_fields_by_name(joined, taken, fills=plan.fills_missing)


def _types_with_gaps(
    joined: DataFrame, plan: MergePlan, columns: Sequence[Column]
) -> dict[str, spark_types.DataType]:
    """The types of the values whose structs lack fields of the target's, by the values' texts."""
    wanted = given_values(plan, columns) if plan.fills_missing else []
    if not wanted:
        return {}
    types = {field.name: field.dataType for field in joined.schema.fields}
    return {
        quoted(name): types[name]
        for name, column in wanted
        if not has_all_fields(types[name], column.type)
    }


def _new_value(
    value: Value, column: Column, before: str | None, place: tuple[int, int]
) -> _Value | None:
    """The value that a clause gives a column, as SQL text if that is enough; None for the target's
    own value."""
    match value:
        case Unchanged():
            return None
        case FromSource(position=at):
            return quoted(source_name(at))
        case FromText():
            return quoted(value_name(*place))
        case ToDefault():
            return "NULL"
        case ByField(fields=fields):
            assert before is not None
            assigned = []
            for at, (path, part) in enumerate(fields):
                name = quoted(value_name(*place, at))
                assigned.append((path, F.lit(None) if isinstance(part, ToDefault) else F.col(name)))
            return with_assigned_fields(F.col(before), column.type, assigned)


def _chosen(values: dict[int, _Value], before: str | None, column: Column) -> _Value:
    otherwise: _Value
    if before is not None:
        otherwise = before
    elif isinstance(column.type, AtomicType):
        otherwise = f"CAST(NULL AS {spark_type(column.type).simpleString()})"
    else:
        otherwise = F.lit(None).cast(spark_type(column.type))
    return _case(values, otherwise, column.name)


def _case(values: dict[int, _Value], otherwise: _Value, name: str) -> _Value:
    """The value of the clause that decides about a row. As one text if all values are texts:
    PySpark calls the JVM several times for each part of a column."""
    clause = quoted(CLAUSE_COLUMN)
    texts = [(number, value) for number, value in values.items() if isinstance(value, str)]
    if isinstance(otherwise, str) and len(texts) == len(values):
        cases = "".join(f" WHEN {clause} = {number} THEN {value}" for number, value in texts)
        text = f"CASE{cases} ELSE {otherwise} END" if cases else otherwise
        return f"{text} AS {quoted(name)}"
    chosen: SparkColumn | None = None
    for number, value in values.items():
        is_this = F.col(clause) == number
        expression = F.expr(value) if isinstance(value, str) else value
        chosen = F.when(is_this, expression) if chosen is None else chosen.when(is_this, expression)
    last = F.expr(otherwise) if isinstance(otherwise, str) else otherwise
    return (last if chosen is None else chosen.otherwise(last)).alias(name)


# The values of a MERGE that the columns of its table would round or cut.


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
    for number, merge_clause in enumerate(plan.clauses):
        if merge_clause.effect == "delete":
            continue
        writing.append(number)
        for name, target, column in _clause_values(plan, number, columns):
            loss = loss_entry(F.col(quoted(name)), types[name], target.type, column)
            if loss is not None:
                lost, entry = loss
                entries.append(((clause == number) & lost, entry))
    if LOSSES in plan.source_columns:
        cast = F.col(quoted(source_name(plan.source_columns.index(LOSSES))))
        entries.append((clause.isin(writing) & cast.isNotNull(), cast))
    return losses_column(entries)
