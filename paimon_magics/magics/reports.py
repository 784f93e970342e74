"""The verbs that show reports: lines are parsed here, `session.reports` does the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.magics.namespace import Variables
from paimon_magics.magics.options import Option, read_words, split_words
from paimon_magics.magics.verb import Verb, name_and_rest, one_name, table_verb

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics

_TABLE = "a table"

_FILES_OPTIONS = (
    Option(("--partition",), "NAME=VALUE", "only the files of one partition", "day=2026-11-20"),
)
_PROFILE_OPTIONS = (
    Option(("--statistics",), "", "use file statistics only; start no Spark job"),
    Option(("--distinct",), "", "count distinct values too, by one Spark job of all columns"),
)


def _diff(magics: PaimonMagics, argument: str) -> object:
    name, span = name_and_rest(argument, "diff", _TABLE)
    if span is None:
        raise StatementSyntaxError(
            "`%paimon diff` needs the two states to compare.",
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
    words = read_words(split_words(argument), _FILES_OPTIONS, "`%paimon files`")
    name = one_name(" ".join(words.others), "files", _TABLE)
    return magics.session().reports.files(name, words.options.get("partition"))


def _profile(magics: PaimonMagics, argument: str) -> object:
    from paimon_magics.session.reports.profile import Effort

    words = read_words(split_words(argument), _PROFILE_OPTIONS, "`%paimon profile`")
    if len(words.options) > 1:
        raise StatementSyntaxError(
            "`--statistics` and `--distinct` are given together.", hint="Leave one of them out."
        )
    name = one_name(" ".join(words.others), "profile", _TABLE)
    effort = Effort.NEEDED
    if words.options:
        effort = Effort(f"--{next(iter(words.options))}")
    return magics.session().reports.profile(name, effort)


def _explain(magics: PaimonMagics, argument: str) -> object:
    if not argument:
        raise StatementSyntaxError(
            "`%paimon explain` needs a query.", hint="As in: %paimon explain SELECT * FROM orders"
        )
    variables = Variables(magics.namespace_shell)
    return magics.session().reports.explain(argument, variables, frames=variables)


def _span(text: str, verb: str) -> tuple[str, str]:
    before, dots, after = (part.strip(" '\"") for part in text.partition(".."))
    if not dots or not before or not after:
        raise StatementSyntaxError(
            f"`%paimon {verb}` takes two states as A..B, not `{text}`.",
            hint="Write the earlier one first, as in 3..7.",
        )
    return before, after


REPORT_VERBS = (
    table_verb(
        "snapshots TABLE",
        "show a table's commits in time; pick two to compare them or to see what changed",
        lambda session, name: session.reports.snapshots(name),
    ),
    Verb(
        "diff TABLE A..B",
        "show the difference of two states: rows, files, schema; A and B are snapshots, tags "
        "or times",
        _diff,
    ),
    Verb(
        "changes TABLE [A..B]",
        "show the changes after A up to B, with rows before updates; without A..B, those of the "
        "last ten snapshots",
        _changes,
    ),
    Verb(
        "files TABLE",
        "list the data files of a table or partition, and how large they are",
        _files,
        _FILES_OPTIONS,
    ),
    table_verb(
        "partitions TABLE",
        "list the partitions of a table, and how many of their files are small",
        lambda session, name: session.reports.partitions(name),
    ),
    Verb(
        "profile TABLE",
        "show NULLs, least and greatest values of each column, from statistics or by one Spark job",
        _profile,
        _PROFILE_OPTIONS,
    ),
    Verb(
        "explain QUERY",
        "show which files a query leaves out, step by step; run nothing",
        _explain,
    ),
)
