"""A statement that fails: the table is as before, nothing is left behind, the next one works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, JobError, SetupError
from tests.session.evidence import files

pytestmark = pytest.mark.spark

TABLES = {
    "append": "CREATE TABLE t (k BIGINT, v STRING, p INT)",
    "partitioned": "CREATE TABLE t (k BIGINT, v STRING, p INT) PARTITIONED BY (p)",
    "primary key": "CREATE TABLE t (k BIGINT, v STRING, p INT) "
    "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')",
    "partitioned primary key": "CREATE TABLE t (k BIGINT, v STRING, p INT) PARTITIONED BY (p) "
    "TBLPROPERTIES ('primary-key' = 'p,k', 'bucket' = '2')",
}


@pytest.fixture(params=list(TABLES))
def table(request: pytest.FixtureRequest, session: Session) -> str:
    session.run(TABLES[request.param])
    session.run("INSERT INTO t SELECT id, 'before', id % 2 FROM range(10)")
    return str(request.param)


def content(session: Session) -> tuple[int, list[tuple[object, ...]]]:
    rows = session.run("SELECT * FROM t ORDER BY k").to_arrow().to_pylist()
    snapshots = session.run("SELECT max(snapshot_id) AS n FROM t$snapshots").to_arrow()
    return snapshots["n"][0].as_py(), [tuple(row.values()) for row in rows]


def fails_at(row: int, seconds: float) -> object:
    """A function for Spark that raises at one row and waits at the first of every other ten
    thousand, so that other tasks have finished, write, or have yet to begin."""

    def function(number: int) -> str:
        if number == row:
            raise ValueError(f"row {row} is bad")
        if number % 10_000 == 0 and number // 10_000 != row // 10_000:
            time.sleep(seconds)
        return "new"

    return function


AFTER, DURING = (35_000, 0.0), (9_000, 1.0)
"""The bad row, and how long other tasks wait: they have finished, or are at work."""


@pytest.mark.parametrize(
    ("table", "row", "seconds"),
    [
        pytest.param("append", *AFTER, marks=pytest.mark.soak),
        pytest.param("append", *DURING, marks=pytest.mark.cluster),
        pytest.param("partitioned", *AFTER, marks=pytest.mark.cluster),
        pytest.param("partitioned", *DURING, marks=pytest.mark.soak),
        pytest.param("primary key", *AFTER, marks=pytest.mark.soak),
        pytest.param("primary key", *DURING, marks=pytest.mark.soak),
        pytest.param("partitioned primary key", *DURING),
    ],
    indirect=["table"],
)
def test_failing_task_leaves_no_trace(
    session: Session, warehouse: Path, table: str, row: int, seconds: float
) -> None:
    verb = "INSERT OVERWRITE" if "partitioned" in table else "INSERT INTO"
    session.spark.udf.register("checked", fails_at(row, seconds), "string")
    state, listing = content(session), files(warehouse)
    with pytest.raises(JobError) as caught:
        session.run(f"{verb} t SELECT id, checked(id), id % 3 FROM range(0, 40000, 1, 4)")
    assert f"row {row} is bad" in caught.value.message
    assert files(warehouse).keys() == listing.keys()
    assert content(session) == state
    time.sleep(seconds)  # whoever was still at work has given up
    assert files(warehouse).keys() == listing.keys()
    session.run(f"{verb} t SELECT id, 'after', id % 3 FROM range(5)")
    assert content(session)[0] == state[0] + 1


@pytest.mark.parametrize(
    ("table", "expression"),
    [
        ("append", "CAST(IF(id = 1234, 'x', '1') AS INT)"),
        pytest.param("partitioned", "1 / IF(id = 1234, 0, 1)", marks=pytest.mark.soak),
        pytest.param("primary key", "IF(id = 1234, 3000000000, 1)", marks=pytest.mark.soak),
        ("partitioned primary key", "IF(id = 1234, raise_error('never'), 1)"),
    ],
    indirect=["table"],
)
def test_value_overflow_in_a_query_leaves_no_trace(
    session: Session, warehouse: Path, table: str, expression: str
) -> None:
    state, listing = content(session), files(warehouse)
    with pytest.raises((InvalidValueError, JobError)) as caught:
        session.run(f"INSERT INTO t SELECT id, 'new', {expression} FROM range(0, 5000, 1, 4)")
    assert "\n" not in caught.value.message and len(caught.value.message) < 600
    assert files(warehouse).keys() == listing.keys()
    assert content(session) == state
    session.run("INSERT INTO t VALUES (1000, 'after', 0)")
    assert content(session)[0] == state[0] + 1


def test_failed_manifest_write_leaves_the_table_empty(session: Session, warehouse: Path) -> None:
    """A file stands where the folder of manifests must be made: only the commit can notice."""
    session.run("CREATE TABLE t (k INT, v STRING)")
    blocker = warehouse / "default.db" / "t" / "manifest"
    blocker.write_text("in the way")
    listing = files(warehouse)
    for source in ("VALUES (1, 'a')", "SELECT id, 'a' FROM range(10)"):
        with pytest.raises(SetupError, match="could not be prepared") as caught:
            session.run(f"INSERT INTO t {source}")
        assert "`default.t`" in caught.value.message
        assert files(warehouse) == listing
    blocker.unlink()
    session.run("INSERT INTO t VALUES (1, 'a')")
    assert content(session) == (1, [(1, "a")])


def test_failed_publication_leaves_the_table_empty(session: Session, warehouse: Path) -> None:
    session.run("CREATE TABLE t (k INT, v STRING)")
    blocker = warehouse / "default.db" / "t" / "snapshot"
    blocker.write_text("in the way")
    listing = files(warehouse)
    with pytest.raises(SetupError, match="snapshot-1 could not be written"):
        session.run("INSERT INTO t VALUES (1, 'a')")
    empty_folder = {"default.db/t/manifest"}
    assert files(warehouse).keys() - empty_folder == listing.keys()
    blocker.unlink()
    session.run("INSERT INTO t VALUES (1, 'a')")
    assert content(session) == (1, [(1, "a")])
