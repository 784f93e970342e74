"""The coordinator's compactions over HTTP: what they do, pause and resume.

`GET /v1/compactions` lists the tables that are looked after, each with its state: tidy, due,
waiting, running, left (to another engine) or failed.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import Done, Suspended
from paimon_magics.coordinator.http.answers import answer_response
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.protocol.documents import table_document
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.routes.administration import pause_document
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.planning.compaction.schedule import Seen, State, Watched
from paimon_magics.planning.formatting import count_text, size_text

__all__ = ["COMPACTION_COLUMNS", "compaction_routes", "compaction_rows"]

COMPACTION_COLUMNS = ("table", "state", "#buckets", "#bytes to read", "what stands in its way")

_TEXT_CHARACTERS_MAX = 500


def compaction_routes(compactions: CompactionScheduler) -> list[Route]:
    """The routes that show compactions, pause them, and let them go on."""

    async def show(request: Request) -> Response:
        return JSONResponse(_document(compactions, principal_of(request)))

    async def pause(request: Request) -> Response:
        body = await json_body(request)
        by = principal_of(request).name or str(body.get("owner", ""))[:_TEXT_CHARACTERS_MAX]
        found = await run_in_threadpool(compactions.set_pause, by)
        assert found is not None
        return answer_response(Suspended(found))

    async def resume(_: Request) -> Response:
        await run_in_threadpool(compactions.set_pause, None)
        return answer_response(Done())

    return [
        Route("/v1/compactions", show),
        Route("/v1/compactions/pause", pause, methods=["POST"]),
        Route("/v1/compactions/resume", resume, methods=["POST"]),
    ]


def compaction_rows(compactions: CompactionScheduler) -> list[tuple[object, ...]]:
    """A row of the status page for each table that is not tidy, in `COMPACTION_COLUMNS`."""
    return [
        (str(one.table), state.value, one.seen.buckets, one.seen.read_bytes, _way(one) or None)
        for state, one in compactions.tables()
        if state is not State.TIDY or one.seen.large_buckets
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
                "table": table_document(one.table),
                "state": state.value,
                "buckets": one.seen.buckets,
                "bytes": one.seen.read_bytes,
                "large_buckets": one.seen.large_buckets,
                "large_bytes": one.seen.large_bytes,
                "since_ms": one.since_ms,
                "why": _way(one),
            }
            for state, one in compactions.tables()
            if principal.may_on(Scope.READ, one.table.database or "", one.table.table)
        ],
    }


def _way(watched: Watched) -> str:
    """What stands in the way of a table's compaction; "" if nothing does."""
    return watched.problem or watched.seen.left or _large(watched.seen)


def _large(seen: Seen) -> str:
    if not seen.large_buckets:
        return ""
    buckets = count_text(seen.large_buckets, "bucket")
    verb = "is" if seen.large_buckets == 1 else "are"
    return f"{buckets} ({size_text(seen.large_bytes)}) {verb} too large here: CALL sys.compact"
