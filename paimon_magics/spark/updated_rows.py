"""The rows that DELETE and UPDATE write, as expressions over the rows that they select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.views import (
    DELETE,
    KIND_NAMES,
    OLDER,
    PARTLY,
    UNCHANGED,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)
from paimon_magics.planning.row_changes.assignments import AssignedPath
from paimon_magics.planning.row_changes.merged_updates import MergedUpdate, UnseenCounts
from paimon_magics.planning.schemas.column_paths import type_at
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.distributions import BUCKET_COLUMN
from paimon_magics.spark.casting import selected_columns
from paimon_magics.spark.losses import kept_losses
from paimon_magics.spark.struct_names import with_assigned_fields, with_fields_by_name
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import VALUE_PREFIX
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN

_BEFORE = "__paimon_magics_before_"


def with_assigned(
    selected: DataFrame,
    columns: Sequence[Column],
    paths: Sequence[AssignedPath],
    more: Sequence[str] = (),
) -> DataFrame:
    """The rows with their new values, in `columns`; `more` are texts of SQL over the old ones, for
    columns behind them. The assigned values follow the columns in `selected`. A STRUCT that is NULL
    becomes one of NULLs where a field of it is assigned, as in Spark. Raises the errors of
    `with_fields_by_name` for structs, whose fields are matched by name."""
    if not paths and not more and selected.columns == [column.name for column in columns]:
        return selected
    selected = _by_name(selected, columns, paths)
    assigned = [_assigned_column(column, paths) for column in columns]
    return selected_columns(selected, [*assigned, *more])


def _by_name(
    selected: DataFrame, columns: Sequence[Column], paths: Sequence[AssignedPath]
) -> DataFrame:
    wanted = {}
    for path in paths:
        names = (path.column.name, *path.fields)
        wanted[f"{VALUE_PREFIX}{path.number}"] = Column(0, ".".join(names), type_at(columns, names))
    if all(isinstance(column.type, AtomicType) for column in wanted.values()):
        return selected
    return with_fields_by_name(
        selected, [wanted.get(name) for name in selected.columns], fills=False
    )


def row_counts(frame: DataFrame, by: str | None) -> tuple[int, int]:
    """How many rows there are, and how many values of the column `by` they have; by one job."""
    values = F.lit(0) if by is None else F.count_distinct(F.col(quoted(by)))
    (row,) = frame.agg(F.count(F.lit(1)).alias("rows"), values.alias("values")).collect()
    return int(row["rows"]), int(row["values"])


def kind_text(kind: int) -> str:
    """The SQL text of a column of a row kind, Paimon's number."""
    return f"{kind}Y AS {quoted(KIND)}"


def before_columns(merged: MergedUpdate) -> dict[str, str]:
    """The names of the columns that have the old values which `merged` compares."""
    return {name: f"{_BEFORE}{at}" for at, name in enumerate(merged.compared)}


def with_merged_kinds(
    rows: DataFrame, columns: Sequence[Column], merged: MergedUpdate, before: Mapping[str, str]
) -> DataFrame:
    """The rows in `columns` and KIND, as the merge engine takes them: the kind of an updated row
    shows whether its update has a visible effect. `before` names the columns with the old
    values."""
    names = {column.name for column in columns}

    def after(name: str) -> str:
        return quoted(name if name in names else before[name])

    updated = f"{KIND} = {UPDATE_AFTER}Y"
    kind = merged.kind(lambda name: quoted(before[name]), after)
    chosen: list[SparkColumn | str] = [quoted(column.name) for column in columns]
    for at, column in enumerate(columns):
        if column in merged.blank:
            value = F.when(F.expr(f"NOT ({updated})"), F.col(quoted(column.name)))
            chosen[at] = value.alias(column.name)
    kinds = f"CASE WHEN {updated} THEN {kind} ELSE {KIND} END AS {KIND}"
    return selected_columns(rows, [*chosen, kinds, *kept_losses(rows)])


def unseen_counts(frame: DataFrame) -> UnseenCounts:
    """The number of rows whose kind marks them as having no visible effect; by one job."""
    counted = [F.count_if(F.col(KIND) == kind) for kind in (OLDER, UNCHANGED, PARTLY)]
    (row,) = frame.agg(*counted).collect()
    return UnseenCounts(*map(int, row))


def with_changes(frame: DataFrame, kinds: str) -> DataFrame:
    """The rows of a changelog whose column `kinds` has the names of their kinds, with Paimon's
    numbers for them in a last column KIND. The rows before updates are left out: those after them
    replace them."""
    number = F.array_position(F.array(*map(F.lit, KIND_NAMES)), F.col(quoted(kinds))) - 1
    unknown = F.raise_error(F.concat(F.lit("not a row kind: "), F.col(quoted(kinds))))
    rows = frame.where(~F.col(quoted(kinds)).eqNullSafe(F.lit(KIND_NAMES[UPDATE_BEFORE])))
    known = F.when(number >= 0, number).otherwise(unknown.cast("bigint"))
    return rows.withColumn(KIND, known.cast("tinyint")).drop(kinds)


def as_inserted(frame: DataFrame, kind_field: str | None) -> DataFrame:
    """The rows without the column of their kinds, and without rows that have no visible effect. A
    deleted row gets -D in the table's column `kind_field`, if there is one; other rows keep their
    value in it."""
    frame = frame.where(~F.col(KIND).isin(OLDER, UNCHANGED))
    if kind_field is not None:
        field = F.col(quoted(kind_field))
        is_deleted = F.col(KIND) == F.lit(DELETE)
        frame = frame.withColumn(kind_field, F.when(is_deleted, F.lit("-D")).otherwise(field))
    return frame.drop(KIND)


def with_buckets(frame: DataFrame, places: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows with a last column BUCKET_COLUMN, the bucket of the row of `places` that has the
    same values of the columns `names`. In `places` FILE_COLUMN has the buckets."""
    own = [f"{BUCKET_COLUMN}_{at}" for at in range(len(names))]
    known = [F.col(quoted(name)).alias(to) for name, to in zip(names, own, strict=True)]
    located = places.select(*known, F.col(FILE_COLUMN).alias(BUCKET_COLUMN)).distinct()
    same = [F.col(quoted(name)).eqNullSafe(F.col(to)) for name, to in zip(names, own, strict=True)]
    return frame.join(located, same, "inner").drop(*own)


def _assigned_column(column: Column, paths: Sequence[AssignedPath]) -> SparkColumn | str:
    own = [(path.fields, path.number) for path in paths if path.column == column]
    if not own:
        return quoted(column.name)
    if not own[0][0]:
        return f"{quoted(f'{VALUE_PREFIX}{own[0][1]}')} AS {quoted(column.name)}"
    values = [(names, F.col(quoted(f"{VALUE_PREFIX}{number}"))) for names, number in own]
    return with_assigned_fields(F.col(quoted(column.name)), column.type, values).alias(column.name)
