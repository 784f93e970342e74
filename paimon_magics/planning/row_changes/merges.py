"""Plans a MERGE before anything runs: what each clause does to each column, and how both sides
are joined.

Clauses apply in the order written: the first whose condition is true decides about a row, and a
condition that is NULL is not true. The rules on columns are those of Paimon's `PaimonMergeInto`
and `AssignmentUtils`; where it would store something else than was said, this plan refuses by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paimon_magics.errors import (
    InvalidValueError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.row_changes.equated_columns import ColumnPair, equated_columns
from paimon_magics.planning.row_changes.merge_joins import Join, join_of
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import RowType
from paimon_magics.statements.merge_into import (
    Assignment,
    DeleteAction,
    InsertAction,
    MatchKind,
    MergeClause,
    MergeInto,
    UpdateAction,
)
from paimon_magics.statements.statement import TextRange

__all__ = [
    "ByField",
    "Effect",
    "FromSource",
    "FromText",
    "Kept",
    "MergePlan",
    "PlannedClause",
    "ToDefault",
    "Value",
    "assigned_columns",
    "inserts_keys_of_on",
    "plan_merge",
]

Effect = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True)
class FromText:
    """The value of an expression of the user's."""

    range: TextRange


@dataclass(frozen=True, slots=True)
class FromSource:
    """The source's column at `position`."""

    position: int


@dataclass(frozen=True, slots=True)
class ToDefault:
    """The column's default, or NULL."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the target row has."""


@dataclass(frozen=True, slots=True)
class ByField:
    """The target row's STRUCT with some fields assigned; paths are exact names of fields."""

    fields: tuple[tuple[tuple[str, ...], FromText | ToDefault], ...]


Value = FromText | FromSource | ToDefault | Kept | ByField


