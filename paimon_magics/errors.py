"""Every error this project raises on purpose, split by what the caller must do next.

    PaimonMagicsError
    ├── StatementError              change the statement
    │   ├── StatementSyntaxError        the text is not SQL; carries the position
    │   ├── UnsupportedStatementError   recognized, and refused by name
    │   ├── UnknownNameError            no such database, table, column, option or parameter
    │   ├── InvalidValueError           a value, or a number of values, that the table can't hold
    │   ├── InvalidTableError           a definition that Paimon's engines would refuse
    │   └── UnconfirmedError            would delete much: add `--yes` to run it
    ├── SetupError                  change the environment, the connection or a setting
    ├── CommitConflictError         run it again: it plans on the current snapshot
    │   ├── CompactionConflictError     compact the named buckets again; commit the others
    │   └── OutdatedPlanError           every rerun lost to another commit
    ├── UnknownOutcomeError         check before you run it again: it may have been committed
    ├── JobError                    the Spark job failed; nothing was committed
    ├── HealthError                 a layout is worse than what --fail-on allows; nothing is lost
    └── TableDamagedError           repair: the table's metadata and its files differ

A message states what was expected, what was found, and where. The hint is the next step, a sentence
that a notebook user can follow. An error about a place in the statement carries that place, and
`text()` draws a caret under it. Secrets are removed from messages and from the exceptions that
caused an error (`redaction`).
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from paimon_magics.redaction import redacted, scrub

__all__ = [
    "CommitConflictError",
    "CompactionConflictError",
    "HealthError",
    "InvalidTableError",
    "InvalidValueError",
    "JobError",
    "OutdatedPlanError",
    "PaimonMagicsError",
    "SetupError",
    "StatementError",
    "StatementSyntaxError",
    "TableDamagedError",
    "UnconfirmedError",
    "UnknownNameError",
    "UnknownOutcomeError",
    "UnsupportedStatementError",
    "error_of_task",
    "likely_meant",
    "nearest",
    "sent_to_driver",
    "value_text",
    "with_one_stop",
]

_CAUSE: Any = BaseException.__dict__["__cause__"]
_PLACE = "  line "
_VALUE_MAX = 40
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z`])")
_WORDS_MIN = 3  # of a sentence that is not said twice
_SENT = re.compile(r"^\[paimon_magics\.errors\.(\w+)\] (\[.*\])$", re.MULTILINE)
_PRINTED = re.compile(r"^paimon_magics\.errors\.(\w+): (.*)$", re.MULTILINE)


def with_one_stop(text: str) -> str:
    """The text without its final period, which would double that of the message around it."""
    has_two = text.endswith(("..", "?.", "!.")) and not text.endswith("...")
    return text[:-1] if has_two else text


def said_once(message: str, hint: str) -> tuple[str, str]:
    """The message and its hint without sentences that they have twice, as texts may that are
    composed of other errors. Of "Run it again." and "Run it again: …" the longer one stays."""
    texts = [*_BETWEEN_SENTENCES.split(message), *_BETWEEN_SENTENCES.split(hint)]
    sentences = [text.rstrip(".") for text in texts]
    places = [
        place
        for place, text in enumerate(sentences)
        if place == 0
        or text.count(" ") < _WORDS_MIN - 1
        or (
            text not in sentences[:place]
            and not any(other.startswith((f"{text}:", f"{text},")) for other in sentences)
        )
    ]
    if len(places) == len(texts):
        return message, hint
    of_message = len(_BETWEEN_SENTENCES.split(message))
    return (
        " ".join(texts[place] for place in places if place < of_message),
        " ".join(texts[place] for place in places if place >= of_message),
    )


class PaimonMagicsError(Exception):
    """Base of the tree. `message` is one line, `hint` the next step or an empty string.

    `statement` and `position` (a character offset into it) locate an error that has a place.
    """

    _hidden_cause: BaseException | None = None

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        statement: str | None = None,
        position: int | None = None,
    ) -> None:
        message, hint = with_one_stop(redacted(message)), redacted(hint)
        super().__init__(message)
        # The exception that is being handled becomes this error's context, and is shown with it.
        scrub(sys.exc_info()[1])
        self.message = message
        self.hint = hint
        self.statement = statement
        self.position = position

    def __str__(self) -> str:
        message, hint = said_once(self.message, self.hint)
        if not hint:
            return message
        end = "" if message.endswith((".", "!", "?", ":")) else "."
        return f"{message}{end} {hint}"

    def text(self) -> str:
        """The error as a notebook shows it: name and message, the line with a caret, the hint."""
        message, hint = said_once(self.message, self.hint)
        lines = [f"{type(self).__name__}: {message}"]
        if self.statement is not None and self.position is not None:
            lines += _caret(self.statement, self.position)
        if hint:
            lines.append(hint)
        return redacted("\n".join(lines))

    @property
    def __cause__(self) -> BaseException | None:
        """The cause. If `hide_cause` has hidden it, the module `traceback` gets None: Python,
        `logging` and others use that module to print the chain of causes."""
        shown: BaseException | None = _CAUSE.__get__(self)
        if shown is None and sys._getframe(1).f_globals.get("__name__") != "traceback":
            return self._hidden_cause
        return shown

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        _CAUSE.__set__(self, cause)

    def hide_cause(self) -> None:
        """Hide the cause and the context when Python prints this error."""
        self._hidden_cause = _CAUSE.__get__(self) or self._hidden_cause
        _CAUSE.__set__(self, None)  # with this, Python prints no context either

    def tell_place(self) -> None:
        """Let Python print the place in the statement below the message."""
        notes = [line for line in getattr(self, "__notes__", ()) if not line.startswith(_PLACE)]
        if self.statement is not None and self.position is not None:
            notes.append("\n".join(_caret(self.statement, self.position)))
        self.__notes__ = notes


class StatementError(PaimonMagicsError):
    """The statement can't run as written: change it."""


