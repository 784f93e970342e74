"""All routes that change or show a catalog: for Paimon's REST clients, and for sessions.

A user's own coordinator has the catalog options of the session that connected last. It outlives the
notebook that started it, and the keys, token, region or address that the notebook had. So each
session that reaches it sends its own catalog options, over the loopback and with the coordinator's
token. The coordinator tests the options before it uses them: the warehouse must be readable and
writable with them. If they name another endpoint, the coordinator's own lease must exist there,
which no other store has.

A coordinator that runs as a service keeps the options that its administrator started it with.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse, error_answer, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.guard import check_named, principal_of
from paimon_magics.coordinator.http.limits import run_in_threadpool, run_steps
from paimon_magics.coordinator.ownership.lease import current_lease
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.clock import lease_members, now_ms
from paimon_magics.coordinator.protocol.definition_changes import (
    DefinitionChange,
    TableRename,
    change_of,
    definition_change_of,
    removal_of,
    removal_receipt_document,
    version_receipt_document,
)
from paimon_magics.coordinator.protocol.documents import OPTIONS_PATH, table_of
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.protocol.principals import Scope, principal_document
from paimon_magics.coordinator.rest.catalog import rest_catalog_routes
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges, RecentChanges
from paimon_magics.coordinator.service.removals import remove
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.statements.removals import PurgeFiles
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import UpkeepChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.holders import RemovalReceipt
from paimon_magics.tables.stores.probes import endpoint_of, probe_store
from paimon_magics.tables.stores.store import open_store

_ID_CHARACTERS_MAX = 100
_REMOVALS_MAX = 100  # that are remembered
_NO_KEYS = "This coordinator hands out no keys of its store."


def catalog_routes(context: Context, warehouse: str | None = None) -> list[Route]:
    """The routes. `warehouse` is a name that REST clients may use beside the warehouse's own
    name."""
    return [
        *rest_catalog_routes(context, warehouse),
        _version_route(context),
        _removal_route(context),
        *_definition_routes(context),
    ]


def _version_route(context: Context) -> Route:
    """The route by which sessions change tags and branches, and roll back: with
    `{table, change, repeated}`. The answer is the receipt. A client whose first request got no
    answer sends it again with `repeated`."""

    async def answer(request: Request) -> Response:
        body = await json_body(request)
        name = table_of(member(body, "table", Mapping))
        change = change_of(member(body, "change", Mapping))
        repeated = member(body, "repeated", bool)
        needed = Scope.MAINTAIN if isinstance(change, UpkeepChange) else Scope.ALTER
        await check_named(request, needed, name, context.catalog.load)
        report(request.scope, detail=f"{type(change).__name__} {change}")
        receipt = await run_steps(change_versions(context, name, change, repeated=repeated))
        return JSONResponse({"receipt": version_receipt_document(receipt)})

    return Route("/v1/tables/versions", answer, methods=["POST"])


def _removal_route(context: Context) -> Route:
    """The route by which sessions remove snapshots, changelogs, tags and files: with
    `{id, table, removal, is_trial}`. The answer is the receipt. A client that got no answer sends
    the request again, with the same `id`: it waits for the run that is under way."""
    recent = _RecentRemovals()

    async def answer(request: Request) -> Response:
        body = await json_body(request)
        name = table_of(member(body, "table", Mapping))
        removal = removal_of(member(body, "removal", Mapping))
        is_trial, id = member(body, "is_trial", bool), member(body, "id", str)
        if not 0 < len(id) <= _ID_CHARACTERS_MAX:
            raise InvalidValueError(f"`id` must have 1 to {_ID_CHARACTERS_MAX} characters.")
        scope = Scope.ALTER if isinstance(removal, PurgeFiles) else Scope.MAINTAIN
        await check_named(request, scope, name, context.catalog.load)
        shown = f"trial of {removal}" if is_trial else str(removal)
        report(request.scope, detail=shown)
        key = principal_of(request).name, id, name, removal, is_trial
        receipt = await run_steps(
            recent.once(key, remove(context, name, removal, is_trial=is_trial))
        )
        report(
            request.scope,
            detail=f"{shown}: {receipt.snapshots} snapshots, {len(receipt.names)} tags, "
            f"{receipt.files} files",
        )
        return JSONResponse({"receipt": removal_receipt_document(receipt)})

    return Route("/v1/tables/removals", answer, methods=["POST"])


class _RecentRemovals:
    """The last removals by their principal, id and content, under way or ended well. For any
    thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Future[RemovalReceipt]] = OrderedDict()
        self._turn = threading.Lock()

    def once(self, key: Hashable, steps: Steps[RemovalReceipt]) -> Steps[RemovalReceipt]:
        """The receipt of the removal with this key; the first caller carries it out."""
        with self._turn:
            known = self._known.get(key)
            outcome = self._known.setdefault(key, Future[RemovalReceipt]())
            while len(self._known) > _REMOVALS_MAX:
                self._known.popitem(last=False)
        if known is not None:
            earlier: RemovalReceipt = yield known
            return earlier
        try:
            receipt = yield from steps
        except BaseException as error:
            with self._turn:
                self._known.pop(key, None)
            outcome.set_exception(error)
            raise
        outcome.set_result(receipt)
        return receipt


