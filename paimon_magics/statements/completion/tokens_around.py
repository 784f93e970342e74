"""The tokens before and after the cursor, and the tree of brackets that they form."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.completion import words as words
from paimon_magics.statements.completion.scopes import (
    Group,
    Item,
)
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize

_COMMENT_AT_END = re.compile(r"--[^\r\n]*\Z")


CURSOR = "cursor"


def tokens_before(text: str) -> tuple[str, tuple[Token, ...] | None, str]:
    """Return the text before an open quote (all text if none is open), its tokens, and the quote.

    The tokens are None inside a comment.
    """
    try:
        tokens = tokenize(text)
    except StatementSyntaxError as error:
        position = error.position or 0
        quote = text[position]
        if quote not in "'\"`":
            return text, None, ""
        return text[:position], tokenize(text[:position]), quote
    end = tokens[-1].end if tokens else 0
    if _COMMENT_AT_END.search(text[end:]):
        return text, None, ""
    return text, tokens, ""


def tokens_after(text: str, quote: str) -> tuple[Token, ...]:
    """Return the rest of the statement's tokens, after the word or string that the cursor is in."""
    if quote:
        # If the other quotes of the line are in pairs, the open quote is not closed yet.
        is_closed = text.partition("\n")[0].count(quote) % 2 == 1
        text = text.partition(quote)[2] if is_closed else text
    else:
        text = re.sub(r"\A[\w$]+`?", "", text)
    try:
        tokens = tokenize(text)
    except StatementSyntaxError as error:
        tokens = tokenize(text[: error.position or 0])
    end = next((i for i, token in enumerate(tokens) if token.text == ";"), len(tokens))
    return tokens[:end]


def of_statement(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """The tokens after the last semicolon."""
    start = max((i + 1 for i, token in enumerate(tokens) if token.text == ";"), default=0)
    return tokens[start:]


def path_to_cursor(group: Group) -> list[tuple[tuple[Item, ...], int]]:
    """The levels of brackets from the statement down to the cursor: items, and an index in them."""
    for index, item in enumerate(group.items):
        if isinstance(item, Group):
            inner = path_to_cursor(item)
            if inner:
                return [(group.items, index), *inner]
        elif item.kind == CURSOR:
            return [(group.items, index)]
    return []


def defined_columns(items: Sequence[Item]) -> tuple[str, ...]:
    """The column names in the first brackets of a CREATE TABLE."""
    definition = next((item for item in items if isinstance(item, Group)), Group(()))
    found, is_name = [], True
    for item in definition.items:
        if is_name and isinstance(item, Token) and item.kind in IDENTIFIER_KINDS:
            found.append(item.name)
        is_name = word_of(item) == ","
    return tuple(found)


def clause_of(said: Sequence[str]) -> str:
    """The clause at the end of the words: the last word that begins a clause, "" without one."""
    return next((word for word in reversed(said) if word in words.CLAUSES), "")


def ends_operand(items: Sequence[Item]) -> bool:
    """Whether the items end with a complete operand, so that no other operand can follow."""
    last = items[-1] if items else None
    if isinstance(last, Group):
        return True
    if last is None or last.kind == "symbol":
        return False
    return last.kind != "word" or last.upper not in words.BEFORE_OPERANDS


def words_of(items: Sequence[Item]) -> list[str]:
    """Words and symbols in upper case, `()` for brackets, `''` for strings, and quoted names."""
    return ["()" if isinstance(i, Group) else (i.upper or i.name or "''") for i in items]


def word_of(item: Item) -> str:
    """A token in upper case; "" for brackets, strings, numbers and quoted names."""
    return item.upper if isinstance(item, Token) else ""


def kind_of(item: Item) -> str:
    """The kind of a token; "" for brackets."""
    return item.kind if isinstance(item, Token) else ""


def unquoted(part: str) -> str:
    """A part of a name without its back-quotes."""
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
