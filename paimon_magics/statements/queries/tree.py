"""Finds the relations of a query in sqlglot's tree.

sqlglot (Spark dialect) reads a masked text of the same length: a `$` in a name becomes a letter,
and clauses that it does not know (time travel, a relation's options) become blanks. So its
positions are those of the user's text. The tree says where relations' names begin, which names are
CTEs, and which conditions rows must meet; everything else is read from the user's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_magics.statements.statement import ColumnFilter, FilterValue, TextRange

MASK = "\N{LATIN LETTER RETROFLEX CLICK}"
"""Replaces `$` in the text that sqlglot reads; a letter that nobody uses in a name."""

_DIALECT = sqlglot.Dialect.get_or_raise("spark")


_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Each comparison's operator, and its operator with the sides exchanged."""


@dataclass(frozen=True, slots=True)
class TreeRelation:
    """A table's name that begins at `start`, and how its rows are used; see TableReference."""

    start: int
    filters: tuple[ColumnFilter, ...] = ()
    other_conditions: tuple[str, ...] = ()
    unordered: bool = False
    only_filters: bool = False
    rows_wanted: int | None = None


def tree_relations(masked: str) -> tuple[TreeRelation, ...] | None:
    """Return the tables in `masked`, without CTEs, in the order of their positions.

    None if sqlglot can't read the text as one query, DELETE or UPDATE.
    """
    try:
        trees = _DIALECT.parse(masked)
    except (SqlglotError, RecursionError):
        return None
    if len(trees) != 1 or not isinstance(
        trees[0], exp.Query | exp.Values | exp.Delete | exp.Update
    ):
        return None
    relations: list[TreeRelation] = []
    try:
        _visit(trees[0], frozenset(), relations)
    except _NoPositionError:
        return None
    return tuple(sorted(relations, key=lambda relation: relation.start))


def condition_filters(
    condition: str, is_own: Callable[[str, str], bool]
) -> tuple[ColumnFilter, ...]:
    """Return the comparisons of columns with values that hold wherever `condition` does. `is_own`
    is given a column's qualifier, "" for none, and its name. () if sqlglot can't read the text."""
    try:
        (tree,) = _DIALECT.parse(f"SELECT 1 WHERE ({condition}\n)")
    except (SqlglotError, RecursionError, ValueError):
        return ()
    where = tree.args.get("where") if isinstance(tree, exp.Select) else None
    if not isinstance(where, exp.Where):
        return ()
    return tuple(filters_in(where.this, lambda column: is_own(column.table, column.name)))


class _NoPositionError(Exception):
    """A table of the tree has no position in the text, because sqlglot rewrote something."""


def _visit(node: exp.Expr, visible: frozenset[str], relations: list[TreeRelation]) -> None:
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        recursive = bool(with_.args.get("recursive"))
        for table in with_.expressions:
            name = table.alias.lower()
            _visit(table.this, visible | {name} if recursive else visible, relations)
            visible |= {name}
    match node:
        case exp.Table(this=exp.Identifier()) if node.db or node.name.lower() not in visible:
            others = tuple(text.replace(MASK, "$") for text in other_conditions_of(node))
            relations.append(
                TreeRelation(
                    _start(node), filters_of(node), others, is_unordered(node),
                    has_only_filters(node), rows_wanted(node),
                )
            )  # fmt: skip
    for child in _children(node):
        if child is not with_:
            _visit(child, visible, relations)


def _children(node: exp.Expr) -> Iterable[exp.Expr]:
    return node.iter_expressions()


def _start(table: exp.Table) -> int:
    start = table.parts[0].meta.get("start")
    if not isinstance(start, int):
        raise _NoPositionError
    return start


def masked(text: str, blanks: Iterable[TextRange], dollars: Iterable[TextRange]) -> str:
    """Return `text` with blanks in the ranges `blanks` and `$` replaced in `dollars`."""
    characters = list(text)
    for blank in blanks:
        characters[blank.start : blank.end] = " " * (blank.end - blank.start)
    for dollar in dollars:
        for index in range(dollar.start, dollar.end):
            if characters[index] == "$":
                characters[index] = MASK
    return "".join(characters)


