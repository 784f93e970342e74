"""Tables that CREATE OR REPLACE TABLE gave other columns and keys: Java reads their rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]


def test_java_reads_a_replaced_table_and_its_history(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (id INT, v STRING); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run(
        "CREATE OR REPLACE TABLE t TBLPROPERTIES ('primary-key' = 'v', 'bucket' = '2') "
        "AS SELECT v, CAST(id AS BIGINT) AS id, 'x' AS more FROM t"
    )
    session.run("INSERT INTO t VALUES ('b', 5, 'y'), ('c', 3, 'z')")
    assert sorted(rows(session, "SELECT * FROM t")) == [
        ("a", 1, "x"),
        ("b", 5, "y"),
        ("c", 3, "z"),
    ]
    now = java_paimon.rows(warehouse, "default.t")
    assert sorted(now) == sorted(rows(session, "SELECT * FROM t"))
    session.run("CALL sys.compact('t')")
    assert sorted(map(str, java_paimon.rows(warehouse, "default.t"))) == sorted(map(str, now))


def test_java_reads_a_table_that_got_its_first_rows_back(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (id INT, v STRING); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("CREATE OR REPLACE TABLE t AS SELECT 'x' AS id, 1.5D AS other")
    session.run("REPLACE TABLE t AS SELECT * FROM t VERSION AS OF 1")
    assert sorted(java_paimon.rows(warehouse, "default.t")) == [(1, "a"), (2, "b")]
    at_first = java_paimon.rows(warehouse, "default.t", {"scan.snapshot-id": "1"})
    assert sorted(at_first) == [(1, "a"), (2, "b")]
