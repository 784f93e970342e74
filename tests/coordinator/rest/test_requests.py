"""The REST catalog and requests that no client should send, or that it does not offer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.coordinator.store.state_store import open_store
from tests.coordinator.rest_server import TOKEN, served

FIELDS = [{"id": 0, "name": "k", "type": "BIGINT NOT NULL"}, {"id": 1, "name": "v", "type": "INT"}]
TABLE = "/databases/shop/tables/t"


@contextlib.contextmanager
def shop(warehouse: Path) -> Iterator[httpx.Client]:
    """A client of a catalog with a database and a table."""
    with (
        served({"warehouse": str(warehouse)}) as url,
        httpx.Client(
            base_url=f"{url}/v1/paimon", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as client,
    ):
        client.post("/databases", json={"name": "shop", "options": {}}).raise_for_status()
        create(client, "t").raise_for_status()
        yield client


@pytest.fixture(scope="module")
def http(module_warehouse: Path) -> Iterator[httpx.Client]:
    """One for all requests that change nothing."""
    with shop(module_warehouse) as client:
        yield client


@pytest.fixture
def own(warehouse: Path) -> Iterator[httpx.Client]:
    """One for a test that changes something."""
    with shop(warehouse) as client:
        yield client


def create(http: httpx.Client, name: Any, **schema: Any) -> httpx.Response:
    document = {"fields": FIELDS, "partitionKeys": [], "primaryKeys": [], "options": {}} | schema
    identifier = {"database": "shop", "object": name}
    return http.post("/databases/shop/tables", json={"identifier": identifier, "schema": document})


def error(answer: httpx.Response) -> tuple[int, Any, Any]:
    body = answer.json()
    assert set(body) - {"error"} == {"message", "resourceType", "resourceName", "code"}
    assert body["code"] == answer.status_code
    assert body["message"]
    return body["code"], body["resourceType"], body["resourceName"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
@pytest.mark.parametrize("path", ["", TABLE, f"{TABLE}/snapshot", "/nothing/here"])
def test_without_a_valid_token_nothing_is_readable(
    http: httpx.Client, headers: dict[str, str], path: str
) -> None:
    request = http.build_request("GET", path or "/../config", headers=headers)
    if not headers:
        del request.headers["Authorization"]
    assert error(http.send(request))[0] == 401


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/", "{}/../link", ""])
def test_config_names_the_prefix_of_the_served_warehouse(
    http: httpx.Client, module_warehouse: Path, form: str
) -> None:
    link = module_warehouse.parent / "link"
    if not link.exists():
        link.symlink_to(module_warehouse)
    answer = http.get(
        "/../config", params={"warehouse": form.format(module_warehouse)} if form else {}
    )
    assert answer.json() == {"defaults": {"prefix": "paimon"}, "overrides": {}}


def test_another_warehouse_is_refused(http: httpx.Client) -> None:
    assert error(http.get("/../config", params={"warehouse": "/elsewhere"}))[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"NaN",
        b'{"name": NaN}',
        b'{"name": "a", "name": "b"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("path", ["/databases", "/databases/shop/tables", TABLE, "/tables/rename"])
def test_a_body_that_is_no_json_object_is_a_bad_request(
    http: httpx.Client, path: str, body: bytes
) -> None:
    assert error(http.post(path, content=body))[0] == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/databases", {}),
        ("/databases", {"name": 7}),
        ("/databases", {"name": "x", "options": {"a": 1}}),
        ("/databases", {"name": "x", "options": []}),
        ("/databases/shop", {"removals": {}}),
        ("/databases/shop/tables", {}),
        ("/databases/shop/tables", {"identifier": "t", "schema": {}}),
        ("/databases/shop/tables", {"identifier": {"database": "other", "object": "x"}}),
        ("/tables/rename", {}),
        ("/tables/rename", {"source": {"database": "shop", "object": "t"}, "destination": None}),
        (TABLE, {}),
        (TABLE, {"changes": {}}),
        (TABLE, {"changes": [1]}),
        (TABLE, {"changes": [{}]}),
        (TABLE, {"changes": [{"action": "explode"}]}),
        (TABLE, {"changes": [{"action": "setOption", "key": "a"}]}),
        (TABLE, {"changes": [{"action": "dropColumn", "fieldNames": []}]}),
        (TABLE, {"changes": [{"action": "dropColumn", "fieldNames": "v"}]}),
        (TABLE, {"changes": [{"action": "addColumn", "fieldNames": ["n"]}]}),
        (TABLE, {"changes": [{"action": "addColumn", "fieldNames": ["n"], "dataType": "NUMBERS"}]}),
        (TABLE, {"changes": [{"action": "addColumn", "fieldNames": ["n"], "dataType": {}}]}),
        (
            TABLE,
            {"changes": [{"action": "addColumn", "fieldNames": ["n"],
                          "dataType": {"type": "ROW", "fields": [{"name": 1}]}}]},
        ),
        (TABLE, {"changes": [{"action": "updateColumnPosition", "move": {"fieldName": "k"}}]}),
        (
            TABLE,
            {"changes": [{"action": "updateColumnNullability", "fieldNames": ["k"],
                          "newNullability": "no"}]},
        ),
        (f"{TABLE}/rollback", {}),
        (f"{TABLE}/rollback", {"instant": {"type": "moment"}}),
        (f"{TABLE}/rollback", {"instant": {"type": "snapshot", "snapshotId": "1"}}),
        (f"{TABLE}/tags", {}),
        (f"{TABLE}/tags", {"tagName": "7"}),
        (f"{TABLE}/tags", {"tagName": "x", "snapshotId": "1"}),
        (f"{TABLE}/branches", {}),
        (f"{TABLE}/branches", {"branch": "main"}),
        (f"{TABLE}/branches", {"branch": "12"}),
        (f"{TABLE}/branches/main/rename", {"toBranch": "other"}),
        (f"{TABLE}/branches/main/forward", {}),
    ],
    ids=str,
)  # fmt: skip
def test_a_malformed_request_is_a_bad_request(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    assert error(http.post(path, json=body))[0] == 400


@pytest.mark.parametrize(
    "schema",
    [
        {"fields": {}},
        {"fields": [{"id": 0, "name": "k"}]},
        {"fields": [{"id": 0, "name": "k", "type": "NUMBER"}]},
        {"fields": [{"id": 0, "type": "INT"}]},
        {"fields": [FIELDS[0], FIELDS[0]]},
        {"primaryKeys": ["missing"]},
        {"primaryKeys": "k"},
        {"partitionKeys": [1]},
        {"options": {"bucket": 1}},
        {"options": {"bucket": "many"}},
        {"options": {"merge-engine": "magic"}, "primaryKeys": ["k"]},
        {"primaryKeys": ["k"], "options": {"bucket": "-2", "merge-engine": "first-row",
                                           "deletion-vectors.enabled": "true"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_table_that_engines_would_refuse_is_not_created(
    http: httpx.Client, module_warehouse: Path, schema: dict[str, Any]
) -> None:
    assert error(create(http, "bad", **schema))[0] == 400
    assert not (module_warehouse / "shop.db" / "bad").exists()


def test_engine_options_are_kept_and_mistyped_options_are_logged(
    own: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"schema.watermark.0.rowtime": "ts", "buckt": "4", "team": "red"}
    create(own, "w", options=options).raise_for_status()
    change = {"action": "setOption", "key": "write-onyl", "value": "true"}
    own.post("/databases/shop/tables/w", json={"changes": [change]}).raise_for_status()
    kept = own.get("/databases/shop/tables/w").json()["schema"]["options"]
    assert kept == {**options, "write-onyl": "true"}
    told = [record.getMessage() for record in caplog.records if "mistyped" in record.message]
    assert len(told) == 2
    assert "'buckt' of shop.w" in told[0] and "`bucket`" in told[0]
    assert "'write-onyl'" in told[1] and "`write-only`" in told[1]


def test_refusal_does_not_recommend_another_engine(http: httpx.Client) -> None:
    answer = create(http, "far", options={"type": "format-table"})
    assert error(answer)[0] == 400
    assert "'format-table'" in answer.json()["message"]
    assert "Flink" not in answer.json()["message"]


def test_system_tables_are_not_served(http: httpx.Client) -> None:
    for name in ("t$nope", "t$files", "t$branch_b$files"):
        answer = http.get(f"/databases/shop/tables/{name}")
        assert error(answer) == (404, "TABLE", f"shop.{name}")


def test_a_table_keeps_its_owner(own: httpx.Client) -> None:
    create(own, "owned", options={"owner": "ada", "createdBy": "nobody"}).raise_for_status()
    actual = own.get("/databases/shop/tables/owned").json()
    assert (actual["owner"], actual["schema"]["options"]) == ("ada", {})
    assert own.get(TABLE).json()["owner"] == ""


def test_types_that_only_engines_have_are_kept(own: httpx.Client) -> None:
    fields = [
        FIELDS[0],
        {"id": 1, "name": "m", "type": {"type": "MULTISET", "element": "INT"}},
        {"id": 2, "name": "v", "type": {"type": "VECTOR", "element": "FLOAT", "length": 3}},
    ]
    create(own, "odd", fields=fields).raise_for_status()
    change = {"action": "addColumn", "fieldNames": ["n"], "dataType": "INT"}
    own.post("/databases/shop/tables/odd", json={"changes": [change]}).raise_for_status()
    kept = own.get("/databases/shop/tables/odd").json()["schema"]["fields"]
    assert [field["type"] for field in kept] == [*(field["type"] for field in fields), "INT"]


BAD_NAMES = ["", ".", "..", "../t", "a/b", "a\\b", ".hidden", " t", "t ", "t\n", "t\0", "a$b"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_names_do_not_leave_the_warehouse(
    http: httpx.Client, module_warehouse: Path, name: str
) -> None:
    before = sorted(module_warehouse.rglob("*"))
    posts = [
        ("/databases/shop/tables", {"identifier": {"database": "shop", "object": name},
                                    "schema": {"fields": FIELDS}}),
        ("/tables/rename", {"source": {"database": "shop", "object": "t"},
                            "destination": {"database": "shop", "object": name}}),
        (f"{TABLE}/branches", {"branch": name}),
    ]  # fmt: skip
    if name != "a$b":
        posts += [("/databases", {"name": name}), (f"{TABLE}/tags", {"tagName": name})]
    for path, body in posts:
        assert error(http.post(path, json=body))[0] == 400, path
    assert sorted(module_warehouse.rglob("*")) == before


@pytest.mark.parametrize("written", ["%2E%2E", "..%2Ft", "a%5Cb", "t%00", "%2E%2E%2F%2E%2E", "+"])
@pytest.mark.parametrize(
    "path",
    [
        "/databases/{}",
        "/databases/{}/tables",
        "/databases/shop/tables/{}",
        "/databases/shop/tables/{}/snapshot",
        "/databases/shop/tables/t/tags/{}",
        "/databases/shop/tables/t/snapshots/{}",
    ],
)
def test_paths_do_not_leave_the_warehouse(http: httpx.Client, path: str, written: str) -> None:
    url = httpx.URL(str(http.base_url)).copy_with(
        raw_path=b"/v1/paimon" + path.format(written).encode()
    )
    assert error(http.get(url))[0] == 400
    url = httpx.URL(str(http.base_url)).copy_with(
        raw_path=b"/v1/paimon" + path.format(written).encode()
    )
    assert error(http.delete(url))[0] in (400, 404)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/databases/no", None, ("DATABASE", "no")),
        ("DELETE", "/databases/no", None, ("DATABASE", "no")),
        ("GET", "/databases/no/tables", None, ("DATABASE", "no")),
        ("GET", "/databases/shop/tables/no", None, ("TABLE", "shop.no")),
        ("GET", "/databases/no/tables/t", None, ("TABLE", "no.t")),
        ("GET", "/databases/shop/tables/t$branch_no", None, ("TABLE", "shop.t$branch_no")),
        ("DELETE", "/databases/shop/tables/no", None, ("TABLE", "shop.no")),
        ("POST", "/databases/shop/tables/no", {"changes": []}, ("TABLE", "shop.no")),
        ("POST", TABLE, {"changes": [{"action": "dropColumn", "fieldNames": ["no"]}]},
         ("COLUMN", "no")),
        ("GET", f"{TABLE}/snapshot", None, ("SNAPSHOT", "shop.t")),
        ("GET", f"{TABLE}/tags/no", None, ("TAG", "no")),
        ("DELETE", f"{TABLE}/tags/no", None, ("TAG", "no")),
        ("POST", f"{TABLE}/tags", {"tagName": "x"}, ("SNAPSHOT", "shop.t")),
        ("POST", f"{TABLE}/branches", {"branch": "b", "fromTag": "no"}, ("TAG", "no")),
        ("POST", f"{TABLE}/branches/no/forward", {}, ("BRANCH", "no")),
        ("GET", "/databases/shop/views/no", None, ("VIEW", "shop.no")),
        ("GET", "/databases/shop/functions/no", None, ("FUNCTION", "shop.no")),
        ("GET", "/nothing/here", None, (None, None)),
        ("PUT", "/databases", None, (None, None)),
    ],
    ids=str,
)  # fmt: skip
def test_missing_objects_are_named(
    http: httpx.Client, method: str, path: str, body: Any, expected: tuple[Any, Any]
) -> None:
    assert error(http.request(method, path, json=body)) == (404, *expected)


def test_table_is_returned_by_its_id(http: httpx.Client) -> None:
    table = http.get(TABLE).json()
    assert http.get(f"/tables/id/{table['id']}").json() == table
    assert error(http.get("/tables/id/7")) == (404, "TABLE", "7")


def test_existing_objects_are_named(http: httpx.Client) -> None:
    assert error(http.post("/databases", json={"name": "shop"})) == (409, "DATABASE", "shop")
    assert error(create(http, "t")) == (409, "TABLE", "shop.t")
    change = {"action": "addColumn", "fieldNames": ["v"], "dataType": "INT"}
    assert error(http.post(TABLE, json={"changes": [change]})) == (409, "COLUMN", "v")


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("POST", "/databases/shop/register", "registering"),
        ("GET", "/permissions", "permissions"),
        ("GET", f"{TABLE}/token", "data files"),
        ("POST", f"{TABLE}/auth", "filters"),
        ("POST", f"{TABLE}/partitions", "partitions"),
        ("POST", f"{TABLE}/partitions/drop", "partitions"),
        ("POST", f"{TABLE}/partitions/mark", "partitions"),
        ("POST", f"{TABLE}/partitions/list-by-filter", "partitions"),
    ],
)
def test_unsupported_requests_are_named(
    http: httpx.Client, method: str, path: str, what: str
) -> None:
    answer = http.request(method, path, json={} if method == "POST" else None)
    assert error(answer)[0] == 501
    assert what in answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/databases/shop/tables/nothing/partitions/mark", "TABLE"),
        ("/databases/shop/tables/nothing/partitions/list-by-filter", "TABLE"),
    ],
)
def test_unsupported_request_on_a_missing_object_names_its_kind(
    http: httpx.Client, path: str, kind: str
) -> None:
    assert error(http.post(path, json={}))[:2] == (404, kind)


def test_the_main_branch_cannot_be_dropped(http: httpx.Client) -> None:
    assert error(http.delete(f"{TABLE}/branches/main"))[0] == 400
    assert http.get(TABLE).status_code == 200


def test_unsupported_changes_and_properties_are_refused(http: httpx.Client) -> None:
    primary_key = {"changes": [{"action": "dropPrimaryKey"}]}
    assert error(http.post(TABLE, json=primary_key))[0] == 501
    assert error(http.post("/databases", json={"name": "x", "options": {"a": "b"}}))[0] == 501
    assert error(http.post("/databases/shop", json={"updates": {"a": "b"}}))[0] == 501
    assert error(create(http, "far", options={"path": "/elsewhere"}))[0] == 501


def test_properties_of_databases_are_kept_and_changed(warehouse: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    with (
        served({"warehouse": str(warehouse)}, store=store) as url,
        httpx.Client(
            base_url=f"{url}/v1/paimon", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as http,
    ):

        def options(name: str) -> dict[str, str]:
            document: dict[str, Any] = http.get(f"/databases/{name}").json()
            assert document["location"] == str(warehouse / f"{name}.db")
            assert document["owner"] == document["options"].get("owner", "")
            actual: dict[str, str] = document["options"]
            return actual

        given = {"owner": "spark", "comment": "tills", "location": f"file:{warehouse}/a.db"}
        assert http.post("/databases", json={"name": "a", "options": given}).is_success
        assert options("a") == {"owner": "spark", "comment": "tills"}
        change = {"updates": {"k": "v", "owner": "ada"}, "removals": ["comment", "nope"]}
        assert http.post("/databases/a", json=change).json() == {
            "removed": ["comment"], "updated": ["k", "owner"], "missing": ["nope"],
        }  # fmt: skip
        assert options("a") == {"owner": "ada", "k": "v"}
        assert http.post("/databases/default", json={"updates": {"k": "v"}}).is_success
        assert options("default") == {"k": "v"}
        far = {"name": "far", "options": {"location": "/elsewhere"}}
        assert error(http.post("/databases", json=far))[0] == 400
        assert error(http.post("/databases/a", json={"updates": far["options"]}))[0] == 400
        assert error(http.post("/databases/far", json={"updates": {}}))[:2] == (404, "DATABASE")
        assert error(http.post("/databases/a", json={"removals": [1]}))[0] == 400
        assert http.delete("/databases/a").is_success
        assert http.post("/databases", json={"name": "a", "options": {}}).is_success
        assert options("a") == {}
    store.close()


def test_tables_are_listed_with_details_and_across_databases(own: httpx.Client) -> None:
    own.post("/databases", json={"name": "other"}).raise_for_status()
    details = own.get("/databases/shop/table-details").json()["tableDetails"]
    assert [(d["name"], d["database"], d["schemaId"]) for d in details] == [("t", "shop", 0)]
    everywhere = own.get("/tables", params={"tableNamePattern": "t%"}).json()["tables"]
    assert everywhere == [{"database": "shop", "object": "t"}]


def test_underscore_in_a_pattern_is_literal(own: httpx.Client) -> None:
    for name in ("shop_1", "shops"):
        own.post("/databases", json={"name": name}).raise_for_status()

    def found(pattern: str) -> list[str]:
        answer = own.get("/databases", params={"databaseNamePattern": pattern})
        names: list[str] = answer.json()["databases"]
        return names

    assert found("shop_") == []
    assert found("shop_%") == ["shop_1"]
    assert found("shop%") == ["shop", "shop_1", "shops"]


@pytest.mark.parametrize("pattern", ["%op", "s%p", "s%p%"])
def test_a_wildcard_before_the_end_of_a_pattern_is_a_bad_request(
    http: httpx.Client, pattern: str
) -> None:
    for path, parameter in (
        ("/databases", "databaseNamePattern"),
        ("/databases/shop/tables", "tableNamePattern"),
        (f"{TABLE}/partitions", "partitionNamePattern"),
    ):
        assert error(http.get(path, params={parameter: pattern}))[0] == 400
        assert http.get(path, params={parameter: r"s\%p%%"}).is_success


@pytest.mark.parametrize("count", ["-1", "many", "1.5"])
def test_invalid_page_size_is_a_bad_request(http: httpx.Client, count: str) -> None:
    for path in ("/databases", "/databases/shop/tables", f"{TABLE}/snapshots", f"{TABLE}/tags"):
        assert error(http.get(path, params={"maxResults": count}))[0] == 400


def test_a_table_keeps_its_id_until_it_is_created_again(own: httpx.Client) -> None:
    first = own.get(TABLE).json()["id"]
    change = {"action": "addColumn", "fieldNames": ["n"], "dataType": "INT"}
    own.post(TABLE, json={"changes": [change]}).raise_for_status()
    assert own.get(TABLE).json()["id"] == first
    own.delete(TABLE).raise_for_status()
    create(own, "t").raise_for_status()
    assert own.get(TABLE).json()["id"] != first


def test_column_of_an_unsupported_type_is_still_shown(own: httpx.Client, warehouse: Path) -> None:
    schema = warehouse / "shop.db/t/schema/schema-0"
    text = schema.read_text()
    assert '"INT"' in text
    schema.write_text(text.replace('"INT"', '{"type": "MULTISET", "element": "INT"}'))
    fields = own.get(TABLE).json()["schema"]["fields"]
    assert fields[1]["type"]["type"] == "MULTISET"


def test_full_disk_is_reported_and_the_service_continues(
    warehouse: Path,
) -> None:
    def publish(path: str, content: bytes) -> bool:
        raise OSError(28, "No space left on device")

    with (
        served({"warehouse": str(warehouse)}, publish) as url,
        httpx.Client(
            base_url=f"{url}/v1/paimon", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as http,
    ):
        http.post("/databases", json={"name": "shop"}).raise_for_status()
        create(http, "t").raise_for_status()
        answer = http.post(f"{TABLE}/branches", json={"branch": "b"})
        assert error(answer)[0] == 507
        assert "The warehouse can't be written: No space left on device." in answer.text
        assert http.get(TABLE).status_code == 200
