"""Options of cells and verbs: declared once, read by one function, or refused by name.

`CELL_OPTIONS` is the one list of a cell's options, each verb has its own; help, completion and
documentation follow them. Nothing here knows IPython or runs anything.
"""

from __future__ import annotations

import keyword
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import InvalidValueError, StatementSyntaxError, UnknownNameError, nearest
from paimon_magics.settings import WAITS, Wait

_BACK_QUOTED = re.compile(r"`(?:[^`]|``)+`")
RESULT_TYPES = ("outcome", "spark", "arrow", "pandas", "polars")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flags, the name of its value ("" for none), what it does, and an example
    value for errors."""

    flags: tuple[str, ...]
    value: str
    purpose: str
    example: str = ""

    @property
    def name(self) -> str:
        """The option without its dashes: `dry-run`."""
        return self.flags[-1].strip("-")

    @property
    def usage(self) -> str:
        """The option as help shows it: `-o, --out NAME`."""
        return ", ".join(self.flags) + (f" {self.value}" if self.value else "")


CELL_OPTIONS = (
    Option(("-o", "--out"), "NAME", "keep the result under this name, and show it"),
    Option(("-t", "--type"), "TYPE", f"type of the result: {', '.join(RESULT_TYPES)}"),
    Option(("--limit",), "N", "return at most N rows of a query, and show them all"),
    Option(("--include-buffer",), "", "also read small inserts that are not loaded yet"),
    Option(("--wait",), "WAIT", f"when a small insert or change returns: {', '.join(WAITS)}"),
    Option(("--explain",), "", "show how the last statement would run; run nothing"),
    Option(("--dry-run",), "", "check and plan every statement; run nothing"),
    Option(("--preview",), "", "show what an overwrite would delete; write nothing"),
    Option(("-y", "--yes"), "", "run statements that delete much, without asking"),
    Option(("-h", "--help"), "", "show this; run nothing"),
)
"""The options of `%%paimon`. Besides them, `NAME <<` keeps the result and shows nothing."""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What the first line of a cell asks for; `assigned` is the NAME of `NAME <<`."""

    out: str | None = None
    assigned: str | None = None
    type: str | None = None
    limit: int | None = None
    include_buffer: bool = False
    wait: Wait | None = None
    explain: bool = False
    dry_run: bool = False
    preview: bool = False
    yes: bool = False
    help: bool = False


_ARROW_AT_END = re.compile(r"(?:^|\s)(\S+?)\s*<<\s*$")
_ARROW_AT_START = re.compile(r"\s*([^\W\d]\w*)\s*<<")


def read_cell(line: str, body: str) -> tuple[CellOptions, str]:
    """Return the options, and the body with blanks in place of a `NAME <<` at its beginning.

    Raises UnknownNameError for an unknown option, InvalidValueError for an invalid value,
    StatementSyntaxError for words that are not options and for options that exclude each other.
    """
    assigned = None
    at_end = _ARROW_AT_END.search(line)
    if at_end is not None:
        assigned = _name(at_end[1], "NAME <<")
        line = line[: at_end.start()]
    at_start = _ARROW_AT_START.match(body)
    if at_start is not None:
        if assigned is not None:
            raise StatementSyntaxError("The cell has two `NAME <<`.", hint="Leave one of them out.")
        assigned = _name(at_start[1], "NAME <<")
        # Blanks of the same length keep positions in the cell.
        body = re.sub(r"\S", " ", at_start[0]) + body[at_start.end() :]
    words = read_words(split_words(line), CELL_OPTIONS, "%%paimon")
    if words.others:
        raise StatementSyntaxError(
            f"`{words.others[0]}` is not an option of %%paimon.",
            hint="The first line takes only options; the statement begins on the next line.",
        )
    values = {
        option.name.replace("-", "_"): _value(option, words.options[option.name])
        for option in CELL_OPTIONS
        if option.name in words.options
    }
    options = CellOptions(assigned=assigned, **values)
    if options.out is not None and options.assigned is not None:
        raise StatementSyntaxError(
            f"The cell's result is named twice: `--out {options.out}` and `{options.assigned} <<`.",
            hint="`--out NAME` shows the result too, `NAME <<` only keeps it.",
        )
    instead = [f"`--{name}`" for name in ("explain", "dry-run", "preview") if name in words.options]
    if len(instead) > 1:
        raise StatementSyntaxError(
            f"{' and '.join(instead)} are given together.", hint="Leave all but one of them out."
        )
    return options, body


