"""The REST catalog with pypaimon's own client, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.catalog import catalog_exception as missing
from pypaimon.common.identifier import Identifier
from pypaimon.common.json_util import JSON
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import Move, SchemaChange
from pypaimon.snapshot.snapshot_commit import PartitionStatistics
from pypaimon.table.instant import Instant

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.served import NameLocks
from paimon_magics.tables.stores.local_store import publish_local_file
from tests.coordinator.process import wait_until
from tests.coordinator.rest_server import TOKEN, client_options, served

ARROW = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.string())])
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def url(warehouse: Path) -> Iterator[str]:
    with served({"warehouse": str(warehouse)}) as address:
        yield address


@pytest.fixture
def catalog(url: str, warehouse: Path) -> Any:
    return CatalogFactory.create(client_options(url, warehouse))


@pytest.fixture
def table(catalog: Any) -> Any:
    return make_table(catalog)


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{url}/v1/paimon", headers=HEADERS) as client:
        yield client


def make_table(catalog: Any, name: str = "shop.t", **arguments: Any) -> Any:
    catalog.create_database("shop", True)
    catalog.create_table(name, Schema.from_pyarrow_schema(ARROW, **arguments), False)
    return catalog.get_table(name)


def write(table: Any, *rows: tuple[int, str, str]) -> None:
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    columns = [list(column) for column in zip(*rows, strict=True)]
    writer.write_arrow(pa.Table.from_arrays([pa.array(c) for c in columns], schema=ARROW))
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()


def read(table: Any) -> list[tuple[Any, ...]]:
    builder = table.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(tuple(row.values()) for row in found.to_pylist())


def snapshot_files(warehouse: Path, table: str = "shop.db/t") -> list[str]:
    return sorted(path.name for path in (warehouse / table / "snapshot").glob("snapshot-*"))


# ---- databases and tables ----


def test_databases_are_created_listed_and_dropped(catalog: Any, warehouse: Path) -> None:
    catalog.create_database("shop", False)
    catalog.create_database("a space", False)
    assert catalog.list_databases() == ["a space", "shop"]
    assert catalog.list_databases_paged(database_name_pattern="sh%").elements == ["shop"]
    assert catalog.get_database("shop").options["location"] == str(warehouse / "shop.db")
    with pytest.raises(missing.DatabaseAlreadyExistException):
        catalog.create_database("shop", False)
    with pytest.raises(missing.DatabaseNotExistException):
        catalog.get_database("missing")
    make_table(catalog)
    catalog.drop_database("shop", cascade=True)
    catalog.drop_database("a space")
    assert catalog.list_databases() == []
    with pytest.raises(missing.DatabaseNotExistException):
        catalog.get_database("default")
    catalog.create_database("default", False)
    with pytest.raises(missing.DatabaseAlreadyExistException):
        catalog.create_database("default", False)
    assert catalog.list_databases() == ["default"]
    catalog.drop_database("default", False, False)
    assert catalog.list_databases() == []


def test_pages_are_ordered_and_complete(catalog: Any) -> None:
    for name in "cadb":
        make_table(catalog, f"shop.{name}")
    page = catalog.list_tables_paged("shop", max_results=3)
    assert page.elements == ["a", "b", "c"]
    rest = catalog.list_tables_paged("shop", max_results=3, page_token=page.next_page_token)
    assert rest.elements == ["d"]
    assert rest.next_page_token is None
    assert catalog.list_tables_paged("shop", table_name_pattern="b%").elements == ["b"]
    assert catalog.list_tables_paged("shop", table_type="format-table").elements == []


def test_created_table_has_its_schema_and_options(catalog: Any, warehouse: Path) -> None:
    table = make_table(
        catalog,
        partition_keys=["p"],
        primary_keys=["k", "p"],
        options={"bucket": "2", "merge-engine": "deduplicate"},
        comment="rows of a shop",
    )
    assert table.table_path == str(warehouse / "shop.db" / "t")
    assert [str(field.type) for field in table.fields] == ["BIGINT NOT NULL", "STRING",
                                                           "STRING NOT NULL"]  # fmt: skip
    assert table.table_schema.options["bucket"] == "2"
    assert table.table_schema.comment == "rows of a shop"
    plain = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("shop.t")
    assert plain.table_schema.fields == table.table_schema.fields
    assert plain.table_schema.primary_keys == ["k", "p"]
    assert set(plain.table_schema.options) == {"bucket", "merge-engine"}


def test_rows_are_written_and_read(table: Any, catalog: Any, warehouse: Path) -> None:
    write(table, (1, "a", "x"), (2, "b", "y"))
    write(table, (3, "c", "x"))
    assert read(catalog.get_table("shop.t")) == [(1, "a", "x"), (2, "b", "y"), (3, "c", "x")]
    assert snapshot_files(warehouse) == ["snapshot-1", "snapshot-2"]
    snapshot = catalog.load_snapshot("shop.t")
    assert (snapshot.snapshot.id, snapshot.record_count) == (2, 3)


def test_keys_are_upserted_and_partitions_listed(catalog: Any, http: httpx.Client) -> None:
    table = make_table(catalog, partition_keys=["p"], primary_keys=["k", "p"],
                       options={"bucket": "1"})  # fmt: skip
    write(table, (1, "a", "x"), (2, "b", "y"))
    write(table, (1, "z", "x"))
    assert read(table) == [(1, "z", "x"), (2, "b", "y")]
    partitions = catalog.list_partitions_paged("shop.t").elements
    assert [(p.spec, p.record_count, p.file_count, p.total_buckets) for p in partitions] == [
        ({"p": "y"}, 1, 1, 1),
        ({"p": "x"}, 2, 2, 1),
    ]
    first = catalog.list_partitions_paged("shop.t", max_results=1)
    assert [each.spec for each in first.elements] == [{"p": "y"}]
    second = catalog.list_partitions_paged(
        "shop.t", max_results=1, page_token=first.next_page_token
    )
    assert [each.spec for each in second.elements] == [{"p": "x"}]
    assert second.next_page_token is None
    answer = http.post(
        "/databases/shop/tables/t/partitions/list-by-names",
        json={"specs": [{"p": "y"}, {"p": "z"}, {}]},
    )
    assert [each["spec"] for each in answer.json()["partitions"]] == [{"p": "y"}]
    catalog.drop_partitions("shop.t", [{"p": "x"}])
    assert read(table) == [(2, "b", "y")]


def test_blank_partitions_are_listed_like_null_partitions(catalog: Any) -> None:
    """As Java's library does: their folders have that name, too."""
    table = make_table(catalog, partition_keys=["p"])
    write(table, (1, "a", "  "), (2, "b", None), (3, "c", "x"))
    partitions = catalog.list_partitions_paged("shop.t").elements
    assert [(p.spec["p"], p.record_count) for p in partitions] == [
        ("x", 1),
        ("__DEFAULT_PARTITION__", 1),
        ("__DEFAULT_PARTITION__", 1),
    ]
    second = catalog.list_partitions_paged("shop.t", 1, "p=x")
    assert [p.record_count for p in second.elements] == [1, 1]
    assert second.next_page_token is None


