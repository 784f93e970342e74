"""The coordinator over HTTP: all its routes, health, metrics, and the status page.

Without a valid token, only the paths below `/health` and routes with their own proof are
answered. The size of bodies is limited. See `http.answers` for the form of errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from paimon_magics.columnar.time_zones import UTC, known_zone
from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.http.answers import (
    HTMLResponse,
    JSONResponse,
    WhileInPlace,
    error_answer,
    json_body,
    no_endpoint,
    on_error,
    on_gone,
    on_no_route,
    on_unexpected,
)
from paimon_magics.coordinator.http.authorisation import Authoriser
from paimon_magics.coordinator.http.guard import (
    Guard,
    TooLargeError,
    check_named,
    guarded,
    on_too_large,
    principal_of,
)
from paimon_magics.coordinator.http.limits import ClientLimits, Threads, run_in_threadpool
from paimon_magics.coordinator.http.pages import HEADERS, notice
from paimon_magics.coordinator.protocol.clock import lease_members
from paimon_magics.coordinator.protocol.documents import table_document, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.protocol.principals import PRINCIPAL, Principal, Scope
from paimon_magics.coordinator.routes.administration import (
    administration_routes,
    compaction_routes,
    compaction_rows,
    pause_document,
    problems_document,
    stopped_document,
    table_routes,
)
from paimon_magics.coordinator.routes.dead_letters import DeadLetterForms
from paimon_magics.coordinator.routes.inserts import InsertRoutes
from paimon_magics.coordinator.routes.metrics import (
    Metrics,
    audit_metrics,
    compaction_metrics,
    health_metrics,
)
from paimon_magics.coordinator.routes.openapi import openapi_route
from paimon_magics.coordinator.routes.quick_inserts import QuickInserts
from paimon_magics.coordinator.routes.status_page import PageRequest, status_page
from paimon_magics.coordinator.routes.transactions import transaction_routes
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import HealthMonitor
from paimon_magics.coordinator.service.snapshot_leases import check_count
from paimon_magics.errors import InvalidValueError, PaimonMagicsError

_ON_ERRORS: dict[Any, Any] = {
    PaimonMagicsError: on_error,
    TooLargeError: on_too_large,
    HTTPException: on_no_route,
    ClientDisconnect: on_gone,
    Exception: on_unexpected,
}

_HOLDER_CHARACTERS_MAX = 100


@dataclass(frozen=True)
class Parts:
    """The parts that answer requests. `warehouse` is the path that clients on the same machine may
    open themselves. `inserts` has the endpoints of small inserts, None if the coordinator accepts
    none; `compactions` is None if it compacts nothing by itself. `monitor` knows the coordinator's
    health. `trail` is the audit log, if there is one. `hands_out_keys`: to its store, for a while.
    """

    coordinator: Coordinator
    warehouse: str
    inserts: InsertRoutes | None = None
    compactions: CompactionScheduler | None = None
    monitor: HealthMonitor = field(default_factory=HealthMonitor)
    trail: Trail | None = None
    hands_out_keys: bool = False


def application(
    parts: Parts,
    authoriser: Authoriser,
    *,
    request_bytes_max: int,
    routes: Sequence[BaseRoute] | None = None,
    root: str = "",
    limits: ClientLimits | None = None,
) -> ASGIApp:
    """The ASGI application, below the path `root`.

    `authoriser` identifies the sender of a request; `authorisation.SCOPES` has the scopes that
    routes need. `routes` are further routes, behind the same authoriser and limits, including the
    routes of small inserts. `limits` are the limits of each client.
    """
    coordinator, inserts, compactions = parts.coordinator, parts.inserts, parts.compactions
    group = None if inserts is None else inserts.group
    metrics = Metrics(coordinator)
    metrics.add(partial(health_metrics, parts.monitor))
    if compactions is not None:
        metrics.add(partial(compaction_metrics, compactions))
        parts.monitor.add("its compactions", compactions.facts)
    if inserts is not None:
        metrics.add(inserts.metrics)
        parts.monitor.add("small inserts", inserts.facts)
    if parts.trail is not None:
        metrics.add(partial(audit_metrics, parts.trail))
        parts.monitor.add("its audit log", parts.trail.facts)
    forms = None if inserts is None else DeadLetterForms(inserts.group, authoriser.principal)
    handlers = _Handlers(parts, metrics.registry, forms)
    own: list[BaseRoute] = [
        *handlers.routes(),
        *administration_routes(
            *(coordinator, parts.warehouse, group, parts.monitor),
            hands_out_keys=parts.hands_out_keys,
        ),
        *transaction_routes(
            coordinator, metrics, None if group is None else group.holds.of_transaction
        ),
        *table_routes(coordinator),
        *_lease_routes(coordinator),
        *([] if compactions is None else compaction_routes(compactions)),
        *([] if forms is None else forms.routes()),
    ]
    own += routes or []
    own = [openapi_route(own, root), *own]
    threads = Threads()
    parts.monitor.add("its requests", threads.facts)
    guarded_routes = guarded(own, coordinator.load, parts.trail, threads)
    app = _routed([*guarded_routes, *authoriser.routes()])
    behind: ASGIApp = WhileInPlace(app, f"{root}/v1/", lambda: coordinator.misplaced)
    if forms is not None:
        forms.app = behind
    if inserts is not None:  # it passes on what it can't answer, such as a missing warehouse
        behind = QuickInserts(behind, inserts.entry, root)
    return Guard(behind, authoriser, request_bytes_max, root, limits, parts.trail, threads)


def _routed(routes: Sequence[BaseRoute]) -> Starlette:
    app = Starlette(routes=routes, exception_handlers=_ON_ERRORS)
    app.router.default = no_endpoint
    return app


@dataclass(frozen=True)
class _Handlers:
    parts: Parts
    registry: CollectorRegistry
    forms: DeadLetterForms | None

    def routes(self) -> list[Route]:
        """The routes of probes, metrics and the page."""
        return [
            Route("/health/live", self.live),
            Route("/health/owner", self.owner),
            Route("/health/ready", self.ready),
            Route("/health/startup", self.startup),
            Route("/metrics", self.metrics),
            Route("/", self.page),
        ]

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def owner(self, _: Request) -> Response:
        coordinator = self.parts.coordinator
        facts = self.parts.monitor.now().facts
        ends = any(fact.name == "draining" and fact.value for fact in facts)
        if coordinator.is_owner and not ends:
            return JSONResponse({"status": "owner"})
        return JSONResponse({"status": "standby"}, status_code=503)

    async def startup(self, _: Request) -> Response:
        """503 until everything that the store and the log of inserts have was read."""
        inserts = self.parts.inserts
        has_log = inserts is None or inserts.group.owner.ready.is_set()
        if has_log and self.parts.coordinator.is_restored:
            return JSONResponse({"status": "started"})
        return JSONResponse({"status": "starting"}, status_code=503)

    async def ready(self, request: Request) -> Response:
        """A client without a token, such as a probe, gets no names and no texts."""
        health = self.parts.monitor.now()
        principal: Principal | None = request.scope.get(PRINCIPAL)
        status = 200 if health.is_ready else 503
        if principal is None:
            names = dict.fromkeys(problem.name for problem in health.problems if problem.blocks)
            shown = {"status": "ready" if health.is_ready else "not ready", "problems": [*names]}
            return JSONResponse(shown, status_code=status)
        problems = problems_document(health, principal)
        if not health.is_ready:
            message = " ".join(problem.problem for problem in health.problems if problem.blocks)
            return error_answer(503, "NotReady", message, "", problems=problems)
        # Open transactions may be committed in a pause: the coordinator must stay reachable.
        pause = pause_document(self.parts.coordinator.state.pause)
        stopped = stopped_document(self.parts.coordinator, principal)
        return JSONResponse(
            {"status": "ready", "pause": pause, "stopped_tables": stopped, "problems": problems}
        )

    async def metrics(self, _: Request) -> Response:
        content = await run_in_threadpool(generate_latest, self.registry)
        return Response(content, media_type=CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> Response:
        named = request.query_params.get("zone", UTC)
        zone = known_zone(named)
        if zone is None:
            return notice(
                400,
                f"The time zone `{named}` is not known.",
                "Name one as Europe/Berlin or +05:30.",
            )
        reader = "" if self.forms is None else self.forms.reader(request)
        page = await run_in_threadpool(self._page, principal_of(request), reader, zone)
        return HTMLResponse(page, headers=HEADERS)

    def _page(self, principal: Principal, reader: str, zone: str) -> str:
        parts = self.parts
        health = parts.monitor.now()
        letters: list[tuple[object, ...]] = []
        if self.forms is not None and health.is_store_readable:
            may_change = principal.may_everywhere(Scope.CHANGE)
            letters = self.forms.rows(reader, zone, may_change=may_change)
        compacted = [] if parts.compactions is None else compaction_rows(parts.compactions)
        group = None if parts.inserts is None else parts.inserts.group
        coordinator, warehouse = parts.coordinator, parts.warehouse
        shown = PageRequest(warehouse, zone)
        return status_page(coordinator, shown, health, group, letters, compacted)


def _lease_routes(coordinator: Coordinator) -> list[Route]:
    """The route that takes and renews read leases.

    `POST /v1/leases` with `{holder, leases: [{table, snapshot_id}]}` lists all snapshots that a
    holder reads, and replaces its earlier list. Holders of different principals are different, even
    with the same name. The answer is `{expires_at_ms, lease_ms, gone}`: the snapshots in `gone`
    have expired, and are not leased.
    """

    async def renew(request: Request) -> Response:
        body = await json_body(request)
        holder = member(body, "holder", str)
        if not 0 < len(holder) <= _HOLDER_CHARACTERS_MAX:
            raise InvalidValueError("The member `holder` must be a text of 1 to 100 characters.")
        leases = member(body, "leases", Sequence)
        check_count(len(leases))  # before a table is looked at
        wanted = [
            (table_of(member(lease, "table", Mapping)), member(lease, "snapshot_id", int))
            for lease in leases
        ]
        for name in dict.fromkeys(name for name, _ in wanted):
            await check_named(request, Scope.READ, name, coordinator.load)
        principal = principal_of(request).name or ""
        # The lease begins when a thread is free, not when one is asked for.
        now_ms = coordinator.runtime.clock.now_ms
        expires_at_ms, gone = await run_in_threadpool(
            lambda: coordinator.leases.renew(holder, wanted, now_ms(), principal)
        )
        documents = [
            {"table": table_document(name), "snapshot_id": snapshot_id}
            for name, snapshot_id in gone
        ]
        return JSONResponse({**lease_members(expires_at_ms, now_ms()), "gone": documents})

    return [Route("/v1/leases", renew, methods=["POST"])]
