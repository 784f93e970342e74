"""Paimon's Java library and Flink with no key of the store but those that a coordinator hands out,
at a store that enforces them. A key lasts seconds here, so that a job outlives several."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pypaimon import Schema

from tests.backends.flink import FlinkJob, compiled_flink_job, flink_job
from tests.backends.maven import fetched_jar
from tests.backends.minio import minio
from tests.coordinator.data_tokens.test_keys_on_minio import Lake, read
from tests.coordinator.process import Process, wait_until
from tests.oracle.java_process import compile_java_writer, start_java_writer
from tests.oracle.java_reader import S3_PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]

SECONDS = 15
A_SECOND = 20
TABLES = {
    "append": ("id BIGINT, v STRING", "'bucket' = '-1'"),
    "keyed": (
        "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED",
        "'bucket' = '1', 'changelog-producer' = 'lookup', 'consumer.expiration-time' = '1 h'"
        ", 'num-sorted-run.compaction-trigger' = '3'"
        ", 'snapshot.num-retained.min' = '2', 'snapshot.num-retained.max' = '4'",
    ),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        bucket = server.bucket()
        coordinator = Process(
            bucket.options["warehouse"],
            tmp_path_factory.mktemp("coordinator") / "state",
            *("--data-tokens=sts", f"--data-token-seconds={SECONDS}"),
            catalog=bucket.options,
        )
        coordinator.start()
        try:
            lake = Lake(bucket, coordinator)
            lake.catalog(lake.token("owner", "write")).create_database("shop", True)
            yield lake
        finally:
            coordinator.close()


@pytest.fixture(scope="module")
def class_path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("flink")
    return os.pathsep.join([compiled_flink_job(spark, folder), fetched_jar(S3_PACKAGE)])


@contextlib.contextmanager
def running(lake: Lake, class_path: str, token: str, *statements: str) -> Iterator[FlinkJob]:
    """A job whose catalog `lake` has a token of the coordinator's, and no key."""
    folder = tempfile.mkdtemp(dir=class_path.split(os.pathsep)[0])  # for its log
    options = {
        "parallelism.default": "1",
        "execution.checkpointing.interval": "2 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "1 s",
        "execution.checkpointing.dir": (Path(folder) / "checkpoints").as_uri(),
    }
    given = {
        "type": "paimon",
        "metastore": "rest",
        "uri": lake.coordinator.address,
        "warehouse": lake.bucket.options["warehouse"],
        "token.provider": "bear",
        "token": token,
        "default-database": "shop",  # else Flink creates `default`, which takes ALTER
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    catalog = f"CREATE CATALOG lake WITH ({listed})"
    with flink_job(f"{folder}{os.pathsep}{class_path}", options, [catalog, *statements]) as job:
        yield job


def numbers(name: str, rows: int) -> str:
    """A source of the numbers below `rows`, at a speed of `A_SECOND`."""
    return (
        f"CREATE TEMPORARY TABLE {name} (id BIGINT) WITH ('connector' = 'datagen', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '0', "
        f"'fields.id.end' = '{rows - 1}', 'rows-per-second' = '{A_SECOND}')"
    )


def ended(job: FlinkJob, seconds: float) -> int:
    """The exit code of a job that ends by itself."""
    wait_until(lambda: job.returncode() is not None, seconds, lambda: job.log()[-20_000:])
    code = job.returncode()
    assert code is not None
    return code


def ids(rows: Sequence[dict[str, object]]) -> list[object]:
    return sorted(row["id"] for row in rows)  # type: ignore[type-var]


@pytest.mark.parametrize("scope", ["change", "write"])
def test_java_commits_expire_snapshots_keep_changelogs_and_make_tags_with_their_key(
    lake: Lake, spark: SparkSession, tmp_path: Path, scope: str
) -> None:
    options = {
        "bucket": "1",
        "changelog-producer": "input",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "2",
        "changelog.num-retained.min": "3",
        "changelog.num-retained.max": "4",
        "tag.automatic-creation": "process-time",
        "tag.creation-period": "hourly",
    }
    fields = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.string())])
    owner, name = lake.catalog(lake.token("owner", "write")), f"java_{scope}"
    schema = Schema.from_pyarrow_schema(fields, primary_keys=["k"], options=options)
    owner.create_table(f"shop.{name}", schema, False)
    class_path = os.pathsep.join([compile_java_writer(spark, tmp_path), fetched_jar(S3_PACKAGE)])
    warehouse, uri = lake.bucket.options["warehouse"], lake.coordinator.address
    token = lake.token(f"java_{scope}", f"{scope}=shop")
    client = {"uri": uri, "warehouse": warehouse, "token": token}
    process = start_java_writer(class_path, client, f"shop.{name}", 0, 5)
    try:
        said, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert sorted(str(row["k"]) for row in read(owner, f"shop.{name}")) == list("01234")
    files = lake.bucket.objects(f"warehouse/shop.db/{name}")
    kept = [[Path(file).name for file in files if f"/{sort}/{sort}-" in file]
            for sort in ("snapshot", "changelog", "tag")]  # fmt: skip
    assert [len(names) for names in kept] == [2, 2, 1], kept


def test_flink_job_creates_writes_compacts_follows_and_drops_with_keys_that_end_within_it(
    lake: Lake, class_path: str
) -> None:
    token = lake.token("flink", "write=shop")
    statements = ["CREATE TABLE lake.shop.unwanted (id BIGINT)", "DROP TABLE lake.shop.unwanted"]
    count = 4 * SECONDS * A_SECOND
    for table, (columns, options) in TABLES.items():
        statements += [
            f"CREATE TABLE lake.shop.{table} ({columns}) WITH ({options})",
            numbers(f"source_{table}", count),
            f"INSERT INTO lake.shop.{table} SELECT id % 500, 'flink' FROM source_{table}",
        ]
    copies = [
        "CREATE TABLE lake.shop.copy (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ('bucket' = '1')",
        "INSERT INTO lake.shop.copy SELECT * FROM lake.shop.keyed"
        " /*+ OPTIONS('continuous.discovery-interval' = '1 s', 'consumer-id' = 'copier') */",
    ]
    with running(lake, class_path, token, *statements) as writing:
        wait_until(lambda: writing.checkpoints() > 1 or writing.returncode() is not None, 120)
        assert writing.returncode() is None, writing.log()[-5000:]
        with running(lake, class_path, token, *copies) as following:
            assert ended(writing, 300) == 0, writing.log()[-5000:]
            assert writing.failures() == []
            catalog = lake.catalog(token)
            assert len(read(catalog, "shop.append")) == count
            assert ids(read(catalog, "shop.keyed")) == list(range(500))
            kinds = {row["commit_kind"] for row in read(catalog, "shop.keyed$snapshots")}
            assert "COMPACT" in kinds
            wait_until(lambda: ids(read(catalog, "shop.copy")) == list(range(500)), 60)
            wait_until(lambda: lake.bucket.objects("warehouse/shop.db/keyed/consumer") != [], 60)
            assert following.failures() == []
    assert lake.bucket.objects("warehouse/shop.db/unwanted") == []
