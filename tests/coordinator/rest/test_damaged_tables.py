"""A table that can't be read is left out where tables are described, and can be dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from tests.coordinator.rest_server import TOKEN, client_options, served

DATABASE = "/v1/paimon/databases/shop"


@pytest.fixture
def client(warehouse: Path) -> Iterator[httpx.Client]:
    with served({"warehouse": str(warehouse)}) as url:
        catalog = CatalogFactory.create(client_options(url, warehouse))
        catalog.create_database("shop", True)
        schema = Schema.from_pyarrow_schema(pa.schema([("k", pa.int64())]))
        for table in ("bad", "good"):
            catalog.create_table(f"shop.{table}", schema, False)
        (warehouse / "shop.db/bad/schema/schema-0").write_bytes(b"")
        headers = {"authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            yield client


def answer(client: httpx.Client, path: str) -> Any:
    found = client.get(path)
    assert found.status_code == 200, found.text
    return found.json()


def test_details_leave_out_a_damaged_table(client: httpx.Client) -> None:
    assert answer(client, f"{DATABASE}/tables")["tables"] == ["bad", "good"]
    details = answer(client, f"{DATABASE}/table-details")["tableDetails"]
    assert [each["name"] for each in details] == ["good"]
    assert answer(client, f"/v1/paimon/tables/id/{details[0]['id']}")["name"] == "good"
    refused = client.get(f"{DATABASE}/tables/bad")
    assert refused.status_code == 500
    assert "`shop.bad` can't be opened" in refused.json()["message"]


@pytest.mark.parametrize(
    "members",
    [
        {"options": [1]},
        {"options": {"path": 7}},
        {"options": None},
        {"options": {"bucket": {}}},
        {"partitionKeys": 3},
        {"primaryKeys": [[]]},
        {"fields": {}},
        {"fields": [{"id": 0, "name": "\ud800", "type": "INT"}]},
        {"fields": [{"id": 0, "name": "k", "type": []}]},
        {"id": 10**40},
        {"timeMillis": "yesterday"},
        {"timeMillis": 10**40},
        {"comment": "\ud800"},
    ],
    ids=repr,
)
def test_details_tolerate_a_schema_with_wrong_members(
    client: httpx.Client, warehouse: Path, members: dict[str, object]
) -> None:
    good = (warehouse / "shop.db/good/schema/schema-0").read_text()
    bad = warehouse / "shop.db/bad/schema/schema-0"
    bad.write_text(json.dumps({**json.loads(good), **members}))
    details = answer(client, f"{DATABASE}/table-details")["tableDetails"]
    assert "good" in [each["name"] for each in details]
    described = client.get(f"{DATABASE}/tables/bad")
    assert "Internal" not in described.text and "unexpected" not in described.text
    if described.status_code != 200:
        assert "`shop.bad` can't be opened" in described.json()["message"]
        assert [each["name"] for each in details] == ["good"]


def test_damaged_table_can_be_dropped(client: httpx.Client, warehouse: Path) -> None:
    assert client.delete(f"{DATABASE}/tables/bad").status_code == 200
    assert answer(client, f"{DATABASE}/tables")["tables"] == ["good"]
    assert not (warehouse / "shop.db/bad").exists()
    assert client.delete(f"{DATABASE}/tables/bad").status_code == 404
