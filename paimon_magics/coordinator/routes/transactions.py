"""Transactions over HTTP: begin, renew, commit, abort, sweep, list.

A transaction belongs to the user who began it, by the authoriser's name for them. Nobody else may
use it, except that an administrator may abort it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import Answer, Committed, Mismatch, TransactionState, Unknown
from paimon_magics.coordinator.http.answers import answer_response, json_body
from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.limits import run_in_threadpool, run_steps, settled
from paimon_magics.coordinator.protocol.clock import lease_members
from paimon_magics.coordinator.protocol.documents import (
    bucket_of,
    origin_document,
    origin_of,
    request_of,
    table_of,
    transaction_document,
)
from paimon_magics.coordinator.protocol.errors import NotTheirsError
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.protocol.principals import (
    Principal,
    Scope,
    check_table,
    sees_location,
)
from paimon_magics.coordinator.routes.metrics import Metrics
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.transactions import PlaceOf, Purpose, check_adopted_id
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.snapshots.provenance import USER

_COMMIT_SECONDS = 3_600.0  # clients give up long before
_TEXT_CHARACTERS_MAX = 500
_FINISHED_SHOWN = 100
_NONE = ""  # the id of no transaction


def transaction_routes(
    coordinator: Coordinator, metrics: Metrics, place_of: PlaceOf | None = None
) -> list[Route]:
    """All routes below `/v1/transactions`. `metrics` counts their answers; `place_of` gives
    transactions their places in the order of small inserts."""
    handlers = _Handlers(coordinator, metrics, place_of)
    return [
        Route("/v1/transactions", handlers.begin, methods=["POST"]),
        Route("/v1/transactions", handlers.list),
        Route("/v1/transactions/{id}", handlers.show),
        Route("/v1/transactions/{id}/heartbeat", handlers.heartbeat, methods=["POST"]),
        Route("/v1/transactions/{id}/commit", handlers.commit, methods=["POST"]),
        Route("/v1/transactions/{id}/abort", handlers.abort, methods=["POST"]),
        Route("/v1/transactions/{id}/sweep", handlers.sweep, methods=["POST"]),
        Route("/v1/transactions/{id}/compactions", handlers.compactions, methods=["POST"]),
    ]


class _Handlers:
    def __init__(
        self, coordinator: Coordinator, metrics: Metrics, place_of: PlaceOf | None
    ) -> None:
        self._coordinator = coordinator
        self._transactions = coordinator.transactions
        self._stored = coordinator.stored
        self._metrics = metrics
        self._place_of = place_of

    async def begin(self, request: Request) -> Response:
        body = await json_body(request)
        table = table_of(member(body, "table", dict))
        base = body.get("base_snapshot_id")
        principal = principal_of(request)
        tell(request.scope, database=table.database, table=table.object_name)
        await run_in_threadpool(check_table, principal, Scope.WRITE, table, self._coordinator.load)
        owner = principal.name or str(body.get("owner", ""))[:_TEXT_CHARACTERS_MAX]
        if base is not None:
            base = member(body, "base_snapshot_id", int)
        compacts = "compacts" in body and member(body, "compacts", bool)
        ticket = ""
        if "ticket" in body:
            ticket = str(member(body, "ticket", str))
            check_adopted_id(ticket)
        id, transaction, opened = await run_steps(
            self._transactions.begin_steps(
                table,
                base,
                owner,
                origin_of(body.get("origin")),
                purpose=Purpose.COMPACTION if compacts else Purpose.ROWS,
                ticket=ticket,
                place_of=self._place_of,
            )
        )
        return JSONResponse(
            {
                "id": id,
                "transaction": transaction_document(transaction),
                **lease_members(opened.expires_at_ms),
            }
        )

    async def list(self, request: Request) -> Response:
        principal = principal_of(request)
        held = await run_in_threadpool(all_transactions, self._coordinator)
        held = [one for one in held if sees_location(principal, one.location)]
        compacted = self._coordinator.compactions.counts()
        return JSONResponse(
            {"transactions": [shown_transaction(one, compacted[one.id]) for one in held]}
        )

    async def show(self, request: Request) -> Response:
        held = await run_in_threadpool(self._stored.state, request.path_params["id"])
        if held is None or not sees_location(principal_of(request), held.location):
            return answer_response(Unknown())
        compacted = self._coordinator.compactions.counts()
        return JSONResponse(shown_transaction(held, compacted[held.id]))

    async def heartbeat(self, request: Request) -> Response:
        id = await self._own(request)
        answer = await run_in_threadpool(self._transactions.heartbeat, id)
        return self._counted("heartbeat", answer)

    async def commit(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        principal = principal_of(request)
        started = time.monotonic()
        transaction = await run_in_threadpool(self._stored.opened, id)
        if transaction is not None:
            await self._check_right(principal, transaction)
            asked = _vouched(principal, request_of(transaction, body))
            answer = await settled(
                await run_in_threadpool(self._transactions.commit_soon, id, asked), _COMMIT_SECONDS
            )
        else:
            answer = await self._adopt(
                id, principal, body, lambda opened: _vouched(principal, request_of(opened, body))
            )
        self._metrics.commit_seconds.observe(time.monotonic() - started)
        self._tell(request, body, answer)
        return self._counted("commit", answer)

    async def abort(self, request: Request) -> Response:
        body = await json_body(request)
        reason = str(body.get("reason", "its owner ended it"))[:_TEXT_CHARACTERS_MAX]
        id = await self._own(request, or_with=Scope.ADMIN)
        answer = await run_in_threadpool(self._transactions.abort, id, reason)
        if answer == Unknown():
            answer = await self._adopt(id, principal_of(request), body, None)
        held = await run_in_threadpool(self._stored.state, id)
        tell(request.scope, **({} if held is None else _named(held.table)))
        return self._counted("abort", answer)

    def _tell(self, request: Request, body: dict[str, Any], answer: Answer) -> None:
        """Say in the audit log what a commit is about."""
        opened = self._stored.opened(str(request.path_params["id"]))
        document = body.get("transaction")
        facts: dict[str, Any] = {}
        if opened is not None:
            facts = {"database": opened.table.database, "table": opened.table.object_name}
        elif isinstance(document, dict) and isinstance(document.get("table"), dict):
            facts = {key: str(document["table"].get(key, "")) for key in ("database", "table")}
        if isinstance(answer, Committed):
            facts["snapshot_id"] = answer.receipt.snapshot_id
        if principal_of(request).name is None:
            claimed = body.get("properties")
            claimed = claimed.get(USER) if isinstance(claimed, dict) else None
            facts["claimed"] = None if claimed is None else str(claimed)[:_TEXT_CHARACTERS_MAX]
        tell(request.scope, **facts)

    async def _adopt(
        self,
        id: str,
        principal: Principal,
        body: dict[str, Any],
        asked: Callable[[Transaction], CommitRequest] | None,
    ) -> Answer:
        """Adopt a transaction that another coordinator has opened, if the client sends it along."""
        if "transaction" not in body or id == _NONE:
            return Unknown()
        document = member(body, "transaction", dict)
        name = table_of(member(document, "table", dict))
        await run_in_threadpool(check_table, principal, Scope.WRITE, name, self._coordinator.load)
        owner = principal.name or str(body.get("owner", ""))[:_TEXT_CHARACTERS_MAX]
        origin = origin_of(body.get("origin"))
        return await run_in_threadpool(self._transactions.adopt, id, owner, document, asked, origin)

    async def sweep(self, request: Request) -> Response:
        id = await self._own(request)
        transaction = await run_in_threadpool(self._stored.opened, id)
        if transaction is None:
            return answer_response(Unknown())
        asked = _vouched(principal_of(request), request_of(transaction, await json_body(request)))
        removed = await run_in_threadpool(self._transactions.sweep, id, asked)
        return (
            answer_response(Mismatch()) if removed is None else JSONResponse({"removed": removed})
        )

    async def compactions(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        transaction = await run_in_threadpool(self._stored.opened, id)
        held = await run_in_threadpool(self._stored.state, id)
        if transaction is None or held is None:
            return answer_response(Unknown())
        await self._check_right(principal_of(request), transaction)
        wanted = [
            bucket_of(held.location, transaction.table.branch, one)
            for one in member(body, "buckets", Sequence)
        ]
        granted = await run_in_threadpool(self._coordinator.compactions.claim, id, wanted)
        return JSONResponse({"granted": list(granted)})

    async def _own(self, request: Request, or_with: Scope | None = None) -> str:
        """The id of the path's transaction. Raises NotTheirsError unless it belongs to the sender,
        or the sender has the scope `or_with`."""
        id = str(request.path_params["id"])
        principal = principal_of(request)
        if principal.name is None:
            return id
        held = await run_in_threadpool(self._stored.state, id)
        if held is None or held.owner == principal.name:
            return id
        if not sees_location(principal, held.location):
            return _NONE
        if or_with is not None and principal.may(or_with):
            return id
        raise NotTheirsError(
            f"The transaction {id} belongs to {held.owner}, not to {principal.name}.",
            hint="Only who began it may use it; an administrator may abort it.",
        )

    async def _check_right(self, principal: Principal, transaction: Transaction) -> None:
        """Raise unless the sender may write the transaction's table now: the right may have gone
        since it was begun, with another token of the same name."""
        if not principal.is_free:
            load = self._coordinator.load
            await run_in_threadpool(check_table, principal, Scope.WRITE, transaction.table, load)

    def _counted(self, asked: str, answer: Answer) -> Response:
        self._metrics.answers.labels(asked, type(answer).__name__).inc()
        return answer_response(answer)


def all_transactions(coordinator: Coordinator) -> list[TransactionState]:
    """The unfinished transactions, then the last finished ones, newest first."""
    finished = coordinator.stored.recently_finished(_FINISHED_SHOWN)
    return [*coordinator.state.held.values(), *finished]


def shown_transaction(held: TransactionState, compacted: int = 0) -> dict[str, Any]:
    """The document of a transaction, which compacts that many buckets, for everybody who may
    read."""
    compacts = f"compacts {count_text(compacted, 'bucket')}" if compacted else ""
    return {
        "id": held.id,
        "table": held.location,
        "name": held.table,
        "phase": held.phase.value,
        "owner": held.owner,
        "origin": origin_document(held.origin),
        "begun_at_ms": held.begun_at_ms,
        "expires_at_ms": held.expires_at_ms,
        "ended_at_ms": held.ended_at_ms,
        "snapshot_id": held.receipt.snapshot_id if held.receipt is not None else None,
        "reason": held.reason or compacts,
    }


def _named(shown: str) -> dict[str, str]:
    """The database and table of a name as transactions keep it."""
    database, _, table = shown.partition(".")
    return {"database": database, "table": table}


def _vouched(principal: Principal, asked: CommitRequest) -> CommitRequest:
    """The request with the sender's authorised name, if there is one, in place of a claimed one."""
    if principal.name is None:
        return asked
    properties = {**dict(asked.properties), USER: principal.name}
    return replace(asked, properties=tuple(properties.items()))
