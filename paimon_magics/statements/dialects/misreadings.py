"""Guesses what a person meant by a statement that can't be read: an idiom of another database, a
variable that is not replaced, a missing `;` or word, a character from a word processor."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.dialects.idioms import idiom_at
from paimon_magics.statements.lexing.tokens import (
    IDENTIFIER_KINDS,
    STATEMENT_WORDS,
    Token,
    tokenize,
    word_set,
)

_CLAUSES = word_set("FROM WHERE GROUP HAVING ORDER LIMIT JOIN ON SELECT UNION VALUES INTO BY")
_ALIKE_MIN = 0.7
_NAME_BEHIND = word_set("FROM JOIN INTO TABLE UPDATE . ,")
_PLAIN_QUOTES = "Write texts in plain quotes: 'tea'."
_CHARACTERS: dict[str, tuple[str, str]] = {
    **dict.fromkeys("‘’‚‛′´“”„‟″«»", ("a typographic quote", _PLAIN_QUOTES)),
    **dict.fromkeys("–—−‒", ("a typographic dash", "Write `-`, or `--` before a comment.")),
    "≥": ("not a comparison operator of SQL", "Write `>=`."),
    "≤": ("not a comparison operator of SQL", "Write `<=`."),
    "≠": ("not a comparison operator of SQL", "Write `<>`."),
    "×": ("not an operator of SQL", "Write `*`."),
    "÷": ("not an operator of SQL", "Write `/`."),
    "；": ("a wide semicolon", "Write `;`."),
    "，": ("a wide comma", "Write `,`."),
    "（": ("a wide bracket", "Write `(`."),
    "）": ("a wide bracket", "Write `)`."),
    "：": ("a wide colon", "Write `:`."),
    "…": ("a placeholder for omitted text", "Replace it with the full text."),
    "#": ("not a comment in SQL", "Begin comments with `--`, or write `/* … */`."),
}
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
# Words that begin a statement, without those that often continue one.
_BEGINNINGS = STATEMENT_WORDS - word_set("WITH VALUES TABLE FROM MAP REDUCE SET LIST ADD COMMENT")
_QUERIES = word_set("SELECT WITH FROM VALUES TABLE INSERT EXPLAIN")
_BEFORE_QUERY = word_set("INSERT WITH EXPLAIN CREATE REPLACE MERGE")
_GO_ON = word_set("UNION ALL EXCEPT INTERSECT MINUS DISTINCT AS ( ,")
_HELP = {
    "SELECT": "select",
    "INSERT": "insert",
    "CREATE": "create",
    "ALTER": "alter table",
    "DROP": "drop",
    "TRUNCATE": "truncate table",
    "SHOW": "show",
    "DESCRIBE": "describe",
    "DESC": "describe",
    "USE": "use",
    "EXPLAIN": "explain",
    "CALL": "call",
}


@dataclass(frozen=True, slots=True)
class _Guess:
    """The message and hint in place of "can't be read", and the index of the token concerned."""

    message: str
    hint: str
    index: int


def misread(
    statement: str, position: int, message: str = "", hint: str = ""
) -> StatementSyntaxError:
    """Return the error for a statement that can't be read at a position.

    `message` and `hint` are the parser's; they are used if there is no better guess.
    """
    try:
        tokens = tokenize(statement)
    except StatementSyntaxError:
        tokens = ()
    stopped = next((i for i, token in enumerate(tokens) if token.end > position), len(tokens))
    if not message and stopped == len(tokens):
        message, hint = "The statement ends too early.", hint or "Complete it."
    elif not message:
        message = f"The statement can't be read at `{tokens[stopped].text}`."
    is_copy = bool(tokens) and tokens[0].upper == "COPY"  # its parser knows better than a query's
    guess = None if is_copy else _guess(tokens, stopped, statement)
    if guess is not None:
        message = guess.message or message
        place = tokens[guess.index].start if guess.index < len(tokens) else position
        return StatementSyntaxError(message, hint=guess.hint, statement=statement, position=place)
    if not hint and message.startswith("Expected `)`, found") and stopped < len(tokens):
        hint = f"Put a comma before `{tokens[stopped].text}`, or close the bracket there."
    hint = hint or _about(tokens)
    return StatementSyntaxError(message, hint=hint, statement=statement, position=position)


def _guess(tokens: tuple[Token, ...], stopped: int, statement: str) -> _Guess | None:
    for find in (
        _character,
        _idiom,
        _comment,
        _without_semicolon,
        _left_out,
        _comma,
        _misspelt,
        _no_comma,
    ):
        guess = find(tokens, stopped, statement)
        if guess is not None:
            return guess
    return None


def _character(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for index in (stopped, stopped - 1):
        text = tokens[index].text if 0 <= index < len(tokens) else ""
        if text in _CHARACTERS:
            what, hint = _CHARACTERS[text]
            return _Guess(f"`{text}` is {what}.", hint, index)
        if text and text in _INVISIBLE:
            named = f"U+{ord(text):04X}"
            return _Guess(
                f"The statement has an invisible character ({named}).", "Retype the line.", index
            )
    return None


def _idiom(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    match = idiom_at(tokens, stopped)
    if match is None:
        return None
    idiom, index, texts = match
    names = [t.text for t in tokens[index : index + len(texts)] if t.kind in IDENTIFIER_KINDS]
    name = names[-1] if names else "x"
    if idiom.pattern.startswith("^") and stopped < len(tokens):
        index = stopped  # the pattern is of a whole statement: point at what does not fit
    return _Guess(idiom.message.format(*texts), idiom.hint.format(*texts, name=name), index)


def _comment(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for index in (stopped, stopped - 1):
        if 0 <= index < len(tokens) - 1 and tokens[index].text == tokens[index + 1].text == "/":
            return _Guess("`//` is not a comment in SQL.", _CHARACTERS["#"][1], index)
    return None


def _without_semicolon(tokens: tuple[Token, ...], stopped: int, statement: str) -> _Guess | None:
    """A second statement that begins on a line of its own, without a semicolon before it."""
    for index in range(min(stopped, len(tokens) - 1), 0, -1):
        token = tokens[index]
        line = statement[: token.start].rpartition("\n")
        if token.upper not in _BEGINNINGS or not line[1] or line[2].strip():
            continue
        before = {t.upper for t in tokens[:index]}
        goes_on = tokens[0].upper in _BEFORE_QUERY and not before & {"SELECT", "VALUES"}
        if token.upper == "SELECT" and (goes_on or tokens[index - 1].upper in _GO_ON):
            continue
        first = tokens[0].upper
        message = f"`{token.text}` begins another statement."
        return _Guess(message, f"End the {first} before it with `;`.", index)
    return None


def _left_out(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """A missing word that another word needs: BY, or END."""
    for index, token in enumerate(tokens[: stopped + 1]):
        if token.upper not in ("ORDER", "GROUP") or index + 1 == len(tokens):
            continue
        following = tokens[index + 1]
        if following.kind in IDENTIFIER_KINDS and following.upper != "BY":
            return _Guess("BY is missing.", f"Write {token.upper} BY {following.text}.", index)
    words = [token.upper for token in tokens]
    if words.count("CASE") > words.count("END"):
        return _Guess("CASE has no END.", "Write END after its last value.", words.index("CASE"))
    return None


def _comma(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    for place in (stopped - 1, stopped):
        is_behind = 0 < place < len(tokens) and tokens[place - 1].text == ","
        if is_behind and tokens[place].upper in _CLAUSES:
            return _Guess("", f"Leave out the comma before `{tokens[place].text}`.", stopped)
    return None


def _misspelt(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """A misspelled keyword, which Spark reads as an alias, so that it fails at the next word."""
    if not 0 < stopped <= len(tokens):
        return None
    token = tokens[stopped - 1]
    if tokens[0].upper not in _QUERIES:
        return None
    is_named = stopped > 1 and tokens[stopped - 2].upper in _NAME_BEHIND
    if token.kind != "word" or token.upper in _CLAUSES or is_named:
        return None
    near = difflib.get_close_matches(token.upper, _CLAUSES, n=1, cutoff=_ALIKE_MIN)
    if not near or stopped == len(tokens):
        return None
    return _Guess("", f"Did you mean `{near[0]}` instead of `{token.text}`?", stopped)


def _no_comma(tokens: tuple[Token, ...], stopped: int, _: str) -> _Guess | None:
    """Three names in a row in a SELECT list, where Spark reads the second as an alias."""
    names = tokens[max(stopped - 2, 0) : stopped + 1]
    before = {token.upper for token in tokens[:stopped]}
    if len(names) < 3 or tokens[0].upper not in _QUERIES:
        return None
    if "SELECT" not in before or "FROM" in before:
        return None
    if any(name.kind not in IDENTIFIER_KINDS or name.upper in _CLAUSES for name in names):
        return None
    listed = ", ".join(name.text for name in names)
    return _Guess("", f"Put commas between columns: {listed}.", stopped)


def _about(tokens: tuple[Token, ...]) -> str:
    """The hint for a statement without a guess: where its syntax is shown."""
    first = tokens[0].upper if tokens else ""
    if first in ("SELECT", "WITH"):
        return "Check the text there and just before it."
    if first in _HELP:
        return f"%paimon help {_HELP[first]} shows its syntax."
    return "%paimon help lists the statements."
