"""Every error this project raises on purpose, split by what the caller must do next.

    PaimonMagicsError
    ├── StatementError              change the statement
    │   ├── StatementSyntaxError        the text is not SQL; carries the position
    │   ├── UnsupportedStatementError   recognised, and refused by name
    │   ├── UnknownNameError            no such database, table, column, option or parameter
    │   ├── InvalidValueError           a value, or a number of values, that the table can't hold
    │   ├── InvalidTableError           a definition that Paimon's engines would refuse
    │   └── UnconfirmedError            takes much away: say `--yes` to run it
    ├── SetupError                  change the environment, the connection or a setting
    ├── CommitConflictError         run it again: it plans on the current snapshot
    ├── UnknownOutcomeError         look before running it again: it may have been committed
    ├── JobError                    the Spark job failed; nothing was committed
    ├── HealthError                 a layout is worse than what --fail-on allows; nothing is lost
    └── TableDamagedError           repair: what the table says and what is stored differ

A message says what was wanted and what was found, and where; the hint is the next step, as a
sentence that a notebook user can follow. An error that concerns a place in the statement carries
that place, and `text()` draws a caret under it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CommitConflictError",
    "HealthError",
    "InvalidTableError",
    "InvalidValueError",
    "JobError",
    "PaimonMagicsError",
    "SetupError",
    "StatementError",
    "StatementSyntaxError",
    "TableDamagedError",
    "UnconfirmedError",
    "UnknownNameError",
    "UnknownOutcomeError",
    "UnsupportedStatementError",
    "likely_meant",
    "nearest",
]


class PaimonMagicsError(Exception):
    """Base of the tree. `message` is one line, `hint` the next step or an empty string.

    `statement` and `position` (a character offset into it) locate the error where it has a place.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        statement: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.statement = statement
        self.position = position

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        end = "" if self.message.endswith((".", "!", "?", ":")) else "."
        return f"{self.message}{end} {self.hint}"

    def text(self) -> str:
        """The error as a notebook shows it: name and message, the line with a caret, the hint."""
        lines = [f"{type(self).__name__}: {self.message}"]
        if self.statement is not None and self.position is not None:
            lines += _caret(self.statement, self.position)
        if self.hint:
            lines.append(self.hint)
        return "\n".join(lines)


class StatementError(PaimonMagicsError):
    """The statement can't run as written: change it."""


class StatementSyntaxError(StatementError):
    """The text is not SQL that we or Spark can read."""


class UnsupportedStatementError(StatementError):
    """The statement is understood and not offered (yet) for this table."""


class UnknownNameError(StatementError):
    """A database, table, column, option, setting or bind parameter that does not exist."""


class InvalidValueError(StatementError):
    """A value that does not fit its column, a NULL where none may be, or a wrong number of them."""


class InvalidTableError(StatementError):
    """A table definition or change that Paimon's engines would refuse to open."""


class UnconfirmedError(StatementError):
    """The statement takes much away, and nobody has said `--yes`; nothing ran."""


class SetupError(PaimonMagicsError):
    """The environment, the connection or a setting must change before anything can run."""


class CommitConflictError(PaimonMagicsError):
    """Another commit got in the way; nothing was written. Run it again: it is planned anew."""


class UnknownOutcomeError(PaimonMagicsError):
    """Whether the commit happened could not be determined: look at the table's snapshots first."""


class JobError(PaimonMagicsError):
    """The Spark job failed. Nothing was committed, and its files were removed."""


class HealthError(PaimonMagicsError):
    """A table's layout is worse than what `%paimon health --fail-on` allows; nothing is lost."""


class TableDamagedError(PaimonMagicsError):
    """The table's metadata and its files contradict each other."""


def likely_meant(name: str, candidates: Iterable[str]) -> str:
    """A hint that names the candidate most like `name`; empty where none is like it."""
    folded = {n.lower(): n for n in sorted(set(candidates))}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"Did you mean `{folded[close[0]]}`?" if close else ""


def nearest(name: str, candidates: Iterable[str], *, what: str) -> str:
    """A hint that names the candidate most like `name`, or lists up to ten of them.

    `what` is the plural noun of the candidates, as in "columns" or "tables in `shop`".
    """
    names = sorted(set(candidates))
    if not names:
        return f"There are no {what}."
    meant = likely_meant(name, names)
    if meant:
        return meant
    shown = ", ".join(f"`{n}`" for n in names[:10])
    rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"The {what} are {shown}{rest}."


def _caret(statement: str, position: int) -> list[str]:
    position = max(0, min(position, len(statement)))
    line_start = statement.rfind("\n", 0, position) + 1
    line_end = statement.find("\n", position)
    line = statement[line_start : line_end if line_end >= 0 else len(statement)]
    number = statement.count("\n", 0, position) + 1
    prefix = f"  line {number}: "
    padding = "".join("\t" if c == "\t" else " " for c in line[: position - line_start])
    return [prefix + line, " " * len(prefix) + padding + "^"]
