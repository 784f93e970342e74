"""Statements on tables in Azure and Google Cloud Storage, without a jar for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import JobError
from tests.backends.clouds import CLOUDS, Cloud, CloudBucket, running
from tests.backends.object_buckets import left_behind
from tests.session.rows import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=CLOUDS)
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with running(request.param) as server:
        yield server


@pytest.fixture
def bucket(cloud: Cloud) -> CloudBucket:
    return cloud.bucket()


@pytest.fixture
def session(spark: SparkSession, bucket: CloudBucket) -> Iterator[Session]:
    with paimon_magics.connect(catalog=bucket.options, spark=spark) as opened:
        yield opened


def test_a_table_with_keys_is_written_changed_compacted_and_dropped(
    session: Session, bucket: CloudBucket
) -> None:
    session.run(
        "CREATE TABLE t (k BIGINT NOT NULL, v STRING, p STRING NOT NULL) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '2')"
    )
    outcome = session.run("INSERT INTO t SELECT id, 'old', concat('p/', id % 2) FROM range(100)")
    assert (outcome.snapshot_id, outcome.rows_written) == (1, 100)
    session.run("INSERT INTO t VALUES (1, 'kernel', 'p/1'), (200, 'kernel', 'p/0')")
    session.run(
        "MERGE INTO t USING (SELECT id AS k, 'p/0' AS p FROM range(0, 10, 2)) s "
        "ON t.k = s.k AND t.p = s.p WHEN MATCHED THEN UPDATE SET v = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (k, v, p) VALUES (s.k, 'new', s.p)"
    )
    session.run("DELETE FROM t WHERE k BETWEEN 50 AND 59")
    expected = [("kernel", 2, 201), ("merged", 5, 20), ("old", 84, 4384)]
    totals = "SELECT v, count(*), sum(k) FROM t GROUP BY v ORDER BY v"
    assert rows(session, totals) == expected
    session.run("CALL sys.compact(table => 't', compact_strategy => 'full')")
    assert rows(session, totals) == expected
    assert rows(session, "SELECT count(*) FROM t$files WHERE level = 0") == [(0,)]
    assert left_behind(bucket) == []
    session.run("DROP TABLE t")
    assert bucket.objects() == []


def test_append_table_is_written_overwritten_and_read_by_tag(
    session: Session, bucket: CloudBucket
) -> None:
    session.run("CREATE TABLE a (k BIGINT, g DOUBLE, p STRING) PARTITIONED BY (p)")
    session.run("INSERT INTO a SELECT id, double('NaN'), concat('a b#', id % 3) FROM range(30)")
    session.run("INSERT OVERWRITE a PARTITION (p = 'a b#1') SELECT k, g FROM a WHERE k < 3")
    session.run("ALTER TABLE a DROP PARTITION (p = 'a b#2')")
    session.run("CALL sys.create_tag('a', 'first', 1)")
    assert rows(session, "SELECT p, count(*) FROM a GROUP BY p ORDER BY p") == [
        ("a b#0", 10), ("a b#1", 3)
    ]  # fmt: skip
    assert rows(session, "SELECT count(*) FROM a VERSION AS OF 'first'") == [(30,)]
    assert rows(session, "SELECT max(snapshot_id) FROM a$snapshots") == [(3,)]
    assert left_behind(bucket) == []


@pytest.mark.parametrize(
    "file_format",
    ["orc", *(pytest.param(each, marks=pytest.mark.soak) for each in ("parquet", "avro"))],
)
def test_failed_job_leaves_no_objects(
    session: Session, bucket: CloudBucket, file_format: str
) -> None:
    session.run(
        f"CREATE TABLE a (k BIGINT, v STRING, p BIGINT) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('file.format' = '{file_format}')"
    )
    session.run("INSERT INTO a VALUES (1, 'before', 0)")
    before = bucket.objects()
    session.spark.udf.register("checked", lambda number: str(1 // (number - 3900)), "string")
    with pytest.raises(JobError, match="ZeroDivisionError"):
        session.run("INSERT INTO a SELECT id, checked(id), id % 5 FROM range(0, 4000, 1, 4)")
    assert bucket.objects() == before
    session.run("INSERT INTO a VALUES (2, 'after', 0)")
    assert rows(session, "SELECT k, v FROM a ORDER BY k") == [(1, "before"), (2, "after")]