def test_columns_and_options_are_altered(table: Any, catalog: Any) -> None:
    write(table, (1, "a", "x"))
    catalog.alter_table(
        "shop.t",
        [
            SchemaChange.add_column("n", AtomicType("INT"), "a number", None),
            SchemaChange.rename_column("v", "w"),
            SchemaChange.update_column_comment("k", "the key"),
            SchemaChange.set_option("snapshot.num-retained.max", "20"),
        ],
    )
    altered = catalog.get_table("shop.t")
    assert [field.name for field in altered.fields] == ["k", "w", "p", "n"]
    assert altered.fields[0].description == "the key"
    assert altered.table_schema.options["snapshot.num-retained.max"] == "20"
    assert altered.table_schema.id == 1
    assert read(altered) == [(1, "a", "x", None)]
    catalog.alter_table(
        "shop.t",
        [
            SchemaChange.drop_column("n"),
            SchemaChange.remove_option("snapshot.num-retained.max"),
            SchemaChange.update_comment("said later"),
        ],
    )
    altered = catalog.get_table("shop.t")
    assert [field.name for field in altered.fields] == ["k", "w", "p"]
    assert "snapshot.num-retained.max" not in altered.table_schema.options
    assert altered.table_schema.comment == "said later"
    for default in ("'none'", ""):  # what Spark sends to set a default, and to drop it
        change = SchemaChange.update_column_default_value(["w"], default)
        catalog.alter_table("shop.t", [change])
        assert catalog.get_table("shop.t").fields[1].default_value == (default or None)


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (Move.first("p"), ["p", "k", "v"]),
        (Move.after("k", "p"), ["v", "p", "k"]),
        (Move.before("p", "v"), ["k", "p", "v"]),
        (Move.before("v", "k"), ["v", "k", "p"]),
        (Move.last("k"), ["v", "p", "k"]),
    ],
)
def test_columns_are_moved(table: Any, catalog: Any, move: Any, expected: list[str]) -> None:
    move.type = move.type.value  # pypaimon's client can't write its own enumeration as JSON
    catalog.alter_table("shop.t", [SchemaChange.update_column_position(move)])
    assert [field.name for field in catalog.get_table("shop.t").fields] == expected


