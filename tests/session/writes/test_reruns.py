"""A statement that adds rows to dynamic buckets while somebody else writes them: it is planned and
run again, and one that replaces rows is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import paimon_magics
from paimon_magics import Session
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.errors import CommitConflictError, OutdatedPlanError
from paimon_magics.statements.statement import TableName
from tests.oracle.java_reader import JavaPaimon
from tests.session.writes.held_writes import write_while
from tests.tables.reachability import missing, unreachable

Meanwhile = Callable[..., Any]

pytestmark = [pytest.mark.spark, pytest.mark.java]

DYNAMIC, MOVING = "p, k", "k"


def create(session: Session, key: str) -> None:
    session.run(
        "CREATE TABLE t (p STRING NOT NULL, k INT NOT NULL, v STRING) PARTITIONED BY (p) "
        f"TBLPROPERTIES ('primary-key' = '{key}', 'dynamic-bucket.target-row-num' = '40');"
        "INSERT INTO t SELECT 'p0', CAST(id AS INT), 'first' FROM range(60)"
    )


@pytest.fixture
def meanwhile(session: Session, tmp_path: Path) -> Meanwhile:
    """Write rows, while the other statement runs, of somebody who takes no turns with them."""

    def run(
        other: str, by: Session, rows: Sequence[tuple[str, int, str]], mode: str = "append"
    ) -> Any:
        alone = InProcessCommitter(by.catalog, by.settings)
        elsewhere = Session(by._connection.beside(committer=alone))
        return write_while(lambda: elsewhere.run(other), by, rows, tmp_path, mode)

    return run


@pytest.mark.parametrize(
    ("key", "other"),
    [
        pytest.param(DYNAMIC, "'p0', 1000", id="dynamic", marks=pytest.mark.soak),
        pytest.param(MOVING, "'p1', 1000", id="moving"),
    ],
)
def test_rerun_sees_concurrent_keys_without_duplicating_them(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    meanwhile: Meanwhile,
    key: str,
    other: str,
) -> None:
    create(session, key)
    late = [("p0", 1000, "late"), ("p0", 3, "late")]
    outcome = meanwhile(f"INSERT INTO t VALUES ({other}, 'in between')", session, late)
    assert "Planned and run again 1 time, before anything was written: Since this" in str(outcome)
    actual = [row for row in java_paimon.rows(warehouse, "default.t") if row[1] in (3, 1000)]
    assert sorted(actual, key=lambda row: row[1]) == [("p0", 3, "late"), ("p0", 1000, "late")]
    files = {path for path in warehouse.rglob("*.parquet")}
    assert len(files) == session.run("SELECT * FROM t$files").to_arrow().num_rows


def test_other_concurrent_keys_stay_in_the_index(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, meanwhile: Meanwhile
) -> None:
    create(session, DYNAMIC)
    late = [("p0", 1000, "late"), ("p0", 3, "late")]
    outcome = meanwhile("INSERT INTO t VALUES ('p0', 2000, 'between')", session, late)
    assert not outcome.notes
    table = session.catalog.load(TableName("t", "default"))
    assert unreachable(table) == set() and missing(table) == set()
    session.run("INSERT INTO t VALUES ('p0', 1000, 'again'), ('p0', 2000, 'again')")
    actual = sorted(row[1:] for row in java_paimon.rows(warehouse, "default.t"))
    first = [(k, "first") for k in range(60) if k != 3]
    assert actual == sorted([*first, (3, "late"), (1000, "again"), (2000, "again")])


def test_reruns_are_limited_by_setting(
    session: Session, warehouse: Path, meanwhile: Meanwhile
) -> None:
    create(session, DYNAMIC)
    session.close()
    with paimon_magics.connect(warehouse, spark=session.spark, conflict_reruns_max=0) as once:
        once.run("SET spark.sql.session.timeZone = Asia/Kolkata")
        error = meanwhile("INSERT INTO t VALUES ('p0', 1000, 'b')", once, [("p0", 1000, "late")])
        once.spark.conf.unset("spark.sql.session.timeZone")
        assert isinstance(error, OutdatedPlanError) and "added keys" in error.message
        assert re.search(r" at \d{4}-\S+ \S+ Asia/Kolkata\)", error.message), error.message
        rows = once.run("SELECT v FROM t WHERE k = 1000").to_arrow()["v"].to_pylist()
        assert rows == ["b"]
        files = {path for path in warehouse.rglob("*.parquet")}
        assert len(files) == once.run("SELECT * FROM t$files").to_arrow().num_rows


def test_overwrite_is_not_rerun_over_concurrent_rows(
    session: Session, meanwhile: Meanwhile
) -> None:
    create(session, DYNAMIC)
    for mode in ("overwrite", "dynamic"):
        error = meanwhile("INSERT INTO t VALUES ('p0', 7, 'kept')", session, [("p0", 1, "x")], mode)
        assert isinstance(error, CommitConflictError) and "would lose them" in error.message
        assert not isinstance(error, OutdatedPlanError)
    assert session.run("SELECT v FROM t WHERE k = 7").to_arrow()["v"].to_pylist() == ["kept"]


def test_concurrent_upserts_of_known_keys_need_no_rerun(
    session: Session, meanwhile: Meanwhile
) -> None:
    create(session, DYNAMIC)
    outcome = meanwhile("INSERT INTO t VALUES ('p0', 7, 'second')", session, [("p0", 8, "third")])
    assert not outcome.notes
    rows = session.run("SELECT v FROM t WHERE k IN (7, 8) ORDER BY k").to_arrow()["v"].to_pylist()
    assert rows == ["second", "third"]
