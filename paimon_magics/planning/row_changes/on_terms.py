"""The terms of the ON of a MERGE that AND connects: each is TRUE wherever ON is."""

from __future__ import annotations

from collections.abc import Iterator

from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.statement import TextRange

__all__ = ["on_terms", "side_and_column", "text_range"]


def on_terms(merge: MergeInto) -> tuple[tuple[Token, ...], ...]:
    """Return the tokens of each term; their positions count from where ON's condition begins. Terms
    in brackets are taken apart, too. There are none where OR or CASE may connect them otherwise."""
    text = merge.text[merge.condition.start : merge.condition.end]
    return tuple(_terms(Cursor(text, tokenize(text))))


def _terms(cursor: Cursor) -> Iterator[tuple[Token, ...]]:
    found: list[tuple[int, int]] = []
    start, in_between = cursor.index, False
    while not cursor.at_end:
        if cursor.at_any("OR", "CASE"):
            return
        if cursor.at("AND") and not in_between:
            found.append((start, cursor.index))
            start = cursor.index + 1
        elif cursor.at("AND"):
            in_between = False
        in_between |= cursor.at("BETWEEN")
        if cursor.index in cursor.brackets:
            cursor.skip_brackets()
        else:
            cursor.next()
    for first, stop in [*found, (start, cursor.stop)]:
        if first == stop:
            continue  # Spark says what is wrong with it
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
