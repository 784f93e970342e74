"""Files whose file indexes tell that a wanted value is absent are not read, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from paimon_magics import Session
from tests.oracle.java_reader import JavaPaimon
from tests.session.evidence import jobs
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]

INDEXES = (
    "'file-index.bloom-filter.columns' = 'k, b', 'file-index.bloom-filter.k.items' = '40', "
    "'file-index.bloom-filter.b.items' = '40', 'file-index.bloom-filter.k.fpp' = '0.001', "
    "'file-index.bloom-filter.b.fpp' = '0.001', 'file-index.bitmap.columns' = 'm'"
)
MORE = "'file-index.range-bitmap.columns' = 'r', 'file-index.bsi.columns' = 's'"
PLACES = {
    "in the manifest": "'file-index.in-manifest-threshold' = '1 mb'",
    "beside the files": "'file-index.in-manifest-threshold' = '10 b'",
}
KINDS = {
    "append": "'bucket' = '-1'",
    "keyed": "'primary-key' = 'k', 'bucket' = '1', 'write-only' = 'true'",
}
FILES = 4
ROW = (41, "v41", 123, 41, -41)


def values(number: int) -> list[tuple[int, str, int, int, int]]:
    """The rows of a file: every fourth number, so that bounds tell nothing."""
    return [
        (each, f"v{each}", 3 * each, each, -each) for each in range(number, 120 + number, FILES)
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", ["java", "here"])
def test_query_opens_only_files_whose_index_admits_the_value(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    writer: str,
    kind: str,
    place: str,
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, b STRING, m INT, r BIGINT, s INT) "
        f"TBLPROPERTIES ({KINDS[kind]}, {INDEXES}, {MORE}, {PLACES[place]})"
    )
    folder, kept = warehouse / "default.db" / "t", set[Path]()
    for number in range(FILES):
        if writer == "java":
            java_paimon.write(warehouse, "default.t", values(number))
        else:
            session.run(
                "INSERT INTO t SELECT CAST(id AS INT), concat('v', id), CAST(3 * id AS INT), id, "
                f"CAST(-id AS INT) FROM range({number}, {120 + number}, {FILES}, 1)"
            )
        if number == 1:
            kept = set(folder.glob("bucket-*/*.parquet"))
        elif number == 0:
            first = set(folder.glob("bucket-*/*.parquet"))
    wanted = {"k = 41": ROW, "k IN (41, 44000)": ROW}
    if kind == "append":
        wanted |= {
            "b = 'v41'": ROW,
            "m = 123": ROW,
            "r = 41": ROW,
            "s IN (-41, 41, 400)": ROW,
            "m IN (123, 122) AND b = 'v41'": ROW,
        }
    explained = str(session.explain("SELECT * FROM t WHERE k = 41"))
    assert "file indexes: 1 file of 1 bucket" in explained
    frame = session.table("t")  # Spark looks for all files of its scan when that is made
    for file in set(folder.glob("bucket-*/*.parquet")) - (kept - first):
        file.unlink()
    for condition, row in wanted.items():
        assert rows(session, f"SELECT * FROM t WHERE {condition}") == [row], condition
        assert [tuple(each) for each in frame.where(condition).collect()] == [row]
    actual = frame.where((F.col("k") == 41) & (F.col("m") > 0)).collect()
    assert [tuple(each) for each in actual] == [ROW]
    before = jobs(session.spark)
    assert rows(session, "SELECT * FROM t WHERE k = 500 AND m = 3") == []
    assert jobs(session.spark) == before


def test_conditions_beyond_the_index_read_all_files(session: Session, warehouse: Path) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, b STRING, m INT) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '1', 'write-only' = 'true', {INDEXES}, "
        f"{PLACES['beside the files']})"
    )
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'old', 1 FROM range(0, 40, 2, 1)")
    session.run("INSERT INTO t SELECT CAST(id AS INT), 'new', 2 FROM range(0, 39, 1, 1)")
    # The row that hides it does not have the value: a file is left out by its keys only.
    assert rows(session, "SELECT count(k) FROM t WHERE b = 'old'") == [(0,)]
    assert rows(session, "SELECT count(k) FROM t WHERE m = 1 OR k = 3") == [(1,)]
    session.run("ALTER TABLE t UNSET TBLPROPERTIES ('file-index.bitmap.columns')")
    session.run("ALTER TABLE t RENAME COLUMN m TO n; ALTER TABLE t ADD COLUMN m INT")
    session.run("CALL sys.compact(table => 'default.t', compact_strategy => 'full')")
    assert rows(session, "SELECT count(k) FROM t WHERE n = 2") == [(39,)]
    assert rows(session, "SELECT count(k) FROM t WHERE m = 2") == [(0,)]
    assert rows(session, "SELECT count(k) FROM t WHERE b = 'old'") == [(0,)]
    for index in (warehouse / "default.db" / "t").glob("**/*.index"):
        index.unlink()  # the rows are right without it
    session._connection.plans.clear_reads()
    assert rows(session, "SELECT n FROM t WHERE b = 'new' AND k = 7") == [(2,)]
