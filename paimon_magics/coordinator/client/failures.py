"""Translate a coordinator's answers for its client: to documents, and to PaimonMagicsErrors."""

from __future__ import annotations

from collections.abc import Mapping
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
    "answered_document",
    "failure",
    "new_address",
    "no_clear_answer",
    "unreachable",
]

# Errors of a statement keep their class on the way from the coordinator to its client.
_STATEMENT_ERRORS: Mapping[str, type[StatementError]] = {
    kind.__name__: kind for kind in (InvalidTableError, StatementError, UnsupportedStatementError)
}

# Those of a coordinator that stands by tell whether the request may have been carried out.
_OWNER_ERRORS: Mapping[str, type[SetupError]] = {
    kind.__name__: kind for kind in (NoOwnerError, BrokeOffError)
}


def unreachable(endpoint: Endpoint, error: httpx.TransportError) -> SetupError:
    """The error for a coordinator that gave no answer at all."""
    return SetupError(
        f"The coordinator at {endpoint.address} can't be reached: {error}",
        hint="Check that it runs, and its address and token.",
    )


def no_clear_answer(problem: PaimonMagicsError) -> UnknownOutcomeError:
    """The error for a request that may or may not have been carried out."""
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


def answered_document(response: httpx.Response) -> Any:
    """The document of an answer. Raises the error of `failure` for an answer that is an error."""
    if response.is_success:
        return response.json()
    raise failure(response)


def failure(response: httpx.Response) -> PaimonMagicsError:
    """The error in an answer, by its status and type."""
    try:
        error = response.json()["error"]
        message, hint, kind = str(error["message"]), str(error["hint"]), str(error["type"])
    except (ValueError, KeyError, TypeError):
        message, hint, kind = f"The coordinator answered {response.status_code}.", "", ""
    if kind in _OWNER_ERRORS:
        return _OWNER_ERRORS[kind](message, hint=hint)
    match response.status_code:
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
