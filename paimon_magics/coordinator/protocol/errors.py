"""Errors in answers of a coordinator with their hints, and the request that a thread works on,
for the lines that it logs.
"""

from __future__ import annotations

import datetime
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from paimon_magics.coordinator.core.values import Pause
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
)

RETRY_AFTER = "5"
"""The header `retry-after` for a client that was refused in a pause, in seconds."""

RESUME_HINT = (
    "The table takes no commits until an administrator has checked and resumed it: `%paimon "
    "coordinator resume TABLE`."
)


class StoppedError(SetupError):
    """The coordinator has stopped, and answers nothing until it is started again."""


class NotStartedError(SetupError):
    """A hub's coordinator has not started, and tries again: the request was not read."""


class NoOwnerError(SetupError):
    """No coordinator owns the warehouse at the moment, or the owner can't be reached: the request
    was not read.
    """


class BrokeOffError(SetupError):
    """The request may have been carried out: the owner died while it had the request, or can no
    longer report its outcome. `may_repeat`: it has a name, by which a repeat is recognised;
    `address` is the next owner's, "" if unknown.
    """

    def __init__(
        self, message: str, *, hint: str = "", may_repeat: bool = True, address: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.may_repeat = may_repeat
        self.address = address


class NothingChangedError(CommitConflictError):
    """A change of a definition is refused for what others have changed, before it changes anything.
    `step` is what to do next. A repeat whose first try may have been carried out says otherwise."""

    def __init__(self, message: str, step: str) -> None:
        super().__init__(message, hint=f"Nothing was changed. {step}")


class TableHeldError(CommitConflictError):
    """The table allows one transaction at a time, and `in_front` other transactions come before
    this one.
    """

    def __init__(self, message: str, in_front: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.in_front = in_front


class PausedError(SetupError):
    """The coordinator accepts nothing new until it is resumed."""

    def __init__(self, pause: Pause) -> None:
        when = datetime.datetime.fromtimestamp(pause.since_ms / 1000, tz=datetime.UTC)
        super().__init__(
            f"The coordinator was paused by {pause.by or 'somebody'} at {when:%Y-%m-%d %H:%M:%S} "
            "UTC: no new transaction or insert begins.",
            hint=(
                "Open transactions can still be committed. Run the statement again when an "
                "administrator has resumed the coordinator with `%paimon coordinator resume`."
            ),
        )


class NotTheirsError(PaimonMagicsError):
    """The requested transaction or object belongs to somebody else."""


class OversizedError(InvalidValueError):
    """The content of the request is larger than a request may be."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The request has {what}.",
            hint="Send less at once, or raise the coordinator's limit: --request-bytes-max.",
        )


HEADER = b"x-request-id"
"""The header by which a client names its request, and an answer repeats the name."""

_ID = re.compile(rb"[\w.:-]{1,64}")


@dataclass(frozen=True, slots=True)
class RequestId:
    """The id of a request, and the table that its path names, "" for none. Work that no request
    has asked for has a table alone.
    """

    id: str
    table: str = ""


CURRENT: ContextVar[RequestId | None] = ContextVar("paimon_magics_request", default=None)
"""The request that is being answered; threads that work for it inherit it."""


@contextmanager
def about(table: object) -> Iterator[None]:
    """Have lines that are logged in the `with` block name this table, and the request if any."""
    current = CURRENT.get()
    token = CURRENT.set(RequestId(current.id if current else "", str(table)))
    try:
        yield
    finally:
        CURRENT.reset(token)


def request_id(wanted: bytes | None) -> str:
    """The id that a client has given its request if it is a plain word, else a new one."""
    if wanted is not None and _ID.fullmatch(wanted):
        return wanted.decode()
    return secrets.token_hex(8)
