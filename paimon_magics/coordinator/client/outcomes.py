"""What became of a request: done, refused by a rule, or not known yet. All are judged here.

A refusal is an answer that says that nothing was done. No answer, one of a proxy, and one that says
that something at the coordinator does not work leave it open: the same request may be sent again,
and where it can't be, the user is told that the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from paimon_magics.coordinator.client.finding import Endpoint
from paimon_magics.coordinator.client.queue_administration import TooLateError
from paimon_magics.coordinator.protocol.errors import (
    BrokeOffError,
    NoOwnerError,
    TableHeldError,
)
from paimon_magics.errors import (
    CommitConflictError,
    CompactionConflictError,
    InvalidTableError,
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)

__all__ = [
    "Done",
    "NotKnown",
    "Outcome",
    "Refused",
    "broke_off",
    "new_address",
    "no_clear_answer",
    "outcome_of",
    "unanswered",
]

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError)
_OPEN = (408, 423, 425, 429, 502, 503, 504)  # the same request may be answered otherwise
_LATER = "TooLate"  # it waits no longer
_STORE_REFUSED = "StoreRefusedError"
_PAUSED = "PausedError"  # by somebody, who may take their time
_UNTOUCHED = ("NotOwnerError", "DeposedError", "NoOwnerError", "TooMany")

# Errors of a statement keep their class on the way from the coordinator to its client.
_STATEMENT_ERRORS: Mapping[str, type[StatementError]] = {
    kind.__name__: kind for kind in (InvalidTableError, StatementError, UnsupportedStatementError)
}

# Those of a coordinator that stands by tell whether the request may have been carried out.
_OWNER_ERRORS: Mapping[str, type[SetupError]] = {
    kind.__name__: kind for kind in (NoOwnerError, BrokeOffError)
}


@dataclass(frozen=True, slots=True)
class Done:
    """It was done; `document` is the answer."""

    document: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done, by a rule: asking again changes nothing."""

    error: PaimonMagicsError


@dataclass(frozen=True, slots=True)
class NotKnown:
    """It may have been done, unless it was `untouched`. `may_repeat` tells whether the same request
    may be answered otherwise in a moment."""

    error: PaimonMagicsError
    untouched: bool = False
    may_repeat: bool = True


Outcome = Done | Refused | NotKnown


def outcome_of(response: httpx.Response) -> Outcome:
    """What an answer says."""
    if response.is_success:
        try:
            return Done(response.json())
        except ValueError:  # something between has answered
            return NotKnown(_failure(response)[0])
    error, kind = _failure(response)
    status = response.status_code
    if kind in (_LATER, _PAUSED) or (status == 502 and kind == _STORE_REFUSED):
        return Refused(error)
    if status in _OPEN:
        return NotKnown(error, untouched=status == 429 or kind in _UNTOUCHED)
    if status == 500:
        return NotKnown(error, may_repeat=False)
    return Refused(error)


def unanswered(endpoint: Endpoint, error: httpx.TransportError) -> NotKnown:
    """The outcome of a request to a coordinator that gave no answer at all."""
    problem = SetupError(
        f"The coordinator at {endpoint.address} can't be reached: {error}",
        hint="Check that it runs, and its address and token.",
    )
    problem.__cause__ = error  # for `broke_off`
    return NotKnown(problem, untouched=isinstance(error, _NOT_SENT))


def broke_off(error: Exception) -> bool:
    """Whether a connection ended before the answer came: the request may have been carried out."""
    if isinstance(error, BrokeOffError):
        return True
    cause = error.__cause__
    return isinstance(cause, _BROKEN) and not isinstance(cause, _NOT_SENT)


def no_clear_answer(problem: PaimonMagicsError) -> UnknownOutcomeError:
    """The error for a request that may or may not have been carried out."""
    if isinstance(problem, UnknownOutcomeError):
        return problem
    return UnknownOutcomeError(
        f"The coordinator gave no clear answer: {problem.message}",
        hint="Look at the table's snapshots before running the statement again.",
    )


def new_address(response: httpx.Response) -> str:
    """The owner's address in the answer of a coordinator that does not own the warehouse; "" where
    it names none."""
    try:
        address = response.json().get("address")
    except (ValueError, AttributeError):
        return ""
    return address if isinstance(address, str) else ""


def _failure(response: httpx.Response) -> tuple[PaimonMagicsError, str]:
    """The error in an answer, by its status and type, and the type; "" for no error of ours."""
    try:
        error = response.json()["error"]
        message, hint, kind = str(error["message"]), str(error["hint"]), str(error["type"])
    except (ValueError, KeyError, TypeError):
        error, kind = {}, ""
        message, hint = f"The coordinator answered {response.status_code}.", ""
    return _error_of(response.status_code, kind, message, hint, error), kind


def _error_of(
    status: int, kind: str, message: str, hint: str, error: Mapping[str, Any]
) -> PaimonMagicsError:
    if kind in _OWNER_ERRORS:
        return _OWNER_ERRORS[kind](message, hint=hint)
    match status:
        case 400 if kind in _STATEMENT_ERRORS:
            return _STATEMENT_ERRORS[kind](message, hint=hint)
        case 400 | 413 | 416 | 422:
            return InvalidValueError(message, hint=hint)
        case 423 if kind == TableHeldError.__name__:
            in_front = error.get("in_front")
            return TableHeldError(message, in_front if isinstance(in_front, int) else 1, hint=hint)
        case 423:
            return CommitConflictError(message, hint=hint)
        case 500 if kind == "UnknownOutcomeError":
            return UnknownOutcomeError(message, hint=hint)
        case 401:
            return SetupError(message, hint=hint or "Connect with the coordinator's token.")
        case 404:
            return UnknownNameError(message, hint=hint)
        case 409 if kind == "Outdated" or kind == OutdatedPlanError.__name__:
            return OutdatedPlanError(message, hint=hint)
        case 409 if kind == "Compaction":
            found = error.get("conflicting")
            conflicting = [at for at in found if isinstance(at, int)] if found else []
            return CompactionConflictError(message, tuple(conflicting), hint=hint)
        case 504 if kind == "TooLate":
            return TooLateError(message, hint=hint)
        case 409 | 410:
            return CommitConflictError(message, hint=hint or "Run the statement again.")
        case _:
            return SetupError(message, hint=hint)
