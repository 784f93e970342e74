"""The query that joins both sides of a MERGE and decides the action for each row.

It contains the user's own texts, with generated SQL only around them. Each kind of clause is
evaluated where only the columns of its rows have names: both sides for MATCHED, the source alone
for NOT MATCHED, the target alone for NOT MATCHED BY SOURCE. So an unqualified name has the same
meaning as in Spark's MERGE. A value is computed only for the rows that its clause decides about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from paimon_magics.planning.row_changes.merges import (
    ByField,
    FromSource,
    FromText,
    MergePlan,
    PlannedClause,
    Unchanged,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.queries.rewriting import (
    Replacement,
    RewrittenText,
    joined_text,
    rewrite,
)
from paimon_magics.statements.queries.tree import condition_filters
from paimon_magics.statements.statement import ColumnFilter, MatchKind, MergeInto, TextRange

_PREFIX = "__paimon_magics_"
TARGET_MARK = f"{_PREFIX}target"
"""The column that the target's view has besides its own: true in each row."""
SOURCE_MARK = f"{_PREFIX}source"
"""The same of the source's view."""
CLAUSE_COLUMN = f"{_PREFIX}clause"
"""The number of the clause that decides about a row, NULL for none."""

_PLACES: tuple[tuple[MatchKind, str], ...] = (
    ("MATCHED", "both"),
    ("NOT MATCHED BY SOURCE", "left"),
    ("NOT MATCHED", "right"),
)

_Part = str | RewrittenText


_IsOwn = Callable[[str, str], bool]


def target_name(position: int) -> str:
    """The name that the target's column has in the query's result."""
    return f"{_PREFIX}t{position}"


def source_name(position: int) -> str:
    """The name that the source's column has in the query's result."""
    return f"{_PREFIX}s{position}"


def value_name(clause: int, column: int, field: int = 0) -> str:
    """The name of the value that a clause gives a column, or the `field`-th field of it."""
    return f"{_PREFIX}v{clause}_{column}_{field}"


def merge_query(
    merge: MergeInto,
    plan: MergePlan,
    views: tuple[str, str],
    target_columns: Mapping[int, str],
    replacements: Sequence[Replacement],
) -> RewrittenText:
    """Return the query over `views`, those of the target and the source with their marks.

    `target_columns` are the table's in the target's view, by their positions in the table. The
    result has `target_name(…)`, `source_name(…)`, `value_name(…)` for values from texts, and
    `CLAUSE_COLUMN`. `replacements` are those inside the clauses.
    """
    return _Query(merge, plan, target_columns, tuple(replacements)).text(views)


def needed_columns(
    merge: MergeInto,
    plan: MergePlan,
    names: Sequence[str],
    updated: Collection[str] | None = None,
    compared: Collection[str] = (),
) -> tuple[int, ...]:
    """The positions of the target's columns that a MERGE reads, at least one.

    It reads columns that keep their value in a changed row, are `compared`, or may be named in a
    text. If the places of rows are known, deleted rows need no values, and updated rows only those
    of the columns `updated`.
    """
    used = used_names(merge.text, merge.within)
    places = set()
    for at, name in enumerate(names):
        keeps = any(
            not clause.values
            or isinstance(clause.values[at], Unchanged | ByField)
            or (at in plan.nested and _is_kept(clause, at))
            for clause in plan.clauses
            if updated is None or (clause.effect == "update" and name in updated)
        )
        if keeps or used is None or name in compared or name.lower() in used:
            places.add(at)
    return tuple(sorted(places)) or (0,)


def _is_kept(clause: PlannedClause, at: int) -> bool:
    """Whether fields of a column may keep their value: of UPDATE SET *."""
    return clause.effect == "update" and isinstance(clause.values[at], FromSource)


def users_text(
    merge: MergeInto, range: TextRange, replacements: Sequence[Replacement] = ()
) -> RewrittenText:
    """A condition or value from the user, with aliases in place of table names, and the
    `replacements` inside it."""
    qualifiers = ((place, quoted(alias)) for place, alias in merge.qualifiers)
    inside = [
        replacement for replacement in (*replacements, *qualifiers)
        if range.start <= replacement[0].start and replacement[0].end <= range.end
    ]  # fmt: skip
    return rewrite(merge.text, range, inside)


