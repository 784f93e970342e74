"""Plans a MERGE before anything runs: the effect of each clause on each column, and the join of
both sides.

Clauses apply in the order written: the first whose condition is true decides about a row, and a
condition that is NULL is not true. The rules on columns are those of Paimon's `PaimonMergeInto` and
`AssignmentUtils`; where Paimon would store other values than the statement specifies, this plan
refuses by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnsupportedStatementError,
)
from paimon_magics.planning.row_changes.assignments import (
    AssignedTable,
    ColumnPath,
    check_apart,
    dotted_name,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema, column_list
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.data_types import RowType, parts_of
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.statement import (
    Assignment,
    DeleteAction,
    InsertAction,
    MatchKind,
    MergeClause,
    MergeInto,
    QueryText,
    TableName,
    TextRange,
    UpdateAction,
)

Effect = Literal["update", "delete", "insert"]


Join = Literal["INNER", "LEFT OUTER", "RIGHT OUTER", "FULL OUTER", "LEFT ANTI", "RIGHT ANTI"]
"""How the target, on the left, is joined with the source; `RIGHT ANTI` are the source rows alone
that match no target row."""


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
class Unchanged:
    """What the target row has."""


@dataclass(frozen=True, slots=True)
class ByField:
    """The target row's STRUCT with some fields assigned; paths are exact names of fields."""

    fields: tuple[tuple[tuple[str, ...], FromText | ToDefault], ...]


Value = FromText | FromSource | ToDefault | Unchanged | ByField


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
    several source rows would change makes the statement fail. `fills_missing`: a column or field
    without a value in the source of `*` stays unchanged, or is NULL in a new row, and a field that
    a value of SET lacks is NULL; otherwise it is refused. `nested` are the positions of the columns
    in which fields may stay so.
    """

    clauses: tuple[PlannedClause, ...]
    join: Join
    source_columns: tuple[str, ...]
    fills_missing: bool = False
    nested: frozenset[int] = frozenset()

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

    Raises UnknownNameError for a column that the table does not have, InvalidValueError for a
    column that is assigned twice or has no value, UnsupportedStatementError for an assigned primary
    key.
    """
    _check_unique(merge, source_columns)
    columns = _Columns(merge, schema, tuple(source_columns), fills_missing)
    clauses = tuple(columns.planned(clause) for clause in merge.clauses)
    join = join_of({clause.kind for clause in clauses})
    nested = frozenset(
        at
        for at, column in enumerate(schema.columns)
        if fills_missing and any(isinstance(part, RowType) for part in parts_of(column.type))
    )
    return MergePlan(clauses, join, tuple(source_columns), fills_missing, nested)


def inserts_keys_of_on(merge: MergeInto, plan: MergePlan, schema: TableSchema) -> bool:
    """Whether each inserted row has the key by which ON looked for it, so that concurrent inserts
    collide on the key."""
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
    """The columns to which an UPDATE clause gives another value than their own; None if no row
    is updated."""
    if "update" not in plan.effects:
        return None
    columns = _Columns(merge, schema, plan.source_columns)
    return frozenset(
        column.name
        for clause in plan.clauses
        if clause.effect == "update"
        for column, value in zip(schema.columns, clause.values, strict=True)
        if not isinstance(value, Unchanged)
        and not (isinstance(value, FromText) and columns.is_own(column, value.range))
    )