def test_a_table_is_renamed_and_dropped(table: Any, catalog: Any) -> None:
    write(table, (1, "a", "x"))
    make_table(catalog, "shop.other")
    with pytest.raises(missing.TableAlreadyExistException):
        catalog.rename_table("shop.t", "shop.other")
    with pytest.raises(missing.TableNotExistException):
        catalog.rename_table("shop.missing", "shop.new")
    catalog.rename_table("shop.t", "shop.new")
    assert catalog.list_tables("shop") == ["new", "other"]
    assert read(catalog.get_table("shop.new")) == [(1, "a", "x")]
    catalog.drop_table("shop.new")
    assert catalog.list_tables("shop") == ["other"]
    with pytest.raises(missing.TableNotExistException):
        catalog.drop_table("shop.new")


def test_writer_of_a_recreated_table_is_refused(table: Any, catalog: Any) -> None:
    catalog.drop_table("shop.t")
    make_table(catalog)
    with pytest.raises(missing.TableNotExistException):
        commit(table, catalog, snapshot_of_a_write(table))
    assert read(catalog.get_table("shop.t")) == []


# ---- tags, branches, roll-back ----


def test_tags_are_created_listed_and_deleted(table: Any, catalog: Any) -> None:
    write(table, (1, "a", "x"))
    catalog.create_tag("shop.t", "first")
    write(table, (2, "b", "x"))
    catalog.create_tag("shop.t", "second", snapshot_id=2, time_retained="12 h")
    with pytest.raises(missing.TagAlreadyExistException):
        catalog.create_tag("shop.t", "first")
    catalog.create_tag("shop.t", "first", ignore_if_exists=True)
    assert catalog.list_tags_paged("shop.t").elements == ["first", "second"]
    assert catalog.list_tags_paged("shop.t", tag_name_prefix="se").elements == ["second"]
    assert catalog.get_tag("shop.t", "first").snapshot.id == 1
    second = catalog.get_tag("shop.t", "second")
    assert (second.snapshot.id, second.tag_time_retained) == (2, "PT12H")
    assert second.tag_create_time is not None
    assert table.tag_manager().get("second").trim_to_snapshot().id == 2
    catalog.delete_tag("shop.t", "first")
    with pytest.raises(missing.TagNotExistException):
        catalog.get_tag("shop.t", "first")
    with pytest.raises(ValueError, match="99"):
        catalog.create_tag("shop.t", "third", snapshot_id=99)


def test_excessive_tag_retention_is_refused_with_the_maximum(
    table: Any, http: httpx.Client
) -> None:
    write(table, (1, "a", "x"))
    tags = "/databases/shop/tables/t/tags"
    answer = http.post(tags, json={"tagName": "a", "timeRetained": "999999999999 d"})
    assert answer.status_code == 400
    assert "'999999999999 d': the longest time is 1000000 d" in answer.json()["message"]
    assert http.get(tags).json()["tags"] == []
    options = {"action": "setOption", "key": "tag.default-time-retained", "value": "1000001 d"}
    answer = http.post("/databases/shop/tables/t", json={"changes": [options]})
    assert answer.status_code == 400
    assert "1000000 d" in answer.json()["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "tags", {"tagName": "b"}),
        ("POST", "tags", {"tagName": "b", "snapshotId": 1}),
        ("DELETE", "tags/a", None),
        ("POST", "branches", {"branch": "c", "fromTag": "a"}),
        ("DELETE", "branches/b", None),
        ("POST", "branches/b/rename", {"toBranch": "c"}),
    ],
)
def test_change_after_a_concurrent_drop_names_the_missing_table(
    warehouse: Path, method: str, path: str, body: dict[str, Any] | None
) -> None:
    names = NameLocks(Runtime())
    options = {"warehouse": str(warehouse)}
    with (
        served(options, names=names) as url,
        ThreadPoolExecutor(1) as pool,
        httpx.Client(base_url=f"{url}/v1/paimon", headers=HEADERS, timeout=60) as http,
    ):
        catalog = CatalogFactory.create(client_options(url, warehouse))
        table = make_table(catalog)
        write(table, (1, "a", "x"))
        catalog.create_tag("shop.t", "a")
        catalog.create_branch("shop.t", "b", "a")
        other = names.lock(["\0shop\0t"])  # of a statement that drops the table
        answer = pool.submit(http.request, method, f"/databases/shop/tables/t/{path}", json=body)
        wait_until(lambda: names.count() == 2)
        CatalogFactory.create(options).drop_table("shop.t")
        names.release(other)
        told = answer.result(60)
    assert told.status_code == 404
    assert (told.json()["resourceType"], told.json()["resourceName"]) == ("TABLE", "shop.t")


