"""Administration over HTTP: status, pause and resume of the coordinator, of tables, and of
compactions; tokens.

In a pause neither a transaction nor an engine's commit begins. Open transactions may be committed,
so that after a while nothing is pending. A pause outlasts restarts, until an administrator ends it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.core.state import pending_commits, pending_transactions
from paimon_magics.coordinator.core.values import Answer, Done, Pause, Suspended
from paimon_magics.coordinator.http.answers import JSONResponse, answer_response, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.authorisation import Tokens
from paimon_magics.coordinator.http.guard import check_named, principal_of
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.http.stored_grants import Grants, StoredGrants
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.protocol.clock import machine_ms
from paimon_magics.coordinator.protocol.documents import table_document, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.protocol.principals import Grantee, Principal, Scope
from paimon_magics.coordinator.protocol.visibility import sees_location
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Health, HealthMonitor
from paimon_magics.coordinator.store.tables import StoredGrant, StoredToken
from paimon_magics.errors import InvalidValueError
from paimon_magics.origin import host_name, user_name
from paimon_magics.planning.compaction.schedule import State, Watched
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.tables.stores.probes import store_facts
from paimon_magics.version import __version__

TEXT_CHARACTERS_MAX = 500
"""The length to which clients' names and reasons are cut."""

_DETAIL_CHARACTERS_MAX = 20_000  # of a grant: nothing of it may be missing in the audit log

_STARTED_AT_MS = int(time.time() * 1000)  # a time of day

COMPACTION_COLUMNS = ("table", "state", "#buckets", "#bytes to read", "obstacle")


def administration_routes(
    coordinator: Coordinator,
    warehouse: str,
    group: GroupCommit | None,
    monitor: HealthMonitor,
    *,
    hands_out_keys: bool = False,
) -> list[Route]:
    """The routes that show the coordinator's status, pause it, and resume it. `hands_out_keys`:
    whether `/v1/data-token` answers with keys of the store."""

    def status(principal: Principal) -> dict[str, Any]:
        troubles = [] if group is None or principal.is_limited else group.backlog.troubles
        health = monitor.now()
        return {
            **about(coordinator, warehouse, principal),
            "waiting": [{"table": name, "rows": rows, "why": why} for name, rows, why in troubles],
            "hands_out_keys": hands_out_keys,
            "ready": health.is_ready,
            "problems": problems_document(health, principal),
        }

    return _pausable("/v1/coordinator", status, coordinator.pause, coordinator.unpause)


def _pausable(
    path: str,
    status: Callable[[Principal], dict[str, Any]],
    pause: Callable[[str], Pause],
    resume: Callable[[], object],
) -> list[Route]:
    """The routes that show the status of something, pause it, and resume it."""

    async def show(request: Request) -> Response:
        return JSONResponse(status(principal_of(request)))

    async def on_pause(request: Request) -> Response:
        owner = owner_of(principal_of(request), await json_body(request))
        return answer_response(Suspended(await run_in_threadpool(pause, owner)))

    async def on_resume(_: Request) -> Response:
        await run_in_threadpool(resume)
        return answer_response(Done())

    return [
        Route(path, show),
        Route(f"{path}/pause", on_pause, methods=["POST"]),
        Route(f"{path}/resume", on_resume, methods=["POST"]),
    ]


def owner_of(principal: Principal, body: Mapping[str, Any]) -> str:
    """The sender's authorised name; without it, the `owner` that the body names."""
    return principal.name or str(body.get("owner", ""))[:TEXT_CHARACTERS_MAX]


def about(coordinator: Coordinator, warehouse: str, principal: Principal) -> dict[str, Any]:
    """The document of the coordinator's status: its identity, whether it accepts new work, and what
    is pending on the tables that the principal may read.
    """
    state = coordinator.state
    return {
        "protocol": 1,
        "version": __version__,
        "warehouse": warehouse,
        "user": user_name(),
        "host": host_name(),
        "process": os.getpid(),
        "started_at_ms": _STARTED_AT_MS,
        "epoch": coordinator.worker.epoch,
        "problem": coordinator.problem,
        "store_trouble": coordinator.store_trouble,
        "store": dict(store_facts(coordinator.catalog.options)),
        "pause": pause_document(state.pause),
        "pending_transactions": len(pending_transactions(state)),
        "pending_commits": [
            {
                "name": str(commit.table),
                "snapshot_id": commit.snapshot_id,
                "commit_user": commit.commit_user,
                "begun_at_ms": commit.published_at_ms,
            }
            for commit in pending_commits(state)
            if sees_location(principal, commit.location)
        ],
        "stopped_tables": stopped_document(coordinator, principal),
    }


def problems_document(health: Health, principal: Principal) -> list[dict[str, Any]]:
    """The problems that the principal may see."""
    return [
        {key: getattr(problem, key) for key in ("name", "subject", "problem", "blocks")}
        for problem in health.problems
        if problem.is_seen_by(principal)
    ]


