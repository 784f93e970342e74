"""How many Spark jobs a SELECT takes, and when they run."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from tests.session.evidence import jobs

pytestmark = pytest.mark.spark

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}


@pytest.fixture(scope="module")
def tables(module_session: Session) -> Session:
    """`raw` is read by a raw scan, `merged` by a merge read."""
    module_session.run(
        "CREATE TABLE raw (k BIGINT, p INT, v STRING) PARTITIONED BY (p); "
        "INSERT INTO raw SELECT id, id % 40, 'v' || id FROM range(200); "
        "CREATE TABLE merged (k BIGINT, p INT, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3'); "
        "INSERT INTO merged SELECT id, 0, 'old' FROM range(20); "
        "INSERT INTO merged SELECT id, 1, 'new' FROM range(10, 30)"
    )
    return module_session


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM raw",
        "SELECT k FROM raw WHERE p = 1 AND v > 'v1'",
        "SELECT * FROM merged",
        "SELECT v FROM merged WHERE k = 7",
        "SELECT * FROM raw UNION ALL SELECT * FROM merged",
    ],
)
def test_select_runs_a_single_job_without_shuffle(tables: Session, query: str) -> None:
    session = tables
    before = jobs(session.spark)
    outcome = session.run(query)
    assert jobs(session.spark) <= before, "planning runs no job"
    shown = str(outcome)
    assert len(jobs(session.spark) - before) == 1
    assert str(outcome) == shown
    assert len(jobs(session.spark) - before) == 1, "a page is fetched once"
    before = jobs(session.spark)
    outcome.to_arrow()
    (job,) = jobs(session.spark) - before
    tracker = session.spark.sparkContext.statusTracker()
    assert len(tracker.getJobInfo(job).stageIds) == 1, "a shuffle makes a second stage"
