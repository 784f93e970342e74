"""CALL sys.copy: the files of a table become those of another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows
from tests.session.statements.procedure_tables import check_refused, events, java_rows

__all__ = ["events"]  # a fixture

pytestmark = pytest.mark.spark

COPY = "CALL sys.copy(source_table => 'events', target_table => '{}')"


def test_copy_has_the_rows_and_files_of_its_own(
    events: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    assert "Would copy 3 files" in events.run(COPY.format("copy"), dry_run=True).message
    assert not (warehouse / "default.db/copy").exists()
    outcome = events.run(COPY.format("copy"))
    assert outcome.to_arrow().to_pylist() == [{"result": True}]
    expected = [(1, "a", "mon"), (2, "b", "tue"), (3, "c", "mon")]
    events.run("DROP TABLE events", confirm=True)
    assert rows(events, "SELECT * FROM copy ORDER BY k") == expected
    assert java_rows(java_paimon, warehouse, "default.copy") == expected


def test_copy_again_replaces_the_partitions_that_it_has(events: Session) -> None:
    events.run(COPY.format("shop.copy"))
    events.run(
        "INSERT INTO shop.copy VALUES (8, 'own', 'mon'), (9, 'own', 'sun');"
        "INSERT INTO events VALUES (4, 'd', 'tue')"
    )
    with pytest.raises(UnconfirmedError, match=r"removes"):
        events.run(COPY.format("shop.copy"), confirm=False)
    events.run(COPY.format("shop.copy"), confirm=True)
    assert rows(events, "SELECT k FROM shop.copy ORDER BY k") == [(1,), (2,), (3,), (4,), (9,)]


def test_copy_takes_chosen_partitions_only(events: Session) -> None:
    events.run("CALL sys.copy('events', 'mondays', \"day = 'mon'\")")
    assert rows(events, "SELECT k FROM mondays ORDER BY k") == [(1,), (3,)]


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_copied_keys_merge_with_later_rows(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, bucket: str
) -> None:
    session.run(
        "CREATE TABLE stock (k INT NOT NULL, v INT) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '{bucket}', 'file-index.bloom-filter.columns' = 'v');"
        "INSERT INTO stock VALUES (1, 1), (2, 2); INSERT INTO stock VALUES (2, 20);"
        "DELETE FROM stock WHERE k = 1; CALL sys.copy('stock', 'copy');"
        "INSERT INTO copy VALUES (2, 21), (3, 3)"
    )
    expected = [(2, 21), (3, 3)]
    assert rows(session, "SELECT * FROM copy ORDER BY k") == expected
    assert java_rows(java_paimon, warehouse, "default.copy") == expected


@pytest.mark.parametrize("keys", ["'bucket' = '-1'", "'primary-key' = 'k', 'bucket' = '2'"])
def test_rows_that_are_deleted_stay_so_in_the_copy(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, keys: str
) -> None:
    session.run(
        "CREATE TABLE marked (k INT NOT NULL, v STRING) TBLPROPERTIES "
        f"('deletion-vectors.enabled' = 'true', {keys});"
        "INSERT INTO marked VALUES (1, 'a'), (2, 'b'), (3, 'c'); DELETE FROM marked WHERE k = 2;"
        "CALL sys.copy('marked', 'copy')"
    )
    expected = [(1, "a"), (3, "c")]
    assert rows(session, "SELECT * FROM copy ORDER BY k") == expected
    assert java_rows(java_paimon, warehouse, "default.copy") == expected
    session.run("DELETE FROM copy WHERE k = 3")
    assert rows(session, "SELECT k FROM copy") == [(1,)]


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
def test_files_are_copied_without_the_columns_that_were_dropped(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, format: str
) -> None:
    session.run(
        "CREATE TABLE events (k INT, v STRING, n INT, day STRING) PARTITIONED BY (day) "
        f"TBLPROPERTIES ('file.format' = '{format}');"
        "INSERT INTO events VALUES (1, 'a', 10, 'mon'), (2, 'b', 20, 'tue');"
        "ALTER TABLE events DROP COLUMN v; INSERT INTO events VALUES (3, 30, 'tue');"
        "CALL sys.copy('events', 'copy')",
        confirm=True,
    )
    expected = [(1, 10, "mon"), (2, 20, "tue"), (3, 30, "tue")]
    assert rows(session, "SELECT * FROM copy ORDER BY k") == expected
    assert rows(session, "SELECT k FROM copy WHERE n > 10 ORDER BY k") == [(2,), (3,)]
    assert java_rows(java_paimon, warehouse, "default.copy") == expected


def test_table_without_rows_is_copied_as_such(session: Session) -> None:
    session.run("CREATE TABLE nothing (k INT COMMENT 'the key'); CALL sys.copy('nothing', 'copy')")
    assert rows(session, "SELECT * FROM copy") == []


@pytest.mark.parametrize(
    ("before", "call", "error", "message"),
    [
        ("SELECT 1", "'event', 'copy'", UnknownNameError, "no table `event`"),
        ("SELECT 1", "'events', 'events'", InvalidValueError, "to itself"),
        ("SELECT 1", "'events', 'spark_catalog.d.t'", UnknownNameError, "not Paimon's"),
        ("SELECT 1", "'events', 'copy$branch_b'", UnsupportedStatementError, "is a branch"),
        ("SELECT 1", "'events', 'copy', 'k = 1'", UnknownNameError, "k"),
        ("SELECT 1", "'events', ''", UnsupportedStatementError, "not a table's name"),
        (
            "CREATE TABLE copy (k INT, v STRING, day STRING)",
            "'events', 'copy'",
            InvalidTableError,
            "partition columns is none there",
        ),
        (
            "CREATE TABLE copy (k BIGINT, v STRING, day STRING) PARTITIONED BY (day)",
            "'events', 'copy'",
            InvalidTableError,
            "column `k` is another one",
        ),
        (
            "CREATE TABLE copy (k INT, v STRING, day STRING) PARTITIONED BY (day) "
            "TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'k')",
            "'events', 'copy'",
            InvalidTableError,
            "'bucket' is 2 there",
        ),
        (
            "ALTER TABLE events RENAME COLUMN v TO w",
            "'events', 'copy'",
            InvalidTableError,
            "lack the column `w`, or have it with another name or type",
        ),
        (
            "ALTER TABLE events ADD COLUMN more INT",
            "'events', 'copy'",
            InvalidTableError,
            "lack the column `more`",
        ),
    ],
)
def test_copy_that_would_be_wrong_is_refused_and_leaves_no_table(
    events: Session, before: str, call: str, error: type[PaimonMagicsError], message: str
) -> None:
    events.run(before, confirm=True)
    tables = rows(events, "SHOW TABLES")
    check_refused(events, f"copy({call})", error, message)
    assert rows(events, "SHOW TABLES") == tables


def test_files_of_a_large_table_are_copied_by_tasks(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paimon_magics.session.statements.table_copies._IN_PROCESS_BYTES_MAX", 0)
    session.run(
        "CREATE TABLE marked (k INT NOT NULL, v STRING, p INT NOT NULL) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k,p', 'bucket' = '2', "
        "'deletion-vectors.enabled' = 'true');"
        "INSERT INTO marked SELECT id, 'v', id % 3 FROM range(30);"
        "DELETE FROM marked WHERE k < 10; CALL sys.copy('marked', 'copy')"
    )
    assert rows(session, "SELECT count(*), min(k), max(k) FROM copy") == [(20, 10, 29)]
