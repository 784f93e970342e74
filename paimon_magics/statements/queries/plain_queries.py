"""Recognises queries that choose columns and rows of one table, and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paimon_magics.statements.lexing.keywords import word_set
from paimon_magics.statements.lexing.tokens import (
    CLOSING,
    IDENTIFIER_KINDS,
    OPENING,
    Token,
    tokenize,
)
from paimon_magics.statements.statement import QueryText, TableReference

__all__ = ["ChosenColumn", "PlainQuery", "plain_query"]

# Words that begin another clause or a subquery, and operators whose meaning depends on more.
_OTHERS = word_set(
    "SELECT GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET UNION INTERSECT EXCEPT MINUS "
    "WINDOW OVER QUALIFY LATERAL PIVOT UNPIVOT TABLESAMPLE JOIN : ? |> ; {"
)
_NOT_FIRST = word_set("DISTINCT ALL")
_NO_NAMES = word_set("TRUE FALSE NULL NOT")


@dataclass(frozen=True, slots=True)
class ChosenColumn:
    """One item of a SELECT: its text, with its alias. `stored` is the column of the table that it
    shows, under whatever name; None for an expression."""

    text: str
    stored: str | None


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """`SELECT columns FROM reference WHERE condition`: the columns, None for `*`, and the text of
    the condition, None without one."""

    reference: TableReference
    columns: tuple[ChosenColumn, ...] | None
    where: str | None


def plain_query(statement: str, query: QueryText) -> PlainQuery | None:
    """The parts of a plain query without bind names; None for any other. Whether its functions have
    one value for each row is left to the caller."""
    if len(query.references) != 1 or query.parameters or query.cuts:
        return None
    reference = query.references[0]
    if reference.qualifiers or reference.alias_position < 0:
        return None
    tokens = [
        token for token in tokenize(statement) if query.range.start <= token.start < query.range.end
    ]
    chosen = [token for token in tokens if token.start < reference.range.start]
    rest = [token for token in tokens if token.start >= reference.range.end]
    if len(chosen) < 3 or chosen[0].upper != "SELECT" or chosen[-1].upper != "FROM":
        return None
    if any(token.upper in _OTHERS for token in (*chosen[1:], *rest)):
        return None
    if reference.has_alias:
        rest = rest[2:] if rest[0].upper == "AS" else rest[1:]
    items = list(_items(chosen[1:-1]))
    if items == [[]] or items[0][0].upper in _NOT_FIRST or not all(items):
        return None
    is_all = len(items) == 1 and [token.text for token in items[0]] == ["*"]
    if not is_all and any(item[-1].text == "*" for item in items):
        return None
    columns = None if is_all else tuple(_column(statement, item, reference) for item in items)
    if not rest:
        return PlainQuery(reference, columns, None)
    if rest[0].upper != "WHERE" or len(rest) < 2:
        return None
    return PlainQuery(reference, columns, statement[rest[1].start : query.range.end])


def _items(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens between the commas of a list."""
    item: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == "," and not depth:
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _column(statement: str, item: list[Token], reference: TableReference) -> ChosenColumn:
    text = statement[item[0].start : item[-1].end]
    qualifier = item[0].name.lower() if item[0].kind in IDENTIFIER_KINDS else ""
    is_qualified = len(item) > 2 and item[1].text == "." and qualifier == reference.alias.lower()
    first, *behind = item[2:] if is_qualified else item
    if behind and behind[0].upper == "AS":
        behind = behind[1:]
    is_name = first.kind in IDENTIFIER_KINDS and first.upper not in _NO_NAMES
    is_named = len(behind) <= 1 and all(token.kind in IDENTIFIER_KINDS for token in behind)
    return ChosenColumn(text, first.name if is_name and is_named else None)
