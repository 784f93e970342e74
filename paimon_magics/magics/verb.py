"""A verb of `%paimon`, and the parsing of its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import StatementSyntaxError, UnknownNameError, UnsupportedStatementError
from paimon_magics.magics.options import Option

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.session.session import Session
    from paimon_magics.statements.completion.wants import Expected
    from paimon_magics.statements.statement import TableName


_NAME = re.compile(r"(?:`(?:[^`]|``)+`|[^\s.`;,()'\"]+)(?:\.(?:`(?:[^`]|``)+`|[^\s.`;,()'\"]+))*")


_VERB_NAME = re.compile(r"((?:`[^`]+`|[^\s`])+)\s+")
_LIMITS = ("notice", "serious", "small=0.3")
_WORDS = {
    "coordinator": ("status", "pause", "resume", "drain"),
    "queue": ("dead", "retry", "discard", "reopen", "accept-loss"),
    "tail": ("from=", "consumer=", "snapshots="),
}


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb: its arguments and options, what it does, and the function that runs it.

    `words` is the verb with its arguments but without options, as help shows it.
    """

    words: str
    purpose: str
    run: Callable[[PaimonMagics, str], object]
    options: tuple[Option, ...] = ()

    @property
    def name(self) -> str:
        """The verb's first word: `files`."""
        return self.words.partition(" ")[0]

    @property
    def usage(self) -> str:
        """The verb as help shows it: `files TABLE [--partition NAME=VALUE]`."""
        return " ".join((self.words, *(f"[{option.usage}]" for option in self.options)))


def table_verb(
    words: str, purpose: str, act: Callable[[Session, str], object], of: str = "a table"
) -> Verb:
    """A verb whose argument is one name: of a table, or of the kind that `of` names."""
    verb = words.partition(" ")[0]

    def run(magics: PaimonMagics, argument: str) -> object:
        name = one_name(argument, verb, of)
        return act(magics.session(), name)

    return Verb(words, purpose, run)


def refuse_argument(argument: str, verb: str, hint: str) -> None:
    """Raise StatementSyntaxError if a verb that takes no argument has one."""
    if argument:
        raise StatementSyntaxError(
            f"`%paimon {verb}` takes no argument, but got `{argument}`.", hint=hint
        )


def name_and_rest(argument: str, verb: str, what: str) -> tuple[str, str | None]:
    """Split a line into its first name, which may have spaces in back-quotes, and the rest. Raises
    StatementSyntaxError."""
    match = _NAME.match(argument)
    name = match.group() if match else ""
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


# What may follow a verb of `%paimon`: derived from the verb's usage, except for a few verbs whose
# arguments the usage does not describe.


def expected_by(verb: Verb, rest: str) -> str | tuple[str, tuple[str, ...]] | Expected:
    """Return what may come at the end of `rest`, a verb's line: a statement to complete at its end;
    or the typed text and words for it; or an expectation of names, such as a table's."""
    from paimon_magics.statements.completion.wants import Expected, Partitions, Versions

    typed = rest.rpartition(" ")[2]
    if verb.name == "explain":
        return rest
    if verb.name == "help":
        from paimon_magics.magics.help import topics

        return typed, tuple(topics())
    if verb.name == "health" and re.search(r"--fail-on\s+\S*\Z", rest):
        return typed, _LIMITS
    if typed.startswith("-") and "=" not in typed:
        return typed, tuple(option.flags[-1] for option in verb.options)
    if verb.name == "coordinator":
        return typed, _WORDS["coordinator"] if rest == typed else ()
    named = _VERB_NAME.match(rest)
    if named is not None and verb.name == "files":
        value = re.search(r"--partition[\s=]([^\s]*)\Z", rest)
        if value is None:
            return typed, ()
        table = _table(named[1])
        return Expected(0, value[1], (Partitions(table),), "'") if table else (typed, ())
    if named is not None and verb.name in ("diff", "changes"):
        typed = rest[named.end() :].rpartition("..")[2]
        table = _table(named[1])
        return Expected(0, typed, (Versions(table),), "'") if table else (typed, ())
    if named is not None:
        return typed, _WORDS.get(verb.name, ())
    if "TABLE" in verb.usage or "[NAME]" in verb.usage:
        return f"DESCRIBE {rest}"
    if "DATABASE" in verb.usage:
        return f"USE {rest}"
    return typed, ()


def _table(text: str) -> TableName | None:
    from paimon_magics.statements.clauses.names import named

    try:
        return replace(named(text), system_table=None)
    except UnsupportedStatementError:
        return None