def split_words(line: str) -> list[str]:
    """Split a line into words. Quotes hold a word together; so do back-quotes, which are kept since
    they are part of a name. Backslashes are ordinary characters.

    Raises StatementSyntaxError for a quote that is never closed.
    """
    names: list[str] = []

    def placeholder(match: re.Match[str]) -> str:
        names.append(match.group())
        return f"`{len(names) - 1}`"

    lexer = shlex.shlex(_BACK_QUOTED.sub(placeholder, line), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = ""
    try:
        return [_BACK_QUOTED.sub(lambda n: names[int(n.group()[1:-1])], word) for word in lexer]
    except ValueError:
        raise StatementSyntaxError(
            f"A quote is not closed: {line.strip()}", hint="Close it on the same line."
        ) from None


@dataclass(frozen=True, slots=True)
class GivenWords:
    """The words of a line. `options` has each given option's value by name, "" if the option takes
    none; `others` are the other words."""

    options: Mapping[str, str]
    others: tuple[str, ...]


def read_words(words: Iterable[str], known: Sequence[Option], of: str) -> GivenWords:
    """Parse the words of a line of `of`, whose options are `known`.

    Raises UnknownNameError for an unknown option, InvalidValueError for an option without its value
    or with a value that it does not accept. Raises StatementSyntaxError for a repeated option.
    """
    by_flag = {flag: option for option in known for flag in option.flags}
    options: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if not flag.startswith("-"):
            others.append(word)
            continue
        option = by_flag.get(flag)
        if option is None:
            raise UnknownNameError(f"{of} has no option `{flag}`.", hint=_has(flag, known))
        if option.name in options:
            raise StatementSyntaxError(
                f"The option `{option.flags[-1]}` is given twice.", hint="Leave one of them out."
            )
        if equals and not option.value:
            raise InvalidValueError(
                f"The option `{flag}` takes no value.", hint=f"Write `{flag}` alone."
            )
        argument = value if equals or not option.value else next(rest, "")
        if option.value and (
            not argument or (not equals and argument.startswith("-") and not argument[1:].isdigit())
        ):
            raise InvalidValueError(
                f"The option `{flag}` needs a value.",
                hint=f"Write `{flag} {option.example or option.value}`.",
            )
        options[option.name] = argument
    return GivenWords(options, tuple(others))


def _has(flag: str, known: Sequence[Option]) -> str:
    """The hint on the known options: all, or the nearest if there are many."""
    flags = [option.flags[-1] for option in known]
    if len(flags) > 3:
        return nearest(flag, [f for option in known for f in option.flags], what="options")
    return f"It has {' and '.join(flags)}."


def _value(option: Option, text: str) -> Any:
    """The value of a cell's option. Raises InvalidValueError."""
    flag = option.flags[0]
    match option.name:
        case "out":
            return _name(text, flag)
        case "type":
            if text not in RESULT_TYPES:
                raise InvalidValueError(
                    f"`{flag} {text}` is not a type of result.",
                    hint=nearest(text, RESULT_TYPES, what="types"),
                )
            return text
        case "wait":
            if text not in WAITS:
                raise InvalidValueError(
                    f"`{flag} {text}` is neither `durable` nor `visible`.",
                    hint=nearest(text, WAITS, what="values of `--wait`"),
                )
            return text
        case "limit":
            if not text.isascii() or not text.isdigit():
                raise InvalidValueError(
                    f"`{flag} {text}` is not a number of rows.", hint=f"Write `{flag} 100`."
                )
            return int(text)
        case _:
            return True  # a flag without a value


def _name(text: str, where: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise InvalidValueError(
            f"`{text}` ({where}) can't be a variable's name.",
            hint="A name has letters, digits and underscores, does not begin with a digit, and "
            "is not a Python keyword.",
        )
    return text
