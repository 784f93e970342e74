"""Who may do what at a coordinator, endpoint by endpoint, and whose transactions are whose."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.http.answers import WhileInPlace
from paimon_magics.coordinator.http.authorisation import (
    PUBLIC,
    SCOPES,
    OwnProcesses,
    Tokens,
    bearer_token,
    unauthorised,
)
from paimon_magics.coordinator.http.guard import Guard, LoginThrottle, guarded
from paimon_magics.coordinator.http.stored_grants import StoredGrants
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit, GroupCommitSettings
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry, RegisteredLog
from paimon_magics.coordinator.process.restoring import backup_route, manifest_of
from paimon_magics.coordinator.process.rotation_files import rotation_route
from paimon_magics.coordinator.protocol.documents import request_document, table_document
from paimon_magics.coordinator.protocol.principals import (
    Principal,
    Scope,
)
from paimon_magics.coordinator.routes.administration import grant_routes, token_routes
from paimon_magics.coordinator.routes.app import Parts, application
from paimon_magics.coordinator.routes.catalog import StoreOptions, catalog_routes
from paimon_magics.coordinator.routes.inserts import InsertRoutes
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.compaction_scheduler import (
    Budget,
    CompactionRules,
    CompactionScheduler,
    Endpoint,
)
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.system_tables.registry import table_view
from paimon_magics.tables.system_tables.versions import history
from tests.coordinator.process import TABLE, create_table, write
from tests.coordinator.rest_server import serving
from tests.repository.test_documentation import read, table_rows

Ask = Callable[..., httpx.Response]

ROOT = "/services/lake"


PEOPLE = {
    "nobody": None,
    "rita": Scope.READ,
    "wim": Scope.WRITE,
    "wanda": Scope.WRITE,
    "ada": Scope.ADMIN,
}


class People:
    """An authoriser for whom a person's name is their token."""

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        name = bearer_token(connection)
        if name == "unclear":
            raise SetupError("The hub does not say who that is.", hint="Try again.")
        return Principal(name, PEOPLE[name]) if name in PEOPLE else None

    def challenge(self, connection: HTTPConnection) -> Response:
        return unauthorised("Nobody.", "Become somebody.")

    def routes(self) -> list[Route]:
        return []


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("authorisation") / "warehouse"


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> Catalog:
    return create_table(warehouse, "CREATE TABLE t (k INT)")


@pytest.fixture(scope="module")
def app(warehouse: Path, catalog: Catalog) -> Iterator[Guard]:
    store = open_store(warehouse.parent / "state")
    coordinator = Coordinator(catalog, store, Settings())
    coordinator.start()
    log = DatabaseLog(SqliteDatabase(warehouse.parent / "log.sqlite"))
    group = GroupCommit(
        catalog,
        coordinator,
        RegisteredLog(
            log,
            LogRegistry(
                catalog.stores.of(catalog.warehouse), catalog.warehouse, log.id, log.name, "test"
            ),
        ),
        GroupCommitSettings(label_retention_ms=1_000),
    )
    group.start()
    compactions = CompactionScheduler(
        Runtime(),
        catalog,
        Budget(workers=0),
        Endpoint("http://127.0.0.1:1", "its own", "nobody"),
        store.halts,
        CompactionRules(is_auto=True, settle_ms=1),
        lambda: False,
    )
    made = application(
        Parts(coordinator, catalog.warehouse, compactions=compactions),
        OwnProcesses("its own", People()),
        request_bytes_max=100_000,
        routes=[
            *InsertRoutes(group, coordinator).routes(),
            *token_routes(Tokens(store.tokens)),
            *grant_routes(StoredGrants(store.grants)),
            backup_route(
                warehouse.parent / "state",
                [],
                partial(manifest_of, "id", str(warehouse), log="store"),
            ),
            rotation_route(None),
            *StoreOptions(catalog, None, takes_new=True).routes(),
            *catalog_routes(Context(catalog, catalog.publish, coordinator.turns)),
        ],
        root=ROOT,
    )
    assert isinstance(made, Guard)
    made._throttle = LoginThrottle(wrong_max=100_000)  # every endpoint is asked with a wrong token
    yield made
    group.stop()
    coordinator.stop()


@pytest.fixture(scope="module")
def address(app: Guard) -> Iterator[str]:
    with serving(app) as url:
        yield url + ROOT


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False) as client:
        yield client


