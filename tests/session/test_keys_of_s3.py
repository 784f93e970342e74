"""Keys of S3 in Spark's tasks: which they have, and what a refusal of them is called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import SetupError
from tests.backends.s3 import Bucket, Reply, S3Server, s3_server
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Spark's tasks read all files, however few they are.
IN_TASKS = {"local_rows_max": 0, "coordinator": "in-process"}
TABLE = "CREATE TABLE t (k INT NOT NULL, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def test_tasks_use_keys_that_came_into_the_environment_after_spark_had_started(
    spark: SparkSession, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(server.endpoint)
    options = {k: v for k, v in bucket.options.items() if not k.endswith("-key")}
    spark.range(4).rdd.map(lambda row: row.id).sum()  # Python workers are there
    seen: set[str] = set()

    def between(environment: Any, hand_on: Any) -> Reply:
        authorization = environment.get("HTTP_AUTHORIZATION", "")
        seen.add(authorization.partition("Credential=")[2].partition("/")[0])
        if "Credential=late-key/" not in authorization:
            return Reply.error("403 Forbidden", "AccessDenied")
        return hand_on()

    server.between = between
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "late-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "late-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with paimon_magics.connect(catalog=options, spark=spark, **IN_TASKS) as session:
        session.run(TABLE)
        session.run("INSERT INTO t SELECT CAST(id AS INT), 1 FROM range(1000)")
        session.run("INSERT INTO t VALUES (1, 2)")
        session.run("UPDATE t SET v = v + 1 WHERE k < 10")
        assert rows(session, "SELECT sum(v) FROM t") == [(1011,)]
    assert seen == {"late-key"}


@pytest.fixture
def refusing(spark: SparkSession, server: S3Server) -> Iterator[Session]:
    """A session whose store refuses each request for a data file once two snapshots are there."""
    options = Bucket(server.endpoint).options
    with paimon_magics.connect(catalog=options, spark=spark, **IN_TASKS) as session:
        session.run(TABLE)
        session.run("INSERT INTO t SELECT CAST(id AS INT), 1 FROM range(10)")
        session.run("INSERT INTO t SELECT CAST(id AS INT), 2 FROM range(5)")

        def between(environment: Any, hand_on: Any) -> Reply:
            of_data = "/bucket-0/" in environment["PATH_INFO"]
            return Reply.error("403 Forbidden", "AccessDenied") if of_data else hand_on()

        server.between = between
        yield session
        server.between = lambda _, hand_on: hand_on()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sum(v) FROM t",
        "SELECT k FROM t$audit_log",
        "UPDATE t SET v = v + 1",
        "INSERT INTO t SELECT CAST(id AS INT), 3 FROM range(100)",
    ],
)
def test_refused_file_is_told_as_a_matter_of_keys_not_of_damage(
    refusing: Session, statement: str
) -> None:
    with pytest.raises(SetupError) as raised:
        outcome = refusing.run(statement)
        outcome.to_pylist()
    text = str(raised.value)
    assert "denies the access" in text or "403" in text
    assert "'s3.access-key'" in raised.value.hint
    assert "AWS_ACCESS_KEY_ID" in raised.value.hint
    assert "go back" not in text and "damaged" not in raised.value.message
