"""Which columns of target and source the ON of a MERGE makes equal."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.merge_into import MergeInto

__all__ = ["ColumnPair", "equated_columns"]


@dataclass(frozen=True, slots=True)
class ColumnPair:
    """A target's and a source's column, in lower case."""

    target: str
    source: str


def equated_columns(merge: MergeInto) -> frozenset[ColumnPair]:
    """Return the pairs that are equal wherever ON is true: its terms `t.a = s.b` and `t.a <=> s.b`,
    if nothing but AND connects them with the rest.

    Both names have to be qualified with the aliases: which side has a bare name is Spark's to say.
    """
    text = merge.text[merge.condition.start : merge.condition.end]
    cursor = Cursor(text, tokenize(text))
    while cursor.at("(") and cursor.closing() == cursor.stop - 1:
        cursor = Cursor(text, cursor.tokens, cursor.brackets, cursor.index + 1, cursor.stop - 1)
    terms: list[list[Token]] = [[]]
    while not cursor.at_end:
        if cursor.at_any("OR", "CASE", "BETWEEN"):
            return frozenset()
        if cursor.accept("AND"):
            terms.append([])
        elif cursor.index in cursor.brackets:
            terms[-1].append(cursor.peek())
            cursor.skip_brackets()
        else:
            terms[-1].append(cursor.next())
    found = (_pair(merge, term) for term in terms)
    return frozenset(pair for pair in found if pair is not None)


def _pair(merge: MergeInto, term: list[Token]) -> ColumnPair | None:
    for at, token in enumerate(term):
        if token.text in ("=", "==", "<=>"):
            left, right = _side(merge, term[:at]), _side(merge, term[at + 1 :])
            if left is None or right is None or left[0] == right[0]:
                return None
            by_side = dict((left, right))
            return ColumnPair(by_side["target"], by_side["source"])
    return None


def _side(merge: MergeInto, tokens: list[Token]) -> tuple[str, str] | None:
    """The side and the column that a qualified name means; None for anything else."""
    names = tokens[::2]
    if len(names) < 2 or any(token.kind not in IDENTIFIER_KINDS for token in names):
        return None
    if len(tokens) % 2 == 0 or any(token.text != "." for token in tokens[1::2]):
        return None
    *qualifier, column = (token.name.lower() for token in names)
    alias = qualifier[-1]
    if len(qualifier) > 1:  # shop.t.id, replaced by the alias where Spark evaluates it
        replaced = {
            merge.text[one.start : one.end].replace("`", "").lower(): name.lower()
            for one, name in merge.qualifiers
        }
        found = replaced.get(".".join(qualifier))
        if found is None:
            return None
        alias = found
    if alias == merge.target_alias.lower():
        return "target", column
    if alias == merge.source_alias.lower():
        return "source", column
    return None
