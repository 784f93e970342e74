"""Transactions over HTTP: begin, renew, commit, abort, sweep, list.

A transaction belongs to the user who began it, by the authoriser's name for them. Only that user
may use it, but an administrator may abort it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.core.values import (
    Answer,
    Committed,
    Mismatch,
    TransactionState,
    Unknown,
)
from paimon_magics.coordinator.http.answers import JSONResponse, answer_response, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.limits import run_in_threadpool, run_steps, settled
from paimon_magics.coordinator.protocol.clock import lease_members, machine_ms
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
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.protocol.visibility import check_table, sees_location
from paimon_magics.coordinator.routes.administration import TEXT_CHARACTERS_MAX, owner_of
from paimon_magics.coordinator.routes.metrics import Metrics
from paimon_magics.coordinator.service.commit_rights import check_begins, check_commits
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.transactions import PlaceOf, Purpose, check_adopted_id
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.planning.copying.load_history import records_of
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.commits.receipts import EpochNote
from paimon_magics.tables.snapshots.provenance import USER, vouched

_COMMIT_SECONDS = 3_600.0  # clients give up long before
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
        Route("/v1/transactions/{id}/epoch", handlers.epoch, methods=["POST"]),
        Route("/v1/transactions/{id}/load", handlers.load, methods=["POST"]),
    ]


class _Handlers:
    def __init__(
        self, coordinator: Coordinator, metrics: Metrics, place_of: PlaceOf | None
    ) -> None:
        self._coordinator = coordinator
        self._transactions = coordinator.transactions
        self._now_ms = coordinator.runtime.clock.now_ms
        self._stored = coordinator.stored
        self._metrics = metrics
        self._place_of = place_of

    async def begin(self, request: Request) -> Response:
        body = await json_body(request)
        table = table_of(member(body, "table", dict))
        compacts = "compacts" in body and member(body, "compacts", bool)
        report(request.scope, database=table.database, table=table.object_name)
        principal, load = principal_of(request), self._coordinator.load
        await run_in_threadpool(partial(check_begins, compacts=compacts), principal, table, load)
        owner = owner_of(principal, body)
        base = None
        if body.get("base_snapshot_id") is not None:
            names = "base_manifest_list" in body  # older clients know only the id
            base = (
                member(body, "base_snapshot_id", int),
                str(member(body, "base_manifest_list", str)) if names else "",
            )
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
                **lease_members(opened.expires_at_ms, self._now_ms()),
            }
        )

    async def list(self, request: Request) -> Response:
        principal = principal_of(request)
        finished = await run_in_threadpool(
            self._coordinator.store.transactions.recently_finished, _FINISHED_SHOWN
        )
        # The unfinished ones come first, then the last finished ones, the newest first.
        states = [*self._coordinator.state.transactions.values(), *finished]
        compacted, now_ms = self._coordinator.compactions.counts(), self._now_ms()
        documents = [
            _transaction_state_document(state, now_ms, compacted[state.id])
            for state in states
            if sees_location(principal, state.location)
        ]
        return JSONResponse({"transactions": documents})

    async def show(self, request: Request) -> Response:
        state = await run_in_threadpool(self._stored.state, request.path_params["id"])
        if state is None or not sees_location(principal_of(request), state.location):
            return answer_response(Unknown())
        compacted = self._coordinator.compactions.counts()
        document = _transaction_state_document(state, self._now_ms(), compacted[state.id])
        return JSONResponse(document)

    async def heartbeat(self, request: Request) -> Response:
        id = await self._own(request)
        answer = await run_in_threadpool(self._transactions.heartbeat, id)
        return self._counted("heartbeat", answer)

    async def commit(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        principal = principal_of(request)
        started = time.monotonic()

        def checked(transaction: Transaction) -> CommitRequest:
            commit = _request_of(principal, transaction, body)
            check_commits(principal, commit, self._coordinator.load)
            return commit

        def submitted() -> tuple[Transaction, Future[Answer]] | None:
            transaction = self._stored.opened(id)
            if transaction is None:
                return None
            return transaction, self._transactions.commit_soon(id, checked(transaction))

        opened = await run_in_threadpool(submitted)  # in one step: each is a switch of threads
        if opened is not None:
            transaction: Transaction | None = opened[0]
            answer = await settled(opened[1], _COMMIT_SECONDS)
        else:
            answer = await self._adopt(id, principal, body, checked)
            transaction = await run_in_threadpool(self._stored.opened, id)
        self._metrics.commit_seconds.observe(time.monotonic() - started)
        self._report(request, body, transaction, answer)
        return self._counted("commit", answer)

    async def abort(self, request: Request) -> Response:
        body = await json_body(request)
        reason = str(body.get("reason", "its owner ended it"))[:TEXT_CHARACTERS_MAX]
        id = await self._own(request, or_with=Scope.ADMIN)
        answer = await run_in_threadpool(self._transactions.abort, id, reason)
        if answer == Unknown():
            answer = await self._adopt(id, principal_of(request), body, None)
        state = await run_in_threadpool(self._stored.state, id)
        if state is not None:
            database, _, table = state.table.partition(".")
            report(request.scope, database=database, table=table)
        return self._counted("abort", answer)

    def _report(
        self, request: Request, body: dict[str, Any], opened: Transaction | None, answer: Answer
    ) -> None:
        """Report a commit's details to the audit log."""
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
            facts["claimed"] = None if claimed is None else str(claimed)[:TEXT_CHARACTERS_MAX]
        report(request.scope, **facts)

    async def _adopt(
        self,
        id: str,
        principal: Principal,
        body: dict[str, Any],
        commit: Callable[[Transaction], CommitRequest] | None,
    ) -> Answer:
        """Adopt a transaction that another coordinator has opened, if the client sends it along."""
        if "transaction" not in body or id == _NONE:
            return Unknown()
        document = member(body, "transaction", dict)
        name = table_of(member(document, "table", dict))
        begins = partial(check_begins, compacts=True)  # what it is for shows its commit
        await run_in_threadpool(begins, principal, name, self._coordinator.load)
        owner, origin = owner_of(principal, body), origin_of(body.get("origin"))
        adopt = partial(self._transactions.adopt, is_named=principal.name is not None)
        return await run_in_threadpool(adopt, id, owner, document, commit, origin)

    async def sweep(self, request: Request) -> Response:
        id = await self._own(request)
        transaction = await run_in_threadpool(self._stored.opened, id)
        if transaction is None:
            return answer_response(Unknown())
        commit = _request_of(principal_of(request), transaction, await json_body(request))
        removed = await run_in_threadpool(self._transactions.sweep, id, commit)
        if removed is None:
            return answer_response(Mismatch())
        return JSONResponse({"removed": removed})

    async def compactions(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        transaction = await run_in_threadpool(self._stored.opened, id)
        state = await run_in_threadpool(self._stored.state, id)
        if transaction is None or state is None:
            return answer_response(Unknown())
        await self._check_right(principal_of(request), transaction)
        wanted = [
            bucket_of(state.location, transaction.table.branch, bucket)
            for bucket in member(body, "buckets", Sequence)
        ]
        granted = await run_in_threadpool(self._coordinator.compactions.claim, id, wanted)
        return JSONResponse({"granted": list(granted)})

    async def epoch(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        query, number = str(member(body, "query", str)), int(member(body, "epoch", int))
        principal = principal_of(request)

        def note(transaction: Transaction) -> None:
            name = transaction.table
            may_replace = principal.may_on(Scope.CHANGE, name.database or "", name.table)
            owner = principal.name or ""
            self._transactions.note_epoch(
                query, EpochNote(number, transaction, id, owner), may_replace=may_replace
            )

        return await run_in_threadpool(self._noted, id, body, principal, note)

    async def load(self, request: Request) -> Response:
        id = await self._own(request)
        body = await json_body(request)
        records = records_of(member(body, "records", Sequence))
        principal = principal_of(request)

        def note(transaction: Transaction) -> None:
            # A file that is noted is loaded by nobody again.
            check_table(principal, Scope.CHANGE, transaction.table, self._coordinator.load)
            self._transactions.note_load(transaction, records)

        return await run_in_threadpool(self._noted, id, body, principal, note)

    def _noted(
        self,
        id: str,
        body: dict[str, Any],
        principal: Principal,
        note: Callable[[Transaction], None],
    ) -> Response:
        """Note something about a transaction that is open, here or at an earlier coordinator."""
        transaction = self._stored.opened(id)
        if transaction is None and id != _NONE and "transaction" in body:
            document = member(body, "transaction", dict)
            transaction = self._transactions.brought(id, document)
        if transaction is None:
            return answer_response(Unknown())
        check_begins(principal, transaction.table, self._coordinator.load)
        note(transaction)
        return JSONResponse({"status": "noted"})

    async def _own(self, request: Request, or_with: Scope | None = None) -> str:
        """The id of the path's transaction. Raises NotTheirsError unless it belongs to the sender,
        or the sender has the scope `or_with`."""
        id = str(request.path_params["id"])
        principal = principal_of(request)
        if principal.name is None:
            return id
        state = await run_in_threadpool(self._stored.state, id)
        if state is None or state.owner == principal.name:
            return id
        if not sees_location(principal, state.location):
            return _NONE
        database, _, table = state.table.partition(".")
        if or_with is not None and principal.may_on(or_with, database, table.partition("$")[0]):
            return id
        raise NotTheirsError(
            f"The transaction {id} belongs to {state.owner}, not to {principal.name}.",
            hint="Only its owner may use it; an administrator may abort it.",
        )

    async def _check_right(self, principal: Principal, transaction: Transaction) -> None:
        """Raise unless the sender may commit to the transaction's table now: the right may have
        gone since it was begun."""
        load = self._coordinator.load
        begins = partial(check_begins, compacts=True)
        await run_in_threadpool(begins, principal, transaction.table, load)

    def _counted(self, action: str, answer: Answer) -> Response:
        self._metrics.answers.labels(action, type(answer).__name__).inc()
        return answer_response(answer, self._now_ms())


def _transaction_state_document(
    state: TransactionState, clock_ms: int, compacted: int = 0
) -> dict[str, Any]:
    """The document of a transaction, which compacts that many buckets, for everybody with read
    permission. Its times are the machine's; `clock_ms` is the present time of the coordinator's
    clock.
    """
    compacts = f"compacts {count_text(compacted, 'bucket')}" if compacted else ""
    times = {key: getattr(state, key) for key in ("begun_at_ms", "expires_at_ms", "ended_at_ms")}
    return {
        "id": state.id,
        "owner": state.owner,
        **{key: machine_ms(at_ms, clock_ms) if at_ms else at_ms for key, at_ms in times.items()},
        "table": state.location,
        "name": state.table,
        "phase": state.phase.value,
        "origin": origin_document(state.origin),
        "snapshot_id": state.receipt.snapshot_id if state.receipt is not None else None,
        "reason": state.reason or compacts,
    }


def _request_of(
    principal: Principal, transaction: Transaction, body: dict[str, Any]
) -> CommitRequest:
    """The request in a body, with the properties that are `vouched` for."""
    request = request_of(transaction, body)
    properties = vouched(dict(request.properties), principal.name)
    return replace(request, properties=tuple(properties.items()))
