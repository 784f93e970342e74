"""The tokens around the cursor as a tree of brackets, and its levels as lines for patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.tokens import CLOSING, OPENING, Token, tokenize

CURSOR = "cursor"
WORD = r"(?: (?:\w[\w$]*|`))"
"""A keyword or a part of a name in the text of a `Line`."""
NAME = rf"(?:{WORD}(?: \.{WORD})*)"
"""A name in the text of a `Line`: words with dots between them."""

_COMMENT_AT_END = re.compile(r"--[^\r\n]*\Z")
_SIGNS = {"quoted": "`", "string": "'", "number": "#"}


@dataclass(frozen=True, slots=True)
class Group:
    """The content of a pair of brackets."""

    items: tuple[Item, ...]


Item = Token | Group


class Line:
    """Items of one level of brackets. `text` has one word for each, with a blank before it.

    A keyword or name is in upper case. A quoted name is a back-quote, a string `'`, a number `#`
    and a pair of brackets `()`.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = tuple(items)
        self.text = "".join(f" {_word(item)}" for item in self.items)

    @property
    def last(self) -> str:
        """The last word, "" without one."""
        return self.text.rpartition(" ")[2]

    def names(self, match: re.Match[str], group: str) -> list[str]:
        """The keywords and names in a group of a match, as written and without quotes."""
        start, end = match.span(group)
        items = self.items[self.text.count(" ", 0, start) : self.text.count(" ", 0, end)]
        return [i.name for i in items if isinstance(i, Token) and i.text != "."]

    def group(self, match: re.Match[str], group: str) -> Group:
        """The brackets that a group of a match consists of."""
        item = self.items[self.text.count(" ", 0, match.start(group))]
        assert isinstance(item, Group)
        return item


def word_pattern(words: Iterable[str]) -> str:
    """A pattern for one of these words in the text of a `Line`, without the blank before it."""
    return rf"(?:{'|'.join(map(re.escape, sorted(words)))})(?= |\Z)"


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
    return text, None if _COMMENT_AT_END.search(text[end:]) else tokens, ""


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


def levels_at_cursor(tokens: Sequence[Token]) -> list[tuple[tuple[Item, ...], int]]:
    """Return the levels of brackets from the statement down to the cursor, each as its items and
    the index of the item that is or contains the cursor.

    Open brackets are closed at the end. A closing bracket without a counterpart is left out.
    """
    stack: list[tuple[str, list[Item]]] = [("", [])]

    def close() -> None:
        items = stack.pop()[1]
        stack[-1][1].append(Group(tuple(items)))

    for token in tokens:
        if token.kind == "symbol" and token.text in OPENING:
            stack.append((token.text, []))
        elif token.kind == "symbol" and token.text in CLOSING:
            if stack[-1][0] == CLOSING[token.text]:
                close()
        else:
            stack[-1][1].append(token)
    while len(stack) > 1:
        close()
    return _path(tuple(stack[0][1]))


def _path(items: tuple[Item, ...]) -> list[tuple[tuple[Item, ...], int]]:
    for index, item in enumerate(items):
        if isinstance(item, Group):
            inner = _path(item.items)
            if inner:
                return [(items, index), *inner]
        elif item.kind == CURSOR:
            return [(items, index)]
    return []


def _word(item: Item) -> str:
    return "()" if isinstance(item, Group) else item.upper or _SIGNS.get(item.kind, "")