def merged_table(merge: MergeInto, schema: TableSchema) -> AssignedTable:
    """The table whose columns a MERGE assigns."""
    alias = merge.target_alias
    is_name = alias.lower() == merge.target.object_name.lower()
    return AssignedTable(merge.target, None if is_name else alias, schema)


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

    @property
    def table(self) -> AssignedTable:
        """The target, as it is named."""
        return merged_table(self.merge, self.schema)

    def planned(self, clause: MergeClause) -> PlannedClause:
        match clause.action:
            case DeleteAction():
                return PlannedClause(clause.kind, clause.condition, "delete", ())
            case UpdateAction(assignments=None):
                sources = self.by_name(clause, "UPDATE SET *", Unchanged())
                for column, value in zip(self.schema.columns, sources, strict=True):
                    self.check_key(column, value, clause.position)
                values = tuple(
                    Unchanged() if column.name in self.schema.primary_keys else value
                    for column, value in zip(self.schema.columns, sources, strict=True)
                )
            case UpdateAction(assignments=assignments):
                values = self.assigned(assignments or (), Unchanged())
            case InsertAction(assignments=assignments):
                values = (
                    self.by_name(clause, "INSERT *", ToDefault())
                    if assignments is None
                    else self.assigned(assignments, ToDefault())
                )
                self.check_inserted(clause, values)
                return PlannedClause(clause.kind, clause.condition, "insert", values)
        return PlannedClause(clause.kind, clause.condition, "update", values)

    def by_name(self, clause: MergeClause, what: str, others: Value) -> tuple[Value, ...]:
        """The source's columns of the same names; those that the table lacks are not used. A
        missing one gets the value `others`, if that is allowed."""
        positions = {name.lower(): at for at, name in enumerate(self.source_columns)}
        missing = [
            column_name
            for column_name in self.schema.column_names
            if column_name.lower() not in positions
        ]
        if missing and not self.fills_missing:
            raise InvalidValueError(
                f"{what} needs a value for each column of `{self.merge.target}`, but the source "
                f"has no `{missing[0]}`.",
                hint=f"The source has {_listed(self.source_columns)}. Name the columns to write "
                "instead of `*`, add the missing columns to the source, or SET "
                "`spark.paimon.write.merge-schema` = true.",
                statement=self.merge.text,
                position=clause.position,
            )
        places = (positions.get(column_name.lower()) for column_name in self.schema.column_names)
        return tuple(others if at is None else FromSource(at) for at in places)

    def assigned(self, assignments: Sequence[Assignment], others: Value) -> tuple[Value, ...]:
        """The value of each column; `others` is that of a column without an assignment."""
        values: dict[str, Value] = {}
        known: list[ColumnPath] = []
        for assignment in assignments:
            try:
                path = self.table.path_of(assignment.path)
                check_apart(known, path)
            except PaimonMagicsError as error:
                error.statement, error.position = self.merge.text, assignment.position
                raise
            known.append(path)
            column, fields = path.column, path.fields
            value = ToDefault() if assignment.value is None else FromText(assignment.value)
            if isinstance(others, Unchanged) and column.name in self.schema.primary_keys:
                self.check_key(column, value if not fields else None, assignment.position)
                continue
            if fields and not isinstance(others, Unchanged):
                raise UnsupportedStatementError(
                    f"INSERT can't write a field of `{column.name}` alone.",
                    hint="Write the whole column: named_struct('field', value, …).",
                    statement=self.merge.text,
                    position=assignment.position,
                )
            if fields:
                before = values.get(column.name)
                others_of = before.fields if isinstance(before, ByField) else ()
                values[column.name] = ByField((*others_of, (fields, value)))
            else:
                values[column.name] = value
        return tuple(values.get(column.name, others) for column in self.schema.columns)

    def check_key(self, column: Column, value: Value | None, position: int) -> None:
        """Raise UnsupportedStatementError if an UPDATE gives a row another primary key. One that is
        equal to the row's own is not written either: `'01' = 1` is true, but 1 is another key."""
        if column.name not in self.schema.primary_keys or isinstance(value, Unchanged):
            return
        if isinstance(value, FromText) and self.is_own(column, value.range):
            return
        pair = self.pair_of(column, value)
        if pair is None or pair not in equated_columns(self.merge):
            alias, other = self.merge.target_alias, self.merge.source_alias
            raise UnsupportedStatementError(
                f"MERGE can't change the primary key column `{column.name}` of "
                f"`{self.merge.target}`: the row of the old key would stay.",
                hint=f"Leave `{column.name}` out of UPDATE SET, or compare it in ON and assign the "
                f"same value: ON {alias}.{column.name} = {other}.{column.name}.",
                statement=self.merge.text,
                position=position,
            )

    def pair_of(self, column: Column, value: Value | None) -> _ColumnPair | None:
        """The pair of a column and the source's column that is its value; None for other values."""
        name = column.name.lower()
        match value:
            case FromSource(position=at):
                return _ColumnPair(name, self.source_columns[at].lower())
            case FromText(range=text):
                *qualifier, source = dotted_name(self.written(text)) or ("",)
                alias = self.merge.source_alias.lower()
                if source and [part.lower() for part in qualifier] in ([], [alias]):
                    return _ColumnPair(name, source.lower())
        return None

    def is_own(self, column: Column, text: TextRange) -> bool:
        """Whether a value is the column itself."""
        return self.table.is_own(ColumnPath(column, ()), self.written(text))

    def written(self, text: TextRange) -> str:
        """A value as the user wrote it."""
        return self.merge.text[text.start : text.end]

    def check_inserted(self, clause: MergeClause, values: Sequence[Value]) -> None:
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


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# Which columns of target and source the ON of a MERGE makes equal.


