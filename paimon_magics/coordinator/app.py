"""The coordinator over HTTP: transactions, health, metrics, and a page for a person.

Without the token nothing is answered but `/health/live`. Bodies are bounded. Errors are JSON:
`{"error": {"type", "message", "hint"}}`, with the status that tells what the caller must do: 400
change the request, 401 bring the token, 404 no such table or transaction, 409 conflict, 410 the
transaction has ended, 413 too large, 423 already under way, 503 come back later.
"""

from __future__ import annotations

import hmac
import html
import json
import time
from collections.abc import Iterator
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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paimon_magics.coordinator.core import (
    Aborted,
    Answer,
    Committed,
    Done,
    Gone,
    Halted,
    Held,
    Mismatch,
    NotCommitted,
    Opened,
    Overwritten,
    Phase,
    Refusal,
    Unchecked,
    Unknown,
)
from paimon_magics.coordinator.documents import (
    member,
    receipt_document,
    request_of,
    table_of,
    transaction_document,
)
from paimon_magics.coordinator.service import RESUME_HINT, Coordinator
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
    UnknownOutcomeError,
)

__all__ = ["application"]

_REASON_CHARACTERS_MAX = 500
_FINISHED = (Phase.COMMITTED, Phase.LOST, Phase.ABORTED)
_FINISHED_SHOWN = 100


def application(
    coordinator: Coordinator,
    token: str,
    *,
    warehouse: str,
    request_bytes_max: int,
    routes: list[Route] | None = None,
) -> ASGIApp:
    """The ASGI application.

    `warehouse` is what clients on the same machine may open themselves. `routes` are further ones,
    behind the same token and limits.
    """
    metrics = _Metrics(coordinator)
    handlers = _Handlers(coordinator, warehouse, metrics)
    app = Starlette(
        routes=[
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
            *(routes or []),
        ],
        exception_handlers={PaimonMagicsError: _on_error, _TooLargeError: _on_too_large},
    )
    return _Guard(app, token, request_bytes_max)


class _Guard:
    """In front of everything: the token, and the size of a body, counted while it arrives."""

    def __init__(self, app: ASGIApp, token: str, request_bytes_max: int) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()
        self._bytes_max = request_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if scope["path"] != "/health/live" and not hmac.compare_digest(
            headers.get(b"authorization", b""), self._expected
        ):
            refused = _error(401, "Unauthorized", "The token is missing or wrong.", "")
            await refused(scope, receive, send)
            return
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._bytes_max:
            await _too_large(self._bytes_max)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._bytes_max:
                raise _TooLargeError(self._bytes_max)
            return message

        await self._app(scope, counted, send)


class _TooLargeError(Exception):
    """A body has grown past the limit, in bytes, that it carries."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max


async def _on_too_large(_: Request, error: Exception) -> Response:
    assert isinstance(error, _TooLargeError)
    return _too_large(error.bytes_max)


def _too_large(bytes_max: int) -> Response:
    return _error(
        413,
        "TooLarge",
        f"The request has more than {bytes_max:,} bytes.",
        "Commit fewer files at once, or raise the coordinator's limit.",
    )


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
            if phase not in _FINISHED:

                def count(phase: Phase = phase) -> float:
                    return sum(held.phase is phase for held in coordinator.state.held.values())

                phases.labels(phase.value).set_function(count)
        self.registry.register(_Finished(coordinator))
        self.registry.register(WatchMetrics(coordinator))


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
        for phase in _FINISHED:
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
            return _error(503, "NotReady", problem, "")
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
        owner = str(body.get("owner", ""))[:_REASON_CHARACTERS_MAX]
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
        answer = await run_in_threadpool(self._coordinator.heartbeat, request.path_params["id"])
        return self._counted("heartbeat", answer)

    async def commit(self, request: Request) -> Response:
        id = request.path_params["id"]
        transaction = await run_in_threadpool(self._coordinator.transaction, id)
        if transaction is None:
            return self._counted("commit", Unknown())
        asked = request_of(transaction, await _body(request))
        started = time.monotonic()
        answer = await run_in_threadpool(self._coordinator.commit, id, asked)
        self._metrics.commit_seconds.observe(time.monotonic() - started)
        return self._counted("commit", answer)

    async def abort(self, request: Request) -> Response:
        body = await _body(request)
        reason = str(body.get("reason", "its owner ended it"))[:_REASON_CHARACTERS_MAX]
        answer = await run_in_threadpool(self._coordinator.abort, request.path_params["id"], reason)
        return self._counted("abort", answer)

    async def sweep(self, request: Request) -> Response:
        id = request.path_params["id"]
        transaction = await run_in_threadpool(self._coordinator.transaction, id)
        if transaction is None:
            return _answer(Unknown())
        asked = request_of(transaction, await _body(request))
        removed = await run_in_threadpool(self._coordinator.sweep, id, asked)
        return _answer(Mismatch()) if removed is None else JSONResponse({"removed": removed})

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
            f"{rows}</table>"
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
        case Refusal(reason=reason):
            return _error(409, "Conflict", reason, "")
        case Gone(reason=reason):
            return _error(
                410,
                "Ended",
                f"The transaction has ended: {reason}.",
                "Run the statement again.",
            )
        case Mismatch():
            return _error(
                409, "Mismatch", "The transaction was asked to commit other files than these.", ""
            )
        case Overwritten(reason=reason):
            return _error(409, "Overwritten", reason, "Look at the table, and run it again.")
        case Halted(reason=reason):
            return _error(409, "TableStopped", reason, RESUME_HINT)
        case Unchecked(reason=reason):
            return _error(503, "Unchecked", reason, "")
        case Done():
            return JSONResponse({"status": "done"})
        case NotCommitted(phase=phase):
            return _error(423, "UnderWay", f"The transaction's commit is {phase.value}.", "")
        case Unknown():
            return _error(404, "UnknownTransaction", "There is no such transaction.", "")


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        raise InvalidValueError("The body is not JSON.") from error
    if not isinstance(body, dict):
        raise InvalidValueError("The body must be an object.")
    return body


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PaimonMagicsError)
    return _error(_status(error), type(error).__name__, error.message, error.hint)


def _status(error: PaimonMagicsError) -> int:
    match error:
        case UnknownNameError():
            return 404
        case StatementError():
            return 400
        case CommitConflictError():
            return 409
        case UnknownOutcomeError() | SetupError():
            return 503
        case _:
            return 500


def _error(status: int, kind: str, message: str, hint: str) -> JSONResponse:
    return JSONResponse(
        {"error": {"type": kind, "message": message, "hint": hint}}, status_code=status
    )