class _Query:
    def __init__(
        self,
        merge: MergeInto,
        plan: MergePlan,
        target_columns: Mapping[int, str],
        replacements: tuple[Replacement, ...],
    ) -> None:
        self.merge = merge
        self.plan = plan
        self.target = {target_name(at): name for at, name in target_columns.items()}
        self.source = {source_name(at): name for at, name in enumerate(plan.source_columns)}
        self.replacements = replacements

    def text(self, views: tuple[str, str]) -> RewrittenText:
        inner, names = self.joined(views)
        for kind, _ in _PLACES[1:]:
            if self.plan.numbered(kind):
                inner, names = self.alone(kind, inner, names)
        numbers = [quoted(_number(kind)) for kind, _ in _PLACES if self.plan.numbered(kind)]
        chosen = f"coalesce({', '.join(numbers)})"
        shown = ", ".join(quoted(name) for name in names if name not in _NUMBERS)
        return joined_text(
            [
                f"SELECT {shown}, {chosen} AS {quoted(CLAUSE_COLUMN)} FROM (",
                *inner,
                f") WHERE {chosen} IS NOT NULL",
            ]
        )

    def joined(self, views: tuple[str, str]) -> tuple[list[_Part], list[str]]:
        """The join, with the MATCHED clauses decided; its parts and the names of its columns."""
        left, right = quoted(self.merge.target_alias), quoted(self.merge.source_alias)
        join = self.plan.join
        columns: dict[str, str] = {}
        if join != "RIGHT ANTI":
            columns |= {new: f"{left}.{quoted(old)}" for new, old in self.target.items()}
            columns[TARGET_MARK] = f"{left}.{quoted(TARGET_MARK)}"
        if join != "LEFT ANTI":
            columns |= {new: f"{right}.{quoted(old)}" for new, old in self.source.items()}
            columns[SOURCE_MARK] = f"{right}.{quoted(SOURCE_MARK)}"
        listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())
        names = list(columns)
        parts: list[_Part] = [f"SELECT {listed}"]
        if self.plan.numbered("MATCHED"):
            both = f"{left}.{quoted(TARGET_MARK)} AND {right}.{quoted(SOURCE_MARK)}"
            parts += self.decided("MATCHED", both, names)
        tables = [f"{quoted(views[0])} AS {left}", f"{quoted(views[1])} AS {right}"]
        if join == "RIGHT ANTI":
            tables.reverse()
        word = "LEFT ANTI" if join == "RIGHT ANTI" else join
        parts.append(f" FROM {tables[0]} {word} JOIN {tables[1]} ON (")
        return [*parts, self.users(self.merge.condition), ")"], names

    def alone(
        self, kind: MatchKind, inner: list[_Part], names: list[str]
    ) -> tuple[list[_Part], list[str]]:
        """The rows of `inner` with the clauses decided that see one side only."""
        if kind == "NOT MATCHED":
            own, alias, mark, other = (
                self.source, self.merge.source_alias, SOURCE_MARK, TARGET_MARK,
            )  # fmt: skip
        else:
            own, alias, mark, other = (
                self.target, self.merge.target_alias, TARGET_MARK, SOURCE_MARK,
            )  # fmt: skip
        shown = ", ".join(f"{quoted(new)} AS {quoted(old)}" for new, old in own.items())
        # An anti join has the rows of one side only, and no mark of the other.
        missing = f"{quoted(other)} IS NULL" if other in names else "true"
        carried = ", ".join(map(quoted, names))
        parts: list[_Part] = [f"SELECT {carried}"]
        names = list(names)
        parts += self.decided(kind, f"{quoted(mark)} AND {missing}", names)
        rows = f" FROM (SELECT {carried}, {shown} FROM ("
        return [*parts, rows, *inner, f")) AS {quoted(alias)}"], names

    def decided(self, kind: MatchKind, rows: str, names: list[str]) -> list[_Part]:
        """The columns with the number of the deciding clause of a kind and the values of its
        clauses, each after a comma; their names are added to `names`."""
        number = _number(kind)
        names.append(number)
        clauses = self.plan.numbered(kind)
        parts: list[_Part] = [f", CASE WHEN {rows} THEN CASE"]
        for at, clause in clauses:
            if clause.condition is None:
                parts.append(f" WHEN true THEN {at}")
            else:
                parts += [" WHEN (", self.users(clause.condition), f") THEN {at}"]
        parts.append(f" END END AS {quoted(number)}")
        for at, clause in clauses:
            for name, range in _texts(at, clause):
                parts += [
                    f", CASE WHEN {quoted(number)} = {at} THEN (",
                    self.users(range),
                    f") END AS {quoted(name)}",
                ]
                names.append(name)
        return parts

    def users(self, range: TextRange) -> RewrittenText:
        """A text of the user's, with what is replaced inside it."""
        return users_text(self.merge, range, self.replacements)


