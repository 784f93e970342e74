"""`CHANGES FROM …`: Spark's clause for changes, with its bounds and columns."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrameReader

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

INSERTED = [(1, "a", "insert", 1), (2, "b", "insert", 1)]
UPDATED = [(2, "c", "update_postimage", 2)]
DELETED = [(1, "a", "delete", 3)]


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    """A session with the table `orders`, whose three snapshots insert, update and delete."""
    module_session.run(
        "CREATE TABLE orders (k INT, v STRING) TBLPROPERTIES "
        "('primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'input', "
        "'write-only' = 'true', 'num-sorted-run.compaction-trigger' = '100');"
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b')"
    )
    module_session.run("UPDATE orders SET v = 'c' WHERE k = 2; DELETE FROM orders WHERE k = 1")
    module_session.run("CALL sys.create_tag(table => 'orders', tag => 'second', snapshot => 2)")
    return module_session


def changes(session: Session, clause: str, table: str = "orders") -> list[tuple[Any, ...]]:
    order = "ORDER BY _commit_version, k, _change_type DESC"
    changed = rows(session, f"SELECT * FROM {table} CHANGES FROM {clause} {order}")
    return [row[:-1] for row in changed]


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("VERSION 1 TO VERSION 3", [*INSERTED, *UPDATED, *DELETED]),
        ("VERSION 1", [*INSERTED, *UPDATED, *DELETED]),
        ("VERSION 1 EXCLUSIVE TO VERSION 2", UPDATED),
        ("VERSION 0 EXCLUSIVE TO VERSION 2 EXCLUSIVE", INSERTED),
        ("VERSION 2 INCLUSIVE TO VERSION 2 INCLUSIVE", UPDATED),
        ("VERSION 2 EXCLUSIVE TO VERSION 2", []),
        ("VERSION 3 EXCLUSIVE", []),
        ("VERSION 'second'", [*UPDATED, *DELETED]),
        ("TIMESTAMP '2020-01-01'", [*INSERTED, *UPDATED, *DELETED]),
        ("TIMESTAMP '2020-01-01' TO TIMESTAMP '2020-02-01'", []),
        ("TIMESTAMP current_timestamp() - INTERVAL 1 DAY WITH ('computeUpdates' = 'true')",
         [*INSERTED, *UPDATED, *DELETED]),
        ("VERSION 1 TO VERSION 3 WITH ('incremental-between-scan-mode' = 'delta')",
         [*INSERTED, *UPDATED, *DELETED]),
    ],
)  # fmt: skip
def test_changes_have_the_bounds_of_spark(
    shop: Session, clause: str, expected: list[tuple[Any, ...]]
) -> None:
    assert changes(shop, clause) == expected


def test_bounds_in_time_are_compared_with_the_times_of_commits(shop: Session) -> None:
    same = (
        "SELECT count(*) FROM orders CHANGES FROM VERSION 1 AS c JOIN orders$snapshots s ON "
        "c._commit_version = s.snapshot_id AND "
        "c._commit_timestamp = CAST(s.commit_time AS TIMESTAMP)"
    )
    assert rows(shop, same) == [(4,)]
    of_rows = rows(
        shop,
        "SELECT DISTINCT _commit_version AS v, _commit_timestamp AS t FROM orders CHANGES FROM "
        "VERSION 1 ORDER BY v",
    )
    first, second, third = (time.astimezone(datetime.UTC) for _, time in of_rows)

    def versions(clause: str) -> list[int]:
        texts = {"a": first.isoformat(), "b": second.isoformat(), "c": third.isoformat()}
        query = f"SELECT DISTINCT _commit_version FROM orders CHANGES FROM {clause} ORDER BY 1"
        return [row[0] for row in rows(shop, query, texts)]

    assert versions("TIMESTAMP :a TO TIMESTAMP :c") == [1, 2, 3]
    assert versions("TIMESTAMP :a EXCLUSIVE TO TIMESTAMP :c EXCLUSIVE") == [2]
    assert versions("TIMESTAMP :b TO TIMESTAMP :b") == [2]
    assert versions("TIMESTAMP (:b::timestamp + INTERVAL 1 MICROSECOND)") == [3]


def test_changes_are_relations_like_others(shop: Session) -> None:
    joined = (
        "SELECT c.v, c._change_type, o.v AS now FROM orders CHANGES FROM VERSION 2 AS c "
        "JOIN orders o USING (k) WHERE c._commit_version = 2 AND c.k = 2 ORDER BY 1"
    )
    assert rows(shop, joined) == [("c", "update_postimage", "c")]
    assert rows(shop, "SELECT count(*) FROM orders CHANGES FROM VERSION 1") == [(4,)]
    kinds = "SELECT _change_type, count(1) FROM orders CHANGES FROM VERSION 3 GROUP BY 1"
    assert rows(shop, kinds) == [("delete", 1)]
    assert rows(shop, "SELECT v AS changes FROM orders changes WHERE k = 2") == [("c",)]
    shop.run("CREATE TABLE log AS SELECT * FROM orders CHANGES FROM VERSION 2 TO VERSION 2")
    assert [row[:4] for row in rows(shop, "SELECT * FROM log ORDER BY v")] == UPDATED
    shop.run(
        "CREATE TEMPORARY VIEW seen AS SELECT k, _change_type FROM orders CHANGES FROM VERSION 3"
    )
    assert rows(shop, "SELECT * FROM seen") == [(1, "delete")]


def test_rows_before_an_update_come_from_the_changelog(shop: Session) -> None:
    shop.run(
        "CREATE TABLE looked_up (k INT, v STRING) TBLPROPERTIES "
        "('primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'lookup');"
        "INSERT INTO looked_up VALUES (1, 'a'); INSERT INTO looked_up VALUES (1, 'b')"
    )
    kinds = "SELECT snapshot_id FROM looked_up$snapshots WHERE commit_kind = 'COMPACT' ORDER BY 1"
    first, second = (row[0] for row in rows(shop, kinds))
    assert changes(shop, "VERSION 1", "looked_up") == [
        (1, "a", "insert", first),
        (1, "a", "update_preimage", second),
        (1, "b", "update_postimage", second),
    ]


@pytest.mark.skipif(not hasattr(DataFrameReader, "changes"), reason="Spark 4.2 has it first")
def test_readers_of_spark_read_changes(shop: Session) -> None:
    def read(**options: object) -> list[tuple[Any, ...]]:
        frame = shop.spark.read.options(**options).changes("orders")
        return [tuple(row)[:-1] for row in frame.orderBy("_commit_version", "k").collect()]

    assert read(startingVersion=2) == [*UPDATED, *DELETED]
    assert read(startingVersion=1, startingBoundInclusive=False, endingVersion=2) == UPDATED
    assert read(startingTimestamp="2020-01-01", endingTimestamp="2020-02-01") == []
    for options in ({}, {"endingVersion": 2}, {"startingVersion": 1, "startingTimestamp": "x"}):
        with pytest.raises(InvalidValueError, match="start"):
            read(**options)
    with pytest.raises(UnsupportedStatementError, match="netChanges"):
        read(startingVersion=1, deduplicationMode="netChanges")


def test_tables_without_a_changelog_show_what_was_appended(shop: Session) -> None:
    shop.run(
        "CREATE TABLE plain (k INT, v STRING) PARTITIONED BY (d INT);"
        "INSERT INTO plain VALUES (1, 'a', 1); INSERT OVERWRITE plain VALUES (2, 'b', 1);"
        "INSERT INTO plain SELECT CAST(id AS INT), 'x', 2 FROM range(0, 20000)"
    )
    counted = (
        "SELECT _commit_version, _change_type, count(*), min(k) FROM plain CHANGES FROM VERSION 1 "
        "GROUP BY 1, 2 ORDER BY 1"
    )
    assert rows(shop, counted) == [(1, "insert", 1, 1), (3, "insert", 20000, 0)]
    shop.run(
        "CALL sys.create_branch('plain', 'trial');INSERT INTO plain$branch_trial VALUES (7, 'y', 3)"
    )
    assert changes(shop, "VERSION 1", "plain$branch_trial") == [(7, "y", 3, "insert", 1)]


@pytest.mark.parametrize(
    ("query", "error", "named"),
    [
        ("orders CHANGES FROM VERSION 3 TO VERSION 2", InvalidValueError, "before"),
        ("orders CHANGES FROM VERSION 0", UnknownNameError, "versions 0"),
        ("orders CHANGES FROM VERSION 9", UnknownNameError, "versions 9"),
        ("orders CHANGES FROM VERSION 1 TO VERSION 4", UnknownNameError, "versions 1 to 4"),
        ("orders CHANGES FROM VERSION 'none'", UnknownNameError, "no tag 'none'"),
        ("orders CHANGES FROM VERSION NULL", InvalidValueError, "NULL"),
        ("orders CHANGES FROM TIMESTAMP rand()", InvalidValueError, "rand"),
        ("orders CHANGES FROM TIMESTAMP '2026-02-01' TO TIMESTAMP '2026-01-01'",
         InvalidValueError, "before"),
        ("orders CHANGES FROM VERSION 1 WITH ('deduplicationMode' = 'netChanges')",
         UnsupportedStatementError, "netChanges"),
        ("orders CHANGES FROM VERSION 1 WITH ('incremental-between-scan-mode' = 'diff')",
         UnsupportedStatementError, "diff"),
        ("orders CHANGES FROM VERSION 1 WITH ('scan.snapshot-id' = '1')",
         UnsupportedStatementError, "scan.snapshot-id"),
        ("orders$audit_log CHANGES FROM VERSION 1", UnsupportedStatementError, "audit_log"),
        ("csv.`a.csv` CHANGES FROM VERSION 1", UnsupportedStatementError, "a.csv"),
        ("csv.`a.csv` VERSION AS OF 1", UnsupportedStatementError, "a.csv"),
        ("named CHANGES FROM VERSION 1", UnsupportedStatementError, "_change_type"),
        ("orders CHANGES FROM VERSION 1 TO TIMESTAMP '2026-01-01'", PaimonMagicsError, "VERSION"),
    ],
)  # fmt: skip
def test_changes_that_make_no_sense_are_refused_by_name(
    shop: Session, query: str, error: type[PaimonMagicsError], named: str
) -> None:
    shop.run("CREATE TABLE IF NOT EXISTS named (_change_type STRING)")
    with pytest.raises(error, match=named):
        shop.run(f"SELECT * FROM {query}")


@pytest.mark.parametrize("clause", ["CHANGES FROM VERSION 1", "VERSION AS OF 1"])
def test_temporary_view_has_no_changes_and_no_versions(shop: Session, clause: str) -> None:
    shop.run("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM orders")
    with pytest.raises(UnsupportedStatementError, match="`seen` is a temporary view"):
        shop.run(f"SELECT * FROM seen {clause}")


def test_overwrites_that_changes_leave_out_are_noted(shop: Session) -> None:
    shop.run(
        "CREATE TABLE moves (id INT, move STRING);"
        "INSERT INTO moves VALUES (1, 'e4'), (2, 'd4');"
        "UPDATE moves SET move = 'Nf3' WHERE id = 2;"
        "INSERT INTO moves VALUES (3, 'c4');"
        "DELETE FROM moves WHERE id = 1"
    )
    for relation in ("moves CHANGES FROM VERSION 1", "paimon_incremental_query('moves', 0, 4)"):
        outcome = shop.run(f"SELECT id FROM {relation} ORDER BY id")
        assert [row["id"] for row in outcome.to_pylist()] == [1, 2, 3]
        (note,) = outcome.notes
        assert "snapshots 2, 4 are left out" in note and "changes default.moves 1..4" in note
    assert not shop.run("SELECT id FROM moves CHANGES FROM VERSION 3 TO VERSION 3").notes


def test_changes_of_single_columns_are_refused(shop: Session) -> None:
    shop.run(
        "CREATE TABLE de (k INT NOT NULL, v STRING) TBLPROPERTIES ('row-tracking.enabled' = "
        "'true', 'data-evolution.enabled' = 'true');"
        "INSERT INTO de VALUES (1, 'a'), (2, 'b');"
        "INSERT INTO de VALUES (3, 'c');"
        "UPDATE de SET v = 'B' WHERE k = 2"
    )
    query = "SELECT k, _commit_version AS version FROM de CHANGES FROM VERSION 1"
    assert rows(shop, f"{query} TO VERSION 2 ORDER BY k") == [(1, 1), (2, 1), (3, 2)]
    with pytest.raises(UnsupportedStatementError, match=r"version 3 .* single columns"):
        shop.run(query)
