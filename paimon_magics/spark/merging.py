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
from paimon_magics.spark.row_changes import before_columns, with_merged_kinds
from paimon_magics.spark.struct_names import (
    has_all_fields,
    with_fields_by_name,
    with_fields_kept,
)
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType, DataType, RowType

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
    found: list[tuple[str, Column]] = []
    for number, clause in enumerate(plan.clauses):
        for at, value in enumerate(clause.values):
            if isinstance(value, FromSource):
                found.append((source_name(value.position), columns[at]))
            elif isinstance(value, FromText):
                found.append((value_name(number, at), columns[at]))
            elif isinstance(value, ByField):
                for position, (fields, one) in enumerate(value.fields):
                    path = (columns[at].name, *fields)
                    if isinstance(one, FromText):
                        field = Column(0, ".".join(path), type_at(columns, path))
                        found.append((value_name(number, at, position), field))
    return found


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
    `more` that the target's view has after its own, NULL in inserted rows. `merged` says what the
    merge engine makes of updated rows, in a table with keys.

    Values are cast and checked as those of an INSERT, but only in rows that get them. Raises
    InvalidValueError for a value whose type can't be cast to its column's, and what
    `with_fields_by_name` raises for structs.
    """
    types = _types_with_gaps(joined, plan, columns)
    joined = _by_name(joined, plan, columns)
    names = set(joined.columns)
    given: list[tuple[Column, _Value]] = []
    chosen = []
    with ansi_casts(spark):
        for at, column in enumerate(columns):
            kept = quoted(target_name(at)) if target_name(at) in names else None
            values: dict[int, _Value] = {}
            for number, clause in enumerate(plan.clauses):
                value: Value = clause.values[at] if clause.values else Unchanged()
                made = _made(value, column, kept, (number, at))
                if isinstance(made, str) and made in types and kept and clause.effect == "update":
                    made = with_fields_kept(F.col(made), types[made], column.type, F.col(kept))
                if made is not None:
                    given.append((column, made))
                    values[number] = stored(column, made)
            chosen.append(_chosen(values, kept, column))
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
            before = before_columns(merged)
            places = {column.name: at for at, column in enumerate(columns)}
            old = [
                f"{quoted(target_name(places[name]))} AS {quoted(to)}"
                for name, to in before.items()
            ]
            rows = selected_columns(joined, [*chosen, kind, *old, *losses])
            return with_merged_kinds(rows, columns, merged, before)
        except AnalysisException:
            # Look for the value only now: each attempt takes Spark some milliseconds.
            check_stored_types(joined, given)
            raise


COUNTED: tuple[Effect, ...] = ("insert", "update", "delete")
"""What MatchCounts counts, in its order."""


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """How many rows are inserted, updated and deleted, and the most often that one row of the
    target is. The `unseen` rows would not be changed by their update, or in part."""

    inserted: int
    updated: int
    deleted: int
    matches_max: int
    unseen: UnseenCounts = ALL_SEEN


def match_counts(changed: DataFrame, identity: Sequence[str]) -> MatchCounts:
    """Count the changed rows by one job. `identity` are the columns that identify a target row."""
    kinds = [str(KIND_NUMBERS[one]) for one in COUNTED]
    kinds[COUNTED.index("update")] = ", ".join(map(str, UPDATED_KINDS))
    kinds += map(str, (OLDER, UNCHANGED, PARTLY))
    counts = [f"count_if({KIND} IN ({kind})) AS n{at}" for at, kind in enumerate(kinds)]
    matches = f"count_if({KIND} <> {KIND_NUMBERS['insert']}) AS {_MATCHES}"
    each = changed.groupBy(*map(quoted, identity)).agg(*map(F.expr, [*counts, matches]))
    totals = [*(f"sum(n{at})" for at in range(len(kinds))), f"max({_MATCHES})"]
    total = [int(one or 0) for one in each.agg(*map(F.expr, totals)).collect()[0]]
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
    given = {field.name: field.dataType for field in joined.schema.fields}
    return {
        quoted(name): given[name]
        for name, column in wanted
        if not has_all_fields(given[name], column.type)
    }


def _made(value: Value, column: Column, kept: str | None, place: tuple[int, int]) -> _Value | None:
    """The value that a clause gives a column, as SQL text where that is enough; None for the one
    that the target has."""
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
            assert kept is not None
            paths = [(path, field) for field, (path, _) in enumerate(fields)]
            named = [
                F.lit(None) if isinstance(one, ToDefault) else F.col(quoted(value_name(*place, at)))
                for at, (_, one) in enumerate(fields)
            ]
            return _with_fields(F.col(kept), column.type, paths, named)


def _with_fields(
    value: SparkColumn,
    data_type: DataType,
    paths: Sequence[tuple[tuple[str, ...], int]],
    given: Sequence[SparkColumn],
) -> SparkColumn:
    """The STRUCT with given fields; one that is NULL becomes one of NULLs first, as in Spark."""
    if not paths:
        return value
    fields, number = paths[0]
    if not fields:
        return given[number]
    assert isinstance(data_type, RowType)
    return F.struct(
        *(
            _with_fields(
                value.getField(field.name),
                field.type,
                [(rest[1:], at) for rest, at in paths if rest[0] == field.name],
                given,
            ).alias(field.name)
            for field in data_type.fields
        )
    )


def _chosen(values: dict[int, _Value], kept: str | None, column: Column) -> _Value:
    otherwise: _Value
    if kept is not None:
        otherwise = kept
    elif isinstance(column.type, AtomicType):
        otherwise = f"CAST(NULL AS {spark_type(column.type).simpleString()})"
    else:
        otherwise = F.lit(None).cast(spark_type(column.type))
    return _case(values, otherwise, column.name)


def _case(values: dict[int, _Value], otherwise: _Value, name: str) -> _Value:
    """The value of the clause that decides about a row. As one text where all values are: PySpark
    asks the JVM several times for each part of a column."""
    clause = quoted(CLAUSE_COLUMN)
    texts = [(number, value) for number, value in values.items() if isinstance(value, str)]
    if isinstance(otherwise, str) and len(texts) == len(values):
        cases = "".join(f" WHEN {clause} = {number} THEN {value}" for number, value in texts)
        text = f"CASE{cases} ELSE {otherwise} END" if cases else otherwise
        return f"{text} AS {quoted(name)}"
    chosen: SparkColumn | None = None
    for number, value in values.items():
        is_this = F.col(clause) == number
        made = F.expr(value) if isinstance(value, str) else value
        chosen = F.when(is_this, made) if chosen is None else chosen.when(is_this, made)
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
