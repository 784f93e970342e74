"""The coordinator over HTTP: transactions, health, metrics, and a page for a person.

Without a valid token nothing is answered but `/health/live`. A transaction belongs to who began it,
as the authoriser names them: nobody else may use it, and only an administrator abort it. Bodies are
bounded. Errors are JSON: `{"error": {"type", "message", "hint"}}`, with the status that tells what
the caller must do: 400 change the request, 401 bring the token, 403 ask for the right, 404 no such
table or transaction, 409 conflict, 410 the transaction has ended, 413 too large, 423 already under
way, 503 come back later.
"""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from paimon_magics.coordinator.answers import error_answer
from paimon_magics.coordinator.authorisation import Authoriser, NotTheirsError, Principal, Scope
from paimon_magics.coordinator.core import (
    FINISHED,
    Aborted,
    Answer,
    Committed,
    Done,
    Gone,
    Halted,
    Held,
    Mismatch,
    NotCommitted,
    Occupied,
    Opened,
    Overwritten,
    Phase,
    Refusal,
    Unchecked,
    Undetermined,
    Unknown,
)
from paimon_magics.coordinator.documents import (
    member,
    receipt_document,
    request_of,
    table_of,
    transaction_document,
)
from paimon_magics.coordinator.guard import (
    Guard,
    TooLargeError,
    guarded,
    on_too_large,
    principal_of,
)
from paimon_magics.coordinator.lease_routes import UpkeepMetrics, lease_routes
from paimon_magics.coordinator.service import RESUME_HINT, Coordinator, TableHeldError
from paimon_magics.coordinator.table_routes import (
    WatchMetrics,
    stopped_document,
    stopped_rows,
    table_routes,
)
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
)
from paimon_magics.planning.commits import CommitRequest, Transaction
from paimon_magics.tables.fencing import NotOwnerError
from paimon_magics.tables.provenance import USER

__all__ = ["application"]

_REASON_CHARACTERS_MAX = 500
_FINISHED_SHOWN = 100
# Nothing is loaded or run by the page, it is shown in no other site's, and kept by nobody.
_PAGE_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'self'; form-action 'none'",
    "x-content-type-options": "nosniff",
}


def application(
    coordinator: Coordinator,
    authoriser: Authoriser,
    *,
    warehouse: str,
    request_bytes_max: int,
    routes: list[Route] | None = None,
    root: str = "",
) -> ASGIApp:
    """The ASGI application, below the path `root`.

    `authoriser` says who asks, and `authorisation.SCOPES` what that takes. `warehouse` is what
    clients on the same machine may open themselves. `routes` are further ones, behind the same
    authoriser and limits.
    """
    metrics = _Metrics(coordinator)
    handlers = _Handlers(coordinator, warehouse, metrics)
    own = [
        Route("/health/live", handlers.live),
        Route("/health/ready", handlers.ready),
        Route("/metrics", handlers.metrics),
        Route("/", handlers.page),
        Route("/v1/coordinator", handlers.about),
        Route("/v1/transactions", handlers.begin, methods=["POST"]),
        Route("/v1/transactions", handlers.transactions),
        Route("/v1/transactions/{id}", handlers.show),
        Route("/v1/transactions/{id}/heartbeat", handlers.heartbeat, methods=["POST"]),
        Route("/v1/transactions/{id}/commit", handlers.commit, methods=["POST"]),
        Route("/v1/transactions/{id}/abort", handlers.abort, methods=["POST"]),
        Route("/v1/transactions/{id}/sweep", handlers.sweep, methods=["POST"]),
        *table_routes(coordinator, _answer),
        *lease_routes(coordinator),
    ]
    app = Starlette(
        routes=[*guarded([*own, *(routes or [])]), *authoriser.routes()],
        exception_handlers={PaimonMagicsError: _on_error, TooLargeError: on_too_large},
    )
    return Guard(app, authoriser, request_bytes_max, root)


class _Metrics:
    def __init__(self, coordinator: Coordinator) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "paimon_coordinator_answers_total",
            "Answers to requests about transactions, by what was asked and what was answered.",
            ["asked", "answer"],
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "paimon_coordinator_commit_seconds",
            "From a commit request to its answer.",
            registry=self.registry,
            buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        phases = Gauge(
            "paimon_coordinator_transactions",
            "Transactions that are not finished, by phase.",
            ["phase"],
            registry=self.registry,
        )
        for phase in Phase:
            if phase not in FINISHED:

                def count(phase: Phase = phase) -> float:
                    return sum(held.phase is phase for held in coordinator.state.held.values())

                phases.labels(phase.value).set_function(count)
        self.registry.register(_Finished(coordinator))
        self.registry.register(WatchMetrics(coordinator))
        self.registry.register(UpkeepMetrics(coordinator))


