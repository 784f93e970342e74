"""Finds the relations of a query in sqlglot's tree.

sqlglot (Spark dialect) reads a masked text of the same length: a `$` in a name becomes a letter,
and clauses that it does not know (time travel, a relation's options) become blanks. So its
positions are those of the user's text. The tree says where relations' names begin, which names are
CTEs, and which conditions rows must meet; everything else is read from the user's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from paimon_magics.statements.queries.filters import (
    filters_in,
    filters_of,
    has_only_filters,
    is_unordered,
    other_conditions_of,
    rows_wanted,
)
from paimon_magics.statements.statement import ColumnFilter, TextRange

__all__ = ["MASK", "TreeRelation", "condition_filters", "masked", "tree_relations"]

MASK = "\N{LATIN LETTER RETROFLEX CLICK}"
"""Replaces `$` in the text that sqlglot reads; a letter that nobody uses in a name."""

_DIALECT = sqlglot.Dialect.get_or_raise("spark")


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
    found: list[TreeRelation] = []
    try:
        _visit(trees[0], frozenset(), found)
    except _NoPositionError:
        return None
    return tuple(sorted(found, key=lambda relation: relation.start))


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


def _visit(node: exp.Expr, visible: frozenset[str], found: list[TreeRelation]) -> None:
    with_ = node.args.get("with_")
    if isinstance(with_, exp.With):
        recursive = bool(with_.args.get("recursive"))
        for table in with_.expressions:
            name = table.alias.lower()
            _visit(table.this, visible | {name} if recursive else visible, found)
            visible |= {name}
    match node:
        case exp.Table(this=exp.Identifier()) if node.db or node.name.lower() not in visible:
            others = tuple(text.replace(MASK, "$") for text in other_conditions_of(node))
            found.append(
                TreeRelation(
                    _start(node), filters_of(node), others, is_unordered(node),
                    has_only_filters(node), rows_wanted(node),
                )
            )  # fmt: skip
    for child in _children(node):
        if child is not with_:
            _visit(child, visible, found)


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