def pause_document(pause: Pause | None) -> dict[str, Any] | None:
    """The document of a pause: by whom and since when; None without a pause."""
    return None if pause is None else {"by": pause.by, "since_ms": pause.since_ms}


def table_routes(coordinator: Coordinator) -> list[Route]:
    """The routes that list the stopped tables, check a table, and resume one.

    A table is stopped when a published snapshot no longer exists, and publishing it again would be
    wrong or impossible. Its commits are refused until an administrator resumes it; it continues
    with its contents at that time.
    """

    async def stopped(request: Request) -> Response:
        return JSONResponse({"stopped": stopped_document(coordinator, principal_of(request))})

    async def look(request: Request) -> Response:
        return await answer(request, Scope.INSERT, coordinator.watching.before_change)

    async def resume(request: Request) -> Response:
        return await answer(request, Scope.ADMIN, coordinator.watching.resume)

    async def answer(request: Request, needed: Scope, ask: Callable[[str], Answer]) -> Response:
        name = table_of(member(await json_body(request), "table", dict))
        await check_named(request, needed, name, coordinator.load)
        table = await run_in_threadpool(coordinator.load, name)
        return answer_response(await run_in_threadpool(ask, table.location))

    return [
        Route("/v1/tables/stopped", stopped),
        Route("/v1/tables/check", look, methods=["POST"]),
        Route("/v1/tables/resume", resume, methods=["POST"]),
    ]


def stopped_document(coordinator: Coordinator, principal: Principal) -> list[dict[str, Any]]:
    """The stopped tables that the principal may read: location, reason, and since when."""
    clock_ms = coordinator.runtime.clock.now_ms()
    return [
        {
            "location": location,
            "reason": stopped.reason,
            "since_ms": machine_ms(stopped.since_ms, clock_ms),
        }
        for location, stopped in sorted(coordinator.state.stopped.items())
        if sees_location(principal, location)
    ]


def token_routes(tokens: Tokens) -> list[Route]:
    """The routes of tokens, for administrators.

    `POST /v1/tokens` with `{name, allow, expires_in_ms?}` answers `{token, …}`, the only time that
    the token's text is shown. `DELETE /v1/tokens/ID` revokes a token, or all tokens of a name;
    `POST /v1/tokens/ID/renew` with `{expires_in_ms?}` changes their expiry.
    """

    async def add(request: Request) -> Response:
        body = await json_body(request)
        name = str(member(body, "name", str))
        allows = [str(grant) for grant in member(body, "allow", Sequence)]
        report(request.scope, detail=f"`{name}` may {', '.join(allows)}")
        text, stored = await run_in_threadpool(tokens.add, name, allows, _expires_in_ms(body))
        answer = JSONResponse({"token": text, **token_document(stored)})
        answer.headers["cache-control"] = "no-store"
        return answer

    async def show(_: Request) -> Response:
        return JSONResponse(documents("tokens", await run_in_threadpool(tokens.all)))

    async def allow(request: Request) -> Response:
        body = await json_body(request)
        allows = [str(grant) for grant in member(body, "allow", Sequence)]
        id = str(request.path_params["id"])
        allowed = await run_in_threadpool(tokens.allow, id, allows)
        answer = changed(request, "allowed", allowed)
        report(request.scope, detail=f"{_names(allowed)} may {', '.join(allows)}")
        return answer

    async def revoke(request: Request) -> Response:
        revoked = await run_in_threadpool(tokens.revoke, str(request.path_params["id"]))
        return changed(request, "revoked", revoked)

    async def renew(request: Request) -> Response:
        expires_in_ms = _expires_in_ms(await json_body(request))
        id = str(request.path_params["id"])
        renewed = await run_in_threadpool(tokens.renew, id, expires_in_ms)
        return changed(request, "renewed", renewed)

    def changed(request: Request, key: str, tokens: Sequence[StoredToken]) -> Response:
        # The audit log has no secrets.
        report(request.scope, detail=_names(tokens))
        return JSONResponse(documents(key, tokens))

    def documents(key: str, tokens: Sequence[StoredToken]) -> dict[str, Any]:
        return {key: [token_document(token) for token in tokens]}

    return [
        Route("/v1/tokens", add, methods=["POST"]),
        Route("/v1/tokens", show),
        Route("/v1/tokens/{id}", revoke, methods=["DELETE"]),
        Route("/v1/tokens/{id}/allow", allow, methods=["POST"]),
        Route("/v1/tokens/{id}/renew", renew, methods=["POST"]),
    ]


def _names(tokens: Sequence[StoredToken]) -> str:
    return ", ".join(f"`{token.name}` (token {token.id})" for token in tokens)


