"""A MERGE on a table without keys reads the rows that its source can match, and changes those that
a model of all rows says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
Row = dict[str, Any]
Matches = Callable[[Row, Row], bool]


def same(column: str) -> Matches:
    """The condition that a column of the target is the source's `k`."""
    return lambda t, s: t[column] is not None and t[column] == s["k"]


SOURCES: dict[str, tuple[str, str, Matches]] = {
    name: (on, f"SELECT {columns}, 1 AS v FROM range({count})", matches)
    for name, on, columns, count, matches in (
        ("far_beyond", "t.k = s.k", "id * 30 AS k", 100, same("k")),
        ("beyond_int", "t.k = s.k", "id * 4294967296 AS k", 3, same("k")),
        ("sparse", "t.far = s.k", "id * 700000000 AS k", 80, same("far")),
        ("texts", "t.name = s.k", "concat('name-', id + 45) AS k", 10, same("name")),
        (
            "days",
            "t.day = s.k",
            "date_add(DATE'2026-01-30', CAST(id AS INT)) AS k",
            20,
            same("day"),
        ),
        (
            "expressions",
            "t.k = s.k * 2 + 1",
            "id AS k",
            30,
            lambda t, s: t["k"] == s["k"] * 2 + 1,
        ),
        (
            "two_keys",
            "t.name = s.n AND t.k = s.k",
            "id AS k, concat('name-', id % 49) AS n",
            60,
            lambda t, s: same("k")(t, s) and t["name"] == s["n"],
        ),
        ("nulls", "t.k = s.k", "IF(id % 2 = 0, NULL, id) AS k", 40, same("k")),
        (
            "null_safe",
            "t.k <=> s.k",
            "IF(id % 2 = 0, NULL, id) AS k",
            2,
            lambda t, s: t["k"] == s["k"],
        ),
        ("empty", "t.k = s.k", "id AS k", 0, same("k")),
        (
            "other_terms",
            "t.k = s.k AND t.k > 7",
            "id AS k",
            20,
            lambda t, s: same("k")(t, s) and t["k"] > 7,
        ),
    )
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


def expected(clauses: str, target: list[Row], source: list[Row], matches: Matches) -> list[Row]:
    """The target's rows after the MERGE."""
    rows = []
    for row in target:
        is_matched = any(matches(row, each) for each in source)
        if clauses == "updates":
            rows.append({**row, "v": row["v"] + 1 if is_matched else row["v"]})
        elif clauses == "others":
            rows.append({**row, "v": 7 if is_matched else 8})
        elif not is_matched:
            rows.append(row)
    if clauses == "updates":
        alone = [each for each in source if not any(matches(row, each) for row in target)]
        new = {"k": 1000, "far": None, "name": None, "day": None, "v": 1}
        rows += [dict(new) for _ in alone]
    return rows


def in_order(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


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


def test_merge_with_lookups_matches_a_model(looking_up: Session) -> None:
    session = looking_up
    for table, options in (("anew", ""), ("marked", "'deletion-vectors.enabled' = 'true', ")):
        session.run(
            f"CREATE TABLE {table} (k INT, far BIGINT, name STRING, day DATE, v INT) "
            f"TBLPROPERTIES ({options}'write-only' = 'true'); INSERT INTO {table} {TARGET}"
        )
    target = session.run("SELECT * FROM anew").to_pylist()
    for source, clauses, table in CASES:
        on, query, matches = SOURCES[source]
        session.run(f"MERGE INTO {table} t USING ({query}) s ON {on} {CLAUSES[clauses]}")
        rows = session.run(query).to_pylist()
        actual = session.run(f"SELECT * FROM {table}").to_pylist()
        wanted = expected(clauses, target, rows, matches)
        assert in_order(actual) == in_order(wanted), (source, clauses, table)
        session.run(f"CALL sys.rollback(table => '{table}', version => '1')")


def test_merge_rejects_row_changed_twice(looking_up: Session) -> None:
    with pytest.raises(InvalidValueError, match="more than once"):
        looking_up.run(
            "CREATE TABLE once (k INT, v INT); INSERT INTO once SELECT id, 0 FROM range(9); "
            "MERGE INTO once t USING (SELECT 3 AS k, id AS v FROM range(2)) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET v = s.v"
        )


def test_merge_looks_up_rows_of_large_table_by_default(
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
