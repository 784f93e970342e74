"""Tasks that read whole buckets write their changed rows, so that nothing is shuffled."""

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
    on_disk = {path.name for path in folder.glob("bucket-*/*.parquet")}
    listed = session.run(f"SELECT file_path FROM {table}$files").to_pylist()
    return on_disk - {str(row["file_path"]).rpartition("/")[2] for row in listed}


def test_changes_of_few_buckets_are_written_in_the_stage_that_reads_them(
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
    found = session.run("SELECT count(*) AS n, sum(v - k) AS s, min(k % 2) AS o FROM owned")
    assert found.to_pylist() == [{"n": 2000, "s": 2000, "o": 1}]
    assert left_over(session, module_warehouse, "owned") == set()


@pytest.mark.usefixtures("joins_by_shuffles")
def test_rows_that_a_join_has_moved_are_written_by_the_owners_of_their_buckets(
    module_session: Session, module_warehouse: Path
) -> None:
    session = module_session
    filled(session, "moved")
    outcome = session.run("DELETE FROM moved WHERE k IN (SELECT id * 2 FROM range(2000))")
    assert (outcome.rows_deleted, outcome.files_written) == (2000, 4)
    assert new_files(session, "moved") == dict.fromkeys(range(4), 1)
    assert left_over(session, module_warehouse, "moved") == set()
    found = session.run("SELECT count(*) AS n, min(k % 2) AS o FROM moved").to_pylist()
    assert found == [{"n": 2000, "o": 1}]
