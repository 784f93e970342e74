"""A MERGE on a table without keys reads the rows that its source can match, and does what it would
do if it read all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from tests.session.evidence import jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TARGET = (
    "SELECT CAST(id AS INT) AS k, id * 100000000 AS far, concat('name-', id % 50) AS name, "
    "date_add(DATE'2026-01-01', CAST(id % 40 AS INT)) AS day, 0 AS v FROM range(400) "
    "UNION ALL SELECT NULL, NULL, NULL, NULL, 0"
)
SOURCES = {
    "far_beyond": ("t.k = s.k", "SELECT id * 30 AS k, 1 AS v FROM range(100)"),
    "beyond_int": ("t.k = s.k", "SELECT id * 4294967296 AS k, 1 AS v FROM range(3)"),
    "sparse": ("t.far = s.k", "SELECT id * 700000000 AS k, 1 AS v FROM range(80)"),
    "texts": ("t.name = s.k", "SELECT concat('name-', id + 45) AS k, 1 AS v FROM range(10)"),
    "days": (
        "t.day = s.k",
        "SELECT date_add(DATE'2026-01-30', CAST(id AS INT)) AS k, 1 AS v FROM range(20)",
    ),
    "expressions": ("t.k = s.k * 2 + 1", "SELECT id AS k, 1 AS v FROM range(30)"),
    "two_keys": (
        "t.name = s.n AND t.k = s.k",
        "SELECT id AS k, concat('name-', id % 49) AS n, 1 AS v FROM range(60)",
    ),
    "nulls": ("t.k = s.k", "SELECT IF(id % 2 = 0, NULL, id) AS k, 1 AS v FROM range(40)"),
    "null_safe": ("t.k <=> s.k", "SELECT IF(id % 2 = 0, NULL, id) AS k, 1 AS v FROM range(2)"),
    "empty": ("t.k = s.k", "SELECT id AS k, 1 AS v FROM range(0)"),
    "other_terms": ("t.k = s.k AND t.k > 7", "SELECT id AS k, 1 AS v FROM range(20)"),
}
CLAUSES = {
    "updates": "WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN "
    "INSERT (k, v) VALUES (1000, s.v)",
    "deletes": "WHEN MATCHED AND t.v = 0 THEN DELETE",
    "others": "WHEN MATCHED THEN UPDATE SET v = 7 WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 8",
}


CASES = [
    *((source, "updates", "anew") for source in SOURCES),
    ("far_beyond", "updates", "marked"),
    ("nulls", "deletes", "marked"),
    ("sparse", "deletes", "anew"),
    ("texts", "others", "anew"),
]
Done = dict[tuple[str, str, str], tuple[object, ...]]


def done(session: Session) -> Done:
    """What the statements of all cases do, each on the same rows."""
    for table, options in (("anew", ""), ("marked", "'deletion-vectors.enabled' = 'true', ")):
        session.run(
            f"CREATE TABLE {table} (k INT, far BIGINT, name STRING, day DATE, v INT) "
            f"TBLPROPERTIES ({options}'write-only' = 'true'); INSERT INTO {table} {TARGET}"
        )
    found: Done = {}
    for source, clauses, table in CASES:
        on, query = SOURCES[source]
        outcome = session.run(f"MERGE INTO {table} t USING ({query}) s ON {on} {CLAUSES[clauses]}")
        rows = session.run(f"SELECT * FROM {table} ORDER BY k, far, name, day, v").to_pylist()
        counts = outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted
        found[source, clauses, table] = (counts, rows)
        session.run(f"CALL sys.rollback(table => '{table}', version => '1')")
    return found


@pytest.fixture
def looking_up(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    """A session that looks rows up whatever the size of the target."""
    with paimon_magics.connect(
        tmp_path,
        spark=spark,
        coordinator="in-process",
        source_range_from_bytes=0,
    ) as session:
        yield session


def test_rows_are_those_of_a_merge_that_reads_all(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    both = []
    for settings in ({"source_range_from_bytes": 0}, {}):
        folder = tmp_path_factory.mktemp("warehouse")
        with paimon_magics.connect(
            folder, spark=spark, coordinator="in-process", **settings
        ) as session:
            both.append(done(session))
    looked_up, read_all = both
    assert looked_up == read_all
    assert read_all["far_beyond", "updates", "anew"][0] == (14, 0, 86)


def test_a_row_that_is_changed_twice_is_refused(looking_up: Session) -> None:
    with pytest.raises(InvalidValueError, match="more than once"):
        looking_up.run(
            "CREATE TABLE once (k INT, v INT); INSERT INTO once SELECT id, 0 FROM range(9); "
            "MERGE INTO once t USING (SELECT 3 AS k, id AS v FROM range(2)) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = s.v"
        )


def test_a_table_of_some_size_is_looked_up_in_without_a_setting(
    session: Session, spark: SparkSession
) -> None:
    session.run(
        "CREATE TABLE sized (k BIGINT, t STRING) TBLPROPERTIES ('write-only' = 'true'); "
        "INSERT INTO sized SELECT id, concat(uuid(), uuid()) FROM range(250000)"
    )
    assert (
        session.run("SELECT sum(file_size_in_bytes) AS b FROM sized$files").to_pylist()[0]["b"]
        > 8 << 20
    )
    text = (
        "MERGE INTO sized t USING (SELECT id * 5000 AS k FROM range(100)) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET t = 'new' WHEN NOT MATCHED THEN "
        "INSERT (k, t) VALUES (s.k, 'new')"
    )
    before = jobs(spark)
    outcome = session.run(text)
    assert (outcome.rows_updated, outcome.rows_inserted) == (50, 50)
    assert len(jobs(spark) - before) >= 2  # one of them asks for the source's values
    assert session.run("SELECT count(*) AS n FROM sized WHERE t = 'new'").to_pylist() == [
        {"n": 100}
    ]
