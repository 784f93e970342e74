"""Statements on tables in S3, without a jar for it: everything goes by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import JobError
from tests.backends.s3 import Bucket, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_server() as server:
        yield server.bucket()


@pytest.fixture
def session(spark: SparkSession, bucket: Bucket) -> Iterator[Session]:
    with paimon_magics.connect(catalog=bucket.options, spark=spark) as opened:
        yield opened


def rows(session: Session, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.run(sql).to_arrow().to_pylist()]


def left_behind(bucket: Bucket) -> list[str]:
    return [key for key in bucket.objects() if "/.attempts" in key or "/.paimon-magics-" in key]


def test_rows_are_written_replaced_and_read(session: Session, bucket: Bucket) -> None:
    session.run("CREATE TABLE a (k BIGINT, v STRING, p STRING) PARTITIONED BY (p)")
    outcome = session.run("INSERT INTO a SELECT id, 'job', concat('p/', id % 3) FROM range(100)")
    assert (outcome.snapshot_id, outcome.rows_written) == (1, 100)
    session.run("INSERT INTO a VALUES (1, 'kernel', 'p/9'), (2, 'kernel', NULL)")
    assert rows(session, "SELECT p, count(*) FROM a GROUP BY p ORDER BY p") == [
        (None, 1), ("p/0", 34), ("p/1", 33), ("p/2", 33), ("p/9", 1)
    ]  # fmt: skip
    session.run("INSERT OVERWRITE a PARTITION (p = 'p/1') SELECT k, v FROM a WHERE k < 3")
    session.run("ALTER TABLE a DROP PARTITION (p = 'p/2')")
    assert rows(session, "SELECT p, count(*) FROM a GROUP BY p ORDER BY p") == [
        (None, 1), ("p/0", 34), ("p/1", 5), ("p/9", 1)
    ]  # fmt: skip
    assert rows(session, "SELECT max(snapshot_id) FROM a$snapshots") == [(4,)]
    assert left_behind(bucket) == []


def test_rows_of_a_primary_key_are_merged(session: Session, bucket: Bucket) -> None:
    session.run(
        "CREATE TABLE t (k BIGINT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')"
    )
    session.run("INSERT INTO t SELECT id, 'old' FROM range(100)")
    session.run("INSERT INTO t SELECT id, 'new' FROM range(50, 150)")
    assert rows(session, "SELECT v, count(*), sum(k) FROM t GROUP BY v ORDER BY v") == [
        ("new", 100, 9950), ("old", 50, 1225)
    ]  # fmt: skip
    assert left_behind(bucket) == []


def test_a_job_that_fails_leaves_nothing(session: Session, bucket: Bucket) -> None:
    session.run("CREATE TABLE a (k BIGINT, v STRING, p BIGINT) PARTITIONED BY (p)")
    session.run("INSERT INTO a VALUES (1, 'before', 0)")
    before = bucket.objects()
    session.spark.udf.register("checked", lambda number: str(1 // (number - 3900)), "string")
    with pytest.raises(JobError, match="ZeroDivisionError"):
        session.run("INSERT INTO a SELECT id, checked(id), id % 5 FROM range(0, 4000, 1, 4)")
    assert bucket.objects() == before
    assert rows(session, "SELECT * FROM a") == [(1, "before", 0)]
    session.run("INSERT INTO a VALUES (2, 'after', 0)")
    assert len(rows(session, "SELECT * FROM a")) == 2


def test_credentials_are_not_shown(session: Session, bucket: Bucket) -> None:
    session.run("CREATE TABLE a (k BIGINT)")
    session.run("INSERT INTO a SELECT id FROM range(10)")
    frame = session.table("a")
    shown = session.explain("SELECT * FROM a").message + frame._jdf.queryExecution().toString()
    shown += repr(session) + repr(session.catalog.stores.of(bucket.options["warehouse"]))
    assert "a-secret-key" not in shown
    assert "MapInArrow" in shown


def test_every_spelling_of_the_options_writes_and_reads(
    spark: SparkSession, bucket: Bucket
) -> None:
    options = bucket.options
    spelled = {
        "warehouse": options["warehouse"].replace("s3://", "s3a://"),
        "fs.s3.endpoint": options["s3.endpoint"],
        "fs.s3.region": options["s3.region"],
        "fs.s3.accessKeyId": options["s3.access-key"],
        "fs.s3.accessKeySecret": options["s3.secret-key"],
        "fs.s3a.path.style.access": "true",
    }
    with paimon_magics.connect(catalog=spelled, spark=spark) as session:
        session.run("CREATE TABLE a (k BIGINT); INSERT INTO a SELECT id FROM range(10)")
        assert rows(session, "SELECT sum(k) FROM a") == [(45,)]