class _Finished(Collector):
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        finished = CounterMetricFamily(
            "paimon_coordinator_finished",
            "Transactions that were finished since the start, by how.",
            labels=["phase"],
        )
        for phase in FINISHED:
            finished.add_metric([phase.value], self._coordinator.finished.get(phase, 0))
        yield finished


class _Handlers:
    def __init__(self, coordinator: Coordinator, warehouse: str, metrics: _Metrics) -> None:
        self._coordinator = coordinator
        self._warehouse = warehouse
        self._metrics = metrics

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def ready(self, _: Request) -> Response:
        problem = self._coordinator.problem
        if problem is not None:
            return error_answer(503, "NotReady", problem, "")
        stopped = stopped_document(self._coordinator)
        return JSONResponse({"status": "ready", "stopped_tables": stopped})

    async def metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def about(self, _: Request) -> Response:
        return JSONResponse({"protocol": 1, "warehouse": self._warehouse})

    async def begin(self, request: Request) -> Response:
        body = await _body(request)
        table = table_of(member(body, "table", dict))
        base = body.get("base_snapshot_id")
        owner = principal_of(request).name or str(body.get("owner", ""))[:_REASON_CHARACTERS_MAX]
        if base is not None:
            base = member(body, "base_snapshot_id", int)
        id, transaction, opened = await run_in_threadpool(
            self._coordinator.begin, table, base, owner
        )
        return JSONResponse(
            {
                "id": id,
                "transaction": transaction_document(transaction),
                "expires_at_ms": opened.expires_at_ms,
            }
        )

    async def transactions(self, _: Request) -> Response:
        held = await run_in_threadpool(self._all)
        return JSONResponse({"transactions": [_shown(one) for one in held]})

    async def show(self, request: Request) -> Response:
        held = await run_in_threadpool(self._coordinator.held, request.path_params["id"])
        return _answer(Unknown()) if held is None else JSONResponse(_shown(held))

    async def heartbeat(self, request: Request) -> Response:
        id = await self._own(request)
        answer = await run_in_threadpool(self._coordinator.heartbeat, id)
        return self._counted("heartbeat", answer)

    async def commit(self, request: Request) -> Response:
        id = await self._own(request)
        body = await _body(request)
        principal = principal_of(request)
        started = time.monotonic()
        transaction = await run_in_threadpool(self._coordinator.transaction, id)
        if transaction is not None:
            asked = _vouched(principal, request_of(transaction, body))
            answer = await run_in_threadpool(self._coordinator.commit, id, asked)
        else:
            answer = await self._adopt(
                id, principal, body, lambda opened: _vouched(principal, request_of(opened, body))
            )
        self._metrics.commit_seconds.observe(time.monotonic() - started)
        return self._counted("commit", answer)

    async def abort(self, request: Request) -> Response:
        body = await _body(request)
        reason = str(body.get("reason", "its owner ended it"))[:_REASON_CHARACTERS_MAX]
        id = await self._own(request, or_with=Scope.ADMIN)
        answer = await run_in_threadpool(self._coordinator.abort, id, reason)
        if answer == Unknown():
            answer = await self._adopt(id, principal_of(request), body, None)
        return self._counted("abort", answer)

    async def _adopt(
        self,
        id: str,
        principal: Principal,
        body: dict[str, Any],
        asked: Callable[[Transaction], CommitRequest] | None,
    ) -> Answer:
        """Go on with what another coordinator has opened, where the client brings it along."""
        if "transaction" not in body:
            return Unknown()
        document = body["transaction"]
        owner = principal.name or str(body.get("owner", ""))[:_REASON_CHARACTERS_MAX]
        return await run_in_threadpool(self._coordinator.adopt, id, owner, document, asked)

    async def sweep(self, request: Request) -> Response:
        id = await self._own(request)
        transaction = await run_in_threadpool(self._coordinator.transaction, id)
        if transaction is None:
            return _answer(Unknown())
        asked = _vouched(principal_of(request), request_of(transaction, await _body(request)))
        removed = await run_in_threadpool(self._coordinator.sweep, id, asked)
        return _answer(Mismatch()) if removed is None else JSONResponse({"removed": removed})

    async def _own(self, request: Request, or_with: Scope | None = None) -> str:
        """The transaction that the path names, if it is the sender's or they have that scope."""
        id = str(request.path_params["id"])
        principal = principal_of(request)
        if principal.name is None:
            return id
        held = await run_in_threadpool(self._coordinator.held, id)
        if held is None or held.owner == principal.name:
            return id
        if or_with is not None and principal.may(or_with):
            return id
        raise NotTheirsError(
            f"The transaction {id} belongs to {held.owner}, not to {principal.name}.",
            hint="Only who began it may use it; an administrator may abort it.",
        )

    async def page(self, _: Request) -> Response:
        rows = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(str(v))}</td>" for v in _shown(one).values())
            + "</tr>"
            for one in await run_in_threadpool(self._all)
        )
        return HTMLResponse(
            "<!doctype html><title>Paimon coordinator</title>"
            f"<h1>Paimon coordinator</h1><p>{html.escape(self._warehouse)}</p>"
            f"{stopped_rows(self._coordinator)}"
            "<table><tr><th>id<th>table<th>phase<th>owner<th>expires<th>snapshot<th>reason</tr>"
            f"{rows}</table>",
            headers=_PAGE_HEADERS,
        )

    def _all(self) -> list[Held]:
        finished = self._coordinator.recently_finished(_FINISHED_SHOWN)
        return [*self._coordinator.state.held.values(), *finished]

    def _counted(self, asked: str, answer: Answer) -> Response:
        self._metrics.answers.labels(asked, type(answer).__name__).inc()
        return _answer(answer)


