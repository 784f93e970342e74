"""ANALYZE TABLE: its snapshot, its file, and what it says of each type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session, connect, faults
from paimon_magics.errors import PaimonMagicsError
from tests.session.queries.small_reads import settings
from tests.session.rows import rows
from tests.session.spark_settings import settings as spark_settings

pytestmark = pytest.mark.spark

COUNTS = "SELECT snapshot_id, schema_id, mergedRecordCount FROM `t$statistics`"
KINDS = "SELECT commit_kind FROM `t$snapshots` ORDER BY snapshot_id"


def columns(session: Session) -> dict[str, Any]:
    ((text,),) = rows(session, "SELECT colstat FROM `t$statistics`")
    statistics: dict[str, Any] = json.loads(text)
    return statistics


@pytest.fixture
def t(session: Session) -> Session:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING, n DOUBLE) TBLPROPERTIES ("
        "'primary-key' = 'k', 'bucket' = '1', 'write-only' = 'true');"
        "INSERT INTO t VALUES (1, 'a', 0.5D), (2, NULL, 1.5D), (3, 'ccc', NULL)"
    )
    return session


def test_statistics_are_those_of_merged_rows(t: Session) -> None:
    t.run("INSERT INTO t VALUES (1, 'aaaa', 2.5D), (1, 'b', 3.5D)")
    outcome = t.run("ANALYZE TABLE t COMPUTE STATISTICS")
    assert (outcome.kind, outcome.snapshot_id, outcome.commit_kind) == (
        "ANALYZE TABLE",
        3,
        "ANALYZE",
    )
    assert rows(t, COUNTS) == [(2, 0, 3)]
    assert columns(t) == {}
    assert rows(t, "SELECT sum(n) FROM t") == [(5.0,)]
    assert rows(t, KINDS) == [("APPEND",), ("APPEND",), ("ANALYZE",)]


def test_statistics_of_columns_are_kept_until_the_schema_changes(t: Session) -> None:
    t.run("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS V, k")
    assert columns(t) == {
        "k": {"colId": 0, "distinctCount": 3, "min": "1", "max": "3", "nullCount": 0,
              "avgLen": 4, "maxLen": 4},
        "v": {"colId": 1, "distinctCount": 2, "nullCount": 1, "avgLen": 2, "maxLen": 3},
    }  # fmt: skip
    t.run("INSERT INTO t VALUES (9, 'z', 1.0D)")
    assert rows(t, COUNTS) == [(1, 0, 3)]
    t.run("ALTER TABLE t ADD COLUMN more INT; INSERT INTO t VALUES (10, 'z', 1.0D, 1)")
    assert rows(t, COUNTS) == []
    t.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    assert sorted(columns(t)) == ["k", "more", "n", "v"]


def test_bounds_are_texts_of_paimon(session: Session) -> None:
    session.run(
        "CREATE TABLE t (y TINYINT, f FLOAT, d DOUBLE, c DECIMAL(10, 5), w DECIMAL(30, 2), "
        "b BOOLEAN, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, x BINARY);"
        "INSERT INTO t VALUES "
        "(1, 1.5F, 1e10D, 12.12345, 1, true, DATE'2020-01-01', TIMESTAMP'2020-01-01 00:00:00Z', "
        "TIMESTAMP_NTZ'2020-01-01 10:00:01.5', X'0102'), "
        "(NULL, 0.1F, 1e-5D, 22.5, 2, false, DATE'1969-12-31', TIMESTAMP'2020-01-02 01:02:03Z', "
        "NULL, X'01')"
    )
    session.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    statistics = columns(session)
    bounds = {name: (of.get("min"), of.get("max"), of["maxLen"]) for name, of in statistics.items()}
    assert bounds == {
        "y": ("1", "1", 1),
        "f": ("0.1", "1.5", 4),
        "d": ("1.0E-5", "1.0E10", 8),
        "c": ("12.12345", "22.50000", 8),
        "w": ("1.00", "2.00", 16),
        "b": ("false", "true", 1),
        "day": ("-1", "18262", 4),
        "at": ("2020-01-01 00:00:00.000000", "2020-01-02 01:02:03.000000", 8),
        "wall": ("2020-01-01 10:00:01.500000", "2020-01-01 10:00:01.500000", 8),
        "x": (None, None, 2),
    }
    assert statistics["y"]["nullCount"] == 1


def test_append_table_is_counted_without_a_job_by_noscan(session: Session) -> None:
    session.run("CREATE TABLE t (id INT); INSERT INTO t VALUES (1), (2)")
    assert (
        "No job runs"
        in session.run("ANALYZE TABLE t COMPUTE STATISTICS NOSCAN", dry_run=True).message
    )
    session.run("ANALYZE TABLE t COMPUTE STATISTICS NOSCAN")
    assert rows(session, COUNTS) == [(1, 0, 2)]


def test_empty_table_gets_no_snapshot(session: Session) -> None:
    session.run("CREATE TABLE t (id INT)")
    outcome = session.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    assert outcome.message == "`default.t` has no rows to analyze."
    assert rows(session, KINDS) == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ANALYZE TABLE t COMPUTE STATISTICS NOSCAN", "Leave NOSCAN out"),
        ("ANALYZE TABLE t PARTITION (dt = 'x') COMPUTE STATISTICS", "whole table"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS nope", "no column `nope`"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS", "a column's name"),
        ("ANALYZE TABLE t COMPUTE STATISTICS FOR v", "`COLUMNS`"),
        ("ANALYZE TABLE t", "`COMPUTE`"),
        ("ANALYZE TABLE nope COMPUTE STATISTICS", "no table `nope`"),
        ("ANALYZE TABLE t$files COMPUTE STATISTICS", "system table"),
        ("ANALYZE TABLE n COMPUTE STATISTICS FOR ALL COLUMNS", "FOR COLUMNS id"),
        ("ANALYZE TABLES IN default COMPUTE STATISTICS", "ANALYZE TABLE t COMPUTE STATISTICS"),
        ("ANALYZE t COMPUTE STATISTICS", "ANALYZE"),
    ],
)
def test_wrong_analysis_changes_nothing(
    t: Session, warehouse: Path, statement: str, expected: str
) -> None:
    t.run("CREATE TABLE n (id INT, a ARRAY<INT>)")
    before = {path for path in warehouse.rglob("*") if path.is_file()}
    with pytest.raises(PaimonMagicsError) as refusal:
        t.run(statement)
    assert expected in f"{refusal.value.message} {refusal.value.hint}"
    assert {path for path in warehouse.rglob("*") if path.is_file()} == before


def test_attempt_that_failed_leaves_no_statistics(
    t: Session, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_actions", {"commit.prepared": "raise"})
    t.run("ANALYZE TABLE t COMPUTE STATISTICS")
    assert faults._actions == {}
    assert rows(t, KINDS) == [("APPEND",), ("ANALYZE",)]
    folder = warehouse / "default.db/t"
    name = json.loads((folder / "snapshot/snapshot-2").read_text())["statistics"]
    assert [path.name for path in (folder / "statistics").iterdir()] == [name]


def test_snapshots_keep_the_statistics_of_before(t: Session, warehouse: Path) -> None:
    for _ in range(2):
        t.run("ANALYZE TABLE t COMPUTE STATISTICS")
        t.run("INSERT INTO t VALUES (7, 'x', 1.0D)")
    folder = warehouse / "default.db/t/statistics"
    assert len(list(folder.iterdir())) == 2
    names = json.loads((warehouse / "default.db/t/snapshot/snapshot-5").read_text())["statistics"]
    assert (folder / names).exists()


def test_profile_takes_what_was_analyzed(session: Session) -> None:
    session.run("CREATE TABLE t (id INT, v STRING); INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    before = session.reports.profile("t")
    assert "ANALYZE" not in str(before)
    session.run("ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS v")
    (_, row) = session.reports.profile("t").data.to_pylist()
    assert (row["from"], row["≈distinct"], row["max"]) == ("ANALYZE", 1, "a")
    session.run("INSERT INTO t VALUES (3, 'b')")
    assert "rows have changed since" in str(session.reports.profile("t"))


def test_analysis_is_explained(t: Session) -> None:
    (plan,) = rows(t, "EXPLAIN ANALYZE TABLE t COMPUTE STATISTICS FOR COLUMNS k")[0]
    assert "its rows and of 1 column" in plan and "One job reads the table" in plan
    assert rows(t, KINDS) == [("APPEND",)]


def test_coordinator_commits_statistics(spark: Any, warehouse: Path, state_home: Path) -> None:
    with connect(warehouse, spark=spark, coordinator="embedded") as session:
        session.run("CREATE TABLE t (id INT); INSERT INTO t VALUES (1), (2)")
        session.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
        assert rows(session, COUNTS) == [(1, 0, 2)]
        assert columns(session)["id"]["max"] == "2"


def test_statistics_have_times_beyond_pythons_years(session: Session) -> None:
    session.run(
        "CREATE TABLE t (d DATE, z TIMESTAMP, n TIMESTAMP_NTZ);"
        "INSERT INTO t VALUES (DATE '+12000-01-01', TIMESTAMP '+12000-01-01 00:00:00', "
        "TIMESTAMP_NTZ '+12000-01-01 00:00:00'), (DATE '1970-01-02', "
        "TIMESTAMP '1970-01-01 00:00:01.5', TIMESTAMP_NTZ '1970-01-01 00:00:01.5');"
        "ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS"
    )
    far, near = "12000-01-01 00:00:00.000000", "1970-01-01 00:00:01.500000"
    ends = {name: (counted["min"], counted["max"]) for name, counted in columns(session).items()}
    assert ends == {"d": ("1", "3663382"), "z": (near, far), "n": (near, far)}


def test_small_side_of_a_join_is_sent_to_all_tasks_by_its_analyzed_size(t: Session) -> None:
    """Spark knows no size of rows that are merged by Python."""
    t.run("INSERT INTO t SELECT CAST(id AS INT), repeat('x', 100), 0.5D FROM range(2000)")
    t.run("INSERT INTO t VALUES (1, 'again', 1.5D)")
    t.run("CREATE TABLE u AS SELECT CAST(id AS INT) AS k FROM range(10)")
    key = "spark.sql.autoBroadcastJoinThreshold"

    def is_sent(threshold: str) -> bool:
        with settings(t, local_rows_max=0), spark_settings(t.spark, **{key: threshold}):
            outcome = t.run("SELECT count(*) AS n FROM t JOIN u ON t.k = u.k WHERE t.v <> ''")
            assert outcome.to_pylist() == [{"n": 10}]
            return "strategy=broadcast" in outcome.dataframe._jdf.queryExecution().toString()

    assert is_sent("64kb"), "its files are small"
    t.run("ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS")
    assert not is_sent("64kb"), "its rows are not"
    assert is_sent("10mb")
    assert not is_sent("-1")
