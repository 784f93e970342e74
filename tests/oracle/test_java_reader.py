"""The oracle itself: what Java writes, it reads back as the same Python values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

ROWS = [
    (
        1,
        True,
        -128,
        2**63 - 1,
        1.5,
        Decimal("-12345678901234567890.123456789"),
        "ünï😀",
        b"\x00\xff",
        datetime.date(1600, 2, 29),
        datetime.datetime(1901, 1, 1, 0, 0, 0, 1),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
        [1, None, 3],
        [("a", 1), ("b", None)],
        {"x": 7, "y": {"z": "deep"}},
    ),
    (2, *[None] * 13),
]


def test_java_reads_back_its_own_rows(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, b BOOLEAN, y TINYINT, l BIGINT, d DOUBLE, "
        "dec DECIMAL(38, 9), s STRING, bin BINARY, day DATE, at TIMESTAMP_NTZ, moment TIMESTAMP, "
        "a ARRAY<INT>, m MAP<STRING, INT>, r STRUCT<x: INT, y: STRUCT<z: STRING>>) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
    )
    java_paimon.write(warehouse, "default.t", ROWS)
    assert java_paimon.rows(warehouse, "default.t") == ROWS


def test_java_deletes_and_upserts(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'input')"
    )
    java_paimon.write(warehouse, "default.t", [(1, "a"), (2, "b"), (3, "c")])
    java_paimon.write(warehouse, "default.t", [(1, "z"), (2, "b")], kinds=["+U", "-D"])
    assert java_paimon.rows(warehouse, "default.t") == [(1, "z"), (3, "c")]
    window = {"incremental-between": "1,2"}
    changes = java_paimon.rows(warehouse, "default.t$audit_log", window)
    assert changes == [("+U", 1, "z"), ("-D", 2, "b")]
