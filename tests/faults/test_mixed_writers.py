"""Sessions' transactions, plain pypaimon and Paimon's Java library, each in its own processes, on
one table through one coordinator: of all their commits none is lost, none is doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.coordinator.forking import FORKING
from tests.coordinator.process import TABLE, Process, create_table, read
from tests.coordinator.test_process import commit_many, commit_over_rest
from tests.oracle.java_process import compile_java_writer, start_java_writer

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


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state")
    started.start()
    yield started
    started.close()


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ours", "python", "java", "commits"),
    [
        ("append", 2, 2, 2, 5),
        pytest.param("append", 3, 3, 2, 50, marks=pytest.mark.soak),
        pytest.param("primary key", 3, 3, 2, 50, marks=pytest.mark.soak),
    ],
)
def test_writers_of_three_kinds_lose_and_double_nothing(
    process: Process,
    tmp_path: Path,
    spark: SparkSession,
    java_paimon: JavaPaimon,
    kind: str,
    ours: int,
    python: int,
    java: int,
    commits: int,
) -> None:
    catalog = create_table(process.warehouse, TABLES[kind])
    arguments = (process.address, process.token(), str(process.warehouse))
    targets = [commit_many] * ours + [commit_over_rest] * python
    writers = [
        FORKING.Process(target=target, args=(*arguments, number, commits))
        for number, target in enumerate(targets)
    ]
    options = dict(zip(("uri", "token", "warehouse"), arguments, strict=True))
    class_path = compile_java_writer(spark, tmp_path)
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
    assert sorted(row[0] for row in java_paimon.rows(process.warehouse, name)) == expected
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == count * commits
