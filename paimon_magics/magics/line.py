"""The verbs of `%paimon`: small questions and settings that need no SQL.

`VERBS` is the one list of them; help and documentation follow it. A question on a table is a
statement that the session runs.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from paimon_magics.boundary import full_trace
from paimon_magics.errors import (
    HealthError,
    InvalidValueError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.magics.connecting import (
    AT_ONCE,
    CATALOG,
    CONNECT_OPTIONS,
    connect_verb,
    read_setting,
)
from paimon_magics.magics.coordinator_verbs import COORDINATOR_VERBS
from paimon_magics.magics.namespace import Variables, filled_in
from paimon_magics.magics.options import Option, read_words, split_words
from paimon_magics.magics.verb import Verb, name_and_rest, one_name, refuse_argument, table_verb
from paimon_magics.redaction import masked

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics
    from paimon_magics.session.reports.health import Health


__all__ = ["VERBS", "Verb", "run_line"]


_TAIL_WORDS = ("from", "consumer", "snapshots")
_SEVERITIES = ("notice", "serious")
_HEALTH_OPTIONS = (
    Option(("--json",), "", "print it as JSON"),
    Option(("--fail-on",), "LIMIT", "fail if a layout is that bad", "small=0.3"),
)
_BEGINS_SQL = re.compile(
    r"(?i)(?:select|with|values|insert|create|drop|alter|show|truncate|delete|update|merge|call)\b"
)


# `%paimon config`: the settings of a notebook, shown and set.


def config_verb(magics: PaimonMagics, argument: str) -> None:
    """Show all settings or one, or set one."""
    if not argument:
        print("\n".join(_shown(magics, name) for name in sorted(_configurable(magics))))
        return
    (pair, *others) = split_words(argument)
    if others:
        raise StatementSyntaxError(
            f"`%paimon config` takes one key=value: `{others[0]}` is left over.",
            hint="Set one at a time, and quote a value with spaces: %paimon config key='a value'.",
        )
    key, equals, text = pair.partition("=")
    if not equals:
        print(_shown(magics, _known(magics, key)))
        return
    text = filled_in(text, Variables(magics.namespace_shell))
    if key.startswith(CATALOG) and len(key) > len(CATALOG):
        magics.catalog = {**magics.catalog, key.removeprefix(CATALOG): text}
        key = "catalog"
    else:
        setattr(magics, _known(magics, key), read_setting(magics, key, text))
    later = "" if key in AT_ONCE else " (from the next connection on)"
    print(f"{key} = {_value(magics, key)}{later}")


def _configurable(magics: PaimonMagics) -> dict[str, Any]:
    return magics.traits(config=True)


def _known(magics: PaimonMagics, key: str) -> str:
    names = _configurable(magics)
    if key not in names:
        raise UnknownNameError(
            f"There is no setting `{key}`.", hint=nearest(key, names, what="settings")
        )
    return key


def _shown(magics: PaimonMagics, name: str) -> str:
    trait = _configurable(magics)[name]
    value, default = _value(magics, name), repr(trait.default())
    changed = "" if value == default else f" (default {default})"
    return f"{name} = {value}{changed}\n    {trait.help}"


def _value(magics: PaimonMagics, name: str) -> str:
    value = getattr(magics, name)
    if isinstance(value, dict):
        value = {key: masked(key, text) for key, text in value.items()}
    return repr(value)


def run_line(magics: PaimonMagics, line: str) -> object:
    """Run `%paimon line` and return its value.

    Raises UnknownNameError for an unknown verb, and what the verb raises.
    """
    name, _, argument = line.strip().partition(" ")
    if name in ("", "-h", "--help"):
        name = "help"
    for verb in VERBS:
        if verb.name == name:
            if argument.strip() in ("-h", "--help"):
                _help(magics, name)
                return None
            try:
                return verb.run(magics, argument.strip())
            except UnknownNameError:
                of_a_view = _of_a_view(verb, argument.strip())
                if of_a_view is None:
                    raise
                raise of_a_view from None
    if _BEGINS_SQL.match(line.strip()):
        hint = "SQL is written in a cell that begins with %%paimon, below that line."
    else:
        hint = nearest(name, [verb.name for verb in VERBS], what="verbs")
    raise UnknownNameError(f"%paimon has no verb `{name}`.", hint=hint)


def _of_a_view(verb: Verb, argument: str) -> UnsupportedStatementError | None:
    """The error for a temporary view of Spark's that is given to a verb on tables; None for other
    names."""
    from paimon_magics.session.opening import active_session

    session = active_session()
    name = argument.partition(" ")[0].strip("`")
    if session is None or not name or "TABLE" not in verb.usage:
        return None
    views = (
        listTable.name for listTable in session.spark.catalog.listTables() if listTable.isTemporary
    )
    if name.lower() not in views:
        return None
    return UnsupportedStatementError(
        f"`{name}` is a temporary view of Spark's, which has no files and no snapshots.",
        hint="Name one of Paimon's tables; %paimon tables lists both.",
    )


def _tables(magics: PaimonMagics, argument: str) -> object:
    place = f" IN {one_name(argument, 'tables', 'a database')}" if argument else ""
    return magics.session().run(f"SHOW TABLES{place}")


def _health(magics: PaimonMagics, argument: str) -> object:
    words = read_words(split_words(argument), _HEALTH_OPTIONS, "`%paimon health`")
    names, limit = words.others, words.options.get("fail-on")
    if len(names) > 1:
        raise StatementSyntaxError(
            f"`%paimon health` takes one name: `{names[1]}` is left over.",
            hint="Name one table, or the tables of a database as shop.*",
        )
    name = names[0] if names else None
    if name is not None and name != "*":
        one_name(name.removesuffix(".*"), "health", "a table")
    fails = None if limit is None else _fails_on(limit)
    health = magics.session().health(name)
    as_json = "json" in words.options
    if as_json:
        print(json.dumps(health.to_json(), indent=2))
    if fails is not None and fails(health):
        raise HealthError(
            f"Layouts fail `--fail-on {limit}`.\n{health}",
            hint="The statements above would help."
            if any(f.statement for finding in health.findings.values() for f in finding)
            else f"%paimon health {name or ''}".rstrip() + " shows how large the files are.",
        )
    return None if as_json else health


def _fails_on(limit: str) -> Callable[[Health], bool]:
    """Return the test of whether a health fails `limit`: `notice`, `serious`, or a share of small
    files such as `small=0.3`."""
    if limit in _SEVERITIES:
        severity = _SEVERITIES.index(limit) + 1
        return lambda health: int(health.severity) >= severity
    key, _, text = limit.partition("=")
    try:
        share = float(text) if key == "small" else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidValueError(
            f"`--fail-on {limit}` is not a condition.",
            hint="Write --fail-on serious, --fail-on notice, or a share of small files: "
            "--fail-on small=0.3",
        )
    return lambda health: any(layout.small_share > share for layout in health.layouts)


def _tail(magics: PaimonMagics, argument: str) -> object:
    from paimon_magics.session.outcome import Outcome

    words = split_words(argument)
    name = one_name(words[0] if words else "", "tail", "a table")
    values = dict(_tail_word(word) for word in words[1:])
    session = magics.session()
    count = _whole(values.get("snapshots"), "snapshots")
    changes = session.changes(
        name,
        from_snapshot=_whole(values.get("from"), "from"),
        consumer_id=values.get("consumer"),
        wait=count is None,
    )
    shown_max = session.settings.display_rows
    has_changes = False
    try:
        for change in itertools.islice(changes, count):
            has_changes = True
            rows = Outcome(name, "SELECT", dataframe=change.dataframe, display_rows=shown_max)
            print(f"snapshot {change.snapshot_id} ({change.commit_kind})\n{rows}\n")
    except KeyboardInterrupt:
        print(f"Stopped following {name}.")
    else:
        if not has_changes:
            print(f"{name} has no newer snapshot. To show earlier ones, use from=N.")
    return None


def _tail_word(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if key not in _TAIL_WORDS or not equals or not value:
        raise UnknownNameError(
            f"`%paimon tail` has no `{word}`.",
            hint="After the table it takes from=N, consumer=ID, snapshots=N.",
        )
    return key, value


def _whole(text: str | None, word: str) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidValueError(
            f"`{word}={text}` is not a whole number from 1 on.", hint=f"As in: {word}=3"
        )
    return int(text)


def _doctor(_: PaimonMagics, argument: str) -> object:
    refuse_argument(argument, "doctor", "It always checks everything.")
    from paimon_magics.session.doctor import doctor

    return doctor()


def _trace(magics: PaimonMagics, argument: str) -> None:
    refuse_argument(argument, "trace", "It always shows the last error.")
    error = getattr(sys, "last_value", None)
    if error is None:
        print("No cell has failed.")
        return
    print(full_trace(error))


def _help(magics: PaimonMagics, argument: str) -> None:
    from paimon_magics.magics.help import help_text

    print(help_text(argument))


# The verbs that show reports: lines are parsed here, `session.reports` does the rest.


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


VERBS = (
    Verb(
        "connect [warehouse=…] [catalog.OPTION=…]… [coordinator=WHICH] [SETTING=…]… [spark=NAME]",
        "open a session on a warehouse, or the configured one; --close closes the open one first",
        connect_verb,
        CONNECT_OPTIONS,
    ),
    Verb("tables [DATABASE]", "list the tables of a database", _tables),
    table_verb(
        "describe TABLE",
        "show a table's columns and partitioning",
        lambda session, name: session.run(f"DESCRIBE TABLE {name}"),
    ),
    table_verb(
        "history TABLE",
        "list a table's snapshots and who made them",
        lambda session, name: session.history(name),
    ),
    table_verb(
        "layout TABLE",
        "show a table's layout in partitions and buckets: files, bytes, small files, skew",
        lambda session, name: session.layout(name),
    ),
    Verb(
        "health [NAME]",
        "check the layout of tables, and show which statement would help",
        _health,
        _HEALTH_OPTIONS,
    ),
    *REPORT_VERBS,
    Verb(
        "tail TABLE [from=N] [consumer=ID] [snapshots=N]",
        "show each snapshot's changes as they are committed, until interrupted",
        _tail,
    ),
    *COORDINATOR_VERBS,
    table_verb(
        "use DATABASE",
        "choose the database of unqualified names",
        lambda session, name: session.run(f"USE {name}"),
        "a database",
    ),
    Verb(
        "config [KEY[=VALUE]]",
        "show the settings of this notebook, or set one",
        config_verb,
    ),
    Verb(
        "doctor",
        "show versions, Spark, the store, the coordinator, logs and settings, without secrets",
        _doctor,
    ),
    Verb("trace", "show the whole trace of the last error, Spark's part included", _trace),
    Verb("help [TOPIC]", "list verbs, options and statements, or explain one", _help),
)
