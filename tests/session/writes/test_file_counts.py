"""How many files a statement writes, and of what size: few, whatever tasks its rows come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark

TASKS = 24
PARTITIONS = 70  # more than a writer keeps open


def sizes(warehouse: Path) -> list[int]:
    return [path.stat().st_size for path in warehouse.glob("default.db/t/**/*.parquet")]


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ("", PARTITIONS),
        pytest.param("'primary-key' = 'k, p', 'bucket' = '1'", PARTITIONS, marks=pytest.mark.soak),
        ("'primary-key' = 'k, p', 'bucket' = '2'", 2 * PARTITIONS),
    ],
    ids=["append", "one bucket", "two buckets"],
)
def test_many_tasks_write_a_single_file_per_partition_and_bucket(
    session: Session, warehouse: Path, options: str, files: int
) -> None:
    properties = f"TBLPROPERTIES ({options})" if options else ""
    session.run(f"CREATE TABLE t (k BIGINT NOT NULL, p INT) PARTITIONED BY (p) {properties}")
    outcome = session.run(
        f"INSERT INTO t SELECT id, CAST(id % {PARTITIONS} AS INT) FROM range(0, 7000, 1, {TASKS})"
    )
    assert len(sizes(warehouse)) == files
    assert outcome.files_written == files
    assert outcome.bytes_written == sum(sizes(warehouse))
    actual = session.run("SELECT count(*), sum(k), count(DISTINCT p) FROM t").to_arrow()
    assert [*actual.to_pylist()[0].values()] == [7000, 7000 * 6999 // 2, PARTITIONS]


WIDE = "FROM range(0, 9000000, 1, 2) WHERE id % 1000 = 0"  # Spark thinks that it is all of them


def fill(session: Session) -> None:
    session.run("CREATE TABLE t (k BIGINT NOT NULL, p INT) PARTITIONED BY (p)")
    session.run("INSERT INTO t VALUES (-1, 0), (-2, 1), (-3, 2)")


def total(session: Session) -> list[int]:
    found = session.run("SELECT count(*), sum(k), count(DISTINCT p) FROM t").to_arrow()
    return [*found.to_pylist()[0].values()]


def test_tasks_write_rows_of_existing_partitions_directly(
    session: Session,
) -> None:
    fill(session)
    outcome = session.run(f"INSERT INTO t SELECT id, CAST(id / 1000 % 3 AS INT) {WIDE}")
    assert outcome.files_written == 6  # of two tasks for each of three partitions
    assert total(session) == [9003, 1000 * 9000 * 8999 // 2 - 6, 3]


def test_rows_of_many_new_partitions_are_gathered(session: Session, warehouse: Path) -> None:
    fill(session)
    outcome = session.run(f"INSERT INTO t SELECT id, CAST(id / 1000 % {PARTITIONS} AS INT) {WIDE}")
    assert outcome.files_written == PARTITIONS
    assert total(session) == [9003, 1000 * 9000 * 8999 // 2 - 6, PARTITIONS]
    # Nothing is left of the tasks that had begun to write them where they are.
    assert len(sizes(warehouse)) == PARTITIONS + 3


def test_values_for_many_new_partitions_are_written(session: Session) -> None:
    fill(session)
    session.run(f"INSERT INTO t VALUES {', '.join(f'({p}, {p})' for p in range(10))}")
    assert total(session) == [13, 45 - 6, 10]


def test_few_rows_for_existing_partitions_make_few_files(session: Session) -> None:
    fill(session)
    outcome = session.run(
        f"INSERT INTO t SELECT id, CAST(id % 3 AS INT) FROM range(0, 900, 1, {TASKS})"
    )
    assert outcome.files_written == 3


def test_skewed_partition_is_written_by_several_tasks(session: Session, warehouse: Path) -> None:
    session.run("CREATE TABLE t (k BIGINT, v STRING, p INT) PARTITIONED BY (p)")
    settings = {
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "512kb",
        "spark.sql.shuffle.partitions": "64",  # of which the two partitions take two
    }
    before = {key: session.spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        session.spark.conf.set(key, value)
    try:
        session.run(
            "INSERT INTO t SELECT id, sha2(string(id), 256), IF(id % 100 = 0, 1, 0) "
            "FROM range(0, 240000, 1, 8)"
        )
    finally:
        for key, value in before.items():
            if value is None:
                session.spark.conf.unset(key)
            else:
                session.spark.conf.set(key, value)
    folder = warehouse / "default.db" / "t"
    assert len(list(folder.glob("p=0/**/*.parquet"))) >= 3
    assert len(list(folder.glob("p=1/**/*.parquet"))) == 1
    actual = session.run("SELECT count(*), sum(k) FROM t").to_arrow().to_pylist()[0]
    assert [*actual.values()] == [240000, 240000 * 239999 // 2]


def test_many_tasks_write_at_most_a_file_per_concurrent_task(
    session: Session, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (k BIGINT)")
    session.run(f"INSERT INTO t SELECT id FROM range(0, 9000000, 1, {TASKS}) WHERE id < 1000000")
    assert len(sizes(warehouse)) <= session.spark.sparkContext.defaultParallelism
    assert session.run("SELECT count(*), max(k) FROM t").to_arrow().to_pylist() == [
        {"count(1)": 1_000_000, "max(k)": 999_999}
    ]


def test_few_rows_make_a_single_file_in_row_order(session: Session, warehouse: Path) -> None:
    session.run("CREATE TABLE t (k BIGINT)")
    session.run(f"INSERT INTO t SELECT 1000 - id FROM range(0, 1000, 1, {TASKS})")
    assert len(sizes(warehouse)) == 1
    assert session.run("SELECT k FROM t").to_arrow()["k"].to_pylist() == [*range(1000, 0, -1)]


def test_append_files_come_near_target_size_on_disk(session: Session, warehouse: Path) -> None:
    session.run("CREATE TABLE t (k BIGINT, v STRING) TBLPROPERTIES ('target-file-size' = '4 mb')")
    # Text that compresses to half of what it takes in memory.
    session.run("INSERT INTO t SELECT id, sha2(string(id), 256) FROM range(0, 500000, 1, 1)")
    *full, _last = sorted(sizes(warehouse), reverse=True)
    assert len(full) >= 2
    assert all(0.5 * 2**22 < size < 1.5 * 2**22 for size in full)


def test_primary_key_bucket_is_written_by_a_single_task(session: Session, warehouse: Path) -> None:
    session.run(
        "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')"
    )
    session.run(f"INSERT INTO t SELECT 7, id FROM range(0, 900, 1, {TASKS})")
    assert len(sizes(warehouse)) == 1
    assert session.run("SELECT v FROM t").to_arrow()["v"].to_pylist() == [899]


def test_full_write_buffer_is_flushed_and_last_row_still_wins(
    session: Session, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT, w STRING) TBLPROPERTIES "
        "('primary-key' = 'k', 'bucket' = '1', 'write-buffer-size' = '2 mb')"
    )
    session.run(
        "INSERT INTO t SELECT id % 1000, id, sha2(string(id), 256) FROM range(0, 300000, 1, 2)"
    )
    assert len(sizes(warehouse)) >= 3
    wrong = session.run("SELECT count(*), sum(v - k) FROM t").to_arrow().to_pylist()[0]
    assert [*wrong.values()] == [1000, 299_000 * 1000]
