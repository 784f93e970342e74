"""Primary-key tables in ORC and Avro, also by level, that were written and compacted here: Java
reads the same rows, before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

LAYOUTS = {
    "orc": "'file.format' = 'orc'",
    "avro": "'file.format' = 'avro', 'changelog-producer' = 'input'",
    "by level": "'file.format.per.level' = '0:avro,2:orc', "
    "'num-sorted-run.compaction-trigger' = '2', 'compaction.size-ratio' = '1000'",
    "changelogs": "'changelog-producer' = 'input', 'changelog-file.format' = 'orc', "
    "'file.compression.per.level' = '0:lz4,5:snappy'",
}
COLUMNS = (
    "k BIGINT NOT NULL, y TINYINT, b BOOLEAN, s STRING, at TIMESTAMP_NTZ, d DECIMAL(30, 3), "
    "e DATE, x BINARY, f DOUBLE"
)
ROWS = (
    "SELECT id, CAST(id % 100 AS TINYINT), id % 2 = 0, concat('n', id), "
    "TIMESTAMP_NTZ'2024-01-01 10:00:00.123456', CAST(id AS DECIMAL(30, 3)) / 7, "
    "date_add(DATE'1969-12-30', CAST(id AS INT)), CAST(concat('x', id) AS BINARY), "
    "IF(id = 7, DOUBLE('NaN'), id / 3) FROM range({0}, {1})"
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_java_reads_the_same_rows(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, layout: str
) -> None:
    session.run(
        f"CREATE TABLE t ({COLUMNS}) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', {LAYOUTS[layout]})"
    )
    for start in (0, 5, 10):
        session.run(f"INSERT INTO t {ROWS.format(start, start + 10)}")
    ours = sorted(map(str, session.run("SELECT * FROM t").to_arrow().to_pylist()))
    before = java_paimon.rows(warehouse, "default.t")
    assert len(before) == len(ours) == 20
    session.run("CALL sys.compact('t')")
    assert sorted(map(str, session.run("SELECT * FROM t").to_arrow().to_pylist())) == ours
    assert str(java_paimon.rows(warehouse, "default.t")) == str(before)
