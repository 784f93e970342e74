"""Takes the SQL out of the tests of Paimon's Spark connector.

Scala is read token by token, not compiled. A test is taken whole or not at all: where one of its
statements depends on what Scala computes, `Skipped` says why it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Scenario", "Skipped", "scenarios_of"]

_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<prefix>\b[sf])?(?:"""(?P<block>.*?)"""(?!")|"(?P<line>(?:\\.|[^"\\\n])*)")'
    r"|(?P<word>\w+|'(?:\\.|[^'\\])')"
    r"|(?P<sign>->|=>|\S)",
    re.DOTALL,
)
_PLACE = re.compile(r"\$(?:\$|(\w+)|\{([^}]*)\})")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_OPENING, _CLOSING = "([{", ")]}"
# What makes or changes data without SQL.
_FRAMES = {
    "createOrReplaceTempView", "createTempView", "write", "writeTo", "writeStream", "readStream",
    "insertInto", "saveAsTable", "newWrite", "newCommit", "withTempView", "Thread", "Future",
}  # fmt: skip
# What is between texts that make one.
_JOINING = ("+", ".", "stripMargin")
# What every test of theirs has, as names of a database and a table.
_NAMES = {"dbName0": "test", "tableName0": "T"}


class Skipped(Exception):
    """A test that can't be taken, and why."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    inserts: bool = False


@dataclass(slots=True)
class Scenario:
    """The steps of a test: `{"sql": text}`, or `{"conf": {key: value, or None to unset it}}`."""

    name: str
    steps: list[dict[str, Any]] = field(default_factory=list)


def scenarios_of(source: str, file: str) -> tuple[list[Scenario], list[tuple[str, str]]]:
    """The tests of a Scala file as scenarios, and those left out, each with the reason."""
    tokens = list(_tokens(source))
    helpers = _helpers(tokens)
    taken, skipped = [], []
    for name, body in _tests(tokens):
        title = f"{file}: {name}"
        try:
            steps = _Body(body, helpers).steps()
        except Skipped as error:
            skipped.append((title, str(error)))
        else:
            taken.append(Scenario(title, steps))
    return taken, skipped


def _tokens(source: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(source):
        if match["comment"] is not None:
            continue
        inserts = match["prefix"] is not None
        if match["block"] is not None:
            yield _Token("text", match["block"], inserts)
        elif match["line"] is not None:
            text = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), match["line"])
            yield _Token("text", text, inserts)
        elif match["word"] is not None:
            yield _Token("word", match["word"])
        else:
            yield _Token("sign", match["sign"])


def _tests(tokens: Sequence[_Token]) -> Iterator[tuple[str, Sequence[_Token]]]:
    for at in range(len(tokens) - 2):
        if tokens[at].text == "test" and tokens[at].kind == "word" and tokens[at + 1].text == "(":
            name, end = tokens[at + 2], _end(tokens, at + 1)
            if name.kind == "text" and end + 1 < len(tokens) and tokens[end + 1].text == "{":
                yield name.text, tokens[end + 2 : _end(tokens, end + 1)]


def _end(tokens: Sequence[_Token], start: int) -> int:
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text in _OPENING) - (tokens[at].text in _CLOSING)
        if not depth:
            return at
    return len(tokens) - 1


def _helpers(tokens: Sequence[_Token]) -> set[str]:
    """The functions of a file that run SQL."""
    names = set()
    for at, token in enumerate(tokens[:-1]):
        if token.kind != "word" or token.text != "def":
            continue
        brace = next((i for i in range(at, len(tokens)) if tokens[i].text in "={"), at)
        if brace + 1 < len(tokens) and tokens[brace + 1].text == "{":
            brace += 1
        body = tokens[brace : _end(tokens, brace) + 1]
        if any(each.kind == "word" and each.text in ("sql", "table") for each in body):
            names.add(tokens[at + 1].text)
    return names