class StatementSyntaxError(StatementError):
    """The text is not SQL that this project or Spark can parse."""


class UnsupportedStatementError(StatementError):
    """The statement is understood, but not supported (yet) for this table."""


class UnknownNameError(StatementError):
    """A database, table, column, option, setting or bind parameter that does not exist.

    A server's errors go to users who must not see all names. Their hints have no names of databases
    and tables; `near`, if set, looks up the hint with names. Only code that knows that the reader
    may see every table calls it.
    """

    near: Callable[[], str] | None = None


class InvalidValueError(StatementError):
    """A value that does not fit its column, a NULL in a NOT NULL column, or a wrong number of
    values."""


class InvalidTableError(StatementError):
    """A table definition or a change of one that Paimon's engines would refuse."""


class UnconfirmedError(StatementError):
    """The statement would delete much and was not confirmed by `--yes`; nothing ran."""


class SetupError(PaimonMagicsError):
    """The environment, the connection or a setting must change before anything can run."""


class CommitConflictError(PaimonMagicsError):
    """Another commit conflicts with this one; nothing was committed. Run the statement again: it is
    then planned on the current snapshot."""


class CompactionConflictError(CommitConflictError):
    """Other commits changed some of the buckets that a compaction rewrote; nothing was committed.
    `conflicting` are the positions of these buckets' messages in the commit's request. The same
    transaction can commit the request without them."""

    def __init__(
        self, message: str, conflicting: tuple[int, ...] = (), *, hint: str = "", **place: Any
    ) -> None:
        super().__init__(message, hint=hint, **place)
        self.conflicting = conflicting


class OutdatedPlanError(CommitConflictError):
    """Other commits changed the data that a statement's plan is based on. A session plans and runs
    the statement again, up to `conflict_reruns_max` times if it adds rows, or up to
    `row_level_retries` times if it changes rows."""


