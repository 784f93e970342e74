"""Changes of rows whose tasks leave out what does not meet the condition: the same rows change as
by a raw scan, which reads a copy of the table."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from paimon_magics import Session
from paimon_magics.session.planned_work import reads_of
from paimon_magics.session.row_changes.delete_update import chosen_rows
from paimon_magics.session.row_changes.selection import ChangeOnTable
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Delete, TableName

pytestmark = pytest.mark.spark

COLUMNS = "k BIGINT NOT NULL, a INT, s STRING, d DECIMAL(10, 2), e DATE, f DOUBLE, b BOOLEAN"
ROWS = """SELECT id - 2000 AS k, IF(id % 7 = 0, NULL, CAST(id % 13 AS INT)) AS a,
IF(id % 11 = 0, NULL, concat('s', id % 17)) AS s, CAST(id % 19 AS DECIMAL(10, 2)) AS d,
date_add(DATE'2026-01-01', CAST(id % 23 AS INT)) AS e,
CASE id % 5 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN -0.0D ELSE id * 0.5D END AS f, id % 2 = 0 AS b
FROM range(4000)"""
TAKEN = [
    "k % 100 = 3",
    "k % 100 = -3",
    "k % 100 = 0 AND a IS NOT NULL",
    "a = 5",
    "a = 5 AND k % 3 = 1 AND s <> 's4'",
    "a IN (1, 2, 40)",
    "s = 's3' AND f > 100",
    "s IS NULL",
    "d = 3.00",
    "d > 17.5",
    "e = DATE'2026-01-05'",
    "e BETWEEN '2026-01-20' AND '2026-01-22'",
    "k >= 1900",
    "a = 5 AND (s = 's1' OR f = 0.0)",
    "b AND a = 3",
    "a = 5 AND k IN (SELECT 1)",
]
LEFT_TO_SPARK = [
    *("f > 1900", "s LIKE 's1%'", "k % 100 = 3 OR a = 1", "a IS NOT NULL", "k % 2 <> 1"),
    "true",
]
SETTINGS = {"local_rows_max": 0}  # Spark reads the tables, small as they are


@pytest.fixture(scope="module")
def session(module_session: Session) -> Session:
    """One with the table `keyed`, whose buckets have several files each, without merges."""
    module_session.run(
        f"CREATE TABLE keyed ({COLUMNS}, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '4', 'target-file-size' = '8 kb', 'write-only' = 'true');"
        f"INSERT INTO keyed {ROWS}; CALL sys.compact('keyed')"
    )
    module_session.spark.sql(ROWS).createOrReplaceTempView("made")
    return module_session


def chosen(session: Session, table: str, condition: str) -> DataFrame | None:
    """The rows that the tasks of a DELETE leave."""
    change = parse_statement(f"DELETE FROM {table} WHERE {condition}")
    assert isinstance(change, Delete)
    scope = StatementScope(session._connection)
    loaded = scope.tables.load(TableName(table, "default"))
    ids = session.run(f"SELECT max(snapshot_id) AS id FROM {table}$snapshots").to_pylist()
    return chosen_rows(ChangeOnTable(scope, change, {}, loaded, ids[0]["id"]))


def shown(frame: DataFrame) -> list[str]:
    """The rows as sorted texts, in which NaN equals itself."""
    return sorted(map(str, frame.select(sorted(frame.columns)).collect()))


@pytest.mark.parametrize("condition", TAKEN)
def test_filtered_read_keeps_every_row_selected_by_condition(
    session: Session, condition: str
) -> None:
    frame = chosen(session, "keyed", condition)
    assert frame is not None
    selected = session.spark.table("made").where(condition)
    assert shown(frame.where(condition)) == shown(selected)
    assert frame.count() < 2500  # and others are


@pytest.mark.parametrize("condition", LEFT_TO_SPARK)
def test_conditions_without_column_comparisons_are_left_to_spark(
    session: Session, condition: str
) -> None:
    assert chosen(session, "keyed", condition) is None


def test_each_bucket_is_read_by_a_single_task(session: Session) -> None:
    frame = chosen(session, "keyed", "a = 5")
    assert frame is not None
    plan = reads_of(frame).plan
    assert plan is not None and not plan.raw_scans
    folders = [{file.path.rpartition("/")[0] for split in task for file in split.files}
               for task in plan.tasks]  # fmt: skip
    assert len(set().union(*folders)) == sum(map(len, folders)) == 4
    assert plan.merge_file_count > 4


def test_update_and_delete_change_rows_selected_by_condition(session: Session) -> None:
    session.run(
        f"CREATE TABLE changed ({COLUMNS}, PRIMARY KEY (k) NOT ENFORCED) "
        f"TBLPROPERTIES ('bucket' = '4'); INSERT INTO changed {ROWS}; CALL sys.compact('changed')"
    )
    values = {"a": "a + 100", "s": "concat(s, '!')"}
    update = session.update("changed", values, "k % 10 = 3 AND a IS NOT NULL")
    session.run("CALL sys.compact('changed')")
    assert chosen(session, "changed", "a = 105") is not None
    delete = session.run("DELETE FROM changed AS c WHERE c.a = 105")
    made = session.spark.sql(
        "SELECT k, IF(hit, a + 100, a) AS a, IF(hit, concat(s, '!'), s) AS s, d, e, f, b FROM "
        "(SELECT *, k % 10 = 3 AND a IS NOT NULL AS hit FROM made)"
    )
    assert shown(session.table("changed")) == shown(made.where("NOT a <=> 105"))
    assert update.rows_updated == made.where("a >= 100").count()
    assert delete.rows_deleted == made.where("a = 105").count() > 0


def test_retyped_column_is_compared_in_its_current_type(session: Session) -> None:
    session.run(
        "CREATE TABLE widened (k BIGINT NOT NULL, a INT, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '2', 'write-only' = 'true');"
        "INSERT INTO widened SELECT id, CAST(id % 5 AS INT) FROM range(100);"
        "CALL sys.compact('widened'); ALTER TABLE widened ALTER COLUMN a TYPE BIGINT;"
        "ALTER TABLE widened ADD COLUMN n STRING"
    )
    frame = chosen(session, "widened", "a % 5 = 3")
    assert frame is not None
    assert frame.count() == 20
    missing = chosen(session, "widened", "n = 'x'")
    assert missing is not None and missing.count() == 0
    assert session.run("UPDATE widened SET n = 'new' WHERE a = 3").rows_updated == 20
    query = "SELECT count(*) AS rows, sum(a) AS a FROM widened WHERE n = 'new'"
    assert session.run(query).to_pylist() == [{"rows": 20, "a": 60}]


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ("a INT", "'file.format' = 'orc'"),
        ("a INT, t TIMESTAMP_NTZ(9)", "'file.format' = 'parquet'"),
        ("a INT, n STRUCT<x: INT>", "'file.format' = 'parquet'"),
    ],
)
def test_formats_and_types_unsuited_to_arrow_are_left_to_spark(
    session: Session, column: str, options: str
) -> None:
    session.run(
        f"DROP TABLE IF EXISTS others; CREATE TABLE others (k BIGINT NOT NULL, {column}, "
        f"PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2', {options});"
        "INSERT INTO others (k, a) SELECT id, CAST(id % 9 AS INT) FROM range(100);"
        "CALL sys.compact('others')"
    )
    assert chosen(session, "others", "a = 5") is None
    assert session.run("DELETE FROM others WHERE a = 5").rows_deleted == 11


def test_overlapping_rows_are_read_by_merge(session: Session) -> None:
    session.run(
        "CREATE TABLE merged (k BIGINT NOT NULL, a INT, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '2', 'write-only' = 'true');"
        "INSERT INTO merged SELECT id, 5 FROM range(100);"
        "INSERT INTO merged SELECT id, 6 FROM range(50)"
    )
    assert chosen(session, "merged", "a = 5") is None
    assert session.run("DELETE FROM merged WHERE a = 5").rows_deleted == 50
    assert session.run("SELECT min(a) AS a FROM merged").to_pylist() == [{"a": 6}]
