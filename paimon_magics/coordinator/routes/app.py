"""The coordinator over HTTP: all its routes, health, metrics, and the status page.

Without a valid token, only the paths below `/health` and routes with their own proof are
answered. The size of bodies is limited. See `http.answers` for the form of errors.

`GET /openapi.json` answers the OpenAPI document, which is made from the routes: every endpoint with
the scope that it requires; bodies are described if they have members of their own. The REST
catalog's bodies are Paimon's (`rest-catalog-open-api.yaml`), and are objects here.
"""

from __future__ import annotations

import re
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
from paimon_magics.coordinator.http.authorisation import PUBLIC, SCOPES, Authoriser
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
from paimon_magics.coordinator.routes.inserts import InsertRoutes, QuickInserts
from paimon_magics.coordinator.routes.metrics import (
    Metrics,
    audit_metrics,
    compaction_metrics,
    health_metrics,
)
from paimon_magics.coordinator.routes.status_page import PageRequest, status_page
from paimon_magics.coordinator.routes.transactions import transaction_routes
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import HealthMonitor
from paimon_magics.coordinator.service.snapshot_leases import check_count
from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.version import __version__

_OPENAPI_PATH = "/openapi.json"

_NAME = re.compile(r"\{(\w+)(?::path)?\}")
_DATABASE = "/v1/paimon/databases/{database}"
_TABLE = "/v1/paimon/databases/{database}/tables/{table}"
_PAGES = ("maxResults:integer", "pageToken:string")
_LISTS = {
    **{name: "tableNamePattern:string" for name in ("tables", "table-details")},
    **{name: "viewNamePattern:string" for name in ("views", "view-details")},
    **{name: "functionNamePattern:string" for name in ("functions", "function-details")},
}
_QUERIES: Mapping[str, Sequence[str]] = {
    "/": ("zone:string",),
    "/v1/config": ("warehouse:string",),
    "/v1/paimon/databases": (*_PAGES, "databaseNamePattern:string"),
    **{f"{_DATABASE}/{name}": (*_PAGES, pattern) for name, pattern in _LISTS.items()},
    **{
        f"/v1/paimon/{name}": (*_PAGES, "databaseNamePattern:string", _LISTS[name])
        for name in ("tables", "views", "functions")
    },
    **{f"{_TABLE}/{name}": _PAGES for name in ("snapshots", "consumers", "partitions")},
}
# The members of a body, each with its type; those that may be left out end with a `?`.
_BODIES: Mapping[str, str] = {
    "POST /v1/transactions": "table:table base_snapshot_id:integer? base_manifest_list:string? "
    "owner:string? origin:object? ticket:string? compacts:boolean?",
    "POST /v1/transactions/{id}/commit": "change:object messages:strings properties:object "
    "read_set:object? transaction:object?",
    "POST /v1/transactions/{id}/sweep": "change:object messages:strings properties:object",
    "POST /v1/transactions/{id}/abort": "reason:string? transaction:object?",
    "POST /v1/transactions/{id}/compactions": "buckets:objects",
    "POST /v1/tables/removals": "id:string table:table removal:object is_trial:boolean",
    "POST /v1/transactions/{id}/epoch": "query:string epoch:integer transaction:object?",
    "POST /v1/transactions/{id}/load": "records:objects transaction:object?",
    "POST /v1/tables/versions": "table:table change:object repeated:boolean",
    "POST /v1/tables/check": "table:table",
    "POST /v1/tables/resume": "table:table",
    "POST /v1/changes": "id:string change:object repeated:boolean",
    "POST /v1/leases": "holder:string leases:objects",
    "POST /v1/coordinator/pause": "owner:string?",
    "POST /v1/coordinator/options": "options:object",
    "POST /v1/coordinator/backup": "file:string?",
    "POST /v1/coordinator/rotated": "what:string",
    "POST /v1/compactions/pause": "owner:string?",
    "POST /v1/tokens": "name:string allow:strings expires_in_ms:integer?",
    "POST /v1/tokens/{id}/renew": "expires_in_ms:integer?",
    "POST /v1/inserts/{database}/{table}/flush": "wait_ms:integer?",
    "POST /v1/inserts/{database}/{table}/reopen": "accept_loss:boolean?",
    "POST /v1/paimon/databases": "name:string options:object?",
    f"POST {_DATABASE}": "removals:strings? updates:object?",
    f"POST {_DATABASE}/tables": "identifier:object schema:object",
    "POST /v1/paimon/tables/rename": "source:object destination:object",
    f"POST {_TABLE}": "changes:objects",
    f"POST {_TABLE}/consumers/reset": "consumerId:string nextSnapshotId:integer?",
    "POST /v1/paimon/views/rename": "source:object destination:object",
    f"POST {_DATABASE}/views": "identifier:object schema:object replace:boolean?",
    f"POST {_DATABASE}/views/{{name}}": "changes:objects",
    f"POST {_DATABASE}/functions": "name:string inputParams:objects? "
    "returnParams:objects? deterministic:boolean? definitions:object? comment:string? "
    "options:object? replace:boolean?",
    f"POST {_DATABASE}/functions/{{name}}": "changes:objects",
    f"POST {_TABLE}/commit": "tableId:string? snapshot:object statistics:objects?",
    f"POST {_TABLE}/rollback": "instant:object fromSnapshot:integer?",
    f"POST {_TABLE}/tags": "tagName:string snapshotId:integer? timeRetained:string?",
    f"POST {_TABLE}/branches": "branch:string fromTag:string?",
}
_STATEMENT = {"type": "object"}
_STATEMENTS = {"oneOf": [_STATEMENT, {"type": "array", "items": _STATEMENT}]}
_INSERT = "POST /v1/inserts/{database}/{table}"
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "integer": {"type": "integer"},
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "strings": {"type": "array", "items": {"type": "string"}},
    "objects": {"type": "array", "items": {"type": "object"}},
    "table": {"$ref": "#/components/schemas/Table"},
}
_ERROR = {
    "description": "an error",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_PAGE = {"/": "text/html", "/metrics": "text/plain"}


def openapi_route(routes: Sequence[BaseRoute], root: str) -> Route:
    """The route that answers the document of `routes` and of itself."""

    async def answer(_: Request) -> Response:
        return JSONResponse(document)

    own = Route(_OPENAPI_PATH, answer)
    document = _openapi_document([*routes, own], root)
    return own


def _openapi_document(routes: Sequence[BaseRoute], root: str) -> dict[str, Any]:
    """The document, in the form of OpenAPI 3.1, of all routes but streams."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if not isinstance(route, Route) or route.path.endswith(":path}"):
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(method, route.path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "paimon-coordinator",
            "version": __version__,
            "description": "What a coordinator answers. Inserts may also be streamed by a "
            "WebSocket, which this form can't describe.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Table": _object("database:string table:string branch:string?")},
        },
    }


def _operation(method: str, path: str) -> dict[str, Any]:
    which = f"{method} {path}"
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(path)
    ]
    for query in _QUERIES.get(path, ()) if method == "GET" else ():
        name, _, kind = query.partition(":")
        parameters.append({"name": name, "in": "query", "required": False, "schema": _TYPES[kind]})
    kind = _PAGE.get(path, "application/json")
    operation: dict[str, Any] = {
        "operationId": which,
        "parameters": parameters,
        "responses": {"200": {"description": "done", "content": {kind: {}}}, "default": _ERROR},
    }
    if path in PUBLIC:
        operation["security"] = []
    else:
        operation["x-scope"] = SCOPES[which].value
    if method == "POST":
        schema = _STATEMENTS if which == _INSERT else _object(_BODIES.get(which, ""))
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _object(members: str) -> dict[str, Any]:
    pairs = [member.split(":") for member in members.split()]
    return {
        "type": "object",
        "properties": {name: _TYPES[kind.rstrip("?")] for name, kind in pairs},
        "required": [name for name, kind in pairs if not kind.endswith("?")],
    }


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
