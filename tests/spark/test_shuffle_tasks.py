"""With how many tasks the shuffles of a statement begin, and that the session is left as it was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from paimon_magics import Session
from paimon_magics.spark.session_settings import few_shuffle_tasks
from tests.session.spark_settings import settings

pytestmark = pytest.mark.spark

INITIAL = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
USUAL = "spark.sql.shuffle.partitions"
MIB = 2**20


@pytest.mark.parametrize(
    ("size_bytes", "slots", "tasks"),
    [
        (0.0, 2, "8"),
        (128.0 * MIB, 2, "8"),
        (129.0 * MIB, 2, "9"),
        (3200.0 * MIB, 2, None),  # as many as the session's own
        (0.0, 50, None),
        (None, 2, None),
    ],
)
def test_initial_shuffle_tasks_follow_size_within_session_setting(
    spark: SparkSession, size_bytes: float | None, slots: int, tasks: str | None
) -> None:
    with settings(spark, **{USUAL: "200"}):
        with few_shuffle_tasks(spark, size_bytes, slots):
            assert spark.conf.get(INITIAL, None) == tasks
        assert spark.conf.get(INITIAL, None) is None


def test_initial_number_set_by_session_is_kept(spark: SparkSession) -> None:
    with settings(spark, **{INITIAL: "17"}):
        with few_shuffle_tasks(spark, 0, 2):
            assert spark.conf.get(INITIAL) == "17"
        assert spark.conf.get(INITIAL) == "17"


def test_overlapping_statements_restore_session_setting(spark: SparkSession) -> None:
    with settings(spark, **{USUAL: "200"}):
        first, second = few_shuffle_tasks(spark, 0, 2), few_shuffle_tasks(spark, 0, 4)
        with first:
            second.__enter__()
            assert spark.conf.get(INITIAL) == "8"
        assert spark.conf.get(INITIAL) == "8"
        second.__exit__(None, None, None)
        assert spark.conf.get(INITIAL, None) is None


@pytest.mark.parametrize(
    ("options", "in_python", "few"),
    [
        ("", False, True),
        ("'primary-key' = 'k', 'bucket' = '2'", False, True),
        ("", True, False),  # Spark can't tell how many rows a function gives
    ],
)
def test_merge_of_few_rows_uses_few_shuffle_tasks(
    session: Session, options: str, *, in_python: bool, few: bool
) -> None:
    """Where Spark joins no small tasks, the stages show with how many they began."""
    spark = session.spark
    source = spark.sql("SELECT id * 3 AS k, 'new' AS v FROM range(40000)")
    if in_python:
        source = source.mapInArrow(lambda rows: rows, source.schema)
    properties = f" TBLPROPERTIES ({options})" if options else ""
    session.run(f"CREATE TABLE few_tasks (k BIGINT NOT NULL, v STRING){properties}")
    session.run("INSERT INTO few_tasks SELECT id, concat('v', id) FROM range(150000)")
    with (
        settings(
            spark,
            **{
                USUAL: "60",
                "spark.sql.autoBroadcastJoinThreshold": "-1",
                "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
                "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1b",
            },
        ),
        stages_of_jobs(spark) as tasks,
    ):
        merge = session.merge(source, "few_tasks", on="t.k = s.k")
        outcome = merge.when_matched_update().when_not_matched_insert().run()
    assert (outcome.rows_updated, outcome.rows_inserted) == (40000, 0)
    assert max(tasks) < 60 if few else max(tasks) == 60


@contextmanager
def stages_of_jobs(spark: SparkSession) -> Iterator[list[int]]:
    """The numbers of tasks of the stages of the body's jobs, once it has ended."""
    context, tasks, group = spark.sparkContext, list[int](), f"stages-{time.monotonic_ns()}"
    context.setJobGroup(group, "")
    try:
        yield tasks
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    tracker = context.statusTracker()
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        assert job is not None
        stages = [tracker.getStageInfo(stage_id) for stage_id in job.stageIds]
        tasks += [stage.numTasks for stage in stages if stage is not None]
