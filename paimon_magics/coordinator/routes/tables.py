"""Stopped tables over HTTP: list them, check a table, resume one.

A table is stopped when a published snapshot is no longer there, and publishing it again would be
wrong or impossible. Its commits are refused until an administrator has looked at it and resumes it.
It goes on with its contents at that time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import Answer
from paimon_magics.coordinator.http.answers import answer_response
from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.protocol.documents import table_of
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.protocol.visibility import check_table, sees_location
from paimon_magics.coordinator.service.coordinator import Coordinator

__all__ = ["stopped_document", "table_routes"]


def table_routes(coordinator: Coordinator) -> list[Route]:
    """The routes that list the stopped tables, check a table, and resume one."""

    async def stopped(request: Request) -> Response:
        return JSONResponse({"stopped": stopped_document(coordinator, principal_of(request))})

    async def look(request: Request) -> Response:
        return await _asked(request, Scope.WRITE, coordinator.watching.before_change)

    async def resume(request: Request) -> Response:
        return await _asked(request, Scope.ADMIN, coordinator.watching.resume)

    async def _asked(request: Request, needed: Scope, ask: Callable[[str], Answer]) -> Response:
        name = table_of(member(await json_body(request), "table", dict))
        principal = principal_of(request)
        tell(request.scope, database=name.database, table=name.object_name)
        await run_in_threadpool(check_table, principal, needed, name, coordinator.load)
        location = await run_in_threadpool(coordinator.location_of, name)
        return answer_response(await run_in_threadpool(ask, location))

    return [
        Route("/v1/tables/stopped", stopped),
        Route("/v1/tables/check", look, methods=["POST"]),
        Route("/v1/tables/resume", resume, methods=["POST"]),
    ]


def stopped_document(coordinator: Coordinator, principal: Principal) -> list[dict[str, Any]]:
    """The stopped tables that somebody may read: location, why, and since when."""
    return [
        {"location": location, "reason": stopped.reason, "since_ms": stopped.since_ms}
        for location, stopped in sorted(coordinator.state.stopped.items())
        if sees_location(principal, location)
    ]