@dataclass(frozen=True, slots=True)
class _ColumnPair:
    """A target's and a source's column, in lower case."""

    target: str
    source: str


def equated_columns(merge: MergeInto) -> frozenset[_ColumnPair]:
    """Return the pairs that are equal wherever ON is true: its terms `t.a = s.b` and `t.a <=> s.b`,
    if nothing but AND connects them with the rest.

    Both names must be qualified with the aliases: only Spark can resolve the side of an unqualified
    name.
    """
    pairs = (_pair(merge, term) for term in on_terms(merge))
    return frozenset(pair for pair in pairs if pair is not None)


def _pair(merge: MergeInto, term: tuple[Token, ...]) -> _ColumnPair | None:
    for at, token in enumerate(term):
        if token.text in ("=", "==", "<=>"):
            left = side_and_column(merge, term[:at])
            right = side_and_column(merge, term[at + 1 :])
            if left is None or right is None or left[0] == right[0]:
                return None
            by_side = dict((left, right))
            return _ColumnPair(by_side["target"], by_side["source"])
    return None


# How the sides of a MERGE are joined, by the kinds of its clauses.


def join_of(kinds: Set[MatchKind]) -> Join:
    """The join that finds the rows of clauses of these kinds, and few others."""
    match ("MATCHED" in kinds, "NOT MATCHED" in kinds, "NOT MATCHED BY SOURCE" in kinds):
        case (_, True, True):
            return "FULL OUTER"
        case (True, True, False):
            return "RIGHT OUTER"
        case (False, True, False):
            return "RIGHT ANTI"
        case (True, False, True):
            return "LEFT OUTER"
        case (False, False, True):
            return "LEFT ANTI"
        case _:
            return "INNER"


# The terms of the ON of a MERGE that AND connects: each is TRUE wherever ON is.


def on_terms(merge: MergeInto) -> tuple[tuple[Token, ...], ...]:
    """Return the tokens of each term; their positions count from where ON's condition begins. Terms
    in parentheses are split, too. There are none if OR or CASE may connect them otherwise."""
    text = merge.text[merge.condition.start : merge.condition.end]
    return tuple(_terms(Cursor(text, tokenize(text))))


def _terms(cursor: Cursor) -> Iterator[tuple[Token, ...]]:
    ranges: list[tuple[int, int]] = []
    start, in_between = cursor.index, False
    while not cursor.at_end:
        if cursor.at_any("OR", "CASE"):
            return
        if cursor.at("AND") and not in_between:
            ranges.append((start, cursor.index))
            start = cursor.index + 1
        elif cursor.at("AND"):
            in_between = False
        in_between |= cursor.at("BETWEEN")
        if cursor.index in cursor.brackets:
            cursor.skip_brackets()
        else:
            cursor.next()
    for first, stop in [*ranges, (start, cursor.stop)]:
        if first == stop:
            continue  # Spark reports the error in it
        if cursor.tokens[first].text == "(" and cursor.brackets[first] == stop - 1:
            yield from _terms(
                Cursor(cursor.text, cursor.tokens, cursor.brackets, first + 1, stop - 1)
            )
        else:
            yield cursor.tokens[first:stop]


def text_range(merge: MergeInto, tokens: tuple[Token, ...]) -> TextRange:
    """The range of a part of a term in the statement's text."""
    start = merge.condition.start
    return TextRange(start + tokens[0].start, start + tokens[-1].end)