def _shown(held: Held) -> dict[str, Any]:
    return {
        "id": held.id,
        "table": held.table,
        "phase": held.phase.value,
        "owner": held.owner,
        "expires_at_ms": held.expires_at_ms,
        "snapshot_id": held.receipt.snapshot_id if held.receipt is not None else None,
        "reason": held.reason,
    }


def _answer(answer: Answer) -> Response:
    match answer:
        case Opened(expires_at_ms=expires_at_ms):
            return JSONResponse({"expires_at_ms": expires_at_ms})
        case Committed(receipt=receipt):
            return JSONResponse({"receipt": receipt_document(receipt)})
        case Aborted():
            return JSONResponse({"status": "aborted"})
        case Refusal(reason=reason, storage=True):
            return error_answer(507, "Storage", reason, "")
        case Refusal(reason=reason):
            return error_answer(409, "Conflict", reason, "")
        case Gone(reason=reason):
            return error_answer(
                410,
                "Ended",
                f"The transaction has ended: {reason}.",
                "Run the statement again.",
            )
        case Undetermined(reason=reason):
            return error_answer(
                500,
                "UnknownOutcomeError",
                f"Whether the transaction was committed can't be told: {reason}",
                "Look for its rows in the table before running the statement again.",
            )
        case Mismatch():
            return error_answer(
                409, "Mismatch", "The transaction was asked to commit other files than these.", ""
            )
        case Overwritten(reason=reason):
            return error_answer(409, "Overwritten", reason, "Look at the table, and run it again.")
        case Occupied(holder=holder):
            return error_answer(423, "TableHeldError", f"The transaction {holder.id} is open.", "")
        case Halted(reason=reason):
            return error_answer(409, "TableStopped", reason, RESUME_HINT)
        case Unchecked(reason=reason):
            return error_answer(503, "Unchecked", reason, "")
        case Done():
            return JSONResponse({"status": "done"})
        case NotCommitted(phase=phase):
            return error_answer(423, "UnderWay", f"The transaction's commit is {phase.value}.", "")
        case Unknown():
            return error_answer(404, "UnknownTransaction", "There is no such transaction.", "")


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise InvalidValueError("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be an object.")
    return body


def _vouched(principal: Principal, asked: CommitRequest) -> CommitRequest:
    """The request with the name of who sends it, where that is known better than they say it."""
    if principal.name is None:
        return asked
    properties = {**dict(asked.properties), USER: principal.name}
    return replace(asked, properties=tuple(properties.items()))


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PaimonMagicsError)
    if isinstance(error, NotOwnerError):
        return _not_owner(error)
    return error_answer(_status(error), type(error).__name__, error.message, error.hint)


def _not_owner(error: NotOwnerError) -> JSONResponse:
    """The answer of a coordinator that is not the warehouse's: 503, with the owner's address."""
    shown = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
    return JSONResponse({"error": shown, "address": error.address}, status_code=503)


def _status(error: PaimonMagicsError) -> int:
    match error:
        case NotTheirsError():
            return 403
        case UnknownNameError():
            return 404
        case StatementError():
            return 400
        case TableHeldError():
            return 423
        case CommitConflictError():
            return 409
        case SetupError():
            return 503
        case _:
            return 500
