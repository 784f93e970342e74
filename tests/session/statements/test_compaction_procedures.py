"""CALL sys.compact_manifest and sys.compact_database."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, UnknownNameError
from tests.session.rows import rows

pytestmark = pytest.mark.spark

SNAPSHOTS = "SELECT snapshot_id, commit_kind, total_record_count FROM {}$snapshots ORDER BY 1"


@pytest.fixture
def orders(session: Session) -> Session:
    """A table with three manifests."""
    session.run("CREATE TABLE orders (id INT, v STRING)")
    for k in range(3):
        session.run(f"INSERT INTO orders VALUES ({k}, 'a')")
    return session


def manifests(session: Session) -> int:
    ((count,),) = rows(session, "SELECT count(*) FROM orders$manifests")
    return int(count)


def test_compact_manifest_merges_manifests_in_a_single_commit(orders: Session) -> None:
    before = rows(orders, "SELECT * FROM orders")
    outcome = orders.run("CALL sys.compact_manifest(table => 'orders')")
    assert outcome.to_pylist() == [{"result": True}]
    assert (outcome.table, outcome.snapshot_id, outcome.commit_kind) == (
        "default.orders",
        4,
        "COMPACT",
    )
    assert outcome.message == "`default.orders`: 3 manifests became 1 (snapshot 4)."
    assert manifests(orders) == 1
    assert rows(orders, SNAPSHOTS.format("orders"))[-1] == (4, "COMPACT", 3)
    assert rows(orders, "SELECT * FROM orders") == before
    assert rows(orders, "SELECT * FROM paimon_incremental_query('orders', 3, 4)") == []


def test_compact_manifest_without_work_makes_no_commit(orders: Session) -> None:
    orders.run("CALL sys.compact_manifest('orders')")
    outcome = orders.run("CALL sys.compact_manifest('orders')")
    assert outcome.to_pylist() == [{"result": True}]
    assert outcome.message == "`default.orders`: no manifests to merge."
    assert len(rows(orders, SNAPSHOTS.format("orders"))) == 4


def test_a_dry_run_counts_manifests_and_writes_nothing(orders: Session) -> None:
    counted = orders.run("CALL sys.compact_manifest(table => 'orders', dry_run => true)")
    assert counted.to_pylist() == [{"result": True}]
    assert counted.message.startswith("`default.orders`: 3 manifests (")
    assert counted.message.endswith("0 deletions in 0 of them, 3 smaller than 8 MiB.")
    planned = orders.run("CALL sys.compact_manifest('orders')", dry_run=True)
    assert "3 manifests" in planned.message
    assert manifests(orders) == 3


def test_options_change_the_target_size(orders: Session) -> None:
    small = (
        "CALL sys.compact_manifest(table => 'orders', options => 'manifest.target-file-size=1 b')"
    )
    assert orders.run(small).snapshot_id is None
    all_of = "manifest.merge-min-count=1, manifest.target-file-size=1 mb"
    assert orders.run(f"CALL sys.compact_manifest('orders', '{all_of}')").snapshot_id == 4


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        ("sys.compact_manifest('orders', 'x')", InvalidValueError, "'x'"),
        ("sys.compact_manifest('orders', 'bucket=1')", InvalidValueError, "'bucket'"),
        (
            "sys.compact_manifest('orders', 'manifest.target-file-size=big')",
            PaimonMagicsError,
            "manifest.target-file-size",
        ),
        ("sys.compact_manifest('oders')", UnknownNameError, "`oders`"),
        ("sys.compact_database(including_tables => '(')", InvalidValueError, "including_tables"),
    ],
)
def test_error_names_the_wrong_argument(
    orders: Session, call: str, error: type[PaimonMagicsError], told: str
) -> None:
    with pytest.raises(error) as caught:
        orders.run(f"CALL {call}")
    assert told in caught.value.message and caught.value.hint
    assert len(rows(orders, SNAPSHOTS.format("orders"))) == 3


@pytest.fixture
def shop(session: Session) -> Session:
    """Two tables that can be compacted in a database, one in another."""
    session.run("CREATE DATABASE shop; CREATE DATABASE other")
    for table in ("shop.a", "shop.b", "other.a"):
        session.run(
            f"CREATE TABLE {table} (k INT NOT NULL, v STRING) TBLPROPERTIES "
            "('primary-key' = 'k', 'bucket' = '1', 'write-only' = 'true');"
            f"INSERT INTO {table} VALUES (1, 'a'); INSERT INTO {table} VALUES (1, 'b')"
        )
    return session


def compacted(session: Session) -> set[str]:
    tables = ("shop.a", "shop.b", "other.a")
    return {t for t in tables if rows(session, SNAPSHOTS.format(t))[-1][1] == "COMPACT"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {"shop.a", "shop.b", "other.a"}),
        ("including_databases => 'shop'", {"shop.a", "shop.b"}),
        ("including_databases => 'sho'", set()),
        ("including_tables => '.*\\\\.a'", {"shop.a", "other.a"}),
        ("including_tables => 'a'", set()),
        ("excluding_tables => 'shop.*'", {"other.a"}),
        ("'shop', '.*', 'shop.b', 'num-levels=4'", {"shop.a"}),
    ],
)
def test_compact_database_compacts_matching_tables(
    shop: Session, arguments: str, expected: set[str]
) -> None:
    outcome = shop.run(f"CALL sys.compact_database({arguments})", dry_run=True)
    assert all(name in outcome.message for name in expected) and compacted(shop) == set()
    outcome = shop.run(f"CALL sys.compact_database({arguments})")
    text = f"Compact database finished. Success: {len(expected)}, Failed: 0"
    assert outcome.to_pylist() == [{"result": text}]
    assert compacted(shop) == expected


def test_failed_table_does_not_stop_compact_database(shop: Session) -> None:
    outcome = shop.run(
        "CALL sys.compact_database(including_databases => 'shop', options => 'num-levels=none')"
    )
    text = "Compact database finished. Success: 0, Failed: 2"
    assert outcome.to_pylist() == [{"result": text}]
    assert [note.partition(":")[0] for note in outcome.notes] == ["`shop.a`", "`shop.b`"]
    assert "num-levels" in outcome.notes[0] and compacted(shop) == set()