@pytest.fixture
def ask(address: str, http: httpx.Client) -> Ask:
    """Somebody's request for a path below the root."""

    def asked(who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {who}"}
        return http.request(method, address + path, headers=headers, json=body)

    return asked


def filled(template: str) -> str:
    names = {"database": "nowhere", "table": "nothing", "rest:path": "no/where"}
    for name in ("id", "lsn", "name", "version", "tag", "branch"):
        names[name] = "nothing"
    for name, value in names.items():
        template = template.replace("{" + name + "}", value)
    assert "{" not in template
    return template


def endpoints() -> list[tuple[str, str, Scope]]:
    return [(*endpoint.split(" "), scope) for endpoint, scope in SCOPES.items()]  # type: ignore[misc]


@pytest.mark.parametrize(("method", "path", "needed"), endpoints())
def test_endpoint_requires_its_scope(ask: Ask, method: str, path: str, needed: Scope) -> None:
    for who, scope in PEOPLE.items():
        answer = ask(who, method, filled(path), {})
        allowed = scope is not None and list(Scope).index(scope) >= list(Scope).index(needed)
        assert answer.status_code != 401
        assert (answer.status_code != 403) is allowed, (who, answer.text)
        if not allowed:
            error = answer.json()["error"]
            assert f"`{needed.value}`" in error["message"] and who in error["message"]
            assert f"GRANT {needed.value.upper()} ON" in error["hint"]
    refused = ask("mallory", method, filled(path), {})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert ask("unclear", method, filled(path), {}).status_code == 503


def test_every_route_has_a_scope_and_every_scope_a_route(app: Guard) -> None:
    assert isinstance(app._app, WhileInPlace)
    inner = app._app._app
    assert isinstance(inner, Starlette)
    routes = [route for route in inner.routes if isinstance(route, Route)]
    assert len(routes) == len(inner.routes)
    served = {
        f"{method} {route.path}"
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
        if route.path not in PUBLIC
    }
    assert served == set(SCOPES)


def test_own_processes_of_the_coordinator_may_only_write(ask: Ask) -> None:
    assert ask("its own", "GET", "/v1/transactions", {}).status_code == 200
    assert ask("its own", "POST", f"/v1/transactions/{32 * '0'}/heartbeat", {}).status_code == 404
    assert ask("its own", "POST", "/v1/coordinator/pause", {}).status_code == 403


def test_a_route_without_a_scope_is_not_served() -> None:
    async def forgotten(_: object) -> Response:
        return Response("everything")

    with pytest.raises(KeyError, match="POST /v1/forgotten"):
        guarded([Route("/v1/forgotten", forgotten, methods=["POST"])])


def test_documentation_lists_the_scope_of_each_request() -> None:
    rows = {
        pattern.partition("`")[0]: cells[0]
        for pattern, cells in table_rows(read("coordinator-protocol.md")).items()
        if cells and cells[0] in list(Scope)
    }
    assert len(rows) > 5
    used = set()
    for endpoint, scope in SCOPES.items():
        method, path = endpoint.split(" ")
        matching = [
            row
            for row in rows
            if method in row.split(" ")[0].split(",")
            and fnmatch.fnmatchcase(path, row.split(" ")[1])
        ]
        assert matching, f"no row is about {endpoint}"
        nearest = max(matching, key=lambda row: len(row.split(" ")[1]))
        assert rows[nearest] == scope.value, (endpoint, nearest)
        used.add(nearest)
    assert used == set(rows)


def test_only_health_is_public_and_nothing_outside_the_root_is_served(address: str) -> None:
    assert httpx.get(address + "/health/live", trust_env=False).json() == {"status": "live"}
    ready = httpx.get(address + "/health/ready", trust_env=False)
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "problems": []})
    wrong = {"Authorization": "Bearer mallory"}
    assert httpx.get(address + "/health/ready", headers=wrong, trust_env=False).status_code == 401
    headers = {"Authorization": "Bearer ada"}
    for path in ("/health/live", "/v1/transactions", "/services/lakehouse/health/live", "/"):
        outside = address.removesuffix(ROOT) + path
        assert httpx.get(outside, headers=headers, trust_env=False).status_code == 404


