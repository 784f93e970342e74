"""pypaimon with no key of the store but those that a coordinator hands out, at a store that
enforces them: what works with each kind of table, and what the keys don't reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import obstore
import pyarrow as pa
import pytest
from pypaimon import Schema

from tests.backends.minio import minio
from tests.coordinator.data_tokens.test_keys_on_minio import Lake, is_refused, read, write
from tests.coordinator.process import Process

SECONDS = 12
ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
KEYED = {"primary_keys": ["k"]}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "partitioned": {"partition_keys": ["v"]},
    "dynamic": KEYED,
    "fixed": {**KEYED, "options": {"bucket": "2"}},
    "changes": {**KEYED, "options": {"bucket": "1", "changelog-producer": "input"}},
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        bucket = server.bucket()
        coordinator = Process(
            bucket.options["warehouse"],
            tmp_path_factory.mktemp("coordinator") / "state",
            *("--log=warehouse", "--data-tokens=sts", f"--data-token-seconds={SECONDS}"),
            catalog=bucket.options,
        )
        coordinator.start()
        try:
            lake = Lake(bucket, coordinator)
            owner = lake.catalog(lake.token("owner", "write"))
            for database in ("shop", "other"):
                owner.create_database(database, True)
            owner.create_table("other.secret", Schema.from_pyarrow_schema(ROWS), False)
            write(owner, "other.secret", rows({1: "a"}))
            yield lake
        finally:
            coordinator.close()


def rows(values: Mapping[int, str]) -> pa.Table:
    return pa.table({"k": list(values), "v": list(values.values())}, schema=ROWS)


def pairs(catalog: Any, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in read(catalog, name))


@pytest.mark.parametrize("kind", KINDS)
def test_pypaimon_creates_writes_reads_follows_branches_and_drops_with_keys_alone(
    lake: Lake, kind: str
) -> None:
    catalog, name = lake.catalog(lake.token("maker", "write=shop")), f"shop.{kind}"
    catalog.create_table(name, Schema.from_pyarrow_schema(ROWS, **KINDS[kind]), False)
    write(catalog, name, rows({1: "a", 2: "b"}))
    scan = catalog.get_table(name).new_stream_read_builder().new_streaming_scan()
    first = next(islice(scan.stream_sync(), 1))
    assert first.splits()
    write(catalog, name, rows({1: "c", 3: "d"}))
    after = [1, 2, 3] if "primary_keys" in KINDS[kind] else [1, 1, 2, 3]
    assert [pair[0] for pair in pairs(catalog, name)] == after
    for part in ("snapshots", "files", "schemas", "manifests", "partitions", "buckets"):
        assert read(catalog, f"{name}${part}"), part
    catalog.create_tag(name, "one")
    catalog.create_branch(name, "draft", "one")
    write(catalog, f"{name}$branch_draft", rows({4: "e"}))
    assert [pair[0] for pair in pairs(catalog, f"{name}$branch_draft")] == [*after, 4]
    assert [pair[0] for pair in pairs(catalog, name)] == after
    catalog.drop_table(name)
    assert lake.bucket.objects(f"warehouse/shop.db/{kind}") == []


@pytest.mark.parametrize("scope", ["read", "insert", "change", "write"])
def test_no_key_of_a_table_reaches_the_coordinators_folder_or_other_tables(
    lake: Lake, scope: str
) -> None:
    owner, table = lake.catalog(lake.token("owner", "write")), f"own_{scope}"
    owner.create_table(f"shop.{table}", Schema.from_pyarrow_schema(ROWS), False)
    owner.create_table(f"shop.{table}_2", Schema.from_pyarrow_schema(ROWS), False)
    store = lake.key(lake.token(scope, f"{scope}=shop.{table}"), table)
    for folder in ("", ".paimon-magics/", "other.db/", "shop.db/", f"shop.db/{table}_2/"):
        assert is_refused(lambda path=f"warehouse/{folder}": list(obstore.list(store, path)))
    objects = lake.bucket.objects("warehouse")
    hidden = [one for one in objects if f"/{table}/" not in one]
    assert any("/.paimon-magics/" in one for one in hidden)
    for path in hidden:
        assert is_refused(lambda path=path: obstore.get(store, path).bytes())
        assert is_refused(lambda path=path: obstore.put(store, path, b"x"))
        assert is_refused(lambda path=path: obstore.delete(store, path))


def test_dropped_table_has_no_key_and_who_read_it_gets_one_for_the_next_of_its_name(
    lake: Lake,
) -> None:
    owner, token = lake.catalog(lake.token("owner", "write")), lake.token("same", "read=shop")
    reader, schema = lake.catalog(token), Schema.from_pyarrow_schema(ROWS)
    owner.create_table("shop.again", schema, False)
    write(owner, "shop.again", rows({1: "a"}))
    assert pairs(reader, "shop.again") == [(1, "a")]
    owner.drop_table("shop.again")
    path = "/v1/paimon/databases/shop/tables/again/token"
    assert lake.ask(token, path).status_code == 404
    owner.create_table("shop.again", schema, False)
    write(owner, "shop.again", rows({2: "b"}))
    assert pairs(reader, "shop.again") == [(2, "b")]
