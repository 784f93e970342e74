"""Finds queries that only aggregate the rows of one table: `SELECT count(*), max(k) FROM t`.

What such a query asks for may be known without its rows. Then the calls are read from one row that
stands in the table's place, and the rest of the user's text is Spark's as ever. Found from tokens;
a form that is not recognised is a query like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.lexing.keywords import word_set
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.queries.rewriting import Replacement, replacements_by
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

__all__ = ["AggregateCall", "WholeAggregates", "whole_aggregates"]

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
        found = [(call.range, quoted(call.name)) for call in self.calls]
        return (*found, *replacements_by(self.reference, row))


def whole_aggregates(statement: str, query: QueryText) -> WholeAggregates | None:
    """Return what the query is, None if it may be anything else."""
    if len(query.references) != 1 or query.cuts:
        return None
    (reference,) = query.references
    if not reference.only_filters or reference.alias_position < 0:
        return None
    tokens = [
        one for one in tokenize(statement) if query.range.start <= one.start < query.range.end
    ]
    if not tokens or tokens[0].upper != "SELECT":
        return None
    before = [one for one in tokens[1:] if one.start < reference.range.start]
    behind = [one for one in tokens if one.start >= reference.range.end]
    if not before or before.pop().upper != "FROM":
        return None
    calls = _calls(before)
    if calls is None or any(one.upper in _NOT_BEHIND_FROM for one in behind):
        return None
    where = next((at for at, one in enumerate(behind) if one.upper == "WHERE"), None)
    if not _is_alias(behind[:where]):
        return None
    place = None if where is None else TextRange(behind[where].start, query.range.end)
    return WholeAggregates(reference, calls, place)


def _calls(tokens: Sequence[Token]) -> tuple[AggregateCall, ...] | None:
    """The calls in a list of expressions that only combine them with numbers, and name them."""
    found: list[AggregateCall] = []
    at = 0
    while at < len(tokens):
        one = tokens[at]
        call = _call(tokens[at : at + 6])
        if call is not None:
            found.append(call)
            at += sum(1 for other in tokens if call.range.start <= other.start < call.range.end)
        elif (
            (one.kind in IDENTIFIER_KINDS and _names_one(tokens, at))
            or one.kind == "number"
            or one.text in _BETWEEN
            or one.upper == "AS"
        ):
            at += 1
        else:
            return None
    return tuple(found) or None


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
    kept = list(tokens)
    if kept and kept[0].upper == "AS":
        kept = kept[1:]
    return len(kept) <= 1 and all(
        one.kind in IDENTIFIER_KINDS and one.upper not in _NO_ALIAS for one in kept
    )
