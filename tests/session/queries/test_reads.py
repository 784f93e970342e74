"""Raw scan and merge read give the same rows, through every change of schema, in one Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.session.queries.planned_reads import read_plan
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.statement import TableName
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.session.rows import rows

pytestmark = pytest.mark.spark

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}


def plan(session: Session, name: str = "t") -> ReadPlan:
    table, _, view = name.partition("$")
    relation = Relation(TableName(table, "default", system_table=view or None))
    return read_plan(StatementScope(session._connection), relation)[0]


@pytest.mark.java
@pytest.mark.parametrize(
    "partitioned",
    [pytest.param(False, marks=pytest.mark.soak), pytest.param(True, marks=pytest.mark.cluster)],
)
def test_merge_read_and_raw_scan_return_the_same_rows(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, partitioned: bool
) -> None:
    """Overlapping upserts must be merged; an append table holds their result as it is."""
    clause = "PARTITIONED BY (p) " if partitioned else ""
    key = "p,k" if partitioned else "k"
    session.run(
        f"CREATE TABLE t (k BIGINT NOT NULL, p INT NOT NULL, v STRING, n DOUBLE) {clause}"
        f"TBLPROPERTIES ('primary-key' = '{key}', 'bucket' = '2'); "
        "CREATE TABLE expected (k BIGINT, p INT, v STRING, n DOUBLE)"
    )
    for turn, (low, high) in enumerate([(0, 3000), (1000, 2000), (2500, 4000), (0, 10)]):
        session.run(
            f"INSERT INTO t SELECT id, id % 3, 'turn {turn}', id / 7 FROM range({low}, {high})"
        )
    session.run(
        "INSERT INTO expected SELECT id, id % 3, CASE WHEN id < 10 THEN 'turn 3' "
        "WHEN id >= 2500 THEN 'turn 2' WHEN id BETWEEN 1000 AND 1999 THEN 'turn 1' "
        "ELSE 'turn 0' END, id / 7 FROM range(4000)"
    )
    assert plan(session).merge_file_count > 0
    assert plan(session, "expected").merge_file_count == 0
    assert plan(session, "expected").raw_file_count > 0
    merged = rows(session, "SELECT * FROM t ORDER BY k")
    assert merged == rows(session, "SELECT * FROM expected ORDER BY k")
    assert merged == sorted(java_paimon.rows(warehouse, "default.t"))
    some = (
        "SELECT v, count(*), max(n) FROM {} WHERE k % 5 = 1 AND v <> 'turn 1' GROUP BY v ORDER BY v"
    )
    assert rows(session, some.format("t")) == rows(session, some.format("expected"))


def test_primary_key_table_written_once_is_read_by_raw_scan(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')")
    session.run("INSERT INTO t SELECT id, id FROM range(100)")
    for name in ("t", "t$audit_log", "t$binlog"):
        actual = plan(session, name)
        assert (actual.merge_file_count, actual.raw_file_count) == (0, 2)
    query = "SELECT DISTINCT rowkind, {0} FROM t${1} WHERE {0} = {2}"
    assert rows(session, query.format("k", "audit_log", 7)) == [("+I", 7)]
    assert rows(session, query.format("k", "binlog", "array(7)")) == [("+I", [7])]
    session.run("INSERT INTO t VALUES (5, 500)")
    assert plan(session).merge_file_count == 2
    assert rows(session, "SELECT sum(v), count(*) FROM t") == [(4950 + 495, 100)]


@pytest.mark.java
def test_rows_deleted_by_java_are_not_read(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
    )
    java_paimon.write(warehouse, "default.t", [(1, "a"), (2, "b"), (3, "c")])
    java_paimon.write(warehouse, "default.t", [(2, "b")], kinds=["-D"])
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(1, "a"), (3, "c")]


KEYED = "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
PLAIN = ""


EVOLVED = {
    "add": (
        "ADD COLUMN x DOUBLE",
        "(3, 'c', 3, 0.5)",
        [(1, "a", 1, None), (2, "b", 2, None), (3, "c", 3, 0.5)],
    ),
    "add first": (
        "ADD COLUMN x INT FIRST",
        "(7, 3, 'c', 3)",
        [(None, 1, "a", 1), (None, 2, "b", 2), (7, 3, "c", 3)],
    ),
    "rename": ("RENAME COLUMN v TO w", "(3, 'c', 3)", [(1, "a", 1), (2, "b", 2), (3, "c", 3)]),
    "widen": (
        "ALTER COLUMN n TYPE BIGINT",
        "(3, 'c', 3000000000)",
        [(1, "a", 1), (2, "b", 2), (3, "c", 3_000_000_000)],
    ),
    "to text": (
        "ALTER COLUMN n TYPE STRING",
        "(3, 'c', 'three')",
        [(1, "a", "1"), (2, "b", "2"), (3, "c", "three")],
    ),
    "drop": ("DROP COLUMN v", "(3, 3)", [(1, 1), (2, 2), (3, 3)]),
    "drop and add under the same name": (
        "DROP COLUMN v; ALTER TABLE t ADD COLUMN v INT",
        "(3, 3, 33)",
        [(1, 1, None), (2, 2, None), (3, 3, 33)],
    ),
    "reorder": ("ALTER COLUMN n FIRST", "(3, 3, 'c')", [(1, 1, "a"), (2, 2, "b"), (3, 3, "c")]),
}


@pytest.mark.java
@pytest.mark.parametrize(
    ("evolved", "options"), sampled(EVOLVED, {"append": PLAIN, "primary key": KEYED})
)
def test_old_files_are_read_with_the_new_schema(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    options: str,
    evolved: tuple[str, str, list[tuple[Any, ...]]],
) -> None:
    change, insert, expected = evolved
    session.run(f"CREATE TABLE t (k INT NOT NULL, v STRING, n INT) {options}")
    session.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    session.run(f"ALTER TABLE t {change}")
    session.run(f"INSERT INTO t VALUES {insert}")
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    position = [column.name for column in session.table("t").schema].index("k")
    actual = sorted(java_paimon.rows(warehouse, "default.t"), key=lambda row: row[position])
    assert actual == expected


@pytest.mark.java
def test_nested_fields_are_read_by_their_ids(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (k INT, s STRUCT<a: INT, b: STRING>)")
    session.run("INSERT INTO t VALUES (1, named_struct('a', 1, 'b', 'x')), (2, NULL)")
    session.run("ALTER TABLE t ADD COLUMN s.c DATE; ALTER TABLE t RENAME COLUMN s.a TO z")
    session.run("INSERT INTO t VALUES (3, named_struct('z', 3, 'b', 'y', 'c', DATE'2026-11-21'))")
    actual = rows(session, "SELECT k, s.z, s.b, CAST(s.c AS STRING), s IS NULL FROM t ORDER BY k")
    assert actual == [
        (1, 1, "x", None, False),
        (2, None, None, None, True),
        (3, 3, "y", "2026-11-21", False),
    ]
    java = sorted(java_paimon.rows(warehouse, "default.t"))
    assert [row[1] and row[1]["z"] for row in java] == [1, None, 3]


def test_point_query_on_key_reads_only_files_covering_it(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '4'); "
        "INSERT INTO t SELECT id, id FROM range(100); "
        "INSERT INTO t SELECT id, -id FROM range(1000, 1100)"
    )
    shown = str(session.explain("SELECT v FROM t WHERE k = 7"))
    assert "all files: 8 files of 4 buckets" in shown
    assert "keys: 1 file of 1 bucket," in shown
    assert rows(session, "SELECT v FROM t WHERE k = 7") == [(7,)]
    assert rows(session, "SELECT v FROM t WHERE k = 1007") == [(-1007,)]


def test_an_empty_table_has_its_columns(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, s STRUCT<a: DECIMAL(38, 18)>, at TIMESTAMP_NTZ(3))")
    actual = session.run("SELECT * FROM t").to_arrow()
    assert (actual.num_rows, actual.column_names) == (0, ["k", "s", "at"])
    assert rows(session, "SELECT count(*) FROM t") == [(0,)]


def test_limit_cuts_fetched_rows_and_display_shows_first_rows(session: Session) -> None:
    session.run("CREATE TABLE t (k INT); INSERT INTO t SELECT id FROM range(100)")
    assert session.run("SELECT * FROM t", limit=7).to_arrow().num_rows == 7
    assert "the first 20 rows; more follow" in str(session.run("SELECT * FROM t"))
    assert session.run("SELECT * FROM t ORDER BY k").to_pandas()["k"].tolist() == list(range(100))
    assert session.run("SELECT sum(k) AS s FROM t").to_polars()["s"].to_list() == [4950]


def test_open_frame_reads_its_planned_snapshot(session: Session) -> None:
    session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1)")
    frame = session.table("t")
    session.run("INSERT INTO t VALUES (2)")
    assert frame.count() == 1
    assert session.table("t").count() == 2


def test_closing_session_drops_its_table_views(session: Session) -> None:
    session.run(
        "CREATE TABLE t (id INT, user INT); INSERT INTO t VALUES (1, 10), (2, 20); "
        "CREATE DATABASE shop; CREATE TABLE shop.t (id INT, user INT); "
        "INSERT INTO shop.t VALUES (100, 10)"
    )
    before = {table.name for table in session.spark.catalog.listTables()}
    frame = session.run("SELECT * FROM t JOIN shop.t AS s USING (user)").dataframe
    with pytest.raises(UnknownNameError):
        session.run("SELECT nope FROM t")
    session.close()
    assert {table.name for table in session.spark.catalog.listTables()} <= before
    assert not any(
        table.name.startswith("paimon_magics") for table in session.spark.catalog.listTables()
    )
    assert frame is not None and frame.count() == 1


def test_every_name_of_a_table_has_a_past(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
        "'write-only' = 'true'); INSERT INTO t VALUES (1, 'a');"
        "CALL sys.create_tag(table => 't', tag => 'one'); CALL sys.create_branch('t', 'b', 'one');"
        "INSERT INTO t VALUES (1, 'b'); INSERT INTO t$branch_b VALUES (2, 'c')"
    )
    for name, before, now in (
        ("t", [(1, "a")], [(1, "b")]),
        ("t$audit_log", [("+I", 1, "a")], [("+I", 1, "b")]),
        ("t$binlog", [("+I", [1], ["a"])], [("+I", [1], ["b"])]),
        ("t$branch_b", [(1, "a")], [(1, "a"), (2, "c")]),
        ("t$branch_b$audit_log", [("+I", 1, "a")], [("+I", 1, "a"), ("+I", 2, "c")]),
    ):
        for past in ("VERSION AS OF 1", "VERSION AS OF 'one'"):
            assert rows(session, f"SELECT * FROM {name} {past}") == before
        future = "TIMESTAMP AS OF current_timestamp() + INTERVAL 1 HOUR"
        assert sorted(rows(session, f"SELECT * FROM {name} {future}")) == now
    # `SparkTimeTravelITCase`: system tables of files show those of then.
    for name in ("t$files", "t$branch_b$files", "t$manifests", "t$file_key_ranges"):
        assert rows(session, f"SELECT count(*) FROM {name} VERSION AS OF 1") == [(1,)]
        assert rows(session, f"SELECT count(*) FROM {name}") == [(2,)]