class LayoutChangedError(OutdatedPlanError):
    """The rows were written for a layout that their table no longer has: other buckets, or an
    option that is fixed once a table has rows."""


class UnknownOutcomeError(PaimonMagicsError):
    """It is unknown whether the commit happened: check the table's snapshots first."""


class JobError(PaimonMagicsError):
    """The Spark job failed. Nothing was committed, and its files were removed."""


class HealthError(PaimonMagicsError):
    """A table's layout is worse than what `%paimon health --fail-on` allows; nothing is lost."""


class TableDamagedError(PaimonMagicsError):
    """The table's metadata and its files contradict each other."""


@contextmanager
def sent_to_driver() -> Iterator[None]:
    """For the body of a Python task: a PaimonMagicsError carries its class, message and hint in the
    text that Spark makes of it, for `error_of_task`."""
    try:
        yield
    except PaimonMagicsError as error:
        # Of classes that stand elsewhere, the driver knows the nearest one of this module.
        kind = next(each.__name__ for each in type(error).__mro__ if each.__module__ == __name__)
        error.add_note(f"[paimon_magics.errors.{kind}] {json.dumps([error.message, error.hint])}")
        raise


def error_of_task(text: str) -> PaimonMagicsError | None:
    """The PaimonMagicsError that a Python task failed with, from Spark's text; None if the text has
    none."""
    sent, printed = _SENT.findall(text), _PRINTED.findall(text)
    if sent:
        name, (message, hint) = sent[-1][0], json.loads(sent[-1][1])
    elif printed:
        (name, message), hint = printed[-1], ""
    else:
        return None
    kind = globals().get(name)
    if not (isinstance(kind, type) and issubclass(kind, PaimonMagicsError)):
        return None
    error: PaimonMagicsError = kind(message.strip(), hint=hint)
    return error


def likely_meant(name: str, candidates: Iterable[str], *, alike: float = 0.6) -> str:
    """A hint that names the candidate most similar to `name`; "" if none has a similarity of at
    least `alike`, from 0 to 1."""
    folded = {n.lower(): n for n in sorted(set(candidates))}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=alike)
    return f"Did you mean `{folded[close[0]]}`?" if close else ""


def nearest(
    name: str, candidates: Iterable[str] | Callable[[], Iterable[str]], *, what: str
) -> str:
    """A hint that names the candidate most similar to `name`, or lists up to ten candidates.

    `what` is the plural noun of the candidates, as in "columns" or "tables in `shop`". A function
    that lists the candidates may fail; there is no hint then.
    """
    try:
        every = set(candidates() if callable(candidates) else candidates)
    except Exception:  # the hint of another error, which must not be hidden by this one
        return ""
    if not every:
        return f"There are no {what}."
    names = sorted(every - {name})  # somebody may have made it meanwhile
    if not names:
        return ""
    meant = likely_meant(name, names)
    if meant:
        return meant
    shown = ", ".join(f"`{n}`" for n in names[:10])
    rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"The {what} are {shown}{rest}."


def value_text(value: object, *, begins: bool = False) -> str:
    """A caller's value for a message: `5`, `'a text'`, `a list`, `an object`. With `begins` the
    article is capitalized, for the beginning of a sentence."""
    if value is None or isinstance(value, str | int | float | bool):
        text = repr(value)
        return text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "…"
    kind = type(value).__name__
    article = "an" if kind[0] in "AEIOaeio" else "a"
    return f"{article.capitalize() if begins else article} {kind}"


def _caret(statement: str, position: int) -> list[str]:
    position = max(0, min(position, len(statement)))
    line_start = statement.rfind("\n", 0, position) + 1
    line_end = statement.find("\n", position)
    line = statement[line_start : line_end if line_end >= 0 else len(statement)]
    number = statement.count("\n", 0, position) + 1
    prefix = f"  line {number}: "
    padding = "".join("\t" if c == "\t" else " " for c in line[: position - line_start])
    return [prefix + line, " " * len(prefix) + padding + "^"]
