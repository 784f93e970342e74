"""The responses and errors of a coordinator, in one form for every client.

Errors are JSON: `{"error": {"type", "message", "hint"}}`. The status says what the caller must do:
400 change the request, 401 send the token, 403 ask for the permission, 404 no such table or
transaction, 409 conflict, 410 the transaction has ended, 413 send less, 423 wait for work under
way, 429 send less often, 500 look up whether it happened, 502 the store refuses access, 503 ask
again, 507 free space.

4xx and 507 say that nothing was done. If the coordinator's own store does not work, the outcome is
not known yet: the answer is 503 StoreUnavailableError with Retry-After, never a refusal.
BrokeOffError says that the request may have been done: 503 if the request has a name and may be
sent again, else 502, which no client repeats by itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any

from starlette import responses
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.core import values as core
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.protocol.clock import lease_members
from paimon_magics.coordinator.protocol.documents import receipt_document
from paimon_magics.coordinator.protocol.errors import (
    RESUME_HINT,
    RETRY_AFTER,
    BrokeOffError,
    NotTheirsError,
    OversizedError,
    PausedError,
    TableHeldError,
)
from paimon_magics.coordinator.protocol.json_text import json_value
from paimon_magics.coordinator.protocol.principals import PRINCIPAL, Principal
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    with_one_stop,
)
from paimon_magics.tables.commits.fencing import NotOwnerError
from paimon_magics.tables.stores.store import StoreRefusedError

AT_ONCE = "paimon_magics.answer_at_once"
"""The extension of a request's scope that answers it with JSON and the status 200. It is a function
of the content, which returns False if the answer must be sent in the usual way.
"""

BEGINNINGS = ("http.response.start", "websocket.http.response.start")
"""The messages that begin an HTTP answer, the second to a stream that has not begun. A response of
Starlette sends either; every server for streams takes the second, by an extension of ASGI.
"""

NEW_CREDENTIALS = (
    "Connect again with valid credentials (%paimon connect --close …): your own coordinator then "
    "uses them. A coordinator that runs as a service gets its credentials from its administrator."
)
"""What to do when a coordinator's store refuses its credentials."""

_OVERWRITTEN_HINT = "Look at the table's snapshots, then run the statement again."
_OCCUPIED = "Another transaction is open on the table, which allows one transaction at a time."
_MISMATCH = "An earlier request to commit this transaction named other files."
_UNDETERMINED_HINT = "Look for its rows in the table before running the statement again."
_COMMITTED = "The transaction can't be aborted: it is committed."
_COMMITTED_HINT = "Its snapshot is in the table's history: `%paimon history TABLE`."
_COMMITTING = "The transaction can't be aborted: its commit is under way."
_COMMITTING_HINT = "`%paimon transactions` lists it until the commit has ended."
_UNKNOWN = "There is no such transaction, or it ended long ago."
_UNKNOWN_HINT = "`%paimon transactions` lists the open transactions."
_FAILURE = 500
_REFUSED = {
    core.Cause.CONFLICT: 409,
    core.Cause.COMPACTION: 409,
    core.Cause.OUTDATED: 409,
    core.Cause.STORAGE: 507,
    core.Cause.REQUEST: 400,
}

_NOT_LOGGED = (BrokeOffError, PausedError, StoreUnavailableError)

_log = logging.getLogger(__name__)

_HINT = "Send a JSON object in UTF-8."


# Texts may have been read from a store. In Python the name of a file that is not UTF-8 has halves
# of surrogate pairs, which no encoder takes. They become `?`, so that one such file fails no answer
# about others.


class JSONResponse(responses.JSONResponse):
    """Starlette's, for any text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


class HTMLResponse(responses.HTMLResponse):
    """Starlette's, for any text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return str(content).encode("utf-8", "replace")


def error_answer(status: int, kind: str, message: str, hint: str, **facts: object) -> JSONResponse:
    """Return an error as JSON, for our own client and for clients of Paimon's REST catalog."""
    message = with_one_stop(message)
    return JSONResponse(
        {
            "error": {"type": kind, "message": message, "hint": hint, **facts},
            "message": f"{message} {hint}".rstrip(),
            "code": status,
            "resourceType": None,
            "resourceName": None,
        },
        status_code=status,
    )


def answer_response(answer: core.Answer, at_ms: int = 0) -> Response:
    """Return the response for an answer of the core at a time of the coordinator's clock. The time
    counts only where the answer may be a lease."""
    match answer:
        case core.Opened(expires_at_ms=expires_at_ms):
            return JSONResponse(lease_members(expires_at_ms, at_ms))
        case core.Committed(receipt=receipt):
            return JSONResponse({"receipt": receipt_document(receipt)})
        case core.Aborted():
            return JSONResponse({"status": "aborted"})
        case core.Suspended(pause=pause):
            return JSONResponse({"status": "paused", "by": pause.by, "since_ms": pause.since_ms})
        case core.Done():
            return JSONResponse({"status": "done"})
        case core.Refusal(reason=reason, cause=cause, conflicting=conflicting):
            facts = {"conflicting": list(conflicting)} if cause is core.Cause.COMPACTION else {}
            return error_answer(_REFUSED[cause], cause.value.capitalize(), reason, "", **facts)
        case core.Overwritten(reason=reason):
            return error_answer(409, "Overwritten", reason, _OVERWRITTEN_HINT)
        case core.Halted(reason=reason):
            return error_answer(409, "TableStopped", reason, RESUME_HINT)
        case core.Unchecked(reason=reason):
            return error_answer(503, "Unchecked", reason, "")
        case core.Gone(reason=reason):
            message = f"The transaction has ended: {reason}."
            return error_answer(410, "Ended", message, "Run the statement again.")
        case core.Undetermined(reason=reason):
            message = f"Whether the transaction was committed is unknown: {reason}"
            return error_answer(500, "UnknownOutcomeError", message, _UNDETERMINED_HINT)
        case core.Mismatch():
            return error_answer(409, "Mismatch", _MISMATCH, "")
        case core.Occupied():
            return error_answer(423, "TableHeldError", _OCCUPIED, "")
        case core.NotCommitted(phase=core.Phase.COMMITTED):
            return error_answer(423, "UnderWay", _COMMITTED, _COMMITTED_HINT)
        case core.NotCommitted():
            return error_answer(423, "UnderWay", _COMMITTING, _COMMITTING_HINT)
        case core.Unknown():
            return error_answer(404, "UnknownTransaction", _UNKNOWN, _UNKNOWN_HINT)


