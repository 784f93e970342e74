"""A position in a statement's tokens, and the steps that all token-level parsers make.

A Cursor never goes backwards by itself; parsers that try something save and restore `index`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, matching_brackets

Read = TypeVar("Read")


class RefusedHere(Exception):
    """Raised inside the parsers for a recognized form that is not offered; becomes a `Refused`.

    `kind` is what the user wrote, as in "CREATE TABLE … LIKE". Never leaves `parsing`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Cursor:
    """Reads `tokens` of `text` from `index` up to `stop` (exclusive).

    The text begins at `offset` in its cell.
    """

    def __init__(
        self,
        text: str,
        tokens: tuple[Token, ...],
        brackets: dict[int, int] | None = None,
        index: int = 0,
        stop: int | None = None,
        *,
        offset: int = 0,
    ) -> None:
        self.text = text
        self.offset = offset
        self.tokens = tokens
        self.brackets = matching_brackets(text, tokens) if brackets is None else brackets
        self.index = index
        self.stop = len(tokens) if stop is None else stop
        place = tokens[self.stop].start if self.stop < len(tokens) else len(text)
        self._end = Token("end", "", place, place, "")

    def at_index(self, index: int, stop: int | None = None) -> Cursor:
        """Another cursor over the same tokens, from `index` to this cursor's stop or another."""
        return Cursor(
            self.text, self.tokens, self.brackets, index, self.stop if stop is None else stop
        )

    def peek(self, ahead: int = 0) -> Token:
        """Return the token `ahead` tokens after the next one; an `end` token after the last."""
        index = self.index + ahead
        return self.tokens[index] if index < self.stop else self._end

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.index >= self.stop

    @property
    def position(self) -> int:
        """Where the next token begins."""
        return self.peek().start

    @property
    def last_end(self) -> int:
        """Where the token before the next one ends."""
        return self.tokens[self.index - 1].end if self.index else 0

    def next(self) -> Token:
        """Step over the next token and return it."""
        token = self.peek()
        self.index += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether the next tokens are exactly these words or symbols (in upper case)."""
        return all(self.peek(ahead).upper == word for ahead, word in enumerate(words))

    def at_any(self, *words: str) -> bool:
        """Whether the next token is one of these."""
        return self.peek().upper in words

    def accept(self, *words: str) -> bool:
        """Step over these words or symbols if they come next; return whether they did."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Step over one of these words and return it; return "" if none comes next."""
        upper = self.peek().upper
        if upper and upper in words:
            self.index += 1
            return upper
        return ""

    def expect(self, *words: str) -> None:
        """Step over these words; raise StatementSyntaxError if they don't come next."""
        for word in words:
            if not self.accept(word):
                self.fail(f"`{word}`")

    def expect_end(self) -> None:
        """Raise StatementSyntaxError if a token is left."""
        if not self.at_end:
            self.fail("the end of the statement")

    def identifier(self, what: str) -> str:
        """Step over the name that comes next and return it, unquoted."""
        token = self.peek()
        if token.kind not in IDENTIFIER_KINDS:
            self.fail(what)
        self.index += 1
        return token.name

    def string(self, what: str) -> str:
        """Step over the string that comes next and return its value.

        Adjacent strings are one string, as in Spark.
        """
        if self.peek().kind != "string":
            self.fail(what)
        value = self.next().value
        while self.peek().kind == "string":
            value += self.next().value
        return value

    def listed(self, read: Callable[[], Read]) -> tuple[Read, ...]:
        """Read one or more, with commas between them."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return tuple(items)

    def in_brackets(self, read: Callable[[], Read]) -> tuple[Read, ...]:
        """Read one or more in round brackets, with commas between them."""
        self.expect("(")
        items = self.listed(read)
        self.expect(")")
        return items

    def path(self, first: str, others: str) -> tuple[str, ...]:
        """Step over a name with dots between its parts; the texts say what the parts are."""
        parts = [self.identifier(first)]
        while self.accept("."):
            parts.append(self.identifier(others))
        return tuple(parts)

    def closing(self) -> int:
        """The index of the bracket that closes the next token, an opening bracket."""
        return self.brackets[self.index]

    def skip_brackets(self) -> None:
        """Step over the opening bracket that comes next, its content and its closing bracket."""
        self.index = self.closing() + 1

    def text_until(self, *words: str, what: str) -> str:
        """Step to the next of these words outside brackets, or to the end; return the text passed.

        Raises StatementSyntaxError if there is no text.
        """
        start = self.index
        while not self.at_end and self.peek().upper not in words:
            if self.index in self.brackets:
                self.skip_brackets()
            elif self.peek().text in (")", "]"):
                break
            else:
                self.index += 1
        if self.index == start:
            self.fail(what)
        return self.text[self.tokens[start].start : self.last_end]

    def fail(self, wanted: str, *, hint: str = "") -> NoReturn:
        """Raise StatementSyntaxError at the next token."""
        token = self.peek()
        instead = "the statement ends" if token.kind == "end" else f"found `{token.text}`"
        raise StatementSyntaxError(
            f"Expected {wanted}, {instead}.", hint=hint, statement=self.text, position=token.start
        )

    def fail_at(self, position: int, message: str, hint: str) -> NoReturn:
        """Raise StatementSyntaxError with this message at `position`."""
        raise StatementSyntaxError(message, hint=hint, statement=self.text, position=position)
