"""Sessions' transactions, plain pypaimon and Paimon's Java library, each in its own processes, on
one table through one coordinator: of all their commits none is lost, none is doubled."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT
from tests.backends.maven import fetched_jar
from tests.backends.s3 import new_bucket
from tests.coordinator.forking import FORKING
from tests.coordinator.process import TABLE, Process, create_table, read
from tests.coordinator.test_process import commit_many, commit_over_rest
from tests.oracle.java_process import compile_java_writer, start_java_writer
from tests.oracle.java_reader import S3_PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.oracle.java_reader import JavaPaimon

# Clients that prepare a snapshot lose against others as often as these are faster.
PATIENT = "'commit.max-retries' = '1000', 'commit.max-retry-wait' = '500 ms'"
TABLES = {
    "append": f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({PATIENT})",
    "primary key": "CREATE TABLE t (k INT NOT NULL, v STRING) "
    f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', 'write-only' = 'true', {PATIENT})",
}
KEYS = 1000
"""How far apart the keys of two writers are."""


@dataclass(frozen=True)
class Lake:
    """A coordinator, the catalog options of its warehouse, and the jars that Java needs there."""

    process: Process
    options: Mapping[str, str]
    jars: tuple[str, ...] = ()


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """On a local disk, or (an indirect parameter) on S3."""
    with contextlib.ExitStack() as stack:
        if request.param == "S3":
            options = stack.enter_context(new_bucket()).options
            jars = (fetched_jar(S3_PACKAGE),)
        else:
            options, jars = {"warehouse": str(tmp_path / "warehouse")}, ()
        environment = {ENVIRONMENT: json.dumps(options)}
        process = Process(options["warehouse"], tmp_path / "state", environment=environment)
        stack.callback(process.close)
        process.start()
        yield Lake(process, options, jars)


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("lake", "kind", "ours", "python", "java", "commits"),
    [
        ("disk", "append", 2, 2, 2, 5),
        pytest.param("disk", "append", 3, 3, 2, 50, marks=pytest.mark.soak),
        pytest.param("disk", "primary key", 3, 3, 2, 50, marks=pytest.mark.soak),
        pytest.param("S3", "append", 3, 3, 2, 50, marks=pytest.mark.soak),
        pytest.param("S3", "primary key", 3, 3, 2, 50, marks=pytest.mark.soak),
    ],
    indirect=["lake"],
)
def test_mixed_writers_lose_and_duplicate_no_rows(
    lake: Lake,
    tmp_path: Path,
    spark: SparkSession,
    java_paimon: JavaPaimon,
    kind: str,
    ours: int,
    python: int,
    java: int,
    commits: int,
) -> None:
    process = lake.process
    catalog = create_table(lake.options, TABLES[kind])
    arguments = (process.address, process.token(), lake.options)
    targets = [commit_many] * ours + [commit_over_rest] * python
    writers = [
        FORKING.Process(target=target, args=(*arguments, number, commits))
        for number, target in enumerate(targets)
    ]
    options = {**lake.options, "uri": process.address, "token": process.token()}
    class_path = os.pathsep.join([compile_java_writer(spark, tmp_path), *lake.jars])
    jvms = [
        start_java_writer(class_path, options, "default.t", number * KEYS, commits)
        for number in range(len(targets), len(targets) + java)
    ]
    try:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(900)
            assert writer.exitcode == 0
        for jvm in jvms:
            said, _ = jvm.communicate(timeout=900)
            assert jvm.returncode == 0, said
    finally:
        for writer in writers:
            writer.kill()
        for jvm in jvms:
            jvm.kill()
            jvm.communicate()
    count = len(targets) + java
    expected = sorted(writer * KEYS + n for writer in range(count) for n in range(commits))
    assert sorted(int(str(row["k"])) for row in read(catalog)) == expected
    name = f"default.{TABLE.table}"
    if not lake.jars:  # the tests' own JVM has none
        assert sorted(row[0] for row in java_paimon.rows(lake.options, name)) == expected
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == count * commits
