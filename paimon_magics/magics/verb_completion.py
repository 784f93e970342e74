"""What may follow a verb of `%paimon`: derived from the verb's usage, except for a few verbs whose
arguments the usage does not describe."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.magics.verb import Verb

if TYPE_CHECKING:
    from paimon_magics.statements.completion.wants import Expected
    from paimon_magics.statements.statement import TableName

__all__ = ["expected_by"]

_NAME = re.compile(r"((?:`[^`]+`|[^\s`])+)\s+")
_LIMITS = ("notice", "serious", "small=0.3")
_WORDS = {
    "coordinator": ("status", "pause", "resume", "drain"),
    "queue": ("dead", "retry", "discard", "reopen", "accept-loss"),
    "tail": ("from=", "consumer=", "snapshots="),
}


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
    named = _NAME.match(rest)
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
    from paimon_magics.statements.clauses.given_names import named

    try:
        return replace(named(text), system_table=None)
    except UnsupportedStatementError:
        return None
