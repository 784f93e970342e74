"""Statements on tables in S3, without a jar for it: everything goes by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import obstore
import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import JobError, PaimonMagicsError
from tests.backends.object_buckets import left_behind
from tests.backends.s3 import Bucket, s3_server
from tests.coordinator.process import Process
from tests.sampling import only_in_soak
from tests.session.rows import rows

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


def test_procedures_copy_and_mark_files_in_the_bucket(session: Session, bucket: Bucket) -> None:
    session.run(
        "CREATE TABLE a (k INT NOT NULL, p STRING) PARTITIONED BY (p) TBLPROPERTIES "
        "('deletion-vectors.enabled' = 'true');"
        "INSERT INTO a VALUES (1, 'x'), (2, 'x'), (3, 'y/z'); DELETE FROM a WHERE k = 1;"
        "CALL sys.copy('a', 'b'); CALL sys.mark_partition_done('b', 'p=y/z');"
        "CALL sys.reset_consumer('b', 'c', 1)"
    )
    session.run("CALL sys.mark_partition_done('b', 'p=y/z')")
    session.run("DROP TABLE a", confirm=True)
    assert rows(session, "SELECT * FROM b ORDER BY k") == [(2, "x"), (3, "y/z")]
    assert rows(session, "SELECT * FROM b$consumers") == [("c", 1)]
    session.run("CALL sys.clear_consumers('b')")
    assert rows(session, "SELECT * FROM b$consumers") == []
    assert left_behind(bucket) == []


CHANGED = {
    "keyed": "'primary-key' = 'k', 'bucket' = '2'",
    "append": "'bucket' = '-1'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
    "tracked": "'row-tracking.enabled' = 'true'",
}


@pytest.mark.parametrize("options", only_in_soak(CHANGED, ["keyed", "vectors"]))
def test_delete_update_and_merge_change_rows(
    session: Session, bucket: Bucket, options: str
) -> None:
    session.run(f"CREATE TABLE t (k BIGINT NOT NULL, v STRING) TBLPROPERTIES ({options})")
    session.run("INSERT INTO t SELECT id, 'old' FROM range(100)")
    assert session.run("DELETE FROM t WHERE k < 10").rows_deleted == 10
    assert session.run("UPDATE t SET v = 'new' WHERE k BETWEEN 20 AND 29").rows_updated == 10
    merged = session.run(
        "MERGE INTO t USING (SELECT id AS k FROM range(90, 110)) s ON t.k = s.k "
        "WHEN MATCHED AND s.k % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'new' "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'new')"
    )
    assert (merged.rows_deleted, merged.rows_updated, merged.rows_inserted) == (5, 5, 10)
    expected = [("new", 25, 1765), ("old", 70, 3715)]
    query = "SELECT v, count(*), sum(k) FROM t GROUP BY v ORDER BY v"
    assert rows(session, query) == expected
    session.run("CALL sys.compact('t')")
    assert rows(session, query) == expected
    assert left_behind(bucket) == []


def test_failed_job_leaves_no_objects(session: Session, bucket: Bucket) -> None:
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


LAYOUTS = {
    "dynamic buckets": "'primary-key' = 'p,k', 'dynamic-bucket.target-row-num' = '20'",
    "keys that move": "'primary-key' = 'k', 'dynamic-bucket.target-row-num' = '20'",
    "orc": "'file.format' = 'orc'",
    "avro": "'file.format' = 'avro', 'bucket' = '2', 'bucket-key' = 'k'",
}


@pytest.mark.parametrize("options", only_in_soak(LAYOUTS, ["keys that move", "orc"]))
def test_other_layouts_and_formats_are_written_and_read(
    session: Session, bucket: Bucket, options: str
) -> None:
    session.run(
        "CREATE TABLE t (k BIGINT NOT NULL, v STRING, p BIGINT NOT NULL) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({options})"
    )
    session.run("INSERT INTO t SELECT id, 'old', id % 2 FROM range(60)")
    session.run("INSERT INTO t SELECT id, 'new', id % 2 FROM range(30, 90)")
    keyed = "primary-key" in options
    assert rows(session, "SELECT v, count(*), sum(k) FROM t GROUP BY v ORDER BY v") == [
        ("new", 60, 3570), ("old", 30 if keyed else 60, 435 if keyed else 1770)
    ]  # fmt: skip
    session.run("INSERT OVERWRITE t PARTITION (p = 0) SELECT 1000, 'only'")
    assert rows(session, "SELECT k, v FROM t WHERE p = 0") == [(1000, "only")]
    assert left_behind(bucket) == []


def test_credentials_are_not_shown(
    spark: SparkSession, bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nowhere: not in what is shown, raised, logged or planned, nor in any file or object."""
    secret = "a-secret-key"
    state = tmp_path / "state"
    process = Process(bucket.options["warehouse"], state, catalog=bucket.options)
    shown: list[str] = []
    spark.sparkContext.setLogLevel("INFO")
    try:
        process.start()
        with paimon_magics.connect(
            catalog=bucket.options, coordinator=process.address, token=process.token(), spark=spark
        ) as session:
            session.run("CREATE TABLE a (k BIGINT, v STRING)")
            shown += [session.run("INSERT INTO a SELECT id, 'x' FROM range(10)").message]
            shown += [session.run("INSERT INTO a VALUES (1, 'y')").message]
            for sql in ("SELECT * FROM a", "INSERT OVERWRITE a SELECT * FROM a", "DESCRIBE a"):
                shown += [session.explain(sql).message]
            shown += [
                str(session.preview("TRUNCATE TABLE a")),
                str(session.history("a").to_arrow()),
            ]
            shown += [session.table("a")._jdf.queryExecution().toString(), repr(session)]
            shown += [repr(session.catalog.stores.of(bucket.options["warehouse"]))]
            shown += [repr(session.run("DESCRIBE EXTENDED a").to_arrow().to_pylist())]
            spark.udf.register("divided", lambda number: str(1 // (number - 5)), "string")
            with pytest.raises(JobError) as failed:
                session.run("INSERT INTO a SELECT id, divided(id) FROM range(10)")
            shown += [failed.value.text(), repr(failed.value.__cause__)]
            for path in ("/v1/transactions", "/metrics", "/"):
                page = httpx.get(
                    process.address + path,
                    headers={"Authorization": f"Bearer {process.token()}"},
                    trust_env=False,
                )
                shown += [page.text]
        wrong = {**bucket.options, "warehouse": "s3://no-such-bucket/w"}
        with (
            pytest.raises(PaimonMagicsError) as refused,
            paimon_magics.connect(catalog=wrong, spark=spark) as session,
        ):
            session.run("CREATE TABLE a (k BIGINT); INSERT INTO a VALUES (1)")
        shown += [refused.value.text(), repr(refused.value.__cause__)]
    finally:
        spark.sparkContext.setLogLevel("OFF")
        process.close()
    shown += capfd.readouterr()
    assert any("MapInArrow" in text for text in shown)
    assert [text for text in shown if secret in text] == []
    stored = [file.read_bytes() for file in state.rglob("*") if file.is_file()]
    stored += [bytes(obstore.get(bucket.store, key).bytes()) for key in bucket.objects()]
    assert len(stored) > 10
    assert [content for content in stored if secret.encode() in content] == []


def test_hadoop_spellings_of_options_write_and_read(spark: SparkSession, bucket: Bucket) -> None:
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
