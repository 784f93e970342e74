"""A verb of `%paimon`, and the parsing of its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.errors import StatementSyntaxError, UnknownNameError
from paimon_magics.magics.options import Option

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics

__all__ = ["Verb", "name_and_rest", "one_name"]

_NAME = re.compile(r"(?:`(?:[^`]|``)+`|[^\s.`;,()'\"]+)(?:\.(?:`(?:[^`]|``)+`|[^\s.`;,()'\"]+))*")


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its name, arguments and options, what it does, and the function that runs it.

    `words` is the verb with its arguments but without options, as help shows it.
    """

    name: str
    words: str
    purpose: str
    run: Callable[[PaimonMagics, str], object]
    options: tuple[Option, ...] = ()

    @property
    def usage(self) -> str:
        """The verb as help shows it: `files TABLE [--partition NAME=VALUE]`."""
        return " ".join((self.words, *(f"[{option.usage}]" for option in self.options)))


def name_and_rest(argument: str, verb: str, what: str) -> tuple[str, str | None]:
    """Split a line into its first name, which may have spaces in back-quotes, and the rest. Raises
    StatementSyntaxError."""
    found = _NAME.match(argument)
    name = found.group() if found else ""
    rest = argument[len(name) :]
    if not name or not (rest == "" or rest[0].isspace()):
        return one_name(argument.partition(" ")[0], verb, what), None
    return name, rest.strip() or None


def one_name(argument: str, verb: str, what: str) -> str:
    """Return the argument if it is a single name. Raises StatementSyntaxError, and UnknownNameError
    for an option."""
    if not argument:
        raise StatementSyntaxError(
            f"`%paimon {verb}` needs the name of {what}.",
            hint=f"`%paimon help {verb}` shows how it is used.",
        )
    option = next((word for word in argument.split() if word.startswith("--")), "")
    if option:
        raise UnknownNameError(
            f"`%paimon {verb}` has no option `{option}`.",
            hint=f"`%paimon help {verb}` shows how it is used.",
        )
    if _NAME.fullmatch(argument) is None:
        raise StatementSyntaxError(
            f"`%paimon {verb}` takes the name of {what}, not `{argument}`.",
            hint="Put a part of a name that holds other characters in back-quotes.",
        )
    return argument
