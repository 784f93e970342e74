"""The verbs on the coordinator: its status, open transactions, queues of small inserts, and its
compactions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    InvalidValueError,
    StatementSyntaxError,
    UnconfirmedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.magics.options import split_words
from paimon_magics.magics.verb import Verb, one_name, refuse_argument, table_verb
from paimon_magics.planning.formatting import count_text

if TYPE_CHECKING:
    from paimon_magics.magics.configuration import PaimonMagics

_ID = re.compile(r"[0-9a-f]{32}")


_COORDINATOR_WORDS = ("status", "pause", "resume", "drain")


_DRAIN_SECONDS_MAX = 86_400


def _coordinator(magics: PaimonMagics, argument: str) -> object:
    word, _, rest = (argument or "status").partition(" ")
    rest = rest.strip()
    if word not in _COORDINATOR_WORDS:
        raise UnknownNameError(
            f"`%paimon coordinator` has no `{word}`.",
            hint=nearest(word, _COORDINATOR_WORDS, what="words after `coordinator`"),
        )
    seconds: float | None = None
    if word == "drain" and rest:
        seconds = _seconds(rest)
    elif word == "resume" and rest:
        rest = one_name(rest, "coordinator resume", "a table")
    elif rest:
        raise StatementSyntaxError(
            f"`%paimon coordinator {word}` takes no `{rest}`.",
            hint="`%paimon help coordinator` shows how it is used.",
        )
    administration = magics.session().administration
    match word:
        case "pause":
            return administration.pause()
        case "resume":
            return administration.resume(rest or None)
        case "drain" if seconds is not None:
            return administration.drain(seconds, waits=_print_waiting)
        case "drain":
            return administration.drain(waits=_print_waiting)
        case _:
            return administration.status()


def _print_waiting(count: int) -> None:
    print(f"Waiting for {count_text(count, 'pending commit')} …")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _DRAIN_SECONDS_MAX:
        raise InvalidValueError(
            f"`%paimon coordinator drain` takes a number of seconds, not `{text}`.",
            hint="It waits that long for open transactions, as in: %paimon coordinator drain 300",
        )
    return seconds


def _transactions(magics: PaimonMagics, argument: str) -> object:
    refuse_argument(argument, "transactions", "It lists the open transactions of all tables.")
    return magics.session().administration.transactions()


def _abort(magics: PaimonMagics, argument: str) -> object:
    if _ID.fullmatch(argument) is None:
        raise StatementSyntaxError(
            f"`%paimon abort` takes the id of a transaction, not `{argument}`."
            if argument
            else "`%paimon abort` needs the id of a transaction.",
            hint="%paimon transactions lists them.",
        )
    return magics.session().administration.abort(argument)


def _compact(magics: PaimonMagics, argument: str) -> object:
    session = magics.session()
    match argument:
        case "":
            return session.administration.compactions()
        case "pause":
            return session.administration.pause_compactions()
        case "resume":
            return session.administration.resume_compactions()
        case _:
            return session.compact(one_name(argument, "compact", "a table"))


def _queue(magics: PaimonMagics, argument: str) -> object:
    administration = magics.session().administration
    words = split_words(argument)
    if not words:
        return magics.session().reports.queue()
    table = one_name(words[0], "queue", "a table")
    match words[1:]:
        case []:
            return administration.queues(table)
        case ["dead"]:
            return administration.dead_letters(table)
        case ["retry", record] if record.isdecimal():
            return administration.retry(table, int(record))
        case ["discard", record] if record.isdecimal():
            return administration.discard(table, int(record))
        case ["reopen"]:
            return administration.reopen(table)
        case ["accept-loss"]:
            raise UnconfirmedError(
                administration.loss(table),
                hint=f"Nothing was changed. To accept it: %paimon queue {words[0]} accept-loss "
                "--yes",
            )
        case ["accept-loss", "--yes" | "-y"]:
            return administration.reopen(table, accept_loss=True)
        case _:
            raise StatementSyntaxError(
                f"`%paimon queue` does not take `{argument}`.",
                hint="Write %paimon queue, or %paimon queue TABLE with one of: dead, retry RECORD, "
                "discard RECORD, reopen, accept-loss [--yes].",
            )


COORDINATOR_VERBS = (
    Verb(
        "coordinator [WORD …]",
        "show the coordinator's status; or, with a WORD: pause, resume [TABLE], drain [SECONDS]",
        _coordinator,
    ),
    Verb("transactions", "list open transactions and their owners", _transactions),
    Verb("abort ID", "end an open transaction, and remove its files", _abort),
    table_verb(
        "flush TABLE",
        "load a table's waiting small inserts, and wait until they are loaded",
        lambda session, name: session.flush(name),
    ),
    Verb(
        "compact [TABLE or WORD]",
        "compact a table with Spark, as CALL sys.compact('t') does; or show the coordinator's own "
        "compactions; or, with a WORD: pause, resume",
        _compact,
    ),
    Verb(
        "queue [TABLE [WORD …]]",
        "show the queues of small inserts; or, with a WORD: dead, retry RECORD, discard RECORD, "
        "reopen, accept-loss [--yes]",
        _queue,
    ),
)