@dataclass(frozen=True, slots=True)
class PlannedClause:
    """A clause: `values` has one for each column of the target, none for a DELETE."""

    kind: MatchKind
    condition: TextRange | None
    effect: Effect
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The clauses in the order written, and the join that finds their rows.

    `source_columns` are the names of the source's columns. `checks_matches`: a target row that
    several source rows would change makes the statement fail.
    """

    clauses: tuple[PlannedClause, ...]
    join: Join
    source_columns: tuple[str, ...]

    @property
    def checks_matches(self) -> bool:
        """Whether a target row may be changed by more than one source row."""
        return any(clause.kind == "MATCHED" for clause in self.clauses)

    @property
    def effects(self) -> frozenset[Effect]:
        """What the clauses do."""
        return frozenset(clause.effect for clause in self.clauses)

    @property
    def only_inserts(self) -> bool:
        """Whether no row of the target can change."""
        return self.effects == {"insert"}

    def numbered(self, kind: MatchKind) -> tuple[tuple[int, PlannedClause], ...]:
        """The clauses of one kind, with their numbers among all."""
        return tuple((n, clause) for n, clause in enumerate(self.clauses) if clause.kind == kind)


def plan_merge(
    merge: MergeInto,
    schema: TableSchema,
    source_columns: Sequence[str],
    *,
    fills_missing: bool = False,
) -> MergePlan:
    """Return what `merge` does to a table of this schema. With `fills_missing` columns that the
    source lacks stay as they are in UPDATE SET *, and get their default in INSERT *.

    Raises UnknownNameError for a column that the table has not, InvalidValueError for a column that
    is assigned twice or has no value, UnsupportedStatementError for an assigned primary key.
    """
    _check_unique(merge, source_columns)
    columns = _Columns(merge, schema, tuple(source_columns), fills_missing)
    clauses = tuple(columns.planned(clause) for clause in merge.clauses)
    return MergePlan(clauses, join_of({clause.kind for clause in clauses}), tuple(source_columns))


def inserts_keys_of_on(merge: MergeInto, plan: MergePlan, schema: TableSchema) -> bool:
    """Whether each inserted row has the key by which ON looked for it, so that somebody who adds
    what it did not find writes the same key."""
    columns = _Columns(merge, schema, plan.source_columns)
    equated = equated_columns(merge)
    return all(
        columns.pair_of(column, value) in equated
        for clause in plan.clauses
        if clause.effect == "insert"
        for column, value in zip(schema.columns, clause.values, strict=True)
        if column.name in schema.primary_keys
    )


def assigned_columns(
    merge: MergeInto, plan: MergePlan, schema: TableSchema
) -> frozenset[str] | None:
    """The columns to which an UPDATE clause gives another value than their own; None where no row
    is updated."""
    if "update" not in plan.effects:
        return None
    columns = _Columns(merge, schema, plan.source_columns)
    return frozenset(
        column.name
        for clause in plan.clauses
        if clause.effect == "update"
        for column, value in zip(schema.columns, clause.values, strict=True)
        if not isinstance(value, Kept)
        and not (isinstance(value, FromText) and columns.is_own(column, value.range))
    )


def _check_unique(merge: MergeInto, source_columns: Sequence[str]) -> None:
    names = [name.lower() for name in source_columns]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InvalidValueError(
                f"The source of the MERGE has two columns `{source_columns[position]}`.",
                hint="Give them different names in the source's query: SELECT a AS x, b AS y ….",
                statement=merge.text,
                position=merge.source.range.start,
            )


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of both sides, by which clauses are planned."""

    merge: MergeInto
    schema: TableSchema
    source_columns: tuple[str, ...]
    fills_missing: bool = False

    def planned(self, clause: MergeClause) -> PlannedClause:
        action = clause.action
        match action:
            case DeleteAction():
                return PlannedClause(clause.kind, clause.condition, "delete", ())
            case UpdateAction(assignments=None):
                values = self.by_name(clause, "UPDATE SET *", Kept())
                for column, value in zip(self.schema.columns, values, strict=True):
                    self.check_key(column, value, clause.position)
                return PlannedClause(clause.kind, clause.condition, "update", values)
            case InsertAction(assignments=None):
                values = self.by_name(clause, "INSERT *", ToDefault())
                self.check_given(clause, values)
                return PlannedClause(clause.kind, clause.condition, "insert", values)
            case UpdateAction(assignments=assignments):
                values = self.assigned(assignments or (), Kept())
                return PlannedClause(clause.kind, clause.condition, "update", values)
            case InsertAction(assignments=assignments):
                values = self.assigned(assignments or (), ToDefault())
                self.check_given(clause, values)
                return PlannedClause(clause.kind, clause.condition, "insert", values)

    def by_name(self, clause: MergeClause, what: str, others: Value) -> tuple[Value, ...]:
        """The source's columns of the same names; those that the table lacks are not used. A
        missing one gets the value `others`, if that is allowed."""
        positions = {name.lower(): at for at, name in enumerate(self.source_columns)}
        missing = [one for one in self.schema.column_names if one.lower() not in positions]
        if missing and not self.fills_missing:
            raise InvalidValueError(
                f"{what} takes a value for each column of `{self.merge.target}`, but the source "
                f"has no `{missing[0]}`.",
                hint=f"The source has {_listed(self.source_columns)}. Name the columns that are "
                "written instead of `*`, add the missing ones to the source, or SET "
                "`spark.paimon.write.merge-schema` = true.",
                statement=self.merge.text,
                position=clause.position,
            )
        found = (positions.get(one.lower()) for one in self.schema.column_names)
        return tuple(others if at is None else FromSource(at) for at in found)

    def assigned(self, assignments: Sequence[Assignment], others: Value) -> tuple[Value, ...]:
        """The value of each column; `others` is that of a column without an assignment."""
        values: dict[str, Value] = {}
        for one in assignments:
            column, fields = self.meant(one)
            value: FromText | ToDefault = ToDefault()
            if one.value is not None:
                value = FromText(one.value)
            if isinstance(others, Kept):
                self.check_key(column, value if not fields else None, one.position)
            before = values.get(column.name)
            if not fields:
                if before is not None:
                    raise self.twice(column, one)
                values[column.name] = value
                continue
            if not isinstance(others, Kept):
                raise UnsupportedStatementError(
                    f"INSERT can't write a field of `{column.name}` alone.",
                    hint="Write the whole column: named_struct('field', value, …).",
                    statement=self.merge.text,
                    position=one.position,
                )
            if before is not None and not isinstance(before, ByField):
                raise self.twice(column, one)
            known = before.fields if isinstance(before, ByField) else ()
            if any(_overlap(path, fields) for path, _ in known):
                raise self.twice(column, one)
            values[column.name] = ByField((*known, (fields, value)))
        return tuple(values.get(column.name, others) for column in self.schema.columns)

    def meant(self, assignment: Assignment) -> tuple[Column, tuple[str, ...]]:
        """The column that a path means, and the exact names of the fields that lead on. What names
        the target may come first: `t.v`, `shop.t.v`."""
        path = assignment.path
        names = {column.name.lower(): column for column in self.schema.columns}
        for length in self.qualifier_lengths(path):
            column = names.get(path[length].lower())
            if column is not None:
                return column, self.fields(assignment, column, path[length + 1 :])
        named = ".".join(path)
        raise UnknownNameError(
            f"`{self.merge.target}` has no column `{named}`.",
            hint=nearest(path[-1], self.schema.column_names, what="columns"),
            statement=self.merge.text,
            position=assignment.position,
        )

    def qualifier_lengths(self, path: tuple[str, ...]) -> list[int]:
        """How many parts at the beginning may name the target, the longest first; Spark prefers a
        qualifier to a STRUCT's name."""
        target = self.merge.target
        written = [part for part in (target.catalog, target.database, target.object_name) if part]
        lower = [part.lower() for part in path]
        found = [0]
        if len(path) > 1 and lower[0] == self.merge.target_alias.lower():
            found.append(1)
        for length in range(2, len(written) + 1):
            if len(path) > length and lower[:length] == [one.lower() for one in written[-length:]]:
                found.append(length)
        return sorted(found, reverse=True)

    def fields(
        self, assignment: Assignment, column: Column, path: tuple[str, ...]
    ) -> tuple[str, ...]:
        found: list[str] = []
        inside = column.type
        for part in path:
            options = inside.fields if isinstance(inside, RowType) else ()
            field = next((one for one in options if one.name.lower() == part.lower()), None)
            if field is None:
                place = ".".join((column.name, *found))
                hint = nearest(part, [one.name for one in options], what="fields")
                raise UnknownNameError(
                    f"`{place}` has no field `{part}`.",
                    hint=hint if options else f"`{place}` is no STRUCT: assign it as a whole.",
                    statement=self.merge.text,
                    position=assignment.position,
                )
            found.append(field.name)
            inside = field.type
        return tuple(found)

    def check_key(self, column: Column, value: Value | None, position: int) -> None:
        """Raise UnsupportedStatementError if an UPDATE could change a row's primary key."""
        if column.name not in self.schema.primary_keys or isinstance(value, Kept):
            return
        if isinstance(value, FromText) and self.is_own(column, value.range):
            return
        pair = self.pair_of(column, value)
        if pair is None or pair not in equated_columns(self.merge):
            alias, other = self.merge.target_alias, self.merge.source_alias
            raise UnsupportedStatementError(
                f"MERGE can't change the primary key column `{column.name}` of "
                f"`{self.merge.target}`: the row of the old key would stay.",
                hint=f"Leave `{column.name}` out of UPDATE SET, or compare it in ON and take the "
                f"same value: ON {alias}.{column.name} = {other}.{column.name}.",
                statement=self.merge.text,
                position=position,
            )

    def pair_of(self, column: Column, value: Value | None) -> ColumnPair | None:
        """The pair of a column and the source's column that is its value; None for other values."""
        name = column.name.lower()
        match value:
            case FromSource(position=at):
                return ColumnPair(name, self.source_columns[at].lower())
            case FromText(range=text):
                prefix = f"{self.merge.source_alias.lower()}."
                return ColumnPair(name, self.plain(text).removeprefix(prefix))
        return None

    def is_own(self, column: Column, text: TextRange) -> bool:
        """Whether a value is the column itself."""
        name = column.name.lower()
        return self.plain(text) in (name, f"{self.merge.target_alias.lower()}.{name}")

    def plain(self, text: TextRange) -> str:
        """A value's text without quotes and brackets, in lower case."""
        return self.merge.text[text.start : text.end].replace("`", "").strip("() ").lower()

    def check_given(self, clause: MergeClause, values: Sequence[Value]) -> None:
        for column, value in zip(self.schema.columns, values, strict=True):
            missing = isinstance(value, ToDefault) and column.default is None
            if missing and not column.type.nullable:
                raise InvalidValueError(
                    f"Column `{column.name}` of `{self.merge.target}` is NOT NULL and has no "
                    "default, but this INSERT gives it no value.",
                    hint=f"Add `{column.name}` to the columns of the INSERT.",
                    statement=self.merge.text,
                    position=clause.position,
                )

    def twice(self, column: Column, assignment: Assignment) -> InvalidValueError:
        return InvalidValueError(
            f"Column `{column.name}` is assigned twice in one clause.",
            hint="Assign each column once, or some fields of a STRUCT, but not both.",
            statement=self.merge.text,
            position=assignment.position,
        )


def _overlap(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    length = min(len(left), len(right))
    return left[:length] == right[:length]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
