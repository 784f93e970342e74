"""Columns that a table has but `*` does not show: the ids and sequence numbers of its rows.

Spark's own hidden columns do not survive a view, so that the view of such a table has them as
columns, and `*` is told to leave them out. Source: `BaseScan`, `SparkTable.metadataColumns` of
Paimon's Spark connector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.lexing.tokens import CLOSING, IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.queries.rewriting import Replacement
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

__all__ = ["ROW_ID_COLUMNS", "names_row_ids", "stars_without_row_ids"]

ROW_ID_COLUMNS = ("_ROW_ID", "_SEQUENCE_NUMBER")

_NAMES = frozenset(name.lower() for name in ROW_ID_COLUMNS)


def names_row_ids(text: str) -> bool:
    """Whether a text may name one of the columns."""
    lowered = text.lower()
    return any(name in lowered for name in _NAMES)


def stars_without_row_ids(
    statement: str, query: QueryText, references: Sequence[TableReference]
) -> tuple[Replacement, ...]:
    """The replacements by which `*` and `t.*` leave the columns of `references` out. Only stars of
    the SELECT that reads a table show its columns."""
    kept = query.range
    tokens = [one for one in tokenize(statement) if kept.start <= one.start < kept.end]
    hidden: dict[int, list[str]] = {}
    for reference in references:
        select = _select_of(tokens, reference)
        for star in _stars(tokens, select) if select is not None else ():
            owner = tokens[star - 2] if tokens[star - 1].text == "." else None
            if owner is None or owner.name.lower() == reference.alias.lower():
                alias = quoted(reference.alias)
                hidden.setdefault(star, []).extend(f"{alias}.{one}" for one in ROW_ID_COLUMNS)
    return tuple(_exception(tokens, star, names) for star, names in hidden.items())


def _exception(tokens: Sequence[Token], star: int, names: Sequence[str]) -> Replacement:
    """Add the names to what a star leaves out."""
    listed = ", ".join(names)
    behind = tokens[star + 1 : star + 3]
    if [one.upper for one in behind] == ["EXCEPT", "("]:
        place = behind[1].end
        return TextRange(place, place), f"{listed}, "
    place = tokens[star].end
    return TextRange(place, place), f" EXCEPT ({listed})"


def _select_of(tokens: Sequence[Token], reference: TableReference) -> int | None:
    """The index of the SELECT in whose FROM a reference stands, in brackets or not."""
    depth = 0
    for index in range(len(tokens) - 1, -1, -1):
        token = tokens[index]
        if token.start >= reference.range.start:
            continue
        if token.text in CLOSING:
            depth += 1
        elif token.text in CLOSING.values():
            depth = max(depth - 1, 0)
        elif not depth and token.kind == "word" and token.upper == "SELECT":
            return index
    return None


def _stars(tokens: Sequence[Token], select: int) -> Iterator[int]:
    """The indexes of the stars among the columns of a SELECT."""
    depth = 0
    for index in range(select + 1, len(tokens)):
        token = tokens[index]
        if token.text in CLOSING.values():
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
        elif not depth and token.kind == "word" and token.upper == "FROM":
            return
        elif not depth and token.text == "*" and _is_all(tokens, index):
            yield index


def _is_all(tokens: Sequence[Token], index: int) -> bool:
    """Whether a star means all columns: `SELECT *`, `, *` or `t.*`, not a product."""
    before = tokens[index - 1]
    if before.text == ".":
        return tokens[index - 2].kind in IDENTIFIER_KINDS
    return before.text == "," or before.upper in ("SELECT", "DISTINCT", "ALL")
