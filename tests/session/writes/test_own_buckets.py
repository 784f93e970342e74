"""Tasks that read whole buckets or files write their changed rows, so that nothing is shuffled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics import Session
from tests.session.evidence import jobs

pytestmark = pytest.mark.spark

SETTINGS = {"local_rows_max": 0}  # Spark reads the tables, small as they are
BY_SHUFFLES = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}


@pytest.fixture
def joins_by_shuffles(module_session: Session) -> Iterator[None]:
    conf = module_session.spark.conf
    before = {key: conf.get(key) for key in BY_SHUFFLES}
    for key, value in BY_SHUFFLES.items():
        conf.set(key, value)
    yield
    for key, value in before.items():
        assert value is not None
        conf.set(key, value)


def filled(session: Session, table: str) -> None:
    session.run(
        f"CREATE TABLE {table} (k BIGINT NOT NULL, v BIGINT, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '4');"
        f"INSERT INTO {table} SELECT id, id FROM range(4000)"
    )


def new_files(session: Session, table: str) -> Counter[int]:
    """How many files of level 0 with the newest numbers each bucket has."""
    query = f"SELECT bucket FROM {table}$files WHERE min_sequence_number > 0 AND level = 0"
    return Counter(row["bucket"] for row in session.run(query).to_pylist())


def left_over(session: Session, warehouse: Path, table: str) -> set[str]:
    """The names of data files on the disk that no snapshot has."""
    folder = warehouse / "default.db" / table
    result = {path.name for path in folder.glob("bucket-*/*.parquet")}
    for row in session.run(f"SELECT snapshot_id AS id FROM {table}$snapshots").to_pylist():
        listed = session.run(f"SELECT file_path FROM {table}$files VERSION AS OF {row['id']}")
        result -= {str(row["file_path"]).rpartition("/")[2] for row in listed.to_pylist()}
    return result


def test_bucket_changes_are_written_in_the_reading_stage(
    module_session: Session, module_warehouse: Path
) -> None:
    session = module_session
    filled(session, "owned")
    for statement in (
        "UPDATE owned SET v = v + 1 WHERE k % 2 = 1",
        "DELETE FROM owned WHERE k % 2 = 0 AND v >= 0",
    ):
        before = jobs(session.spark)
        assert (session.run(statement).files_written, statement) == (4, statement)
        (job,) = jobs(session.spark) - before
        info = session.spark.sparkContext.statusTracker().getJobInfo(job)
        assert info is not None
        assert len(info.stageIds) == 1
    assert new_files(session, "owned") == dict.fromkeys(range(4), 2)
    actual = session.run("SELECT count(*) AS n, sum(v - k) AS s, min(k % 2) AS o FROM owned")
    assert actual.to_pylist() == [{"n": 2000, "s": 2000, "o": 1}]
    assert left_over(session, module_warehouse, "owned") == set()


@pytest.mark.usefixtures("joins_by_shuffles")
def test_rows_moved_by_join_are_written_by_bucket_owners(
    module_session: Session, module_warehouse: Path
) -> None:
    session = module_session
    filled(session, "moved")
    outcome = session.run("DELETE FROM moved WHERE k IN (SELECT id * 2 FROM range(2000))")
    assert (outcome.rows_deleted, outcome.files_written) == (2000, 4)
    assert new_files(session, "moved") == dict.fromkeys(range(4), 1)
    assert left_over(session, module_warehouse, "moved") == set()
    actual = session.run("SELECT count(*) AS n, min(k % 2) AS o FROM moved").to_pylist()
    assert actual == [{"n": 2000, "o": 1}]


FILES = {
    "written_anew": "'write-only' = 'true'",
    "marked": "'deletion-vectors.enabled' = 'true', 'write-only' = 'true'",
}


def with_files(session: Session, table: str) -> None:
    """A table of three files, whose keys descend."""
    session.run(f"CREATE TABLE {table} (k BIGINT, v BIGINT) TBLPROPERTIES ({FILES[table]})")
    for first in (0, 1000, 2000):
        session.run(f"INSERT INTO {table} SELECT {first} + 999 - id, 0 FROM range(0, 1000, 1, 1)")


@pytest.mark.parametrize("table", FILES)
def test_file_changes_are_written_in_the_reading_stage(
    module_session: Session, module_warehouse: Path, table: str
) -> None:
    session = module_session
    with_files(session, table)
    for statement in (
        f"UPDATE {table} SET v = v + 1 WHERE k % 2 = 1 AND k < 2000",
        f"DELETE FROM {table} WHERE k % 4 = 0",
    ):
        before = jobs(session.spark)
        outcome = session.run(statement)
        assert outcome.rows_updated or outcome.rows_deleted
        (job,) = jobs(session.spark) - before
        info = session.spark.sparkContext.statusTracker().getJobInfo(job)
        assert info is not None
        assert len(info.stageIds) == 1
    actual = session.run(f"SELECT count(*) AS n, sum(v) AS v, sum(k) AS k FROM {table}").to_pylist()
    kept = [key for key in range(3000) if key % 4]
    assert actual == [{"n": len(kept), "v": 1000, "k": sum(kept)}]
    assert left_over(session, module_warehouse, table) == set()


@pytest.mark.usefixtures("joins_by_shuffles")
@pytest.mark.parametrize("table", FILES)
def test_rows_moved_by_function_are_written_by_file_owners(
    module_session: Session, module_warehouse: Path, table: str
) -> None:
    session = module_session
    session.run(f"DROP TABLE IF EXISTS {table}")
    with_files(session, table)
    session.spark.range(0, 3003, 3).createOrReplaceTempView("of_three")
    session.spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION is_of_three(n BIGINT) RETURNS BOOLEAN "
        "RETURN EXISTS (SELECT 1 FROM of_three WHERE id = n)"
    )
    try:
        outcome = session.run(f"DELETE FROM {table} WHERE is_of_three(k)")
        assert outcome.rows_deleted == 1000
        outcome = session.run(f"UPDATE {table} SET v = 1 WHERE NOT is_of_three(k + 1)")
        assert outcome.rows_updated == 1000
    finally:
        session.spark.sql("DROP TEMPORARY FUNCTION is_of_three")
    actual = session.run(f"SELECT count(*) AS n, sum(v) AS v, sum(k) AS k FROM {table}").to_pylist()
    assert actual == [{"n": 2000, "v": 1000, "k": sum(key for key in range(3000) if key % 3)}]
    assert left_over(session, module_warehouse, table) == set()