def _definition_routes(context: Context) -> list[Route]:
    """The routes by which sessions change definitions, and see databases and permissions.

    `POST /v1/changes` with `{id, change, repeated}` makes a change (`protocol.definition_changes`),
    and answers whether anything was created, dropped or changed. A client that got no answer sends
    it again with its `id` and `repeated`.

    `GET /v1/data-token` answers a short-lived key of the store as catalog `options`, with how long
    it lasts and when to ask for the next one.
    """
    recent = RecentChanges()

    async def answer(request: Request) -> Response:
        body = await json_body(request)
        change = definition_change_of(member(body, "change", Mapping))
        id, repeated = member(body, "id", str), member(body, "repeated", bool)
        if not 0 < len(id) <= _ID_CHARACTERS_MAX:
            raise InvalidValueError(f"`id` must have 1 to {_ID_CHARACTERS_MAX} characters.")
        _report(request, change)
        changes = DefinitionChanges(context, principal_of(request), repeated=repeated)
        done = await run_steps(recent.once(changes.principal, id, change, changes.make(change)))
        return JSONResponse({"done": done})

    async def describe_database(request: Request) -> Response:
        name = request.path_params["database"]
        properties = await run_in_threadpool(lambda: context.databases.properties(name))
        return JSONResponse({"properties": properties})

    async def rights(request: Request) -> Response:
        return JSONResponse(principal_document(principal_of(request)))

    async def data_token(request: Request) -> Response:
        tokens = context.data_tokens
        if tokens is None:
            return error_answer(501, "NotOffered", _NO_KEYS, "Use keys of your own.")
        principal = principal_of(request)
        token = await run_steps(await run_in_threadpool(tokens.of_session, principal))
        left = {"renew_in_ms": max(token.renew_at_ms - now_ms(), 0)}
        return JSONResponse(
            {"options": dict(token.options), **lease_members(token.ends_at_ms, now_ms()), **left}
        )

    return [
        Route("/v1/changes", answer, methods=["POST"]),
        Route("/v1/databases/{database}", describe_database, methods=["GET"]),
        Route("/v1/data-token", data_token, methods=["GET"]),
        Route("/v1/principal", rights, methods=["GET"]),
    ]


def _report(request: Request, change: DefinitionChange) -> None:
    """Report to the audit log the requested change and its object."""
    name = change.name if isinstance(change.name, TableName) else TableName("", change.name)
    facts = {"detail": f"to {change.new_name}"} if isinstance(change, TableRename) else {}
    action = _ACTIONS[type(change).__name__]
    table = name.object_name or None
    report(request.scope, action=action, database=name.database, table=table, **facts)


_ACTIONS = {
    "TableCreation": "create table",
    "TableDrop": "drop table",
    "TableRename": "rename table",
    "TableAlteration": "alter table",
    "TableReplacement": "replace table",
    "SchemaRestoration": "restore schema",
    "DatabaseCreation": "create database",
    "DatabaseAlteration": "alter database",
    "DatabaseDrop": "drop database",
}


_SAME = ("metastore", "uri", "warehouse")

_log = logging.getLogger(__name__)


class StoreOptions:
    """The options of one coordinator's catalog. With `takes_new` the sessions that connect may
    renew them. Safe for several threads."""

    def __init__(self, catalog: Catalog, ownership: Ownership | None, *, takes_new: bool) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._takes_new = takes_new
        self._turn = threading.Lock()

    def renew(self, options: Mapping[str, str]) -> bool:
        """Use these options from now on. Return whether they differ from the present options.
        Raises SetupError for options that don't work or lead to another store, and if they may not
        be renewed. Then the present options stay.
        """
        with self._turn:
            present = self._catalog.options
            if dict(options) == present:
                return False
            if not self._takes_new:
                raise SetupError(
                    "This coordinator keeps the catalog options that it was started with.",
                    hint="Ask its administrator to change them.",
                )
            if any(options.get(key) != present.get(key) for key in _SAME):
                raise SetupError("The options belong to another warehouse.")
            report = probe_store(options)
            if report.read_only:
                raise SetupError(f"With these options the warehouse is read-only: {report}.")
            if endpoint_of(options) != endpoint_of(present):
                self._check_is_there(options)
            self._catalog.renew(options)
        _log.warning("The catalog's options were renewed by a new connection.")
        return True

    def routes(self) -> list[Route]:
        """The route that takes new options."""

        async def renew(request: Request) -> Response:
            body = await json_body(request)
            options = body.get("options")
            if not isinstance(options, dict):
                raise InvalidValueError("`options` must be a JSON object of catalog options.")
            texts = {str(key): str(value) for key, value in options.items()}
            conceal_options(texts)
            renewed = await run_in_threadpool(self.renew, texts)
            return JSONResponse({"status": "renewed" if renewed else "same"})

        return [Route(OPTIONS_PATH, renew, methods=["POST"])]

    def _check_is_there(self, options: Mapping[str, str]) -> None:
        """Raise SetupError unless the store that the options name is this coordinator's."""
        warehouse = self._catalog.warehouse
        lease = current_lease(open_store(warehouse, options), warehouse)
        if self._ownership is None or lease is None or not self._ownership.has_written(lease):
            raise SetupError(
                f"The endpoint {endpoint_of(options)} leads to a different store from this "
                "coordinator's."
            )
