"""What deletes much, or can't be undone, is asked about: what goes, and how to keep it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def session(session: Session) -> Session:
    session.run(
        "CREATE TABLE t (id INT, name STRING) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id')"
    )
    for number in range(1, 4):
        session.run(f"INSERT INTO t VALUES ({number}, 'a')")
    session.run("CALL sys.create_tag('t', 'two', 2)")
    session.run("CALL sys.create_branch('t', 'side', 'two')")
    return session


@pytest.mark.parametrize(
    ("statement", "loss", "way"),
    [
        (
            "CALL sys.rollback('t', '1')",
            "snapshots 2 to 3 and the tags `two`",
            "create_branch('default.t'",
        ),
        ("CALL sys.rollback('t', '2')", "snapshot 3, which together added 1 row", "create_tag"),
        ("CALL sys.delete_tag('t', 'two')", "`two` from snapshot 2", "CALL sys.create_tag"),
        ("ALTER TABLE t DELETE TAG two", "`two` from snapshot 2", "CALL sys.create_tag"),
        (
            "ALTER TABLE t CREATE OR REPLACE TAG two AS OF VERSION 1",
            "`two` from snapshot 2",
            "tags such",
        ),
        ("CALL sys.delete_branch('t', 'side')", "the branch `side`", "INSERT them first"),
        ("CALL sys.rescale('t', 4)", "3 rows in 3 files", "bucket_num => 2"),
        ("ALTER TABLE t DROP COLUMN name", "the values of `name` in 3 rows", "VERSION AS OF"),
        ("DELETE FROM t WHERE true", "WHERE true removes 3 rows", "rollback('default.t', '3')"),
        (
            "UPDATE t SET name = 'b' WHERE 1 = 1",
            "WHERE 1 = 1 changes 3 rows",
            "rollback('default.t', '3')",
        ),
        (
            "TRUNCATE TABLE `t$branch_side`",
            "removes 2 rows",
            "rollback('default.t$branch_side', '2')",
        ),
        (
            "ALTER TABLE t SET TBLPROPERTIES ('snapshot.time-retained' = '1 min')",
            "`snapshot.time-retained` from 1 h to 1 min",
            "a tag keeps",
        ),
        (
            "ALTER TABLE t SET TBLPROPERTIES ('snapshot.num-retained.max' = '10')",
            "`snapshot.num-retained.max` from 2147483647 to 10",
            "a tag keeps",
        ),
    ],
)
def test_destructive_statement_needs_confirmation(
    session: Session, statement: str, loss: str, way: str
) -> None:
    before = session.history("t").to_arrow()
    with pytest.raises(UnconfirmedError) as asked:
        session.run(statement, confirm=False)
    assert loss in asked.value.message
    assert "--yes" in asked.value.hint and way in asked.value.hint
    assert session.history("t").to_arrow() == before
    session.run(statement, confirm=True)


@pytest.mark.parametrize(
    "statement",
    [
        "CALL sys.rollback('t', '3')",
        "CALL sys.delete_tag('t', 'none')",
        "ALTER TABLE t ADD COLUMN more INT",
        "ALTER TABLE t SET TBLPROPERTIES ('snapshot.time-retained' = '2 h')",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t VALUES (9, 'true')",
    ],
)
def test_harmless_statement_needs_no_confirmation(session: Session, statement: str) -> None:
    session.run(statement, confirm=False)


def test_confirmation_counts_rows_added_earlier_in_the_cell(session: Session) -> None:
    session.run("CREATE TABLE u (id INT)")
    cell = "INSERT INTO u VALUES (1); TRUNCATE TABLE u"
    with pytest.raises(UnconfirmedError, match="removes 1 row") as asked:
        session.run(cell, confirm=False)
    assert asked.value.hint.startswith("The statements before it have run")
    assert session.run("SELECT * FROM u").to_arrow().num_rows == 1


def test_question_names_the_answer_in_a_cell_and_in_python(session: Session) -> None:
    for statement in (
        "TRUNCATE TABLE t",
        "UPDATE t SET name = 'b'",
        "MERGE INTO t USING t s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ):
        with pytest.raises(UnconfirmedError) as asked:
            session.run(statement, confirm=False)
        assert "%%paimon --yes" in asked.value.hint and "confirm=True" in asked.value.hint


@pytest.mark.parametrize("rolled_back", [False, True])
def test_question_before_fast_forward_names_the_snapshot_that_stays(
    session: Session, rolled_back: bool
) -> None:
    session.run("INSERT INTO `t$branch_side` VALUES (7, 'b')")
    session.run("CALL sys.rollback('t', 'two')")
    if not rolled_back:
        session.run("CALL sys.fast_forward('t', 'side')")
        session.run("INSERT INTO `t$branch_side` VALUES (8, 'c')")
    before = rows(session, "SELECT * FROM t ORDER BY id")
    with pytest.raises(UnconfirmedError) as asked:
        session.run("CALL sys.fast_forward('t', 'side')", confirm=False)
    way = asked.value.hint.partition("confirm=True. ")[2].partition(" goes back")[0]
    session.run("CALL sys.fast_forward('t', 'side')")
    assert rows(session, "SELECT * FROM t ORDER BY id") != before
    session.run(way)
    assert rows(session, "SELECT * FROM t ORDER BY id") == before


@pytest.mark.parametrize("branch", ["side", "main", "none"])
def test_fast_forward_that_will_be_refused_is_not_asked_about(
    session: Session, branch: str
) -> None:
    before = session.history("t").to_arrow()
    with pytest.raises((InvalidTableError, UnknownNameError)):
        session.run(f"CALL sys.fast_forward('t', '{branch}')", confirm=False)
    assert session.history("t").to_arrow() == before


def test_fast_forward_without_new_snapshots_is_not_asked_about(session: Session) -> None:
    session.run("CALL sys.rollback('t', 'two'); INSERT INTO `t$branch_side` VALUES (7, 'b')")
    session.run("CALL sys.fast_forward('t', 'side')")
    session.run("CALL sys.fast_forward('t', 'side')", confirm=False)


def test_drop_of_a_missing_column_is_not_asked_about(session: Session) -> None:
    with pytest.raises(UnknownNameError, match="nothere"):
        session.run("ALTER TABLE t DROP COLUMN nothere", confirm=False)
    session.run("ALTER TABLE t DROP COLUMN IF EXISTS nothere", confirm=False)
    with pytest.raises(UnconfirmedError) as asked:
        session.run("ALTER TABLE t DROP COLUMNS IF EXISTS (NAME, nothere)", confirm=False)
    assert "the values of `name` in 3 rows" in asked.value.message


@pytest.fixture
def sparks(session: Session) -> Iterator[Session]:
    """A session in whose Spark a table `mine` of its own has three rows."""
    session.spark.sql("CREATE TABLE mine USING parquet AS SELECT id FROM range(3)")
    yield session
    session.spark.sql("DROP TABLE IF EXISTS mine")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE mine",
        "DROP TABLE IF EXISTS mine",
        "DROP TABLE spark_catalog.default.mine",
        "TRUNCATE TABLE mine",
        "INSERT OVERWRITE mine SELECT 7",
        "INSERT OVERWRITE default.mine VALUES (7)",
        "INSERT OVERWRITE spark_catalog.default.mine VALUES (7)",
    ],
)
def test_loss_of_sparks_own_table_asks_first(sparks: Session, statement: str) -> None:
    with pytest.raises(UnconfirmedError) as asked:
        sparks.run(statement, confirm=False)
    assert "spark_catalog.default.mine, a table of Spark's own" in asked.value.message
    assert "confirm=True" in asked.value.hint
    assert sparks.spark.table("spark_catalog.default.mine").count() == 3
    sparks.run(statement, confirm=True)


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE parted PARTITION (day = 1)",
        "INSERT OVERWRITE parted PARTITION (day = 1) SELECT 7",
        "ALTER TABLE parted DROP PARTITION (day = 1)",
    ],
)
def test_loss_of_partitions_of_sparks_own_table_asks_first(sparks: Session, statement: str) -> None:
    sparks.spark.sql("CREATE TABLE parted (id INT, day INT) USING parquet PARTITIONED BY (day)")
    try:
        sparks.spark.sql("INSERT INTO parted VALUES (1, 1), (2, 2)")
        with pytest.raises(UnconfirmedError, match=r"partitions of spark_catalog\.default\.parted"):
            sparks.run(statement, confirm=False)
        assert sparks.spark.table("spark_catalog.default.parted").count() == 2
        sparks.run(statement, confirm=True)
    finally:
        sparks.spark.sql("DROP TABLE parted")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM mine",
        "DELETE FROM mine WHERE id = 1",
        "UPDATE mine SET id = 1",
        "MERGE INTO mine USING t ON mine.id = t.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE mine DROP COLUMN id",
        "ALTER TABLE mine RENAME COLUMN id TO number",
    ],
)
def test_change_that_sparks_own_table_refuses_is_refused_unasked(
    sparks: Session, statement: str
) -> None:
    with pytest.raises(UnsupportedStatementError, match="a table of Spark's own, which does not"):
        sparks.run(statement, confirm=False)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM other.db.far WHERE id = 1",
        "UPDATE other.db.far SET id = 1",
        "MERGE INTO other.db.far USING t ON far.id = t.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE other.db.far DROP COLUMN id",
    ],
)
def test_change_in_another_catalog_asks_first(sparks: Session, statement: str) -> None:
    sparks.spark.conf.set("spark.sql.catalog.other", "org.example.OtherCatalog")
    try:
        with pytest.raises(UnconfirmedError, match=r"other\.db\.far, a table of Spark's own"):
            sparks.run(statement, confirm=False)
    finally:
        sparks.spark.conf.unset("spark.sql.catalog.other")


def test_loss_of_sparks_own_database_and_files_asks_first(sparks: Session, tmp_path: Path) -> None:
    sparks.spark.sql("CREATE DATABASE spark_catalog.goes")
    with pytest.raises(UnconfirmedError, match="DROP DATABASE"):
        sparks.run("DROP DATABASE spark_catalog.goes CASCADE", confirm=False)
    sparks.run("DROP DATABASE spark_catalog.goes CASCADE", confirm=True)
    write = f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'out'}' USING parquet SELECT 1 AS id"
    with pytest.raises(UnconfirmedError, match="INSERT OVERWRITE DIRECTORY"):
        sparks.run(write, confirm=False)
    sparks.run(write, confirm=True)
    assert list((tmp_path / "out").glob("*.parquet"))


def test_repeated_drop_does_not_silently_drop_sparks_own_table(sparks: Session) -> None:
    sparks.run("CREATE TABLE mine (id INT)")
    sparks.run("DROP TABLE IF EXISTS mine", confirm=False)
    with pytest.raises(UnconfirmedError, match=r"Paimon has no table `default\.mine`"):
        sparks.run("DROP TABLE IF EXISTS mine", confirm=False)
    outcome = sparks.run("DROP TABLE IF EXISTS mine")
    assert "Spark's own here, spark_catalog.default.mine" in " ".join(outcome.notes)


def test_additions_to_sparks_own_table_and_its_views_are_not_asked_about(sparks: Session) -> None:
    sparks.run("INSERT INTO mine SELECT 7", confirm=False)
    sparks.run("CREATE TEMPORARY VIEW v AS SELECT 1 AS id", confirm=False)
    sparks.run("DROP VIEW v", confirm=False)


def test_program_needs_no_confirmation(session: Session) -> None:
    session.run("TRUNCATE TABLE t")
    assert session.run("SELECT * FROM t").to_arrow().num_rows == 0


@pytest.mark.parametrize("name", ["t", "t$branch_side"])
@pytest.mark.parametrize("statement", ["TRUNCATE TABLE `{}`", "DELETE FROM `{}`"])
def test_statement_in_outcome_restores_removed_rows(
    session: Session, name: str, statement: str
) -> None:
    before = session.run(f"SELECT * FROM `{name}` ORDER BY id").to_pylist()
    outcome = session.run(statement.format(name))
    way_back = outcome.notes[-1].partition(" brings the rows back")[0]
    session.run(way_back)
    assert session.run(f"SELECT * FROM `{name}` ORDER BY id").to_pylist() == before


def test_rollback_adds_a_snapshot_naming_its_user(session: Session) -> None:
    outcome = session.run("CALL sys.rollback('t', '1')")
    assert outcome.to_arrow().to_pylist() == [{"previous_snapshot_id": 3, "current_snapshot_id": 1}]
    assert "Snapshot 2, without rows, says who" in " ".join(outcome.notes)
    assert [row["id"] for row in session.run("SELECT * FROM t").to_pylist()] == [1]
    history = session.history("t").to_pylist()
    assert [row["snapshot_id"] for row in history] == [2, 1]
    assert history[0]["user"] and history[0]["rows"] == 0
    session.run("INSERT INTO t VALUES (5, 'b')")
    assert [row["id"] for row in session.run("SELECT * FROM t ORDER BY id").to_pylist()] == [1, 5]


def test_rollback_snapshot_does_not_block_fast_forward(session: Session) -> None:
    session.run("INSERT INTO `t$branch_side` VALUES (7, 'b')")
    session.run("CALL sys.rollback('t', 'two')")
    session.run("CALL sys.fast_forward('t', 'side')")
    assert [row["id"] for row in session.run("SELECT * FROM t ORDER BY id").to_pylist()] == [
        1,
        2,
        7,
    ]


def test_question_of_a_rollback_counts_removed_rows(session: Session) -> None:
    session.run("CREATE TABLE less (id INT); INSERT INTO less VALUES (1), (2), (3)")
    session.run("TRUNCATE TABLE less")
    with pytest.raises(UnconfirmedError, match="snapshot 2, which together removed 3 rows"):
        session.check_confirmed("CALL sys.rollback('less', '1')")