# Conditions of a query on the rows of one table, from sqlglot's tree.
#
# Only conditions without doubt are taken: terms that WHERE joins by AND and that compare a column
# with literals or bind names, in a SELECT that has inner joins only; or those of a condition that
# stands alone, as ON of a MERGE. Spark applies every condition again with the query's text; the
# filters only serve to read less.


def filters_in(condition: exp.Expr, is_own: Callable[[exp.Column], bool]) -> list[ColumnFilter]:
    """Return the comparisons of columns that are `is_own` which hold wherever `condition` does."""
    return [
        column_filter
        for term in _terms(condition)
        for column, column_filter in _filters(term)
        if is_own(column) and not column.args.get("db")
    ]


def filters_of(table: exp.Table) -> tuple[ColumnFilter, ...]:
    """Return the conditions that a row of the table must meet to count in its SELECT's result."""
    return tuple(column_filter for _, filters in _conditions(table) for column_filter in filters)


def other_conditions_of(table: exp.Table) -> tuple[str, ...]:
    """Return the texts of WHERE's terms that may concern the table but give no filter."""
    name = table.alias_or_name.lower()
    return tuple(
        f"({term.sql('spark')})" if isinstance(term, exp.Or) else term.sql("spark")
        for term, filters in _conditions(table)
        if not filters
        and any(column.table.lower() in ("", name) for column in term.find_all(exp.Column))
    )


def has_only_filters(table: exp.Table) -> bool:
    """Whether the table is all that its SELECT reads, and WHERE has nothing but its filters."""
    select = table.parent_select
    return (
        isinstance(select, exp.Select)
        and not select.args.get("joins")
        and _is_joined_inside(table, select)
        and all(filters for _, filters in _conditions(table))
    )


_OF_A_LIMIT = frozenset({"expressions", "from_", "where", "limit", "offset"})
_OF_A_ROW = (
    *(exp.Star, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Alias),
    *(exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Cast, exp.DataType, exp.DataTypeParam),
)
"""Expressions that have one value for each row."""


def rows_wanted(table: exp.Table) -> int | None:
    """Upper bound on the needed rows of the table that meet its filters. Known if its SELECT has a
    LIMIT, but neither an order nor anything that looks at several rows; else None."""
    select = table.parent_select
    if not isinstance(select, exp.Select) or not has_only_filters(table):
        return None
    if {key for key, value in select.args.items() if value} - _OF_A_LIMIT:
        return None
    if any(not isinstance(node, _OF_A_ROW) for item in select.expressions for node in item.walk()):
        return None
    limit = _whole_number(select.args.get("limit"))
    skipped = _whole_number(select.args["offset"]) if select.args.get("offset") else 0
    return None if limit is None or skipped is None else limit + skipped


def _whole_number(clause: exp.Expr | None) -> int | None:
    value = clause.expression if isinstance(clause, exp.Limit | exp.Offset) else None
    is_number = isinstance(value, exp.Literal) and not value.is_string and value.name.isdecimal()
    return int(value.name) if is_number and value is not None else None


def _conditions(table: exp.Table) -> Iterator[tuple[exp.Expr, tuple[ColumnFilter, ...]]]:
    """The terms of the WHERE of the SELECT that reads the table, or of the DELETE or UPDATE that
    changes it, each with its filters."""
    change = table.parent
    select = table.parent_select
    if isinstance(change, exp.Delete | exp.Update) and change.this is table:
        where = change.args.get("where")
        joined_inside = alone = True
    elif isinstance(select, exp.Select):
        where = select.args.get("where")
        joined_inside = _is_joined_inside(table, select)
        alone = not select.args.get("joins")
    else:
        return
    if not isinstance(where, exp.Where):
        return
    name = table.alias_or_name.lower()
    for term in _terms(where.this):
        yield (
            term,
            tuple(
                column_filter
                for column, column_filter in _filters(term)
                if joined_inside
                and (column.table.lower() == name if column.table else alone)
                and not column.args.get("db")
            ),
        )


_ANY_ORDER = (
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.ApproxDistinct),
    *(exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop),
    *(exp.LogicalAnd, exp.LogicalOr),
    *(exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg),
)
"""Aggregate functions whose result does not depend on the order of their values."""
_PLAIN_FUNCTIONS = frozenset({"hash", "xxhash64", "bit_xor", "bit_and", "bit_or", "try_sum"})


