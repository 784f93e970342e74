"""The verbs that show things to look at: lines are read here, `session.reports` does the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.errors import StatementSyntaxError, UnknownNameError
from paimon_magics.magics.namespace import Variables
from paimon_magics.magics.options import split_words
from paimon_magics.magics.verb import Verb, name_and_rest, one_name

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics

__all__ = ["REPORT_VERBS"]

_TABLE = "a table"


def _snapshots(magics: PaimonMagics, argument: str) -> object:
    name = one_name(argument, "snapshots", _TABLE)
    return magics.session().reports.snapshots(name)


def _diff(magics: PaimonMagics, argument: str) -> object:
    name, span = name_and_rest(argument, "diff", _TABLE)
    if span is None:
        raise StatementSyntaxError(
            "`%paimon diff` lacks the two states to compare.",
            hint="As in: %paimon diff orders 3..7, with snapshots, tags, or times "
            "as 2026-01-31 12:00:00.",
        )
    before, after = _span(span, "diff")
    return magics.session().reports.diff(name, before, after)


def _changes(magics: PaimonMagics, argument: str) -> object:
    name, span = name_and_rest(argument, "changes", _TABLE)
    ends = (None, None) if span is None else _span(span, "changes")
    return magics.session().reports.changes(name, *ends)


def _files(magics: PaimonMagics, argument: str) -> object:
    partition, names = None, []
    rest = iter(split_words(argument))
    for word in rest:
        option, equals, value = word.partition("=")
        if option == "--partition":
            partition = value if equals else next(rest, "")
            if not partition:
                raise StatementSyntaxError(
                    "`--partition` lacks its value.", hint="As in: --partition day=2026-11-20"
                )
        elif word.startswith("-"):
            raise UnknownNameError(
                f"`%paimon files` has no option `{word}`.", hint="It has --partition."
            )
        else:
            names.append(word)
    name = one_name(" ".join(names), "files", _TABLE)
    return magics.session().reports.files(name, partition)


def _partitions(magics: PaimonMagics, argument: str) -> object:
    name = one_name(argument, "partitions", _TABLE)
    return magics.session().reports.partitions(name)


def _profile(magics: PaimonMagics, argument: str) -> object:
    from paimon_magics.session.reports.profile import Effort

    known = {effort.value: effort for effort in Effort if effort.value}
    words = split_words(argument)
    options = [word for word in words if word.startswith("-")]
    unknown = [word for word in options if word not in known]
    if unknown or len(options) > 1:
        raise UnknownNameError(
            f"`%paimon profile` does not take `{' '.join(unknown or options)}`.",
            hint="It has --statistics, for no Spark job, or --distinct, for one of all columns.",
        )
    name = one_name(" ".join(w for w in words if w not in options), "profile", _TABLE)
    return magics.session().reports.profile(name, known[options[0]] if options else Effort.NEEDED)


def _explain(magics: PaimonMagics, argument: str) -> object:
    if not argument:
        raise StatementSyntaxError(
            "`%paimon explain` lacks its query.", hint="As in: %paimon explain SELECT * FROM orders"
        )
    variables = Variables(magics.namespace_shell)
    return magics.session().reports.explain(argument, variables, frames=variables)


def _span(text: str, verb: str) -> tuple[str, str]:
    before, dots, after = (part.strip(" '\"") for part in text.partition(".."))
    if not dots or not before or not after:
        raise StatementSyntaxError(
            f"`%paimon {verb}` can't read `{text}`.",
            hint="Write it as 3..7, the earlier one first.",
        )
    return before, after


REPORT_VERBS = (
    Verb(
        "snapshots",
        "snapshots TABLE",
        "show a table's commits in time; pick two to compare them or to see what changed",
        _snapshots,
    ),
    Verb(
        "diff",
        "diff TABLE A..B",
        "show what tells one state from another: rows, files, schema; A and B are snapshots, tags "
        "or times",
        _diff,
    ),
    Verb(
        "changes",
        "changes TABLE [A..B]",
        "show the changes after A up to B, with what was before an update; of the last ten "
        "snapshots without them",
        _changes,
    ),
    Verb(
        "files",
        "files TABLE [--partition NAME=VALUE]",
        "list the data files of a table or partition, and how large they are",
        _files,
    ),
    Verb(
        "partitions",
        "partitions TABLE",
        "list the partitions of a table, and how many of their files are small",
        _partitions,
    ),
    Verb(
        "profile",
        "profile TABLE [--statistics] [--distinct]",
        "show NULLs, least and greatest values of each column, from statistics or by one Spark job",
        _profile,
    ),
    Verb(
        "explain",
        "explain QUERY",
        "show which files a query leaves out, step by step; run nothing",
        _explain,
    ),
)
