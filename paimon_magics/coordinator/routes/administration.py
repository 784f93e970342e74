"""The coordinator itself over HTTP: its status, pause and resume.

In a pause neither a transaction nor an engine's commit begins. Transactions that have begun may be
committed, so that after a while nothing is pending. A pause outlasts restarts, until it is ended.
"""

from __future__ import annotations

import os
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import (
    Done,
    Pause,
    Suspended,
    pending_commits,
    pending_transactions,
)
from paimon_magics.coordinator.http.answers import answer_response
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.protocol.principals import Principal
from paimon_magics.coordinator.protocol.visibility import sees_location
from paimon_magics.coordinator.routes.tables import stopped_document
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Health, HealthMonitor
from paimon_magics.origin import host_name, user_name
from paimon_magics.version import __version__

__all__ = ["about", "administration_routes", "pause_document", "problems_document"]

_TEXT_CHARACTERS_MAX = 500
_STARTED_AT_MS = int(time.time() * 1000)  # a time of day


def administration_routes(
    coordinator: Coordinator,
    warehouse: str,
    group: GroupCommit | None = None,
    monitor: HealthMonitor | None = None,
) -> list[Route]:
    """The routes that show the coordinator's status, pause it, and resume it."""

    async def show(request: Request) -> Response:
        principal = principal_of(request)
        is_limited = principal.is_limited
        troubles = [] if group is None or is_limited else group.backlog.troubles
        waiting = [{"table": name, "rows": rows, "why": why} for name, rows, why in troubles]
        health = Health(()) if monitor is None else monitor.now()
        return JSONResponse(
            {
                **about(coordinator, warehouse, principal),
                "waiting": waiting,
                "ready": health.is_ready,
                "problems": problems_document(health, principal),
            }
        )

    async def pause(request: Request) -> Response:
        body = await json_body(request)
        by = principal_of(request).name or str(body.get("owner", ""))[:_TEXT_CHARACTERS_MAX]
        return answer_response(Suspended(await run_in_threadpool(coordinator.pause, by)))

    async def resume(_: Request) -> Response:
        await run_in_threadpool(coordinator.unpause)
        return answer_response(Done())

    return [
        Route("/v1/coordinator", show),
        Route("/v1/coordinator/pause", pause, methods=["POST"]),
        Route("/v1/coordinator/resume", resume, methods=["POST"]),
    ]


def about(coordinator: Coordinator, warehouse: str, principal: Principal) -> dict[str, Any]:
    """The document of the coordinator's status: which one it is, whether it takes new work, what is
    pending on the tables that somebody may read."""
    state = coordinator.state
    return {
        "protocol": 1,
        "version": __version__,
        "warehouse": warehouse,
        "user": user_name(),
        "host": host_name(),
        "process": os.getpid(),
        "started_at_ms": _STARTED_AT_MS,
        "epoch": coordinator.epoch,
        "problem": coordinator.problem,
        "store_trouble": coordinator.store_trouble,
        "store": coordinator.store_facts,
        "pause": pause_document(state.pause),
        "pending_transactions": len(pending_transactions(state)),
        "pending_commits": [
            {
                "name": str(publication.table),
                "snapshot_id": publication.snapshot_id,
                "commit_user": publication.commit_user,
                "begun_at_ms": publication.published_at_ms,
            }
            for publication in pending_commits(state)
            if sees_location(principal, publication.location)
        ],
        "stopped_tables": stopped_document(coordinator, principal),
    }


def problems_document(health: Health, principal: Principal) -> list[dict[str, Any]]:
    """What is wrong, as far as somebody may see it."""
    return [
        {"name": one.name, "subject": one.subject, "problem": one.problem, "blocks": one.blocks}
        for one in health.problems
        if one.is_seen_by(principal)
    ]


def pause_document(pause: Pause | None) -> dict[str, Any] | None:
    """The document of a pause: by whom and since when; None without a pause."""
    return None if pause is None else {"by": pause.by, "since_ms": pause.since_ms}