def is_unordered(table: exp.Table) -> bool:
    """Whether the SELECT that reads the table aggregates its rows with functions whose result does
    not depend on their order. Unknown functions may depend on it."""
    select = table.parent_select
    if not isinstance(select, exp.Select) or select.find(exp.Window):
        return False
    functions = list(select.find_all(exp.AggFunc))
    aggregates = bool(functions) or select.args.get("group") is not None
    return (
        aggregates
        and all(isinstance(function, _ANY_ORDER) for function in functions)
        and all(call.name.lower() in _PLAIN_FUNCTIONS for call in select.find_all(exp.Anonymous))
    )


def _is_joined_inside(table: exp.Table, select: exp.Select) -> bool:
    """Whether the table stands directly in FROM or in a join of the SELECT, and all joins are inner
    joins."""
    if select.args.get("laterals") or table.args.get("pivots") or table.args.get("sample"):
        return False
    joins = select.args.get("joins") or []
    if any(join.side or join.kind not in ("", "INNER", "CROSS") for join in joins):
        return False
    from_ = select.args.get("from_")
    return (from_ is not None and from_.this is table) or any(join.this is table for join in joins)


def _terms(condition: exp.Expr) -> Iterator[exp.Expr]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _terms(condition.left)
        yield from _terms(condition.right)
    else:
        yield condition


def _filters(term: exp.Expr) -> Iterator[tuple[exp.Column, ColumnFilter]]:
    negated = isinstance(term, exp.Not)
    inner = term.this.unnest() if negated else term
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        column = _column(inner.this)
        if column is not None:
            yield column, ColumnFilter(column.name, "is not null" if negated else "is null")
        return
    if negated:
        return
    operators = _COMPARISONS.get(type(term))
    if operators is not None and isinstance(term, exp.Binary):
        for side, other, operator in (
            (term.left, term.right, operators[0]),
            (term.right, term.left, operators[1]),
        ):
            column, value = _column(side), _value(other)
            if column is not None and value is not None:
                yield column, ColumnFilter(column.name, operator, (value,))
    elif isinstance(term, exp.Between):
        column = _column(term.this)
        low, high = _value(term.args["low"]), _value(term.args["high"])
        if column is not None and low is not None and high is not None:
            yield column, ColumnFilter(column.name, ">=", (low,))
            yield column, ColumnFilter(column.name, "<=", (high,))
    elif isinstance(term, exp.In) and term.expressions and not term.args.get("query"):
        column = _column(term.this)
        values = [_value(item) for item in term.expressions]
        if column is not None and all(value is not None for value in values):
            literals = tuple(value for value in values if value is not None)
            yield column, ColumnFilter(column.name, "in", literals)
    elif isinstance(term, exp.Or):
        yield from _alternatives(term)


def _alternatives(term: exp.Or) -> Iterator[tuple[exp.Column, ColumnFilter]]:
    """The filter that `a = 1 OR a = 2` is. All sides must name the column in the same words."""
    merged: tuple[exp.Column, ColumnFilter] | None = None
    for side in term.flatten():
        filters = list(_filters(side))
        if len(filters) != 1:
            return
        ((column, column_filter),) = filters
        if merged is not None:
            both = merged[1].either(column_filter) if merged[0] == column else None
            if both is None:
                return
            column_filter = both
        merged = column, column_filter
    if merged is not None:
        yield merged


def _column(node: exp.Expr) -> exp.Column | None:
    node = node.unnest()
    return node if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) else None


def _value(node: exp.Expr) -> FilterValue | None:
    node = node.unnest()
    match node:
        case exp.Literal(is_string=True):
            return FilterValue("string", node.name)
        case exp.Literal():
            return FilterValue("number", node.name)
        case exp.Neg(this=exp.Literal(is_string=False)):
            return FilterValue("number", f"-{node.this.name}")
        case exp.Boolean():
            return FilterValue("boolean", "true" if node.this else "false")
        case exp.Placeholder() if node.name:
            return FilterValue("parameter", node.name)
        case exp.Cast(this=exp.Literal(is_string=True)) if node.to.is_type("date"):
            return FilterValue("date", node.this.name)
        case _:
            return None
