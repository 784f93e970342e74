"""A table that is altered while a statement writes to it: before it is planned, between plan and
commit, and while its job runs.

What is written always reads as if the statement had come wholly before the change or wholly after
it; it is never read with its columns mistaken for others. Everything is read by Java too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import CommitConflictError, PaimonMagicsError
from paimon_magics.session.inserts.insert import run_prepared
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.prepare import prepare_insert
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Insert, TableName
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import only_in_soak, sampled
from tests.session.evidence import files

pytestmark = [pytest.mark.spark, pytest.mark.java]

T = TableName("t", "default")
OPTIONS = {"append": "", "primary key": "'primary-key' = 'k', 'bucket' = '2'"}


@dataclass(frozen=True)
class Change:
    """What somebody else does to `(k INT, a INT, b STRING, s STRUCT<x: INT, y: STRING>)`, and what
    a row (7, 70, 'b7', {x: 700, y: 'y7'}) that was written just before it is afterwards."""

    name: str
    sql: str
    row: tuple[Any, ...]


S = {"x": 700, "y": "y7"}
S_Z = {"x": 700, "z": None, "y": "y7"}
CHANGES = [
    Change("add", "ADD COLUMN n INT", (7, 70, "b7", S, None)),
    Change("add first", "ADD COLUMN n STRING FIRST", (None, 7, 70, "b7", S)),
    Change("drop", "DROP COLUMN a", (7, "b7", S)),
    Change("rename", "RENAME COLUMN a TO c", (7, 70, "b7", S)),
    Change("widen", "ALTER COLUMN a TYPE BIGINT", (7, 70, "b7", S)),
    Change("to text", "ALTER COLUMN a TYPE STRING", (7, "70", "b7", S)),
    Change("move", "ALTER COLUMN b FIRST", ("b7", 7, 70, S)),
    Change("default", "ALTER COLUMN a SET DEFAULT 5", (7, 70, "b7", S)),
    Change("add nested", "ADD COLUMN s.z INT AFTER x", (7, 70, "b7", S_Z)),
    Change("drop nested", "DROP COLUMN s.x", (7, 70, "b7", {"y": "y7"})),
    Change("rename nested", "RENAME COLUMN s.x TO y2", (7, 70, "b7", {"y2": 700, "y": "y7"})),
    Change("widen nested", "ALTER COLUMN s.x TYPE BIGINT", (7, 70, "b7", S)),
]  # fmt: skip
SWAPS = [
    # The names stay, and mean other columns.
    ("DROP COLUMN a", "ADD COLUMN a INT AFTER k"),
    ("RENAME COLUMN a TO q", "ADD COLUMN a INT AFTER k"),
]


def create(session: Session, options: str) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, a INT, b STRING, s STRUCT<x: INT, y: STRING>)"
        + (f" TBLPROPERTIES ({options})" if options else "")
    )


def alter(warehouse: Path, *changes: str) -> None:
    """Change the table as another process would: by a catalog of its own."""
    catalog = Catalog.open({"warehouse": str(warehouse)})
    for change in changes:
        statement = parse_statement(f"ALTER TABLE t {change}")
        assert isinstance(statement, AlterTable)
        catalog.alter_table(T, statement.changes)


def values(k: int) -> str:
    return f"{k}, {k}0, 'b{k}', named_struct('x', {k}00, 'y', 'y{k}')"


def planned(session: Session, sql: str) -> Callable[[], object]:
    """A statement of a session that has planned it and then stood still."""
    insert = parse_statement(sql)
    assert isinstance(insert, Insert)
    scope = StatementScope(session._connection)
    prepared = prepare_insert(scope, insert, {})
    return lambda: run_prepared(scope, insert, prepared)


def check(session: Session, java: JavaPaimon, warehouse: Path, rows: list[tuple[Any, ...]]) -> None:
    found = session.run("SELECT * FROM t").to_arrow().to_pylist()
    expected = sorted(rows, key=repr)
    assert sorted((tuple(row.values()) for row in found), key=repr) == expected
    assert sorted(java.rows(warehouse, "default.t"), key=repr) == expected


IN_SOAK = (
    "add", "add first", "widen", "move", "default", "drop nested", "rename nested", "widen nested"
)  # fmt: skip


@pytest.mark.parametrize(
    "change", only_in_soak({change.name: change for change in CHANGES}, IN_SOAK)
)
def test_statement_planned_before_schema_change_is_read_by_column_ids(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, change: Change
) -> None:
    options = OPTIONS["append" if CHANGES.index(change) % 2 else "primary key"]
    create(session, options)
    folded = planned(session, f"INSERT INTO t VALUES ({values(7)})")
    job = planned(session, f"INSERT INTO t SELECT {values(7)} FROM range(1)")
    overwrite = planned(session, f"INSERT OVERWRITE t SELECT {values(7)} FROM range(1)")
    alter(warehouse, change.sql)
    folded()
    job()
    once = 1 if options else 2
    check(session, java_paimon, warehouse, [change.row] * once)
    with pytest.raises(CommitConflictError, match="Since this overwrite was planned"):
        overwrite()
    # The same session goes on with what the table is now.
    session.run("INSERT INTO t SELECT * FROM t")
    check(session, java_paimon, warehouse, [change.row] * (1 if options else 4))


@pytest.mark.parametrize(
    ("options", "swap"),
    sampled(OPTIONS, dict(zip(["dropped and added", "renamed and added"], SWAPS, strict=True))),
)
def test_replaced_column_gets_no_values_of_its_predecessor(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    options: str,
    swap: tuple[str, ...],
) -> None:
    create(session, options)
    late = planned(session, f"INSERT INTO t SELECT {values(7)} FROM range(1)")
    alter(warehouse, *swap)
    late()
    session.run("INSERT INTO t (k, a) VALUES (8, 88)")
    renamed = swap[0].startswith("RENAME")
    rows = [(7, None, *([70] if renamed else []), "b7", S), (8, 88, *[None] * (2 + renamed))]
    check(session, java_paimon, warehouse, rows)


@pytest.mark.parametrize("options", only_in_soak(OPTIONS, ["append"]))
def test_schema_change_during_job_takes_effect_after_statement(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, options: str
) -> None:
    """A task changes the table itself, after its first rows are on their way."""
    create(session, options)
    path = str(warehouse)

    def changing(number: int) -> int:
        if number == 5:
            from pathlib import Path

            alter(Path(path), "DROP COLUMN a", "ADD COLUMN a STRING", "RENAME COLUMN b TO c")
        return number * 10

    session.spark.udf.register("changing", changing, "int")
    session.run(
        "INSERT INTO t SELECT CAST(id AS INT), changing(CAST(id AS INT)), concat('b', id), "
        "named_struct('x', CAST(id AS INT), 'y', 'y') FROM range(0, 10, 1, 2)"
    )
    rows = [(k, f"b{k}", {"x": k, "y": "y"}, None) for k in range(10)]
    check(session, java_paimon, warehouse, rows)


def test_source_changed_after_plan_is_read_as_planned(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    create(session, OPTIONS["primary key"])
    session.run("CREATE TABLE sink (k INT, a INT, b STRING)")
    session.run(f"INSERT INTO t VALUES ({values(1)}), ({values(2)})")
    session.run(f"INSERT INTO t VALUES ({values(2)})")  # one bucket has to be merged
    late = planned(session, "INSERT INTO sink SELECT k, a, b FROM t")
    alter(warehouse, "DROP COLUMN a", "RENAME COLUMN b TO a", "ADD COLUMN b INT")
    late()
    assert sorted(java_paimon.rows(warehouse, "default.sink")) == [(1, 10, "b1"), (2, 20, "b2")]


def test_insert_is_replanned_after_bucket_number_changes(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    create(session, OPTIONS["primary key"])
    late = planned(session, f"INSERT INTO t SELECT {values(7)} FROM range(1)")
    alter(warehouse, "SET TBLPROPERTIES ('bucket' = '5')")
    session.run(f"INSERT INTO t SELECT {values(7)} FROM range(1)")
    outcome = late()
    assert "Planned and run again 1 time" in str(outcome)
    check(session, java_paimon, warehouse, [(7, 70, "b7", S)])


@pytest.mark.parametrize(
    ("change", "sql", "named"),
    [
        ("DROP COLUMN a", f"INSERT INTO t VALUES ({values(1)})", "takes 3 columns"),
        ("DROP COLUMN a", "INSERT INTO t (k, a) VALUES (1, 10)", "no column `a`"),
        ("RENAME COLUMN a TO c", "INSERT INTO t BY NAME SELECT 1 AS k, 2 AS a", "no column `a`"),
        ("ADD COLUMN n INT", f"INSERT INTO t SELECT {values(1)}", "takes 5 columns"),
        ("ALTER COLUMN a TYPE STRING", "INSERT INTO t (k, a) SELECT 1, a + 1 FROM t", None),
    ],
)
def test_session_replans_on_table_altered_by_others(
    session: Session, warehouse: Path, change: str, sql: str, named: str | None
) -> None:
    create(session, "")
    session.run(f"INSERT INTO t VALUES ({values(7)})")
    frame = session.table("t")
    assert frame.count() == 1
    alter(warehouse, change)
    if named is None:
        session.run(sql)
        assert session.run("SELECT a FROM t ORDER BY k").to_arrow()["a"].to_pylist() == ["71", "70"]
        return
    before = files(warehouse)
    with pytest.raises(PaimonMagicsError, match=named):
        session.run(sql)
    assert files(warehouse) == before
    assert frame.count() == 1  # of the snapshot and columns that it was made for
