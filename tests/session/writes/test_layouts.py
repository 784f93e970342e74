"""Every table layout: written by us, read by Paimon's Java library, and written by both in turn."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    UnsupportedStatementError,
)
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import only_in_soak
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]

LAYOUTS = {
    "append": "",
    "append, bucket key": "'bucket' = '3', 'bucket-key' = 'k'",
    "fixed buckets": "'primary-key' = '{key}', 'bucket' = '3'",
    "fixed buckets, mod": "'primary-key' = '{key}', 'bucket' = '3', 'bucket-key' = 'k', "
    "'bucket-function.type' = 'mod'",
    "dynamic buckets": "'primary-key' = '{key}', 'dynamic-bucket.target-row-num' = '40'",
    "few dynamic buckets": "'primary-key' = '{key}', 'dynamic-bucket.target-row-num' = '10', "
    "'dynamic-bucket.max-buckets' = '2'",
    "postponed buckets": "'primary-key' = '{key}', 'bucket' = '-2', "
    "'postpone.default-bucket-num' = '3'",
}
KEYED = {name: options for name, options in LAYOUTS.items() if "primary-key" in options}
# Their keys find their buckets as in the layouts that they are variants of.
VARIANTS = ("fixed buckets, mod", "few dynamic buckets")
# Java's plain writer leaves postponed rows to a compaction, unseen until then.
SHARED = {name: options for name, options in KEYED.items() if name != "postponed buckets"}


def halved(layouts: dict[str, str], kept: int, left_out: Collection[str]) -> list[Any]:
    """Every layout once, whole or partitioned in turn; `make soak` also runs the other half
    and the layouts that are left out."""
    return [
        pytest.param(
            options,
            partitioned,
            id=f"{name}-{'partitioned' if partitioned else 'whole'}",
            marks=[pytest.mark.soak]
            if (number + partitioned) % 2 != kept or name in left_out
            else [],
        )
        for number, (name, options) in enumerate(layouts.items())
        for partitioned in (False, True)
    ]


def create(session: Session, options: str, *, partitioned: bool) -> None:
    properties = options.format(key="p, k" if partitioned else "k")
    session.run(
        "CREATE TABLE t (p STRING NOT NULL, k INT NOT NULL, v STRING) "
        + ("PARTITIONED BY (p) " if partitioned else "")
        + (f"TBLPROPERTIES ({properties})" if properties else "")
    )


def source(first: int, last: int, value: str) -> str:
    return f"SELECT concat('p', id % 3), CAST(id AS INT), '{value}' FROM range({first}, {last})"


def content(first: int, last: int, value: str) -> dict[int, tuple[str, int, str]]:
    return {k: (f"p{k % 3}", k, value) for k in range(first, last)}


def stored(session: Session) -> list[tuple[Any, ...]]:
    return sorted(rows(session, "SELECT * FROM t"))


def check(
    session: Session, java: JavaPaimon, warehouse: Path, expected: dict[int, tuple[str, int, str]]
) -> None:
    assert stored(session) == sorted(expected.values())
    assert sorted(java.rows(warehouse, "default.t")) == sorted(expected.values())


@pytest.mark.parametrize(
    ("options", "partitioned"), halved(LAYOUTS, 0, ["fixed buckets", "few dynamic buckets"])
)
def test_java_reads_every_written_layout(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str, partitioned: bool
) -> None:
    create(session, options, partitioned=partitioned)
    session.run(f"INSERT INTO t {source(0, 200, 'first')}")
    session.run("INSERT INTO t VALUES ('p0', 300, 'folded'), ('p1', 301, 'folded')")
    session.run(f"INSERT INTO t {source(200, 260, 'second')}")
    expected = content(0, 200, "first") | content(200, 260, "second")
    expected |= {300: ("p0", 300, "folded"), 301: ("p1", 301, "folded")}
    check(session, java_paimon, warehouse, expected)


@pytest.mark.parametrize(("options", "partitioned"), halved(SHARED, 1, VARIANTS))
def test_alternating_upserts_with_java_never_duplicate_a_key(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str, partitioned: bool
) -> None:
    create(session, options, partitioned=partitioned)
    session.run(f"INSERT INTO t {source(0, 100, 'ours')}")
    java_paimon.write(warehouse, "default.t", list(content(50, 150, "java").values()))
    session.run(f"INSERT INTO t {source(120, 200, 'ours again')}")
    java_paimon.write(warehouse, "default.t", list(content(0, 20, "java again").values()))
    session.run("INSERT INTO t VALUES ('p0', 3, 'folded'), ('p2', 401, 'folded')")
    expected = content(0, 100, "ours") | content(50, 150, "java")
    expected |= content(120, 200, "ours again") | content(0, 20, "java again")
    expected |= {3: ("p0", 3, "folded"), 401: ("p2", 401, "folded")}
    check(session, java_paimon, warehouse, expected)


@pytest.mark.parametrize("options", only_in_soak(KEYED, VARIANTS))
def test_keys_get_correct_buckets_after_overwrite(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str
) -> None:
    create(session, options, partitioned=True)
    session.run(f"INSERT INTO t {source(0, 150, 'old')}")
    session.run(
        "INSERT OVERWRITE t PARTITION (p = 'p0') SELECT CAST(3 * id AS INT), 'new' FROM range(30)"
    )
    session.run(f"INSERT INTO t {source(60, 210, 'newest')}")
    expected = {k: row for k, row in content(0, 150, "old").items() if row[0] != "p0"}
    expected |= {3 * n: ("p0", 3 * n, "new") for n in range(30)}
    expected |= content(60, 210, "newest")
    check(session, java_paimon, warehouse, expected)
    session.run(f"INSERT OVERWRITE t {source(0, 10, 'all')}")
    check(session, java_paimon, warehouse, content(0, 10, "all"))
    session.run("TRUNCATE TABLE t")
    session.run(f"INSERT INTO t {source(5, 60, 'refilled')}")
    check(session, java_paimon, warehouse, content(5, 60, "refilled"))


def test_last_row_of_key_wins_in_dynamic_buckets(session: Session) -> None:
    create(session, LAYOUTS["dynamic buckets"], partitioned=False)
    for round in range(2):  # without an index yet, then with one
        session.run(
            f"INSERT INTO t SELECT 'p', CAST(id % 100 AS INT), concat('{round}-', id) "
            "FROM range(0, 5000, 1, 8)"
        )
        assert stored(session) == [("p", k, f"{round}-{4900 + k}") for k in range(100)]


def test_changed_bucket_number_is_refused_until_rows_are_rewritten(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    create(session, "'primary-key' = '{key}', 'bucket' = '1'", partitioned=True)
    session.run(f"INSERT INTO t {source(0, 30, 'old')}")
    session.run("ALTER TABLE t SET TBLPROPERTIES ('bucket' = '4')")
    for text in (source(0, 30, "new"), "VALUES ('p0', 3, 'new')"):
        with pytest.raises(CommitConflictError, match=r"1 bucket\b.*rows are for 4"):
            session.run(f"INSERT INTO t {text}")
    session.run("INSERT INTO t VALUES ('p7', 70, 'a new partition')")
    session.run("INSERT OVERWRITE t SELECT * FROM t")
    session.run(f"INSERT INTO t {source(10, 40, 'new')}")
    expected = content(0, 30, "old") | content(10, 40, "new")
    check(session, java_paimon, warehouse, expected | {70: ("p7", 70, "a new partition")})


def test_key_moves_between_partitions(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (p STRING, k INT NOT NULL, v STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k', 'dynamic-bucket.target-row-num' = '20')"
    )
    session.run("INSERT INTO t SELECT 'a', CAST(id AS INT), 'first' FROM range(0, 100, 1, 4)")
    session.run("INSERT INTO t SELECT 'b', CAST(id AS INT), 'moved' FROM range(40, 140, 1, 4)")
    session.run("INSERT INTO t VALUES ('c', 3, 'on its way'), ('a', 3, 'back'), ('c', 50, 'last')")
    expected = {k: ("a", k, "first") for k in range(100)}
    expected |= {k: ("b", k, "moved") for k in range(40, 140)}
    expected |= {3: ("a", 3, "back"), 50: ("c", 50, "last")}
    check(session, java_paimon, warehouse, expected)
    session.run(
        "INSERT INTO t SELECT concat('p', id % 7), CAST(id % 60 AS INT), CAST(id AS STRING) "
        "FROM range(0, 600, 1, 8)"
    )
    expected |= {n % 60: (f"p{n % 7}", n % 60, str(n)) for n in range(540, 600)}
    check(session, java_paimon, warehouse, expected)


def test_deleted_row_of_moved_key_is_counted_once(session: Session) -> None:
    session.run(
        "CREATE TABLE t (p STRING, k INT NOT NULL, v STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'k', 'dynamic-bucket.target-row-num' = '1');"
        "INSERT INTO t VALUES ('a', 1, 'x'), ('a', 2, 'y'), ('b', 3, 'z');"
        "UPDATE t SET p = 'b' WHERE k = 1; INSERT INTO t VALUES ('a', 4, 'x');"
        "UPDATE t SET p = 'a' WHERE k = 1"  # now in another bucket than before
    )
    assert session.run("DELETE FROM t WHERE p = 'a' AND v IS NOT NULL").rows_deleted == 3
    assert session.run("SELECT k FROM t").to_pylist() == [{"k": 3}]


def test_cross_partition_keys_are_limited_by_setting(spark: SparkSession, warehouse: Path) -> None:
    with paimon_magics.connect(warehouse, spark=spark, cross_partition_rows_max=50) as session:
        session.run(
            "CREATE TABLE t (p STRING, k INT NOT NULL, v STRING) PARTITIONED BY (p) "
            "TBLPROPERTIES ('primary-key' = 'k')"
        )
        with pytest.raises(PaimonMagicsError, match="cross_partition_rows_max"):
            session.run("INSERT INTO t SELECT 'a', CAST(id AS INT), 'x' FROM range(51)")
        session.run("INSERT INTO t SELECT 'a', CAST(id AS INT), 'x' FROM range(50)")
        session.run("INSERT INTO t VALUES ('a', 100, 'x')")
        with pytest.raises(UnsupportedStatementError, match="51 rows") as caught:
            session.run("INSERT INTO t VALUES ('a', 101, 'x')")
        assert "cross_partition_rows_max" in caught.value.hint
        assert len(stored(session)) == 51


def test_full_dynamic_buckets_error_names_the_option(
    session: Session,
) -> None:
    create(
        session, "'primary-key' = '{key}', 'dynamic-bucket.target-row-num' = '1'", partitioned=False
    )
    with pytest.raises(PaimonMagicsError, match=r"dynamic-bucket\.target-row-num"):
        session.run(f"INSERT INTO t {source(0, 33_000, 'x')}")
    assert stored(session) == []
