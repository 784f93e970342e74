"""Options stored with a table that change the rows of a read, beside Paimon's Java library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnsupportedStatementError
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]


def set_options(session: Session, **options: str) -> None:
    for key, value in options.items():
        session.run(f"ALTER TABLE t SET TBLPROPERTIES ('{key}' = '{value}')")


def check(session: Session, java: JavaPaimon, warehouse: Path, expected: list[Any]) -> None:
    assert sorted(rows(session, "SELECT * FROM t")) == expected
    assert sorted(java.rows(warehouse, "default.t")) == expected


def test_stored_scan_option_applies_unless_query_overrides_it(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (k INT)")
    for k in (1, 2, 3):
        session.run(f"INSERT INTO t VALUES ({k})")
    set_options(session, **{"scan.snapshot-id": "2"})
    check(session, java_paimon, warehouse, [(1,), (2,)])
    assert [(r.k,) for r in session.table("t").orderBy("k").collect()] == [(1,), (2,)]
    assert len(rows(session, "SELECT * FROM t$files")) == 2
    assert rows(session, "SELECT k FROM t VERSION AS OF 1") == [(1,)]
    session.run("INSERT INTO t VALUES (4)")
    assert len(rows(session, "SELECT * FROM t WITH ('scan.mode' = 'latest-full')")) == 4
    session.run("ALTER TABLE t UNSET TBLPROPERTIES ('scan.snapshot-id')")
    set_options(session, **{"incremental-between": "1,3"})
    # (Java's catalog keeps a table that it has loaded, with the options of that time.)
    assert sorted(rows(session, "SELECT * FROM t")) == [(2,), (3,)]


def test_stored_bucket_option_limits_the_rows_read(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')"
    )
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'a' FROM range(20)")
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'b' FROM range(10)")
    everything = sorted(rows(session, "SELECT * FROM t"))
    set_options(session, **{"scan.bucket": "1"})
    expected = sorted(java_paimon.rows(warehouse, "default.t"))
    assert 0 < len(expected) < len(everything)
    check(session, java_paimon, warehouse, expected)
    assert {kind for kind, *_ in rows(session, "SELECT * FROM t$audit_log")} == {"+I"}


@pytest.mark.parametrize("size", ["small", "large"])
def test_later_commit_wins_with_snapshot_ordering(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, size: str
) -> None:
    """The first writer's rows have higher numbers than the second one's."""
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
        "'bucket' = '1', 'sequence.snapshot-ordering' = 'true', 'write-only' = 'true')"
    )
    count = 10 if size == "small" else 200_000  # of many the keys are merged first
    text = "x" * 200
    many = f"SELECT CAST(id AS INT), concat('first', id, '{text}') FROM range({count})"
    late = java_paimon.prepare(warehouse, "default.t", [(3, "java")])
    session.run(f"INSERT INTO t {many}")
    java_paimon.commit(warehouse, late)
    actual = "SELECT v FROM t WHERE k = 3"
    assert rows(session, actual) == [("java",)]
    session.run("INSERT INTO t VALUES (3, 'last')")
    assert rows(session, actual) == [("last",)]
    if size == "small":
        expected = [(k, f"first{k}{text}") for k in range(count) if k != 3]
        check(session, java_paimon, warehouse, sorted([*expected, (3, "last")]))
    numbers = "'table-read.sequence-number.enabled' = 'true'"
    session.run(f"ALTER TABLE t SET TBLPROPERTIES ({numbers})")
    log = rows(session, "SELECT _SEQUENCE_NUMBER, v FROM t$audit_log WHERE k = 3")
    assert log == [(3, "last")]


@pytest.mark.parametrize(
    ("key", "value"), [("scan.fallback-branch", "b"), ("postpone.merge-on-read", "true")]
)
def test_table_with_unsupported_read_option_is_not_read(
    session: Session, key: str, value: str
) -> None:
    session.run("CREATE TABLE t (k INT)")
    session.run("INSERT INTO t VALUES (1)")
    session.run("CALL sys.create_branch('t', 'b')")
    set_options(session, **{key: value})
    with pytest.raises(UnsupportedStatementError, match=f"'{key}' = '{value}'") as caught:
        session.run("SELECT * FROM t")
    assert f"UNSET TBLPROPERTIES ('{key}')" in caught.value.hint
    assert rows(session, "SELECT * FROM t$branch_b") == []
    session.run("INSERT INTO t VALUES (2)")
    session.run(f"ALTER TABLE t UNSET TBLPROPERTIES ('{key}')")
    assert sorted(rows(session, "SELECT * FROM t")) == [(1,), (2,)]


def test_unsupported_manifest_format_is_named_in_error(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (k INT) TBLPROPERTIES ('manifest.format' = 'orc')")
    java_paimon.write(warehouse, "default.t", [(1,)])
    for statement in ("SELECT * FROM t", "SELECT * FROM t$files"):
        with pytest.raises(UnsupportedStatementError, match=r"format orc") as caught:
            session.run(statement)
        assert "'manifest.format'" in caught.value.hint
