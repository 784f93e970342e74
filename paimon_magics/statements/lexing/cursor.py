"""A place in a statement's tokens, and the few steps that every token-level parser makes.

A Cursor never goes backwards on its own; parsers that must try something remember `index`.
"""

from __future__ import annotations

from typing import NoReturn

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, matching_brackets

__all__ = ["Cursor", "RefusedHere"]


class RefusedHere(Exception):
    """Raised inside the parsers where a recognised form is not offered; becomes a `Refused`.

    `kind` is what the user wrote, as in "CREATE TABLE … LIKE". Never leaves `parsing`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Cursor:
    """Reads `tokens` of `text` from `index` up to `stop` (exclusive)."""

    def __init__(
        self,
        text: str,
        tokens: tuple[Token, ...],
        brackets: dict[int, int] | None = None,
        index: int = 0,
        stop: int | None = None,
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.brackets = matching_brackets(text, tokens) if brackets is None else brackets
        self.index = index
        self.stop = len(tokens) if stop is None else stop
        place = tokens[self.stop].start if self.stop < len(tokens) else len(text)
        self._end = Token("end", "", place, place, "")

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` of the next one, or an `end` token behind the last."""
        index = self.index + ahead
        return self.tokens[index] if index < self.stop else self._end

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
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
        """Steps over the next token and returns it."""
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
        """Steps over these words or symbols if they come next."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Steps over one of these and returns it, else returns ""."""
        upper = self.peek().upper
        if upper and upper in words:
            self.index += 1
            return upper
        return ""

    def expect(self, *words: str) -> None:
        """Steps over these words; raises StatementSyntaxError where another one comes."""
        for word in words:
            if not self.accept(word):
                self.fail(f"`{word}`")

    def expect_end(self) -> None:
        """Raises StatementSyntaxError if anything is left."""
        if not self.at_end:
            self.fail("the end of the statement")

    def identifier(self, what: str) -> str:
        """The name that comes next, unquoted."""
        token = self.peek()
        if token.kind not in IDENTIFIER_KINDS:
            self.fail(what)
        self.index += 1
        return token.name

    def string(self, what: str) -> str:
        """The value of the string that comes next; adjacent strings are one, as in Spark."""
        if self.peek().kind != "string":
            self.fail(what)
        value = self.next().value
        while self.peek().kind == "string":
            value += self.next().value
        return value

    def closing(self) -> int:
        """Index of the bracket that closes the opening bracket that comes next."""
        return self.brackets[self.index]

    def skip_brackets(self) -> None:
        """Steps behind the bracket that closes the opening bracket that comes next."""
        self.index = self.closing() + 1

    def text_until(self, *words: str, what: str) -> str:
        """The text up to the next of these words or symbols outside brackets, or to the end."""
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
        """Raises StatementSyntaxError at the next token."""
        token = self.peek()
        found = "the statement ends" if token.kind == "end" else f"found `{token.text}`"
        raise StatementSyntaxError(
            f"Expected {wanted}, {found}.", hint=hint, statement=self.text, position=token.start
        )

    def fail_at(self, position: int, message: str, hint: str) -> NoReturn:
        """Raises StatementSyntaxError with this message at `position`."""
        raise StatementSyntaxError(message, hint=hint, statement=self.text, position=position)