async def hint_for(principal: Principal | None, error: PaimonMagicsError) -> str:
    """The hint of an error for its reader. Only a principal who may read all tables gets a hint
    that names databases and tables.
    """
    if isinstance(error, StoreRefusedError):
        return f"The store refuses the coordinator's credentials. {NEW_CREDENTIALS}"
    if isinstance(error, UnknownNameError) and principal is not None:
        if principal.is_limited:
            return ""
        if error.near is not None:
            with contextlib.suppress(PaimonMagicsError):  # it must not hide this error
                return await run_in_threadpool(error.near)
    return error.hint


async def on_error(request: HTTPConnection | None, error: Exception) -> Response:
    """Return the response to a request that raised an error of ours."""
    assert isinstance(error, PaimonMagicsError)
    if isinstance(error, NotOwnerError):
        return _elsewhere(503, error, error.address)
    status = _status(error)
    # A failure of the store is logged once, not with each request that comes meanwhile.
    if status >= _FAILURE and not isinstance(error, _NOT_LOGGED):
        _log.error("A request failed: %s", error)
    hint = await hint_for(None if request is None else request.scope.get(PRINCIPAL), error)
    facts = {"in_front": error.in_front} if isinstance(error, TableHeldError) else {}
    if isinstance(error, BrokeOffError) and error.address:
        return _elsewhere(status, error, error.address)
    answer = error_answer(status, type(error).__name__, error.message, hint, **facts)
    is_for_later = isinstance(error, BrokeOffError) and error.may_repeat
    if is_for_later or isinstance(error, (PausedError, StoreUnavailableError)):
        answer.headers["retry-after"] = RETRY_AFTER
    return answer


async def on_no_route(request: HTTPConnection, error: Exception) -> Response:
    """Return the response to a request without a route: 404, or 405 for a wrong method."""
    assert isinstance(error, HTTPException)
    return error_answer(
        error.status_code,
        "NotFound",
        f"There is no endpoint {request.scope.get('method', 'STREAM')} {request.url.path}.",
        "The documentation of the coordinator's protocol lists the paths.",
    )


async def no_endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request or a stream to a path that no route has."""
    if scope["type"] != "websocket":
        raise HTTPException(404)
    answer = await on_no_route(HTTPConnection(scope), HTTPException(404))
    await answer(scope, receive, send)


async def on_gone(_: Request, __: Exception) -> Response:
    """Return the response to a client that has gone away, which is no error."""
    return Response(status_code=499)


async def on_unexpected(request: Request, error: Exception) -> Response:
    """Return the response to an unexpected error. Its text goes to the log only."""
    return failed_unexpectedly(request.method, request.url.path, error)


def failed_unexpectedly(method: str, path: str, error: BaseException) -> Response:
    """Log an unexpected error, and return the response to the request."""
    _log.error("%s %s failed unexpectedly: %r", method, path, error)
    return error_answer(
        500,
        "InternalError",
        f"The coordinator failed unexpectedly: {type(error).__name__}.",
        "The request may have been carried out. The coordinator's log has the details.",
    )


def _elsewhere(status: int, error: PaimonMagicsError, address: str) -> JSONResponse:
    """Return the response of a coordinator that is not the owner, with the owner's address."""
    shown = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    return JSONResponse({"error": shown, "address": address}, status_code=status)


def _status(error: PaimonMagicsError) -> int:
    match error:
        case NotTheirsError():
            return 403
        case UnknownNameError():
            return 404
        case OversizedError():
            return 413
        case StatementError():
            return 400
        case TableHeldError():
            return 423
        case CommitConflictError():
            return 409
        case UnknownOutcomeError():
            return 500
        case StoreRefusedError():
            return 502  # a repeated request does not help
        case BrokeOffError(may_repeat=False):
            return 502  # engines repeat a request that is answered 503 by themselves
        case SetupError():
            return 503
        case _:
            return 500


async def json_body(request: Request) -> dict[str, Any]:
    """Return the object in the body. Raises InvalidValueError for anything else."""
    try:
        body = json_value(await request.body())
    except ValueError as error:
        raise InvalidValueError(f"The body is not JSON: {error}.", hint=_HINT) from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be a JSON object.", hint=_HINT)
    return body


class WhileInPlace:
    """Answers requests below a path only while the warehouse is in its place, according to
    `misplaced`: the apparent contents of a missing warehouse are wrong.
    """

    def __init__(
        self, app: ASGIApp, path: str, misplaced: Callable[[], PaimonMagicsError | None]
    ) -> None:
        self._app = app
        self._path = path
        self._misplaced = misplaced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        app, error = self._app, self._misplaced()
        if error is not None and scope["type"] == "http" and scope["path"].startswith(self._path):
            app = error_answer(503, type(error).__name__, error.message, error.hint)
        await app(scope, receive, send)