def _number(kind: MatchKind) -> str:
    return f"{CLAUSE_COLUMN}_{dict(_PLACES)[kind]}"


_NUMBERS = frozenset(_number(kind) for kind, _ in _PLACES)


def _texts(number: int, clause: PlannedClause) -> list[tuple[str, TextRange]]:
    texts = []
    for at, value in enumerate(clause.values):
        match value:
            case FromText(range=range):
                texts.append((value_name(number, at), range))
            case ByField(fields=fields):
                for field, (_, value) in enumerate(fields):
                    if isinstance(value, FromText):
                        texts.append((value_name(number, at, field), value.range))
    return texts


# The target rows that a MERGE needs, as conditions by which files are pruned.
#
# A row of the target matters if ON can be TRUE for it, or if a clause NOT MATCHED BY SOURCE may
# change it. Other rows are left out without changing the result:
#
# - MATCHED: ON is not TRUE for such a row, or no clause changes it.
# - NOT MATCHED: a source row is inserted unless ON is TRUE for some row of the target. That hangs
#   on
#   ON alone: what the MATCHED clauses do to the row does not count.
# - NOT MATCHED BY SOURCE: which rows match no source row is known of each row by itself, so that
#   only
#   those have to be seen that a clause would change.
#
# The same holds for the commit: rows that others have added meanwhile only matter if they meet
# these conditions, since the statement would not use other rows with these source rows
# (`RowSearch`). If the source is made of rows of the target, these rows matter regardless of ON.


def target_filters(
    merge: MergeInto, plan: MergePlan, schema: TableSchema
) -> tuple[ColumnFilter, ...]:
    """Return conditions that all rows of the target meet which matter to the MERGE. Their columns
    have the table's own names."""
    needed = [dict.fromkeys(_filters(merge, plan, schema, need)) for need in _needs(merge, plan)]
    return tuple(
        condition for condition in needed[0] if all(condition in other for other in needed[1:])
    )


def _needs(merge: MergeInto, plan: MergePlan) -> list[tuple[tuple[TextRange, bool], ...]]:
    """The conditions under which a row matters: it meets all conditions of one of these lists. Each
    condition is a text, and whether it may refer to columns of the source."""
    on = (merge.condition, True)
    needs: list[tuple[tuple[TextRange, bool], ...]] = []
    if plan.numbered("NOT MATCHED"):
        needs.append((on,))
    else:
        for _, clause in plan.numbered("MATCHED"):
            own = () if clause.condition is None else ((clause.condition, True),)
            needs.append((on, *own))
    for _, clause in plan.numbered("NOT MATCHED BY SOURCE"):
        needs.append(() if clause.condition is None else ((clause.condition, False),))
    return needs


def _filters(
    merge: MergeInto,
    plan: MergePlan,
    schema: TableSchema,
    conditions: tuple[tuple[TextRange, bool], ...],
) -> list[ColumnFilter]:
    return [
        condition
        for text, sees_source in conditions
        for condition in _filters_of(
            merge, schema, text, _is_own(merge, plan, sees_source=sees_source)
        )
    ]


def _is_own(merge: MergeInto, plan: MergePlan, *, sees_source: bool) -> _IsOwn:
    """Which columns in a text are certainly the target's. An unqualified name that both sides have
    is an error, which Spark reports."""
    of_source = {name.lower() for name in plan.source_columns} if sees_source else set()

    def is_own(qualifier: str, name: str) -> bool:
        if qualifier:
            return qualifier.lower() == merge.target_alias.lower()
        return name.lower() not in of_source

    return is_own


def _filters_of(
    merge: MergeInto, schema: TableSchema, place: TextRange, is_own: _IsOwn
) -> list[ColumnFilter]:
    names = {name.lower(): name for name in schema.column_names}
    return [
        ColumnFilter(
            names[condition_filter.column.lower()],
            condition_filter.operator,
            condition_filter.values,
        )
        for condition_filter in condition_filters(users_text(merge, place).text, is_own)
        if condition_filter.column.lower() in names
    ]