def test_nobody_begins_a_transaction_in_the_name_of_another(ask: Ask) -> None:
    body = {"table": table_document(TABLE), "owner": "ada"}
    begun = ask("wim", "POST", "/v1/transactions", body).json()
    shown = ask("rita", "GET", f"/v1/transactions/{begun['id']}").json()
    assert shown["owner"] == "wim"


def test_only_its_owner_uses_a_transaction_and_administrators_abort_it(
    ask: Ask, address: str, catalog: Catalog
) -> None:
    client = RemoteCoordinator(At(address, "wim"))
    transaction = client.begin(TABLE)
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    path = f"/v1/transactions/{client.transactions.id_of(transaction)}"
    document = request_document(request)
    for who, what in itertools.product(("wanda", "ada"), ("heartbeat", "commit", "sweep", "abort")):
        if (who, what) != ("ada", "abort"):
            answer = ask(who, "POST", f"{path}/{what}", document)
            assert answer.status_code == 403, (who, what)
            assert f"belongs to wim, not to {who}" in answer.json()["error"]["message"]
    assert client.commit(request).snapshot_id is not None
    other = client.begin(TABLE)
    path = f"/v1/transactions/{client.transactions.id_of(other)}"
    assert ask("ada", "POST", f"{path}/abort", {}).json() == {"status": "aborted"}
    client.close()


def test_only_administrators_pause_and_refusals_name_them(ask: Ask, address: str) -> None:
    open_ = RemoteCoordinator(At(address, "wim"))
    transaction = open_.begin(TABLE)
    try:
        with pytest.raises(
            SetupError,
            match="wanda lacks permission for this request: it requires the scope `admin`",
        ):
            RemoteCoordinator(At(address, "wanda")).administration().pause()
        assert RemoteCoordinator(At(address, "ada")).administration().pause().by == "ada"
        with pytest.raises(SetupError, match="was paused by ada"):
            RemoteCoordinator(At(address, "wanda")).begin(TABLE)
        open_.abort(transaction)
    finally:
        assert ask("ada", "POST", "/v1/coordinator/resume", {}).status_code == 200
        open_.close()


def test_snapshots_name_the_authenticated_user(address: str, catalog: Catalog) -> None:
    from pypaimon import CatalogFactory

    client = RemoteCoordinator(At(address, "wim"))
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 1}])
    claimed = (("paimon-magics.user", "ada"), ("paimon-magics.notebook", "n.ipynb"))
    client.commit(CommitRequest(transaction, Append(), messages, claimed))
    client.close()
    rows = history(table_view(catalog, TABLE)).to_pylist()
    assert (rows[0]["user"], rows[0]["notebook"]) == ("wim", "n.ipynb")

    options = {
        "metastore": "rest",
        "uri": address,
        "warehouse": catalog.warehouse,
        "token.provider": "bear",
        "token": "wanda",
    }
    table = CatalogFactory.create(options).get_table("default.t")
    builder = table.new_batch_write_builder()
    writing = builder.new_write()
    writing.write_arrow(pa.table({"k": pa.array([2], pa.int32())}))
    builder.new_commit().commit(writing.prepare_commit())
    writing.close()
    assert history(table_view(catalog, TABLE)).to_pylist()[0]["user"] == "wanda"


def test_refused_client_gets_the_reason_and_a_hint(address: str) -> None:
    with pytest.raises(SetupError, match="rita lacks permission for this") as raised:
        RemoteCoordinator(At(address, "rita")).begin(TABLE)
    assert raised.value.hint == "Ask an administrator: GRANT INSERT ON default.t TO rita."
    with pytest.raises(SetupError, match="Nobody") as raised:
        RemoteCoordinator(At(address, "mallory")).begin(TABLE)
    assert raised.value.hint == "Become somebody."


def test_pypaimon_understands_both_refusals(address: str, catalog: Catalog) -> None:
    from pypaimon import CatalogFactory

    options = {
        "metastore": "rest",
        "uri": address,
        "warehouse": catalog.warehouse,
        "token.provider": "bear",
        "token": "rita",
    }
    reading = CatalogFactory.create(options)
    assert reading.list_databases() == ["default"]
    with pytest.raises(Exception, match="No permission"):
        reading.create_database("d", False)
    with pytest.raises(Exception, match="No permission"):
        reading.drop_database("default", False, cascade=True)
    with pytest.raises(Exception, match="Become somebody"):
        CatalogFactory.create({**options, "token": "mallory"}).list_databases()
