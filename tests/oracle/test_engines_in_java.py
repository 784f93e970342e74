"""Maintenance by Paimon's Java library through a coordinator's REST catalog: expiry, purges,
roll-backs, replaced tables, databases with properties. No table is stopped because of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.coordinator.core.values import Done
from paimon_magics.coordinator.store.state_store import open_store
from tests.coordinator.process import create_table
from tests.coordinator.rest_server import client_options, served
from tests.faults.owner import Owner
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

ONE = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
KEYED = {"primary-key": "k", "bucket": "1", "changelog-producer": "input"}
DECOUPLED = {**KEYED, **ONE, "changelog.num-retained.min": "5", "changelog.num-retained.max": "9"}
TABLES = {
    "append": ONE,
    "keyed": {"primary-key": "k", "bucket": "1", **ONE},
    "decoupled": DECOUPLED,
}
NAME = "default.t"


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    made = Owner(tmp_path)
    yield made
    made.coordinator.stop()


@pytest.fixture
def java_catalog(owner: Owner, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The options for Java of the REST catalog that the coordinator serves."""
    store = open_store(tmp_path / "properties")
    options = {"warehouse": str(owner.warehouse)}
    served_by = served(options, owner.catalog.publish, coordinator=owner.coordinator, store=store)
    with served_by as url:
        yield client_options(url, owner.warehouse)
    store.close()


def create(owner: Owner, options: dict[str, str]) -> None:
    shown = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    create_table(
        owner.warehouse, f"CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ({shown})"
    )


def numbers(owner: Owner) -> list[int]:
    folder = Path(owner.location) / "snapshot"
    return sorted(int(path.name[9:]) for path in folder.glob("snapshot-*"))


@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES.keys())
def test_an_engine_expires_purges_and_rolls_back(
    owner: Owner, java_catalog: dict[str, str], java_paimon: JavaPaimon, options: dict[str, str]
) -> None:
    create(owner, options)
    for k in range(3):
        java_paimon.write(java_catalog, NAME, [(k, "java")])
        owner.commit([{"k": k + 10, "v": "ours"}])
    assert owner.look() == Done()
    assert len(numbers(owner)) <= 2
    assert sorted(k for k, _ in owner.rows()) == [0, 1, 2, 10, 11, 12]
    java_paimon.purge(java_catalog, NAME)
    assert owner.look() == Done()
    latest = owner.latest()
    assert (numbers(owner), owner.rows()) == ([latest], [])
    owner.commit([{"k": 20, "v": "ours"}])
    java_paimon.roll_back(java_catalog, NAME, latest)
    assert owner.look() == Done()
    java_paimon.write(java_catalog, NAME, [(30, "java")])
    owner.commit([{"k": 31, "v": "ours"}])
    assert owner.look() == Done()
    assert sorted(k for k, _ in owner.rows()) == [30, 31]
    assert sorted(k for k, _ in java_paimon.rows(java_catalog, NAME)) == [30, 31]


def test_an_engine_expires_partitions(
    owner: Owner, java_catalog: dict[str, str], java_paimon: JavaPaimon
) -> None:
    create_table(owner.warehouse, "CREATE TABLE t (k INT, v STRING) PARTITIONED BY (v)")
    java_paimon.write(java_catalog, NAME, [(1, "2020-01-01"), (2, "2999-01-01")])
    dropped = java_paimon.expire_partitions(
        java_catalog,
        NAME,
        {
            "partition.expiration-time": "1 d",
            "partition.expiration-check-interval": "0 s",
            "partition.timestamp-formatter": "yyyy-MM-dd",
            "partition.timestamp-pattern": "$v",
        },
    )
    assert (dropped, owner.rows()) == (1, [(2, "2999-01-01")])
    assert owner.look() == Done()


def test_an_engine_replaces_a_table(
    owner: Owner, java_catalog: dict[str, str], java_paimon: JavaPaimon
) -> None:
    create_table(owner.warehouse, "CREATE TABLE t (k INT, v STRING)")
    java_paimon.write(java_catalog, NAME, [(1, "old")])
    java_paimon.replace(java_catalog, NAME, "z")
    java_paimon.write(java_catalog, NAME, [(7,)])
    assert owner.look() == Done()
    assert java_paimon.rows(java_catalog, NAME) == owner.rows() == [(7,)]
    assert java_paimon.rows(java_catalog, NAME, {"scan.snapshot-id": "1"}) == [(1, "old")]


def test_an_engine_creates_a_database_with_properties(
    java_catalog: dict[str, str], java_paimon: JavaPaimon
) -> None:
    actual = java_paimon.create_database(
        java_catalog,
        "shop",
        {"owner": "spark", "comment": "of sales", "a": "1", "b": "2"},
        {"a": None, "b": "3", "nope": None},
    )
    assert {key: actual.get(key) for key in ("owner", "comment", "a", "b")} == {
        "owner": "spark", "comment": "of sales", "a": None, "b": "3",
    }  # fmt: skip
