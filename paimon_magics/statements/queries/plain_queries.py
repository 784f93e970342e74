"""Recognises queries that choose columns and rows of one table, and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.lexing.tokens import (
    CLOSING,
    IDENTIFIER_KINDS,
    OPENING,
    Token,
    word_set,
)
from paimon_magics.statements.queries.rewriting import Replacement, query_tokens, replacements_by
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

# Words that begin another clause or a subquery, and operators whose meaning depends on more.
_OTHERS = word_set(
    "SELECT GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET UNION INTERSECT EXCEPT MINUS "
    "WINDOW OVER QUALIFY LATERAL PIVOT UNPIVOT TABLESAMPLE JOIN : ? |> ; {"
)
_NOT_FIRST = word_set("DISTINCT ALL")
_NO_NAMES = word_set("TRUE FALSE NULL NOT")


_FUNCTIONS = word_set("COUNT MIN MAX")
_BETWEEN = frozenset(["+", "-", "*", "/", "%", "(", ")", ","])
_NOT_BEHIND_FROM = word_set(
    "SELECT FROM GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW UNION EXCEPT "
    "INTERSECT MINUS QUALIFY LATERAL PIVOT UNPIVOT TABLESAMPLE JOIN"
)
_NO_ALIAS = _NOT_BEHIND_FROM | word_set(
    "INNER CROSS LEFT RIGHT FULL SEMI ANTI NATURAL ON USING WHERE"
)


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
    tokens = query_tokens(statement, query)
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


# Finds queries that only aggregate the rows of one table: `SELECT count(*), max(k) FROM t`.
#
# What such a query asks for may be known without its rows. Then the calls are read from one row
# that stands in the table's place, and the rest of the user's text is Spark's as ever. Found from
# tokens; a form that is not recognized is a query like any other.


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call: `function` is count, min or max, `column` None for the number of rows. `name` is the
    column that Spark gives it, `range` its place."""

    function: str
    column: str | None
    name: str
    range: TextRange


@dataclass(frozen=True, slots=True)
class WholeAggregates:
    """A query of nothing but aggregates of all rows of `reference` that its filters leave. `where`
    is the range of its WHERE."""

    reference: TableReference
    calls: tuple[AggregateCall, ...]
    where: TextRange | None

    def of_known(self, row: str) -> tuple[Replacement, ...]:
        """The replacements that make it a query of `row`, a relation with the calls' names as
        columns. WHERE is left to be cut."""
        calls = [(call.range, quoted(call.name)) for call in self.calls]
        return (*calls, *replacements_by(self.reference, row))


def whole_aggregates(statement: str, query: QueryText) -> WholeAggregates | None:
    """Return what the query is, None if it may be anything else."""
    if len(query.references) != 1 or query.cuts:
        return None
    (reference,) = query.references
    if not reference.only_filters or reference.alias_position < 0:
        return None
    tokens = query_tokens(statement, query)
    if not tokens or tokens[0].upper != "SELECT":
        return None
    before = [token for token in tokens[1:] if token.start < reference.range.start]
    behind = [token for token in tokens if token.start >= reference.range.end]
    if not before or before.pop().upper != "FROM":
        return None
    calls = _calls(before)
    if calls is None or any(token.upper in _NOT_BEHIND_FROM for token in behind):
        return None
    where = next((at for at, token in enumerate(behind) if token.upper == "WHERE"), None)
    if not _is_alias(behind[:where]):
        return None
    place = None if where is None else TextRange(behind[where].start, query.range.end)
    return WholeAggregates(reference, calls, place)


def _calls(tokens: Sequence[Token]) -> tuple[AggregateCall, ...] | None:
    """The calls in a list of expressions that only combine them with numbers, and name them."""
    calls: list[AggregateCall] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        call = _call(tokens[at : at + 6])
        if call is not None:
            calls.append(call)
            at += sum(
                1 for following in tokens if call.range.start <= following.start < call.range.end
            )
        elif (
            (token.kind in IDENTIFIER_KINDS and _names_one(tokens, at))
            or token.kind == "number"
            or token.text in _BETWEEN
            or token.upper == "AS"
        ):
            at += 1
        else:
            return None
    return tuple(calls) or None


def _call(tokens: Sequence[Token]) -> AggregateCall | None:
    if len(tokens) < 4 or tokens[0].upper not in _FUNCTIONS or tokens[1].text != "(":
        return None
    function = tokens[0].text.lower()
    inner = tokens[2]
    if len(tokens) > 5 and tokens[3].text == "." and tokens[5].text == ")":
        inner, end = tokens[4], tokens[5]  # qualified by the only table's name
    elif tokens[3].text == ")":
        end = tokens[3]
    else:
        return None
    place = TextRange(tokens[0].start, end.end)
    if function == "count":
        counts_rows = inner.text in ("*", "1") and end is tokens[3]
        return AggregateCall(function, None, "count(1)", place) if counts_rows else None
    if inner.kind not in IDENTIFIER_KINDS:
        return None
    return AggregateCall(function, inner.name, f"{function}({inner.name})", place)


def _names_one(tokens: Sequence[Token], at: int) -> bool:
    """Whether the identifier names the expression before it."""
    is_behind = at > 0 and (tokens[at - 1].upper == "AS" or tokens[at - 1].text == ")")
    is_last = at + 1 == len(tokens) or tokens[at + 1].text == ","
    return is_behind and is_last and tokens[at].upper != "AS"


def _is_alias(tokens: Sequence[Token]) -> bool:
    """Whether the tokens between a table and WHERE are nothing but its alias, if any."""
    names = tokens[1:] if tokens and tokens[0].upper == "AS" else tokens
    return len(names) <= 1 and all(
        name.kind in IDENTIFIER_KINDS and name.upper not in _NO_ALIAS for name in names
    )
