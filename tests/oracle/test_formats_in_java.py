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
STRUCTS = ", p STRUCT<i: BIGINT, q: STRUCT<s: STRING>>"
ROWS = (
    "SELECT id, CAST(id % 100 AS TINYINT), id % 2 = 0, concat('n', id), "
    "TIMESTAMP_NTZ'2024-01-01 10:00:00.123456', CAST(id AS DECIMAL(30, 3)) / 7, "
    "date_add(DATE'1969-12-30', CAST(id AS INT)), CAST(concat('x', id) AS BINARY), "
    "IF(id = 7, DOUBLE('NaN'), id / 3){2} FROM range({0}, {1})"
)
STRUCT_VALUES = (
    ", IF(id % 3 = 0, NULL, named_struct('i', id, 'q', "
    "IF(id % 4 = 0, NULL, named_struct('s', concat('q', id)))))"
)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_java_reads_the_same_rows_in_every_layout(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, layout: str
) -> None:
    session.run(
        f"CREATE TABLE t ({COLUMNS}{STRUCTS}) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', {LAYOUTS[layout]})"
    )
    for start in (0, 5, 10):
        rows = ROWS.format(start, start + 10, STRUCT_VALUES)
        session.run(f"INSERT INTO t {rows}")
    ours = sorted(map(str, session.run("SELECT * FROM t").to_arrow().to_pylist()))
    expected = session.run(f"SELECT id AS k{STRUCT_VALUES} AS p FROM range(20)").to_pylist()
    assert session.run("SELECT k, p FROM t ORDER BY k").to_pylist() == expected
    before = java_paimon.rows(warehouse, "default.t")
    assert len(before) == len(ours) == 20
    session.run("CALL sys.compact('t')")
    assert sorted(map(str, session.run("SELECT * FROM t").to_arrow().to_pylist())) == ours
    assert str(java_paimon.rows(warehouse, "default.t")) == str(before)


@pytest.mark.parametrize("partition", ["", "PARTITIONED BY (y)"], ids=["whole", "by partition"])
def test_java_reads_the_same_structs_of_append_tables(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, partition: str
) -> None:
    columns = COLUMNS.replace("k BIGINT NOT NULL", "k BIGINT") + STRUCTS
    session.run(f"CREATE TABLE a ({columns}) {partition} TBLPROPERTIES ('file.format' = 'orc')")
    rows = ROWS.replace("CAST(id % 100 AS TINYINT)", "CAST(id % 3 AS TINYINT)")
    rows = rows.format(0, 3000, STRUCT_VALUES)
    session.run(f"INSERT INTO a {rows}")
    expected = session.run(f"SELECT id AS k{STRUCT_VALUES} AS p FROM range(3000)").to_pylist()
    ours = session.run("SELECT k, p FROM a ORDER BY k").to_pylist()
    assert ours == expected
    theirs = {row[0]: row[-1] for row in java_paimon.rows(warehouse, "default.a")}
    assert theirs == {row["k"]: row["p"] for row in ours}