def test_tag_on_a_table_without_snapshots_names_the_table(table: Any, http: httpx.Client) -> None:
    answer = http.post("/databases/shop/tables/t/tags", json={"tagName": "a"})
    assert answer.status_code == 404
    assert (answer.json()["resourceType"], answer.json()["resourceName"]) == ("SNAPSHOT", "shop.t")


def test_branch_is_written_and_fast_forwarded(table: Any, catalog: Any) -> None:
    write(table, (1, "a", "x"))
    catalog.create_tag("shop.t", "start")
    catalog.create_branch("shop.t", "b", "start")
    with pytest.raises(missing.BranchAlreadyExistException):
        catalog.create_branch("shop.t", "b", "start")
    with pytest.raises(missing.TagNotExistException):
        catalog.create_branch("shop.t", "c", "missing")
    branch = catalog.get_table(Identifier.create("shop", "t", branch="b"))
    write(branch, (2, "b", "x"))
    assert read(branch) == [(1, "a", "x"), (2, "b", "x")]
    assert read(table) == [(1, "a", "x")]
    assert catalog.list_branches("shop.t") == ["b"]
    catalog.rename_branch("shop.t", "b", "c")
    assert catalog.list_branches("shop.t") == ["c"]
    catalog.fast_forward("shop.t", "c")
    assert read(catalog.get_table("shop.t")) == [(1, "a", "x"), (2, "b", "x")]
    catalog.drop_branch("shop.t", "c")
    assert catalog.list_branches("shop.t") == []
    with pytest.raises(missing.BranchNotExistException):
        catalog.drop_branch("shop.t", "c")
    write(table, (3, "c", "x"))
    assert len(read(table)) == 3


