"""The coordinator's tables over HTTP: which of them are stopped and why, looked at, let go on.

A table is stopped when a snapshot that was published is not there any more, and publishing it again
would be wrong or is not possible. Its commits are refused until an administrator has looked at it
and resumes it; what is in the table then is what there is.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import Answer
from paimon_magics.coordinator.documents import member, table_of
from paimon_magics.coordinator.service import Coordinator
from paimon_magics.errors import InvalidValueError

__all__ = ["WatchMetrics", "stopped_document", "stopped_rows", "table_routes"]


def table_routes(coordinator: Coordinator, respond: Any) -> list[Route]:
    """Routes that list the stopped tables, look at one, and resume one; `respond` makes the
    response of an answer."""

    async def stopped(_: Request) -> Response:
        return JSONResponse({"stopped": stopped_document(coordinator)})

    async def look(request: Request) -> Response:
        return await _asked(request, coordinator.watching.before_change)

    async def resume(request: Request) -> Response:
        return await _asked(request, coordinator.watching.resume)

    async def _asked(request: Request, ask: Any) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError as error:
            raise InvalidValueError("The body is not JSON.") from error
        name = table_of(member(body, "table", dict))
        location = await run_in_threadpool(coordinator.location_of, name)
        answer: Answer = await run_in_threadpool(ask, location)
        return respond(answer)  # type: ignore[no-any-return]

    return [
        Route("/v1/tables/stopped", stopped),
        Route("/v1/tables/check", look, methods=["POST"]),
        Route("/v1/tables/resume", resume, methods=["POST"]),
    ]


def stopped_document(coordinator: Coordinator) -> list[dict[str, Any]]:
    """The stopped tables: where they are, why, and since when."""
    return [
        {"location": location, "reason": stopped.reason, "since_ms": stopped.since_ms}
        for location, stopped in sorted(coordinator.state.stopped.items())
    ]


def stopped_rows(coordinator: Coordinator) -> str:
    """The stopped tables for the status page, "" without any."""
    rows = "".join(
        f"<tr><td>{html.escape(one['location'])}<td>{html.escape(one['reason'])}</tr>"
        for one in stopped_document(coordinator)
    )
    if not rows:
        return ""
    return f"<h2>Stopped tables</h2><table><tr><th>table<th>reason</tr>{rows}</table>"


class WatchMetrics(Collector):
    """What is watched, what was published again, and what is stopped."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        state = self._coordinator.state
        yield GaugeMetricFamily(
            "paimon_coordinator_stopped_tables",
            "Tables that take no commits until somebody has looked at them.",
            value=len(state.stopped),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_watched_snapshots",
            "Published snapshots that a writer outside could overwrite with loss.",
            value=sum(map(len, state.watched.values())),
        )
        yield CounterMetricFamily(
            "paimon_coordinator_republished",
            "Commits that were overwritten and published again since the start.",
            value=self._coordinator.republished,
        )