def grant_routes(grants: StoredGrants) -> list[Route]:
    """The routes of grants to users, groups and roles.

    `POST /v1/grants` with `{to: [grantee, …], allow: [grant, …]}` grants scopes on tables, or roles
    (`role:NAME`), and answers `{granted: […]}`; `POST /v1/grants/revoke` takes such grants back.
    `GET /v1/grants` shows all grants to an administrator, and to others those that are theirs, by
    their groups and roles, too.
    """

    async def show(request: Request) -> Response:
        principal = principal_of(request)
        rows = await run_in_threadpool(grants.all)
        if not principal.may_everywhere(Scope.ADMIN):
            rows = Grants(rows).to(principal)
        return JSONResponse({"grants": list(map(asdict, rows))})

    async def grant(request: Request) -> Response:
        grantees, texts = await changes(request)
        by = principal_of(request).name or "administrator"
        return JSONResponse(
            {"granted": documents(await run_in_threadpool(grants.grant, grantees, texts, by))}
        )

    async def revoke(request: Request) -> Response:
        grantees, texts = await changes(request)
        return JSONResponse(
            {"revoked": documents(await run_in_threadpool(grants.revoke, grantees, texts))}
        )

    async def changes(request: Request) -> tuple[list[Grantee], list[str]]:
        body = await json_body(request)
        grantees = [Grantee.of(str(text)) for text in member(body, "to", Sequence)]
        texts = [str(text) for text in member(body, "allow", Sequence)]
        if not grantees:
            raise InvalidValueError("The request names nobody.", hint="Give `to` as a list.")
        named = ", ".join(map(str, grantees))
        report(request.scope, detail=f"{', '.join(texts)}: {named}"[:_DETAIL_CHARACTERS_MAX])
        return grantees, texts

    def documents(rows: Sequence[StoredGrant]) -> list[dict[str, Any]]:
        return list(map(asdict, rows))

    return [
        Route("/v1/grants", show),
        Route("/v1/grants", grant, methods=["POST"]),
        Route("/v1/grants/revoke", revoke, methods=["POST"]),
    ]


def _expires_in_ms(body: dict[str, Any]) -> int | None:
    is_missing = body.get("expires_in_ms") is None
    return None if is_missing else int(member(body, "expires_in_ms", int))


def token_document(token: StoredToken) -> dict[str, Any]:
    """What administrators see of a token."""
    return {
        "id": token.id,
        "name": token.name,
        "allow": list(token.allows),
        "created_at_ms": token.created_at_ms,
        "expires_at_ms": token.expires_at_ms or None,
        "revoked_at_ms": token.revoked_at_ms or None,
    }


def compaction_routes(compactions: CompactionScheduler) -> list[Route]:
    """The routes that list the tables that the coordinator compacts, each with its state (tidy,
    due, waiting, running, failed, or left to another engine), and that pause compactions.
    """

    def pause(owner: str) -> Pause:
        present = compactions.set_pause(owner)
        assert present is not None
        return present

    return _pausable(
        "/v1/compactions",
        lambda principal: _document(compactions, principal),
        pause,
        lambda: compactions.set_pause(None),
    )


def compaction_rows(compactions: CompactionScheduler) -> list[tuple[object, ...]]:
    """A row of the status page for each table that is not tidy, in `COMPACTION_COLUMNS`."""
    return [
        (str(table.table), state.value, seen.buckets, seen.read_bytes, _obstacle(table) or None)
        for state, table in compactions.tables()
        if (seen := table.seen).large_buckets or state is not State.TIDY
    ]


def _document(compactions: CompactionScheduler, principal: Principal) -> dict[str, Any]:
    budget = compactions.budget
    return {
        "auto": compactions.is_auto,
        "pause": pause_document(compactions.pause),
        "workers": budget.workers,
        "memory_bytes": budget.memory_bytes,
        "bytes_max": budget.bytes_max,
        "compacted_buckets": compactions.counts["buckets"],
        "compacted_bytes": compactions.counts["read_bytes"],
        "tables": [
            {
                "table": table_document(table.table),
                "state": state.value,
                "buckets": table.seen.buckets,
                "bytes": table.seen.read_bytes,
                "large_buckets": table.seen.large_buckets,
                "large_bytes": table.seen.large_bytes,
                "since_ms": table.since_ms,
                "why": _obstacle(table),
            }
            for state, table in compactions.tables()
            if principal.may_on(Scope.READ, table.table.database or "", table.table.table)
        ],
    }


def _obstacle(watched: Watched) -> str:
    """The obstacle to a table's compaction; "" if there is none."""
    seen = watched.seen
    obstacle = watched.problem or seen.left
    if obstacle or not seen.large_buckets:
        return obstacle
    buckets = count_text(seen.large_buckets, "bucket")
    verb = "is" if seen.large_buckets == 1 else "are"
    return (
        f"{buckets} ({size_text(seen.large_bytes)}) {verb} too large for the coordinator: "
        "CALL sys.compact"
    )