def test_fast_forward_over_a_diverged_main_keeps_the_branch_history(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    write(table, (1, "a", "x"))
    catalog.create_tag("shop.t", "start")
    catalog.create_branch("shop.t", "b", "start")
    write(catalog.get_table(Identifier.create("shop", "t", branch="b")), (2, "b", "x"))
    for k in (3, 4):
        write(table, (k, "c", "x"))
    catalog.create_tag("shop.t", "three", snapshot_id=3)
    catalog.alter_table("shop.t", [SchemaChange.set_option("note", "only here")])
    catalog.fast_forward("shop.t", "b")
    table = catalog.get_table("shop.t")
    assert read(table) == [(1, "a", "x"), (2, "b", "x")]
    assert "note" not in table.table_schema.options
    assert snapshot_files(warehouse) == ["snapshot-1", "snapshot-2"]
    assert catalog.list_tags_paged("shop.t").elements == ["start"]
    write(table, (5, "d", "x"))
    assert [row[0] for row in read(table)] == [1, 2, 5]
    catalog.create_branch("shop.t", "empty")
    write(catalog.get_table(Identifier.create("shop", "t", branch="empty")), (9, "e", "x"))
    catalog.fast_forward("shop.t", "empty")
    assert read(catalog.get_table("shop.t")) == [(9, "e", "x")]


def test_schema_rolls_back_unless_a_later_schema_is_referenced(
    table: Any, catalog: Any, http: httpx.Client
) -> None:
    def roll_back(schema_id: int) -> str:
        path = "/databases/shop/tables/t/rollback-schema"
        answer = http.post(path, json={"schemaId": schema_id})
        return str(answer.json().get("message", ""))

    write(table, (1, "a", "x"))
    name = "shop.t"
    for value in "12":
        catalog.alter_table(name, [SchemaChange.set_option("note", value)])
    assert "no schema 9" in roll_back(9)
    assert roll_back(1) == ""
    assert catalog.get_table(name).table_schema.options["note"] == "1"
    catalog.alter_table(name, [SchemaChange.set_option("note", "3")])
    write(catalog.get_table(name), (2, "b", "x"))
    assert "Cannot rollback to schema 1, schema 2 is still referenced" in roll_back(1)
    assert catalog.get_table(name).table_schema.options["note"] == "3"


def test_a_table_is_rolled_back_and_written_again(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    for k in range(1, 5):
        write(table, (k, "a", "x"))
    catalog.create_tag("shop.t", "two", snapshot_id=2)
    catalog.create_tag("shop.t", "four", snapshot_id=4)
    with pytest.raises(Exception, match="4 is not 3"):
        catalog.rollback_to("shop.t", Instant.snapshot(1), from_snapshot=3)
    with pytest.raises(ValueError, match="99"):
        catalog.rollback_to("shop.t", Instant.snapshot(99))
    with pytest.raises(ValueError, match="missing"):
        catalog.rollback_to("shop.t", Instant.tag("missing"))
    catalog.rollback_to("shop.t", Instant.snapshot(3), from_snapshot=4)
    assert [row[0] for row in read(catalog.get_table("shop.t"))] == [1, 2, 3]
    assert catalog.list_tags_paged("shop.t").elements == ["two"]
    catalog.rollback_to("shop.t", Instant.tag("two"))
    assert snapshot_files(warehouse) == ["snapshot-1", "snapshot-2"]
    write(table, (9, "z", "x"))
    assert [row[0] for row in read(table)] == [1, 2, 9]


def test_rollback_removes_changelogs_of_expired_snapshots(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    write(table, (1, "a", "x"))
    catalog.create_tag("shop.t", "one", snapshot_id=1)
    for k in range(2, 5):
        write(table, (k, "a", "x"))
    folder = warehouse / "shop.db/t"
    (folder / "changelog").mkdir()
    for number in (1, 2, 3):  # as Java expires them
        name = f"snapshot-{number}"
        (folder / "snapshot" / name).rename(folder / "changelog" / f"changelog-{number}")
    (folder / "snapshot/EARLIEST").write_text("4")
    (folder / "changelog/LATEST").write_text("3")
    catalog.rollback_to("shop.t", Instant.tag("one"))
    left = {path.name: path.read_text() for path in (folder / "changelog").iterdir()}
    assert set(left) == {"changelog-1", "LATEST"} and left["LATEST"] == "1"
    write(table, (9, "z", "x"))
    assert [row[0] for row in read(table)] == [1, 9]


def test_commit_with_an_empty_user_is_accepted(
    table: Any, http: httpx.Client, warehouse: Path
) -> None:
    """Paimon's `expire_partitions` commits as the user ""."""
    snapshot = json.loads(JSON.to_json(snapshot_of_a_write(table)[1]))
    path = "/databases/shop/tables/t/commit"
    answer = http.post(path, json={"snapshot": snapshot | {"commitUser": ""}})
    assert answer.json() == {"success": True}
    assert snapshot_files(warehouse) == ["snapshot-1"]


def replacement(*names: str, **schema: Any) -> dict[str, Any]:
    fields = [{"id": 7, "name": name, "type": "INT"} for name in names]
    none: dict[str, Any] = {"partitionKeys": [], "primaryKeys": [], "options": {}}
    return {"schema": {"fields": fields, **none, **schema}}


def test_a_replaced_table_keeps_its_history(
    table: Any, catalog: Any, http: httpx.Client, warehouse: Path
) -> None:
    write(table, (1, "a", "x"))
    before = http.get("/databases/shop/tables/t").json()
    path = "/databases/shop/tables/t/replace"
    body = replacement("z", options={"a.b": "1"}, comment="new")
    assert http.post(path, json=body).json() == {}
    after = http.get("/databases/shop/tables/t").json()
    assert (after["id"], after["schemaId"]) == (before["id"], before["schemaId"] + 1)
    assert [field["name"] for field in after["schema"]["fields"]] == ["z"]
    assert (after["schema"]["options"], after["schema"]["comment"]) == ({"a.b": "1"}, "new")
    assert read(catalog.get_table("shop.t")) == []
    latest = http.get("/databases/shop/tables/t/snapshot").json()["snapshot"]["snapshot"]
    assert (latest["id"], latest["commitKind"], latest["totalRecordCount"]) == (2, "OVERWRITE", 0)
    at_first = catalog.get_table("shop.t").copy({"scan.snapshot-id": "1"})
    assert len(read(at_first)) == 1
    names = sorted(path.name for path in (warehouse / "shop.db/t/schema").glob("schema-*"))
    assert names == ["schema-0", "schema-1"]
    assert not list((warehouse / "shop.db/t").glob(".attempts/*"))


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (replacement("z", partitionKeys=["z"]), 501, "partition keys"),
        (replacement("z", primaryKeys=["nope"]), 400, "nope"),
        ({}, 400, "schema"),
    ],
    ids=["partitions", "key", "nothing"],
)
def test_refused_replacement_leaves_the_table_unchanged(
    table: Any, http: httpx.Client, body: Any, code: int, message: str
) -> None:
    write(table, (1, "a", "x"))
    answer = http.post("/databases/shop/tables/t/replace", json=body)
    assert (answer.status_code, answer.json()["code"]) == (code, code)
    assert message in answer.json()["message"]
    assert read(table) == [(1, "a", "x")]
    assert http.get("/databases/shop/tables/t").json()["schemaId"] == 0


def test_missing_table_is_not_replaced(catalog: Any, http: httpx.Client) -> None:
    catalog.create_database("shop", True)
    answer = http.post("/databases/shop/tables/nope/replace", json=replacement("z"))
    assert (answer.status_code, answer.json()["resourceType"]) == (404, "TABLE")


def test_rollback_restores_an_expired_snapshot_from_its_tag(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    for k in range(1, 4):
        write(table, (k, "a", "x"))
    catalog.create_tag("shop.t", "one", snapshot_id=1)
    (warehouse / "shop.db/t/snapshot/snapshot-1").unlink()
    catalog.rollback_to("shop.t", Instant.tag("one"))
    assert snapshot_files(warehouse) == ["snapshot-1"]
    assert read(catalog.get_table("shop.t")) == [(1, "a", "x")]


def test_consumers_are_listed_set_and_forgotten(
    table: Any, http: httpx.Client, warehouse: Path
) -> None:
    path = "/databases/shop/tables/t/consumers"
    assert http.get(path).json() == {"consumers": [], "nextPageToken": None}

    def reset(consumer: Any, snapshot: Any = None) -> httpx.Response:
        return http.post(f"{path}/reset", json={"consumerId": consumer, "nextSnapshotId": snapshot})

    assert reset("a", 7).is_success and reset("b.c", 1).is_success and reset("a", 3).is_success
    shown = [{"consumerId": "a", "nextSnapshot": 3}, {"consumerId": "b.c", "nextSnapshot": 1}]
    assert http.get(path).json()["consumers"] == shown
    page = http.get(path, params={"maxResults": 1}).json()
    assert page == {"consumers": shown[:1], "nextPageToken": "a"}
    assert table.consumer_manager().min_next_snapshot() == 1  # as engines and expiry read it
    assert reset("b.c").is_success and reset("nobody").is_success
    assert http.get(path).json()["consumers"] == shown[:1]
    for name in ("", "a/b", "../a", 7):
        assert reset(name, 1).status_code == 400
    assert reset("a", "x").status_code == 400
    for number in (0, -7):
        refused = reset("a", number)
        assert refused.status_code == 400 and f"can't be {number}" in refused.json()["message"]
    assert http.get("/databases/shop/tables/no/consumers").status_code == 404
    assert [each.name for each in (warehouse / "shop.db/t/consumer").iterdir()] == ["consumer-a"]


def test_snapshots_are_listed_and_loaded_by_version(table: Any, http: httpx.Client) -> None:
    for k in range(1, 4):
        write(table, (k, "a", "x"))
    root = "/databases/shop/tables/t/snapshots"
    page = http.get(root, params={"maxResults": 2}).json()
    assert [snapshot["id"] for snapshot in page["snapshots"]] == [1, 2]
    rest = http.get(root, params={"maxResults": 2, "pageToken": page["nextPageToken"]}).json()
    assert [snapshot["id"] for snapshot in rest["snapshots"]] == [3]
    assert rest["nextPageToken"] is None
    http.post("/databases/shop/tables/t/tags", json={"tagName": "mid", "snapshotId": 2})
    actual = {v: http.get(f"{root}/{v}").json()["snapshot"]["id"]
             for v in ("EARLIEST", "LATEST", "2", "mid")}  # fmt: skip
    assert actual == {"EARLIEST": 1, "LATEST": 3, "2": 2, "mid": 2}
    missing_one = http.get(f"{root}/77")
    assert missing_one.status_code == 404
    assert missing_one.json()["resourceType"] == "SNAPSHOT"


# ---- commits ----


class Caught(Exception):
    pass


def snapshot_of_a_write(table: Any, *rows: tuple[int, str, str]) -> tuple[Any, Any]:
    """What a pypaimon client would send for a write: base uuid and snapshot, not sent."""
    caught: list[Any] = []

    def catch(base_uuid: Any, snapshot: Any, statistics: Any) -> bool:
        caught.append((base_uuid, snapshot))
        raise Caught

    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    rows = rows or ((7, "g", "x"),)
    columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    writer.write_arrow(pa.Table.from_arrays(columns, schema=ARROW))
    committer.file_store_commit.snapshot_commit.commit = catch
    committer.file_store_commit.commit_max_retries = 0
    with pytest.raises(Exception):  # noqa: B017
        committer.commit(writer.prepare_commit())
    writer.close()
    return caught[0]


def commit(table: Any, catalog: Any, prepared: tuple[Any, Any]) -> bool:
    base_uuid, snapshot = prepared
    uuid = table.catalog_environment.uuid
    result: bool = catalog.commit_snapshot(
        Identifier.from_string("shop.t"), uuid, base_uuid, snapshot, [PartitionStatistics.create()]
    )
    return result


def test_resent_commit_makes_a_single_snapshot(table: Any, catalog: Any, warehouse: Path) -> None:
    write(table, (1, "a", "x"))
    prepared = snapshot_of_a_write(table)
    assert commit(table, catalog, prepared)
    assert commit(table, catalog, prepared)
    write(table, (8, "h", "x"))
    assert commit(table, catalog, prepared)
    assert snapshot_files(warehouse) == ["snapshot-1", "snapshot-2", "snapshot-3"]
    assert [row[0] for row in read(table)] == [1, 7, 8]


def test_commit_prepared_again_makes_a_single_snapshot(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    base_uuid, snapshot = snapshot_of_a_write(table)
    assert commit(table, catalog, (base_uuid, snapshot))
    again = JSON.from_json(JSON.to_json(snapshot), type(snapshot))
    again.uuid, again.id = "another-uuid", 2
    assert commit(table, catalog, (snapshot.uuid, again))
    assert snapshot_files(warehouse) == ["snapshot-1"]


def test_commits_with_the_same_user_and_number_make_two_snapshots(
    table: Any, warehouse: Path
) -> None:
    builder = table.new_batch_write_builder()
    for k in (1, 2):
        writer, committer = builder.new_write(), builder.new_commit()
        writer.write_arrow(pa.table([[k], ["a"], ["x"]], schema=ARROW))
        committer.commit(writer.prepare_commit())
    assert [row[0] for row in read(table)] == [1, 2]
    users = [json.loads((warehouse / "shop.db/t/snapshot" / name).read_text())["commitUser"]
             for name in snapshot_files(warehouse)]  # fmt: skip
    assert len(users) == 2
    assert len(set(users)) == 1


def test_commit_on_an_outdated_base_fails(table: Any, catalog: Any, warehouse: Path) -> None:
    prepared = snapshot_of_a_write(table)
    write(table, (1, "a", "x"))
    assert not commit(table, catalog, prepared)
    prepared[1].id = 2
    assert not commit(table, catalog, prepared)  # the id fits, the base does not
    assert snapshot_files(warehouse) == ["snapshot-1"]


def test_concurrent_commits_on_a_base_have_a_single_winner(
    table: Any, catalog: Any, warehouse: Path
) -> None:
    write(table, (1, "a", "x"))
    prepared = [snapshot_of_a_write(table, (k, "a", "x")) for k in range(8)]
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda p=p: results.append(commit(table, catalog, p)))
        for p in prepared
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]
    assert snapshot_files(warehouse) == ["snapshot-1", "snapshot-2"]


def test_commit_with_a_lost_reply_makes_a_single_snapshot(warehouse: Path) -> None:
    lost = [True]

    def publish(path: str, content: bytes) -> bool:
        created = publish_local_file(path, content)
        if created and "/snapshot/" in path and lost:
            lost.clear()
            raise OSError("the reply is lost")
        return created

    with served({"warehouse": str(warehouse)}, publish) as url:
        table = make_table(CatalogFactory.create(client_options(url, warehouse)))
        write(table, (1, "a", "x"))
        assert not lost
        assert read(table) == [(1, "a", "x")]
        assert snapshot_files(warehouse) == ["snapshot-1"]


def test_snapshot_keeps_unknown_members(table: Any, http: httpx.Client, warehouse: Path) -> None:
    base_uuid, snapshot = snapshot_of_a_write(table)
    document = json.loads(JSON.to_json(snapshot)) | {"operation": "WRITE"}
    answer = http.post(
        "/databases/shop/tables/t/commit",
        json={"baseSnapshotUuid": base_uuid, "snapshot": document},
    )
    assert answer.json() == {"success": True}
    stored = json.loads((warehouse / "shop.db/t/snapshot/snapshot-1").read_text())
    assert stored == document


def test_commit_without_a_base_is_checked_by_its_id(table: Any, http: httpx.Client) -> None:
    write(table, (1, "a", "x"))
    first, second = (json.loads(JSON.to_json(snapshot_of_a_write(table)[1])) for _ in range(2))
    for document, expected in [(first, True), (second, False)]:
        answer = http.post("/databases/shop/tables/t/commit", json={"snapshot": document})
        assert answer.json() == {"success": expected}


@pytest.mark.parametrize("metastore", ["rest", "jdbc"])
def test_coordinator_serves_other_kinds_of_catalogs(
    url: str, warehouse: Path, tmp_path: Path, metastore: str
) -> None:
    behind = client_options(url, warehouse)
    if metastore == "jdbc":
        uri = f"jdbc:sqlite:{tmp_path / 'catalog.sqlite'}"
        behind = {"metastore": "jdbc", "uri": uri, "warehouse": str(warehouse)}
    with served(behind) as outer:
        catalog = CatalogFactory.create(client_options(outer, warehouse))
        table = make_table(catalog)
        write(table, (1, "a", "x"))
        catalog.alter_table("shop.t", [SchemaChange.rename_column("v", "w")])
        assert [field.name for field in catalog.get_table("shop.t").fields] == ["k", "w", "p"]
        assert catalog.load_snapshot("shop.t").snapshot.id == 1
        assert snapshot_files(warehouse) == ["snapshot-1"]
        catalog.rename_table("shop.t", "shop.u")
        assert read(catalog.get_table("shop.u")) == [(1, "a", "x")]
        catalog.drop_table("shop.u")
        assert catalog.list_tables("shop") == []


def broken(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda snapshot: {"snapshot": snapshot | changes}


BAD_COMMITS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda snapshot: {}, "snapshot must be an object"),
    (lambda snapshot: {"snapshot": []}, "snapshot must be an object"),
    (lambda snapshot: {"snapshot": {}}, "snapshot.id"),
    (lambda snapshot: {"snapshot": snapshot, "baseSnapshotUuid": 7}, "baseSnapshotUuid"),
    (lambda snapshot: {"snapshot": snapshot, "tableId": 7}, "tableId"),
    (lambda snapshot: {"snapshot": snapshot, "statistics": {}}, "statistics"),
    (lambda snapshot: {"snapshot": snapshot, "statistics": [1]}, "statistics[0]"),
    (broken(id=0), "snapshot.id"),
    (broken(id=True), "snapshot.id"),
    (broken(id="1"), "snapshot.id"),
    (broken(id=2**63), "snapshot.id"),
    (broken(version=99), "version 99"),
    (broken(schemaId=5), "no schema 5"),
    (broken(schemaId=-1), "no schema -1"),
    (broken(commitKind="DELETE"), "commitKind"),
    (broken(commitUser=None), "commitUser"),
    (broken(timeMillis=1.5), "timeMillis"),
    (broken(properties={"a": 1}), "properties"),
    (broken(deltaManifestList="../../other/manifest/list"), "deltaManifestList"),
    (broken(indexManifest="a/b"), "indexManifest"),
    (broken(deltaManifestList="manifest-list-of-nobody"), "does not exist"),
    (broken(baseManifestList="manifest-list-of-nobody"), "does not exist"),
    (broken(indexManifest="index-manifest-of-nobody"), "does not exist"),
]


@pytest.mark.parametrize(("body", "message"), BAD_COMMITS, ids=[m for _, m in BAD_COMMITS])
def test_a_malformed_commit_is_refused_and_nothing_published(
    table: Any,
    http: httpx.Client,
    warehouse: Path,
    body: Callable[[dict[str, Any]], Any],
    message: str,
) -> None:
    snapshot = json.loads(JSON.to_json(snapshot_of_a_write(table)[1]))
    answer = http.post("/databases/shop/tables/t/commit", json=body(snapshot))
    assert answer.status_code == 400
    assert answer.json()["code"] == 400
    assert message in answer.json()["message"]
    assert snapshot_files(warehouse) == []


def test_commit_with_a_missing_data_file_is_refused(
    table: Any, http: httpx.Client, warehouse: Path
) -> None:
    snapshot = json.loads(JSON.to_json(snapshot_of_a_write(table)[1]))
    for path in (warehouse / "shop.db/t").rglob("data-*"):
        path.unlink()
    answer = http.post("/databases/shop/tables/t/commit", json={"snapshot": snapshot})
    assert answer.status_code == 400
    assert "data-" in answer.json()["message"]
    assert snapshot_files(warehouse) == []
