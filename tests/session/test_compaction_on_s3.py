"""Tables in S3 are compacted by statements, INSERTs and jobs, with and without a coordinator: what
is left there is what the last snapshot names, and others read the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.session.writes import compaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import Bucket, S3Server
from tests.coordinator.process import Process, read
from tests.oracle.test_expiry_in_java import expire
from tests.sampling import only_in_soak
from tests.session.rows import rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LAST = {"snapshot.time-retained": "1 ms", "snapshot.num-retained.min": "1"}
KEYED = "'primary-key' = 'k', 'bucket' = '2', 'num-sorted-run.compaction-trigger' = '2', "
TABLES = {
    "lookup": KEYED + "'changelog-producer' = 'lookup'",
    "first_rows": KEYED + "'merge-engine' = 'first-row'",
    "vectors": KEYED + "'deletion-vectors.enabled' = 'true', 'compaction.size-ratio' = '0'",
    "whole": KEYED + "'changelog-producer' = 'full-compaction', 'file.format' = 'orc'",
    "append": "'compaction.min.file-num' = '2'",
}


@pytest.fixture(params=[pytest.param("this process", marks=pytest.mark.soak), "a coordinator"])
def session(
    request: pytest.FixtureRequest, spark: SparkSession, s3: S3Server, tmp_path: Path
) -> Iterator[tuple[Session, Bucket]]:
    bucket = s3.bucket()
    if request.param == "this process":
        with paimon_magics.connect(catalog=bucket.options, spark=spark) as opened:
            yield opened, bucket
        return
    process = Process(
        bucket.options["warehouse"],
        tmp_path / "state",
        "--cleanup-grace-ms=0",
        catalog=bucket.options,
    )
    process.start()
    with paimon_magics.connect(
        catalog=bucket.options, coordinator=process.address, token=process.token(), spark=spark
    ) as opened:
        yield opened, bucket
    process.close()


@pytest.mark.parametrize("name", only_in_soak([*TABLES], ["vectors", "whole", "append"]))
def test_every_kind_of_table_is_compacted(
    session: tuple[Session, Bucket], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened, bucket = session
    if [*TABLES].index(name) % 2:  # by a job
        monkeypatch.setattr(compaction, "_IN_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(compaction, "_APPENDS_IN_PROCESS_BYTES_MAX", 0)
    opened.run(f"CREATE TABLE {name} (k BIGINT NOT NULL, v STRING) TBLPROPERTIES ({TABLES[name]})")
    opened.run(f"INSERT INTO {name} SELECT id, 'old' FROM range(100)")
    opened.run(f"INSERT INTO {name} VALUES (1, 'new'), (100, 'new')")
    opened.run(f"CALL sys.compact('{name}')")
    expected = {k: "old" for k in range(100)} | {100: "new"}
    if name not in ("first_rows", "append"):
        expected[1] = "new"
    wanted = sorted([*expected.items(), *([(1, "new")] if name == "append" else [])])
    assert rows(opened, f"SELECT k, v FROM {name} ORDER BY k, v") == wanted
    stranger = Catalog.open(bucket.options)
    actual = [(row["k"], row["v"]) for row in read(stranger, TableName(name, "default"))]
    assert sorted(actual, key=repr) == sorted(wanted, key=repr)
    kinds = rows(opened, f"SELECT commit_kind FROM {name}$snapshots ORDER BY snapshot_id DESC")
    assert kinds[0] == ("COMPACT",)
    if name in ("lookup", "whole"):
        changes = "SELECT rowkind, count(*) FROM {}$audit_log GROUP BY 1"
        assert rows(opened, changes.format(name)) == [("+I", 101)]
    expire(stranger.load(TableName(name, "default")), LAST)
    assert data_objects(bucket, name) == named_files(opened, name)


def data_objects(bucket: Bucket, table: str) -> set[str]:
    """The names of all objects of the table's buckets and indexes, but changelogs."""
    below = f"warehouse/default.db/{table}/"
    names = (key.rpartition("/") for key in bucket.objects(below))
    return {
        name for folder, _, name in names
        if "/bucket-" in folder or folder.endswith("/index") if "changelog-" not in name
    }  # fmt: skip


def named_files(session: Session, table: str) -> set[str]:
    """The names of the files of the latest snapshot."""
    paths = rows(session, f"SELECT file_path FROM {table}$files")
    found = {path.rpartition("/")[2] for (path,) in paths}
    index = f"SELECT file_name FROM {table}$table_indexes"
    return found | {name for (name,) in rows(session, index)}
