"""Views and functions of the REST catalog: over HTTP, and by pypaimon's own client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pypaimon import CatalogFactory
from pypaimon.catalog import catalog_exception as missing
from pypaimon.common.identifier import Identifier
from pypaimon.function.function import FunctionImpl
from pypaimon.function.function_change import FunctionChange
from pypaimon.function.function_definition import FunctionDefinition, FunctionFileResource
from pypaimon.schema.data_types import AtomicType, DataField

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.served import NameLocks
from paimon_magics.coordinator.store.state_store import StateStore, open_store
from tests.coordinator.process import wait_until
from tests.coordinator.rest_server import TOKEN, client_options, served

FIELDS = [{"id": 0, "name": "k", "type": "BIGINT NOT NULL", "description": "the key"}]
SCHEMA = {
    "fields": FIELDS,
    "query": "SELECT k FROM t",
    "dialects": {"spark": "SELECT k FROM t"},
    "comment": "of the tills",
    "options": {"a": "b"},
}
FUNCTION = {
    "name": "area.of-1",
    "inputParams": [{"id": 0, "name": "length", "type": "DOUBLE"}],
    "returnParams": [{"id": 0, "name": "area", "type": "DOUBLE"}],
    "deterministic": True,
    "definitions": {"spark": {"type": "lambda", "definition": "x -> x", "language": "java"}},
    "comment": None,
    "options": {},
}
VIEWS, FUNCTIONS = "/databases/shop/views", "/databases/shop/functions"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = open_store(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def names() -> NameLocks:
    return NameLocks(Runtime())


@pytest.fixture
def url(warehouse: Path, store: StateStore, names: NameLocks) -> Iterator[str]:
    with served({"warehouse": str(warehouse)}, store=store, names=names) as address:
        yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"{url}/v1/paimon", headers=headers) as client:
        for name in ("shop", "other"):
            assert client.post("/databases", json={"name": name}).is_success
        yield client


def create_view(http: httpx.Client, name: str, **schema: Any) -> httpx.Response:
    identifier = {"database": "shop", "object": name}
    return http.post(VIEWS, json={"identifier": identifier, "schema": SCHEMA | schema})


def told(answer: httpx.Response) -> tuple[int, Any, Any]:
    document = answer.json()
    return answer.status_code, document.get("resourceType"), document.get("resourceName")


def altered(http: httpx.Client, path: str, *changes: Any) -> httpx.Response:
    return http.post(path, json={"changes": list(changes)})


def test_created_view_is_returned_and_dropped(http: httpx.Client) -> None:
    assert create_view(http, "v").json() == {}
    actual = http.get(f"{VIEWS}/v").json()
    assert (actual["name"], actual["schema"]) == ("v", SCHEMA)
    assert actual["createdAt"] == actual["updatedAt"] > 0
    assert told(create_view(http, "v")) == (409, "VIEW", "shop.v")
    assert http.delete(f"{VIEWS}/v").json() == {}
    for answer in (http.get(f"{VIEWS}/v"), http.delete(f"{VIEWS}/v"), altered(http, f"{VIEWS}/v")):
        assert told(answer) == (404, "VIEW", "shop.v")


def test_a_view_is_replaced_in_one_step(http: httpx.Client) -> None:
    create_view(http, "v")
    before = http.get(f"{VIEWS}/v").json()
    identifier = {"database": "shop", "object": "v"}
    schema = SCHEMA | {"query": "SELECT 2", "dialects": {}}
    body = {"identifier": identifier, "schema": schema, "replace": True}
    assert http.post(VIEWS, json=body).is_success
    after = http.get(f"{VIEWS}/v").json()
    assert after["schema"] == schema
    identity = ("id", "owner", "createdAt", "createdBy")
    assert [after[key] for key in identity] == [before[key] for key in identity]
    assert http.post(VIEWS, json=body | {"replace": False}).status_code == 409
    assert http.post(VIEWS, json=body | {"replace": "yes"}).status_code == 400


def test_a_view_is_altered_by_all_changes_or_none(http: httpx.Client) -> None:
    create_view(http, "v")
    path = f"{VIEWS}/v"
    before = http.get(path).json()
    assert altered(
        http,
        path,
        {"action": "setOption", "key": "c", "value": "d"},
        {"action": "removeOption", "key": "a"},
        {"action": "updateComment", "comment": None},
        {"action": "addDialect", "dialect": "flink", "query": "SELECT 1"},
        {"action": "updateDialect", "dialect": "flink", "query": "SELECT 2"},
        {"action": "dropDialect", "dialect": "spark"},
    ).is_success
    after = http.get(path).json()
    expected = {"options": {"c": "d"}, "comment": None, "dialects": {"flink": "SELECT 2"}}
    assert after["schema"] == SCHEMA | expected
    assert after["id"] == before["id"] and after["updatedAt"] >= before["updatedAt"]

    set_option = {"action": "setOption", "key": "x", "value": "y"}
    for change, expected_error in (
        ({"action": "addDialect", "dialect": "flink", "query": "Q"}, (409, "DIALECT", "flink")),
        ({"action": "updateDialect", "dialect": "no", "query": "Q"}, (404, "DIALECT", "no")),
        ({"action": "dropDialect", "dialect": "spark"}, (404, "DIALECT", "spark")),
        ({"action": "setQuery", "query": "Q"}, (400, None, None)),
        ({"action": "setOption", "key": "x", "value": 1}, (400, None, None)),
    ):
        assert told(altered(http, path, set_option, change)) == expected_error
    assert http.get(path).json()["schema"] == after["schema"]


def test_views_are_renamed_across_databases(http: httpx.Client) -> None:
    def rename(source: tuple[str, str], target: tuple[str, str]) -> httpx.Response:
        names = [{"database": database, "object": name} for database, name in (source, target)]
        return http.post("/views/rename", json={"source": names[0], "destination": names[1]})

    create_view(http, "v")
    create_view(http, "w")
    assert told(rename(("shop", "v"), ("shop", "w"))) == (409, "VIEW", "shop.w")
    assert told(rename(("shop", "no"), ("shop", "u"))) == (404, "VIEW", "shop.no")
    assert told(rename(("shop", "v"), ("nowhere", "v"))) == (404, "DATABASE", "nowhere")
    assert rename(("shop", "v"), ("other", "x")).is_success
    assert http.get(VIEWS).json()["views"] == ["w"]
    assert http.get("/databases/other/views/x").json()["schema"] == SCHEMA


def test_views_are_listed_by_page_pattern_and_database(http: httpx.Client) -> None:
    for name in ("view1", "abc", "view_2"):
        create_view(http, name)
    assert http.get(VIEWS).json() == {"views": ["abc", "view1", "view_2"], "nextPageToken": None}
    page = http.get(VIEWS, params={"maxResults": 2}).json()
    assert page == {"views": ["abc", "view1"], "nextPageToken": "view1"}
    rest = http.get(VIEWS, params={"maxResults": 2, "pageToken": "view1"}).json()
    assert rest == {"views": ["view_2"], "nextPageToken": None}
    named = http.get(VIEWS, params={"viewNamePattern": "view_%"}).json()
    assert named["views"] == ["view_2"]
    assert told(http.get(VIEWS, params={"viewNamePattern": "%w"}))[0] == 400
    details = http.get("/databases/shop/view-details", params={"viewNamePattern": "v%"}).json()
    assert [each["name"] for each in details["viewDetails"]] == ["view1", "view_2"]
    assert [each["schema"] for each in details["viewDetails"]] == [SCHEMA, SCHEMA]
    everywhere = http.get("/views", params={"databaseNamePattern": "sh%", "maxResults": 1}).json()
    assert everywhere == {
        "views": [{"database": "shop", "object": "abc"}], "nextPageToken": "shop.abc",
    }  # fmt: skip
    assert http.get("/databases/other/views").json()["views"] == []
    for path in ("views", "view-details", "functions", "function-details"):
        assert told(http.get(f"/databases/no/{path}")) == (404, "DATABASE", "no")


def test_view_and_table_cannot_share_a_name(http: httpx.Client) -> None:
    schema = {"fields": [{"id": 0, "name": "k", "type": "INT"}], "options": {}}

    def create_table(name: str) -> httpx.Response:
        identifier = {"database": "shop", "object": name}
        body = {"identifier": identifier, "schema": schema}
        return http.post("/databases/shop/tables", json=body)

    create_view(http, "v")
    assert told(create_table("v")) == (409, "TABLE", "shop.v")
    assert create_table("t").is_success
    refused = create_view(http, "t")
    assert refused.status_code == 400 and "`shop.t` is a table" in refused.json()["message"]
    rename = {
        "source": {"database": "shop", "object": "t"},
        "destination": {"database": "shop", "object": "v"},
    }
    assert told(http.post("/tables/rename", json=rename)) == (409, "TABLE", "shop.v")
    assert http.post("/views/rename", json={
        "source": rename["destination"], "destination": rename["source"],
    }).status_code == 400  # fmt: skip


TABLE = {"fields": [{"id": 0, "name": "k", "type": "BIGINT"}], "options": {}}


def named(name: str) -> dict[str, str]:
    return {"database": "shop", "object": name}


@pytest.mark.parametrize("view_by", ["/databases/shop/views", "/views/rename"])
@pytest.mark.parametrize("table_by", ["/databases/shop/tables", "/tables/rename"])
@pytest.mark.parametrize("view_first", [True, False])
def test_view_and_table_made_at_one_time_get_no_name_together(
    http: httpx.Client, names: NameLocks, view_by: str, table_by: str, view_first: bool
) -> None:
    tables = "/databases/shop/tables"
    assert create_view(http, "old_view").is_success
    assert http.post(tables, json={"identifier": named("old"), "schema": TABLE}).is_success
    view: tuple[str, Any] = (view_by, {"identifier": named("x"), "schema": SCHEMA})
    if view_by == "/views/rename":
        view = view_by, {"source": named("old_view"), "destination": named("x")}
    table: tuple[str, Any] = (table_by, {"identifier": named("x"), "schema": TABLE})
    if table_by == "/tables/rename":
        table = table_by, {"source": named("old"), "destination": named("x")}
    other = names.lock(["\0shop\0x"])  # of a statement that has the name for now
    with ThreadPoolExecutor(2) as pool:
        answers = []
        for waiting, (path, body) in enumerate([view, table] if view_first else [table, view], 2):
            answers.append(pool.submit(http.post, path, json=body, timeout=60))
            wait_until(lambda waiting=waiting: names.count() == waiting)  # type: ignore[misc]
        names.release(other)
        first, second = (answer.result(60) for answer in answers)
    assert first.is_success and second.status_code in (400, 409), (first.text, second.text)
    has = [http.get(f"/databases/shop/{kind}/x").is_success for kind in ("views", "tables")]
    assert has == [view_first, not view_first]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"query": None}, "schema.query must be a string"),
        ({"fields": {}}, "schema.fields must be an array"),
        ({"fields": [{"id": 0, "name": "k", "type": "NO TYPE"}]}, "NO TYPE"),
        ({"fields": [{"name": "k", "type": "INT"}]}, "schema.fields[0].id"),
        ({"fields": [FIELDS[0], FIELDS[0]]}, "schema.fields[1].name is there twice: 'k'"),
        ({"fields": [FIELDS[0] | {"name": ""}]}, "schema.fields[0].name is empty"),
        ({"fields": [FIELDS[0] | {"id": -1}]}, "schema.fields[0].id must not be negative"),
        ({"query": "SELECT '\0'"}, "schema.query has a NUL character"),
        ({"dialects": {"spark": 1}}, "schema.dialects.spark"),
        ({"options": []}, "schema.options"),
    ],
)
def test_invalid_view_is_refused(http: httpx.Client, schema: Any, message: str) -> None:
    answer = create_view(http, "v", **schema)
    assert answer.status_code == 400 and message in answer.json()["message"]
    assert http.get(VIEWS).json()["views"] == []


@pytest.mark.parametrize("name", ["a$b", "", " v", ".v", "a/b", "a\\b"])
def test_invalid_view_name_is_refused(http: httpx.Client, name: str) -> None:
    assert create_view(http, name).status_code == 400


def test_created_function_is_returned_and_altered(http: httpx.Client) -> None:
    assert http.post(FUNCTIONS, json=FUNCTION).json() == {}
    path = f"{FUNCTIONS}/area.of-1"
    actual = http.get(path).json()
    assert {key: actual[key] for key in FUNCTION} == FUNCTION
    assert actual["uuid"] and actual["createdAt"] > 0
    assert told(http.post(FUNCTIONS, json=FUNCTION)) == (409, "FUNCTION", "shop.area.of-1")
    sql = {"type": "sql", "definition": "x * 2"}
    assert altered(http, path, {"action": "addDefinition", "name": "flink", "definition": sql})
    assert http.get(path).json()["definitions"] == FUNCTION["definitions"] | {"flink": sql}
    assert told(http.get(f"{FUNCTIONS}/no")) == (404, "FUNCTION", "shop.no")
    assert told(http.get(f"{FUNCTIONS}/-")) == (404, "FUNCTION", "shop.-")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "123"}, "`123` is not a valid name of a function"),
        ({"name": "a@b"}, "`a@b`"),
        ({"deterministic": "yes"}, "deterministic"),
        ({"definitions": {"spark": {"type": "wasm"}}}, "definitions.spark.type"),
        ({"definitions": {"spark": {"type": "sql"}}}, "definitions.spark.definition"),
        ({"definitions": {"spark": {"type": "file", "fileResources": [{}]}}}, "uri"),
        ({"inputParams": [1]}, "inputParams[0]"),
    ],
)
def test_invalid_function_is_refused(
    http: httpx.Client, change: dict[str, Any], message: str
) -> None:
    answer = http.post(FUNCTIONS, json=FUNCTION | change)
    assert answer.status_code == 400 and message in answer.json()["message"]


def test_pypaimon_defines_and_changes_functions(
    http: httpx.Client, url: str, warehouse: Path
) -> None:
    catalog: Any = CatalogFactory.create(client_options(url, warehouse))
    name = Identifier.create("shop", "area")
    double = AtomicType("DOUBLE")
    file = FunctionDefinition.file(
        file_resources=[FunctionFileResource("jar", "/a/b.jar")],
        language="java",
        class_name="Area",
        function_name="eval",
    )
    function = FunctionImpl(
        identifier=name,
        input_params=[DataField(0, "x", double), DataField(1, "y", double)],
        return_params=[DataField(0, "area", double)],
        deterministic=True,
        definitions={"flink": file},
        comment="of a field",
        options={},
    )
    catalog.create_function(name, function, False)
    with pytest.raises(missing.FunctionAlreadyExistException):
        catalog.create_function(name, function, False)
    sql = FunctionDefinition.sql("x * y")
    catalog.alter_function(name, [FunctionChange.add_definition("spark", sql)], False)
    with pytest.raises(missing.DefinitionAlreadyExistException):
        catalog.alter_function(name, [FunctionChange.add_definition("spark", sql)], False)
    with pytest.raises(missing.DefinitionNotExistException):
        catalog.alter_function(name, [FunctionChange.drop_definition("trino")], False)
    actual = catalog.get_function(name)
    assert (actual.definition("spark"), actual.definition("flink")) == (sql, file)
    assert (actual.comment(), actual.is_deterministic()) == ("of a field", True)
    assert catalog.list_functions("shop") == ["area"]
    catalog.drop_function(name, False)
    with pytest.raises(missing.FunctionNotExistException):
        catalog.get_function(name)


def test_dropping_a_database_drops_its_views_and_functions(
    http: httpx.Client, store: StateStore
) -> None:
    create_view(http, "v")
    http.post(FUNCTIONS, json=FUNCTION)
    assert http.delete("/databases/shop").is_success
    assert store._sql.read("SELECT name FROM definitions") == []
    assert http.post("/databases", json={"name": "shop"}).is_success
    assert http.get(VIEWS).json()["views"] == http.get(FUNCTIONS).json()["functions"] == []


def test_catalog_without_a_store_refuses_views_and_functions(warehouse: Path) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with (
        served({"warehouse": str(warehouse)}) as url,
        httpx.Client(base_url=f"{url}/v1/paimon", headers=headers) as http,
    ):
        http.post("/databases", json={"name": "shop"})
        assert http.get(VIEWS).json()["views"] == http.get("/functions").json()["functions"] == []
        assert told(http.get(f"{VIEWS}/v")) == (404, "VIEW", "shop.v")
        for answer in (create_view(http, "v"), http.post(FUNCTIONS, json=FUNCTION)):
            assert answer.status_code == 501 and "keeps" in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/databases/shop/views",
            {"identifier": named("v"), "schema": SCHEMA},
        ),
        ("/databases/shop/functions", FUNCTION),
        (
            "/views/rename",
            {"source": {"database": "other", "object": "v"}, "destination": named("v")},
        ),
        (
            "/databases/shop/tables",
            {"identifier": named("v"), "schema": {"fields": FIELDS, "options": {}}},
        ),
    ],
)
def test_database_that_is_dropped_meanwhile_stays_away(
    http: httpx.Client, names: NameLocks, warehouse: Path, path: str, body: dict[str, Any]
) -> None:
    """Whoever makes something in it waits for the drop, and does not make its folder anew."""
    view = {"identifier": {"database": "other", "object": "v"}, "schema": SCHEMA}
    assert http.post("/databases/other/views", json=view).is_success
    other = names.lock(["\0shop\0"])  # of a statement that has the database for now
    with ThreadPoolExecutor(2) as aside:
        drop = aside.submit(http.delete, "/databases/shop")
        wait_until(lambda: names.count() == 2)
        made = aside.submit(http.post, path, json=body)
        wait_until(lambda: names.count() == 3)
        names.release(other)
        assert drop.result(30).is_success
        assert told(made.result(30)) == (404, "DATABASE", "shop"), made.result().text
    assert told(http.get("/databases/shop")) == (404, "DATABASE", "shop")
    assert not (warehouse / "shop.db").exists()
