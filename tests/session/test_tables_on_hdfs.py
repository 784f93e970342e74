"""Statements on tables in HDFS, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import JobError
from paimon_magics.statements.statement import TableName
from tests.sampling import only_in_soak

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]


@pytest.fixture
def session(spark: SparkSession, hdfs: str, request: pytest.FixtureRequest) -> Iterator[Session]:
    warehouse = f"{hdfs}/{request.node.name.replace('[', '-').rstrip(']')}"
    with paimon_magics.connect(warehouse, spark=spark) as opened:
        yield opened


def rows(session: Session, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.run(sql).to_arrow().to_pylist()]


def names(session: Session, table: str, *folders: str) -> list[str]:
    """The files in folders of a table."""
    loaded = session.catalog.load(TableName(table, "default"))
    found = [loaded.store.names(f"{loaded.location}/{folder}") for folder in folders]
    return sorted(name for each in found for name in each)


LAYOUTS = {
    "append": "",
    "dynamic": "'primary-key' = 'p,k', 'dynamic-bucket.target-row-num' = '20'",
    "fixed": "'primary-key' = 'p,k', 'bucket' = '2'",
}
COMPACTED = {
    "looked_up": "'primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'lookup'",
    "marked": "'primary-key' = 'k', 'bucket' = '1', 'deletion-vectors.enabled' = 'true'",
    "packed": "'compaction.min.file-num' = '2'",
}


# What the layouts do is the same on every store: the tests on S3 have more of them.
@pytest.mark.parametrize("name", only_in_soak([*LAYOUTS], ["append", "fixed"]))
def test_every_layout_is_written_replaced_and_read(session: Session, name: str) -> None:
    options = LAYOUTS[name]
    session.run(
        f"CREATE TABLE {name} (k BIGINT NOT NULL, v STRING, g DOUBLE, p STRING) "
        "PARTITIONED BY (p)" + (f" TBLPROPERTIES ({options})" if options else "")
    )
    session.run(
        f"INSERT INTO {name} SELECT id, 'job', IF(id % 10 = 7, double('NaN'), 1.0D), "
        "concat('p/', id % 2) FROM range(100)"
    )
    session.run(
        f"INSERT INTO {name} VALUES (1, 'kernel', double('NaN'), 'p/1'), "
        "(200, 'kernel', 1.0D, 'p/1')"
    )
    session.run(
        f"INSERT OVERWRITE {name} PARTITION (p = 'p/0') SELECT k, v, g FROM {name} WHERE k < 5"
    )
    assert rows(session, f"SELECT p, count(*), max(v) FROM {name} GROUP BY p ORDER BY p") == [
        ("p/0", 6 if name == "append" else 5, "kernel"),
        ("p/1", 52 if name == "append" else 51, "kernel"),
    ]
    # Their files were written once more.
    assert rows(session, f"SELECT count(*) FROM {name} WHERE g > 9") == [(12,)]
    assert names(session, name, ".attempts") == []


@pytest.mark.parametrize(
    "file_format",
    ["parquet", *(pytest.param(each, marks=pytest.mark.soak) for each in ("avro", "orc"))],
)
def test_failed_job_leaves_no_files_in_any_format(session: Session, file_format: str) -> None:
    table = f"t_{file_format}"
    session.run(
        f"CREATE TABLE {table} (k BIGINT, v STRING) TBLPROPERTIES ('file.format' = '{file_format}')"
    )
    session.run(f"INSERT INTO {table} VALUES (1, 'before')")
    before = names(session, table, "bucket-0", "manifest", "snapshot")
    session.spark.udf.register("checked", lambda number: str(1 // (number - 3900)), "string")
    with pytest.raises(JobError, match="ZeroDivisionError"):
        session.run(f"INSERT INTO {table} SELECT id, checked(id) FROM range(0, 4000, 1, 4)")
    assert names(session, table, "bucket-0", "manifest", "snapshot") == before
    session.run(f"INSERT INTO {table} SELECT id, 'after' FROM range(2)")
    assert rows(session, f"SELECT k, v FROM {table} ORDER BY v, k") == [
        (0, "after"), (1, "after"), (1, "before")
    ]  # fmt: skip


@pytest.mark.parametrize("name", only_in_soak([*COMPACTED], ["marked", "packed"]))
def test_tables_are_compacted(session: Session, name: str) -> None:
    options = COMPACTED[name]
    session.run(f"CREATE TABLE {name} (k BIGINT NOT NULL, v STRING) TBLPROPERTIES ({options})")
    session.run(f"INSERT INTO {name} SELECT id, 'old' FROM range(100)")
    session.run(f"INSERT INTO {name} VALUES (1, 'new'), (100, 'new')")
    session.run(f"CALL sys.compact('{name}')")
    assert rows(session, f"SELECT count(*), max(v) FROM {name} WHERE k <> 1") == [(100, "old")]
    assert rows(session, f"SELECT v FROM {name} WHERE k = 1 ORDER BY v")[0] == ("new",)
    last = f"SELECT commit_kind FROM {name}$snapshots ORDER BY snapshot_id DESC LIMIT 1"
    assert rows(session, last) == [("COMPACT",)]
    assert names(session, name, ".attempts") == []