class _Body:
    """Reads the body of a test from its first token to its last."""

    def __init__(self, tokens: Sequence[_Token], helpers: set[str]) -> None:
        self._tokens = tokens
        self._helpers = helpers
        self._known: dict[str, str] = dict(_NAMES)
        self._steps: list[dict[str, Any]] = []
        self._at_end: dict[int, list[dict[str, Any]]] = {}

    def steps(self) -> list[dict[str, Any]]:
        """All steps. Raises `Skipped` where one can't be known."""
        readers: dict[str, Callable[[int], None]] = {
            "sql": self._sql, "table": self._table, "val": self._value, "foreach": self._loop,
            "withTable": self._tables, "withSparkSQLConf": self._conf,
        }  # fmt: skip
        for at, token in enumerate(self._tokens):
            if token.kind == "word":
                if token.text in _FRAMES:
                    raise Skipped("works with frames")
                if token.text in self._helpers and self._text_at(at + 1) == "(":
                    raise Skipped("calls a function of its own")
                if token.text in ("for", "while"):
                    raise Skipped("what runs depends on Scala")
                if reader := readers.get(token.text):
                    reader(at)
            self._steps += self._at_end.pop(at, [])
        if not any("sql" in step for step in self._steps):
            raise Skipped("has no SQL")
        return self._steps

    def _text_at(self, at: int) -> str:
        token = self._tokens[at] if 0 <= at < len(self._tokens) else _Token("sign", "")
        return "" if token.kind == "text" else token.text

    def _sql(self, at: int) -> None:
        if self._text_at(at + 1) == "(":
            self._steps.append({"sql": self._text(at + 2, _end(self._tokens, at + 1))})

    def _table(self, at: int) -> None:
        if self._text_at(at + 1) == "(" and self._text_at(at - 1) == ".":
            name = self._text(at + 2, _end(self._tokens, at + 1))
            self._steps.append({"sql": f"SELECT * FROM {name}"})

    def _value(self, at: int) -> None:
        if self._text_at(at + 2) == "=" and self._tokens[at + 3].kind == "text":
            end = at + 3
            while self._tokens[end].kind == "text" or self._text_at(end) in (
                "+",
                ".",
                "stripMargin",
            ):
                end += 1
            self._known[self._text_at(at + 1)] = self._text(at + 3, end)

    def _loop(self, at: int) -> None:
        """`Seq("a", "b").foreach { name =>`: the first value is taken."""
        start = at - 2
        while start > 0 and self._text_at(start) != "(":
            start -= 1
        value, brace = self._tokens[start + 1], at + 1
        if self._text_at(start - 1) != "Seq" or self._text_at(brace + 2) != "=>":
            raise Skipped("what runs depends on Scala")
        self._known[self._text_at(brace + 1)] = value.text

    def _tables(self, at: int) -> None:
        close = _end(self._tokens, at + 1)
        names = [t for t in self._tokens[at + 2 : close] if t.kind == "text"]
        drops = [{"sql": f"DROP TABLE IF EXISTS {self._filled(name)}"} for name in names]
        self._at_end.setdefault(_end(self._tokens, close + 1), []).extend(drops)

    def _conf(self, at: int) -> None:
        close = _end(self._tokens, at + 1)
        inside = self._tokens[at + 2 : close]
        pairs: dict[str, str] = {}
        for place, token in enumerate(inside):
            if token.text == "->":
                sides = (inside[place - 1], inside[place + 1])
                if any(side.kind != "text" for side in sides):
                    raise Skipped("a setting depends on Scala")
                pairs[self._filled(sides[0])] = self._filled(sides[1])
        self._steps.append({"conf": pairs})
        unset = {"conf": dict.fromkeys(pairs)}
        self._at_end.setdefault(_end(self._tokens, close + 1), []).append(unset)

    def _text(self, start: int, end: int) -> str:
        """The text that texts, joined by `+`, make."""
        parts = []
        for at in range(start, end):
            token = self._tokens[at]
            if token.kind == "text":
                strips = self._text_at(at + 1) == "." and self._text_at(at + 2) == "stripMargin"
                text = re.sub(r"(?m)^[ \t]*\|", "", token.text) if strips else token.text
                parts.append(self._filled(_Token("text", text, token.inserts)))
            elif token.text in self._known:
                parts.append(self._known[token.text])
            elif token.text not in _JOINING:
                raise Skipped("a statement depends on Scala")
        return "".join(parts)

    def _filled(self, token: _Token) -> str:
        return _PLACE.sub(self._inserted, token.text) if token.inserts else token.text

    def _inserted(self, place: re.Match[str]) -> str:
        name = place[1] or place[2]
        if name is None:
            return "$"
        if name not in self._known:
            raise Skipped("a statement depends on Scala")
        return self._known[name]