def side_and_column(merge: MergeInto, tokens: tuple[Token, ...]) -> tuple[str, str] | None:
    """The side (target or source) and the column, in lower case, that a qualified name means; None
    for anything else."""
    names = tokens[::2]
    if len(names) < 2 or any(token.kind not in IDENTIFIER_KINDS for token in names):
        return None
    if len(tokens) % 2 == 0 or any(token.text != "." for token in tokens[1::2]):
        return None
    *qualifier, column = (token.name.lower() for token in names)
    alias = qualifier[-1]
    if len(qualifier) > 1:  # shop.t.id, replaced by the alias where Spark evaluates it
        replaced = {
            merge.text[qualified.start : qualified.end].replace("`", "").lower(): name.lower()
            for qualified, name in merge.qualifiers
        }
        known = replaced.get(".".join(qualifier))
        if known is None:
            return None
        alias = known
    if alias == merge.target_alias.lower():
        return "target", column
    if alias == merge.source_alias.lower():
        return "source", column
    return None


# INSERT INTO a table with `upsert-key`, as the MERGE that it is.
#
# A row replaces the stored row with an equal key (NULL equals NULL), unless that row has a greater
# sequence (`sequence.field`). Of several rows of one key in a statement, the row with the greatest
# sequence is taken, and of those the last.
#
# Source: `RewriteUpsertTable` of Paimon's connector, which compares several sequence fields one by
# one with those of the table, and in order among the rows of a statement; here they are compared
# in order, as in tables with a primary key.

_UPSERT_TARGET, _UPSERT_SOURCE = "t", "s"


@dataclass(frozen=True, slots=True)
class Upsert:
    """How inserted rows replace stored ones: those of equal `keys` whose `sequence` is not greater,
    or without `ascending` not less."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...] = ()
    ascending: bool = True

    @classmethod
    def of(cls, schema: TableSchema) -> Upsert | None:
        """That of an INSERT INTO the table; None if its rows are only added."""
        keys = column_list(schema.stored_option("upsert-key"))
        if schema.is_primary_key_table or not keys:
            return None
        order = (schema.option("sequence.field.sort-order") or "").lower()
        return cls(keys, schema.sequence_fields, order != "descending")

    def merge(self, target: TableName) -> MergeInto:
        """The MERGE of a frame into the target. Its conditions are ranges of its text, which Spark
        evaluates; the text of its source is never read."""
        head = f"MERGE INTO {table_text(target)} AS {_UPSERT_TARGET} USING "
        source = TextRange(len(head), len(head) + len("frame"))
        text = f"{head}frame AS {_UPSERT_SOURCE} ON "
        same = " AND ".join(
            f"{_UPSERT_TARGET}.{quoted(key)} <=> {_UPSERT_SOURCE}.{quoted(key)}"
            for key in self.keys
        )
        on = TextRange(len(text), len(text) + len(same))
        text += f"{same} "
        update_position = len(text)
        text += "WHEN MATCHED"
        newer = None
        if self.sequence:
            text += " AND "
            compared = self._is_newer()
            newer = TextRange(len(text), len(text) + len(compared))
            text += compared
        text += " THEN UPDATE SET * "
        insert_position = len(text)
        text += "WHEN NOT MATCHED THEN INSERT *"
        clauses = (
            MergeClause("MATCHED", newer, UpdateAction(None), update_position),
            MergeClause("NOT MATCHED", None, InsertAction(None), insert_position),
        )
        return MergeInto(
            text,
            offset=0,
            target=target,
            target_position=len("MERGE INTO "),
            target_alias=_UPSERT_TARGET,
            source=QueryText(source),
            source_text="",
            source_alias=_UPSERT_SOURCE,
            condition=on,
            clauses=clauses,
            within=QueryText(TextRange(on.start, len(text))),
        )

    def _is_newer(self) -> str:
        """The condition that the stored row's sequence is not past the inserted row's."""
        stored, inserted = (
            f"struct({', '.join(f'{side}.{quoted(name)}' for name in self.sequence)})"
            for side in (_UPSERT_TARGET, _UPSERT_SOURCE)
        )
        return f"{stored} {'<=' if self.ascending else '>='} {inserted}"
