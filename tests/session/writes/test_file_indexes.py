"""File indexes that a table asks for lie with its files, and Java leaves files out by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidTableError
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]

OF_MAP = ", 'file-index.bloom-filter.attributes.items' = '10'"
ALL = (
    "'file-index.bloom-filter.columns' = 'b, attributes[colour]', "
    f"'file-index.bloom-filter.b.items' = '200'{OF_MAP}, "
    "'file-index.bitmap.columns' = 'm', 'file-index.range-bitmap.columns' = 'r', "
    "'file-index.bsi.columns' = 's'"
)
KINDS = {
    "parquet": "'bucket' = '-1'",
    "orc": "'file.format' = 'orc'",
    "avro": "'file.format' = 'avro'",
    "keyed": "'primary-key' = 'k', 'bucket' = '1'",
    "in files": "'file-index.in-manifest-threshold' = '10 b', 'data-file.path-directory' = 'data'",
}
ABSENT = [("b", "=", ["51"]), ("m", "=", [51]), ("r", "=", ["51"]), ("s", "=", [51])]
THERE = [("b", "=", ["52"]), ("m", "=", [52]), ("r", "=", ["52"]), ("s", "=", [52])]


def filled(session: Session, options: str) -> None:
    columns = "k INT NOT NULL, b STRING, m INT, r STRING, s BIGINT"
    values = "CAST(id AS INT), STRING(2 * id), CAST(2 * id AS INT), STRING(2 * id), 2 * id"
    if "avro" in options:  # where no MAP is written
        options = options.replace(", attributes[colour]", "").replace(OF_MAP, "")
    else:
        columns += ", attributes MAP<STRING, STRING>"
        values += ", map('colour', STRING(id))"
    session.run(f"CREATE TABLE t ({columns}) TBLPROPERTIES ({options})")
    session.run(f"INSERT INTO t SELECT {values} FROM range(0, 100, 1, 1)")


@pytest.mark.parametrize("kind", KINDS)
def test_java_leaves_out_files_without_the_value(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, kind: str
) -> None:
    filled(session, f"{KINDS[kind]}, {ALL}")
    assert java_paimon.left(warehouse, "default.t", ABSENT) == [[], [], [], []]
    left = java_paimon.left(warehouse, "default.t", THERE)
    assert all(26 in rows for rows in left)
    files = list((warehouse / "default.db" / "t").glob("**/*.index"))
    assert len(files) == 1
    assert len(java_paimon.rows(warehouse, "default.t")) == 100
    assert session.run("SELECT count(*) AS n FROM t WHERE m = 52").to_arrow().to_pylist() == [
        {"n": 1}
    ]


def test_compacted_files_have_indexes_too(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(session, f"{KINDS['keyed']}, 'write-only' = 'true', {ALL}")
    session.run("INSERT INTO t SELECT * FROM t WHERE k < 50")
    before = set((warehouse / "default.db" / "t").glob("**/*.index"))
    session.run("CALL sys.compact(table => 'default.t', compact_strategy => 'full')")
    assert set((warehouse / "default.db" / "t").glob("**/*.index")) > before
    assert java_paimon.left(warehouse, "default.t", ABSENT) == [[], [], [], []]
    assert all(26 in rows for rows in java_paimon.left(warehouse, "default.t", THERE))


def test_a_small_index_lies_in_the_manifest(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(
        session,
        "'file-index.bloom-filter.columns' = 'm', 'file-index.bloom-filter.m.items' = '200'",
    )
    assert java_paimon.left(warehouse, "default.t", [("m", "=", [51])]) == [[]]
    assert not list((warehouse / "default.db" / "t").glob("**/*.index"))


def test_without_an_index_the_file_is_read(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    filled(session, "'file.format' = 'avro'")
    assert all(java_paimon.left(warehouse, "default.t", ABSENT))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("'file-index.bloom-filter.columns' = 'm', 'file-index.bloom-filter.m.fpp' = '2'", "fpp"),
        ("'file-index.bitmap.columns' = 'm', 'file-index.bitmap.m.version' = '3'", "version"),
    ],
)
def test_what_an_option_can_not_be_is_told_before_anything_is_written(
    session: Session, warehouse: Path, options: str, told: str
) -> None:
    with pytest.raises(InvalidTableError) as caught:
        filled(session, options)
    assert told in caught.value.message and caught.value.hint
    assert not list((warehouse / "default.db" / "t").glob("**/*.parquet"))
