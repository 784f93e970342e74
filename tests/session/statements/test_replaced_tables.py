"""CREATE TABLE … LIKE, CREATE OR REPLACE TABLE and REPLACE TABLE."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics import Session, connect, faults
from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    PaimonMagicsError,
    StatementError,
    StatementSyntaxError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

SNAPSHOTS = (
    "SELECT snapshot_id, schema_id, commit_kind, total_record_count, delta_record_count "
    "FROM t$snapshots ORDER BY 1"
)


@pytest.fixture
def t(session: Session) -> Session:
    """A session with a table `t` of two rows."""
    session.run(
        "CREATE TABLE t (id INT COMMENT 'key', v STRING DEFAULT 'x', n INT) COMMENT 'old' "
        "TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id');"
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)"
    )
    return session


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ---- LIKE


def test_like_copies_columns_keys_options_and_comment(session: Session) -> None:
    session.run(
        "CREATE TABLE a (k INT COMMENT 'key', v STRING DEFAULT 'x', s STRUCT<f: INT>, dt STRING) "
        "COMMENT 'about' PARTITIONED BY (dt) TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '2')"
    )
    session.run("INSERT INTO a VALUES (1, 'a', NULL, 'x')")
    outcome = session.run("CREATE TABLE b LIKE a")
    assert outcome.message == "Table `default.b` created."
    create = [rows(session, f"SHOW CREATE TABLE {name}")[0][0] for name in "ab"]
    assert create[0].replace("`a`", "`b`") == create[1]
    session.run("INSERT INTO b (k, dt) VALUES (1, 'y')")
    assert rows(session, "SELECT k, v, dt FROM b") == [(1, "x", "y")]
    assert rows(session, "SELECT k, dt FROM a") == [(1, "x")]


def test_like_takes_options_of_the_statement_first(t: Session) -> None:
    t.run("CREATE TABLE b LIKE t USING paimon TBLPROPERTIES ('bucket' = '3', 'comment' = 'new')")
    text = rows(t, "SHOW CREATE TABLE b")[0][0]
    assert "'bucket' = '3'" in text and "'bucket-key' = 'id'" in text and "new" in text


def test_like_of_an_existing_name_is_refused_or_skipped(t: Session) -> None:
    t.run("CREATE TABLE b LIKE t")
    with pytest.raises(StatementError, match=r"`default\.b` exists already"):
        t.run("CREATE TABLE b LIKE t")
    outcome = t.run("CREATE TABLE IF NOT EXISTS b LIKE t")
    assert outcome.message == "Table `default.b` exists already."


def test_like_copies_a_branch_and_a_view_of_spark(t: Session) -> None:
    t.run("CALL sys.create_branch('t', 'side'); ALTER TABLE `t$branch_side` ADD COLUMN more INT")
    t.run("CREATE TABLE b LIKE `t$branch_side`")
    assert [name for (name,) in rows(t, "SHOW COLUMNS IN b")] == ["id", "v", "n", "more"]
    t.run("CREATE TEMPORARY VIEW seen AS SELECT 1 AS one, 'x' AS two")
    t.run("CREATE TABLE c LIKE seen TBLPROPERTIES ('primary-key' = 'one')")
    t.run("INSERT INTO c VALUES (1, 'a'); INSERT INTO c VALUES (1, 'b')")
    assert rows(t, "SELECT * FROM c") == [(1, "b")]


@pytest.mark.parametrize(
    ("statement", "error", "expected"),
    [
        ("CREATE TABLE b LIKE nope", UnknownNameError, "no table `nope`"),
        ("CREATE TABLE b LIKE default.tt", UnknownNameError, "Did you mean `t`"),
        ("CREATE TABLE b LIKE t$files", UnsupportedStatementError, "system table"),
        ("CREATE OR REPLACE TABLE b LIKE t", StatementSyntaxError, "AS SELECT * FROM other"),
        ("CREATE TABLE b LIKE t PARTITIONED BY (id)", StatementSyntaxError, "After LIKE come"),
        (
            "CREATE TABLE IF NOT EXISTS b LIKE t PARTITIONED BY (id)",
            StatementSyntaxError,
            "After LIKE come",
        ),
        ("CREATE TABLE b LIKE t STORED AS ORC", PaimonMagicsError, "'file.format' = 'orc'"),
        ("CREATE TABLE b LIKE t USING csv", UnsupportedStatementError, "USING csv AS SELECT"),
        ("CREATE TABLE b LIKE t LOCATION '/elsewhere'", UnsupportedStatementError, "LOCATION"),
        (
            "CREATE TABLE b LIKE t TBLPROPERTIES ('bucket-key' = 'nope')",
            InvalidTableError,
            "nope",
        ),
        ("CREATE TABLE b LIKE", StatementSyntaxError, "a table's name"),
        ("CREATE TABLE nope.b LIKE t", UnknownNameError, "database `nope`"),
        ("CREATE TABLE b$files LIKE t", PaimonMagicsError, "b$files"),
    ],
)
def test_wrong_like_makes_no_table(
    t: Session, statement: str, error: type[PaimonMagicsError], expected: str
) -> None:
    with pytest.raises(error) as refusal:
        t.run(statement)
    assert expected in f"{refusal.value.message} {refusal.value.hint}"
    assert rows(t, "SHOW TABLES") == [("default", "t", False)]


def test_like_is_planned_and_explained(t: Session) -> None:
    planned = t.run("CREATE TABLE b LIKE t", dry_run=True)
    assert planned.message == "Would create the append table `default.b` with 3 columns."
    cell = "CREATE TABLE a (id INT); CREATE TABLE b LIKE a"
    assert "an earlier statement would create `default.a`" in t.run(cell, dry_run=True).message
    assert rows(t, "SHOW TABLES") == [("default", "t", False)]


# ---- REPLACE


def test_replaced_table_keeps_its_history(t: Session, warehouse: Path) -> None:
    outcome = t.run("CREATE OR REPLACE TABLE t (id BIGINT, w STRING) COMMENT 'new'")
    assert outcome.kind == "CREATE OR REPLACE TABLE"
    assert outcome.message == "Table `default.t` replaced."
    assert "VERSION AS OF 1" in outcome.notes[0]
    assert rows(t, "SELECT * FROM t") == []
    assert rows(t, SNAPSHOTS) == [(1, 0, "APPEND", 2, 2), (2, 0, "OVERWRITE", 0, -2)]
    assert rows(t, "SELECT * FROM t VERSION AS OF 1 ORDER BY id") == [(1, "a", 1), (2, "b", 2)]
    text = rows(t, "SHOW CREATE TABLE t")[0][0]
    assert "new" in text and "bucket" not in text
    t.run("INSERT INTO t VALUES (3000000000, 'c')")
    assert rows(t, "SELECT * FROM t") == [(3000000000, "c")]
    assert rows(t, "SELECT * FROM t VERSION AS OF 1 ORDER BY id") == [(1, "a", 1), (2, "b", 2)]
    assert not list((warehouse / "default.db/t").glob(".attempts/*"))


def test_replacing_query_has_one_snapshot_for_the_old_and_one_for_the_new_rows(t: Session) -> None:
    outcome = t.run("CREATE OR REPLACE TABLE t AS SELECT 'x' AS a, 1.5D AS b")
    assert outcome.message.startswith("Table `default.t` replaced. ")
    assert outcome.rows_written == 1
    assert rows(t, "SELECT * FROM t") == [("x", 1.5)]
    assert rows(t, SNAPSHOTS) == [
        (1, 0, "APPEND", 2, 2),
        (2, 0, "OVERWRITE", 0, -2),
        (3, 1, "OVERWRITE", 1, 1),
    ]
    assert rows(t, "SELECT * FROM t VERSION AS OF 1 ORDER BY id") == [(1, "a", 1), (2, "b", 2)]


def test_replacing_query_may_read_the_table(t: Session) -> None:
    t.run("CREATE OR REPLACE TABLE t AS SELECT id, n * 10 AS n FROM t WHERE id > 1")
    assert rows(t, "SELECT * FROM t") == [(2, 20)]
    t.run("REPLACE TABLE t AS SELECT * FROM t VERSION AS OF 1")
    assert rows(t, "SELECT * FROM t ORDER BY id") == [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize(
    "options",
    [
        "'primary-key' = 'k', 'bucket' = '2'",
        pytest.param("'primary-key' = 'k', 'bucket' = '-1'", marks=pytest.mark.soak),
        "'primary-key' = 'k', 'bucket' = '1', 'changelog-producer' = 'lookup'",
        "'primary-key' = 'k', 'bucket' = '1', 'merge-engine' = 'aggregation', "
        "'fields.v.aggregate-function' = 'sum'",
        pytest.param("'bucket' = '3', 'bucket-key' = 'k'", marks=pytest.mark.soak),
        "'file.format' = 'orc'",
        pytest.param("'file.format' = 'avro'", marks=pytest.mark.soak),
        "'row-tracking.enabled' = 'true'",
    ],
)
def test_table_of_every_layout_takes_the_place_of_another(t: Session, options: str) -> None:
    for _ in range(2):
        t.run(
            f"CREATE OR REPLACE TABLE t TBLPROPERTIES ({options}) "
            "AS SELECT CAST(id AS STRING) AS k, id AS v FROM range(100)"
        )
        assert rows(t, "SELECT count(*), sum(v) FROM t") == [(100, 4950)]
    t.run("INSERT INTO t VALUES ('new', 50)")
    assert rows(t, "SELECT count(*), sum(v) FROM t") == [(101, 5000)]
    t.run("CALL sys.compact('t')")
    t.run("DELETE FROM t WHERE v = 50") if "aggregation" not in options else None
    assert rows(t, "SELECT count(*) FROM t WHERE v < 10") == [(10,)]
    t.run("CREATE OR REPLACE TABLE t (id INT, v STRING)")
    t.run("INSERT INTO t VALUES (1, 'a')")
    assert rows(t, "SELECT * FROM t") == [(1, "a")]


def test_columns_that_stay_have_their_values_after_a_rollback(t: Session) -> None:
    t.run("CREATE OR REPLACE TABLE t (id INT, v INT, n INT, more STRING)")
    t.run("CALL sys.rollback('t', '1')")
    # `v` was a text: its values are no values of the new column.
    assert rows(t, "SELECT * FROM t ORDER BY id") == [(1, None, 1, None), (2, None, 2, None)]


def test_partitions_stay_with_the_history(session: Session) -> None:
    session.run(
        "CREATE TABLE t (id INT, dt STRING) PARTITIONED BY (dt);"
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')"
    )
    session.run(
        "CREATE OR REPLACE TABLE t PARTITIONED BY (dt) AS SELECT 5L AS id, 'z' AS dt", confirm=False
    )
    assert rows(session, "SELECT * FROM t") == [(5, "z")]
    assert rows(session, "SHOW PARTITIONS t") == [("dt=z",)]
    assert rows(session, "SELECT * FROM t VERSION AS OF 1 ORDER BY id") == [(1, "x"), (2, "y")]


def test_other_partitions_make_another_table_when_confirmed(session: Session) -> None:
    session.run("CREATE TABLE t (id INT, dt STRING) PARTITIONED BY (dt)")
    session.run("INSERT INTO t VALUES (1, 'x')")
    statement = "CREATE OR REPLACE TABLE t (z INT)"
    with pytest.raises(UnconfirmedError, match=r"`default\.t` removes 1 row"):
        session.run(statement, confirm=False)
    assert rows(session, "SELECT * FROM t") == [(1, "x")]
    outcome = session.run(statement, confirm=True)
    assert "without history" in outcome.notes[0]
    assert rows(session, SNAPSHOTS) == []
    session.run("INSERT INTO t VALUES (5)")
    assert rows(session, "SELECT * FROM t") == [(5,)]
    with pytest.raises(UnsupportedStatementError, match="other partition columns"):
        session.run("REPLACE TABLE t PARTITIONED BY (a) AS SELECT 1 AS a, 2 AS b", confirm=True)
    with pytest.raises(UnsupportedStatementError, match="other partition columns"):
        session.run("REPLACE TABLE t PARTITIONED BY (a) AS SELECT 1 AS a, 2 AS b", dry_run=True)
    assert rows(session, "SELECT * FROM t") == [(5,)]


@pytest.mark.parametrize(
    ("steps", "loss"),
    [
        ("CALL sys.create_tag('t', 'monthly', 1); TRUNCATE TABLE t", "the tag `monthly`"),
        ("CALL sys.create_branch('t', 'side'); TRUNCATE TABLE t", "the branch `side`"),
        ("TRUNCATE TABLE t", "removes 2 snapshots"),
    ],
)
@pytest.mark.parametrize("drop", ["CREATE OR REPLACE TABLE t (a INT, p STRING)", "DROP TABLE t"])
def test_loss_of_history_alone_is_asked_about(
    session: Session, steps: str, loss: str, drop: str
) -> None:
    session.run("CREATE TABLE t (id INT, dt STRING) PARTITIONED BY (dt)")
    session.run(drop.replace("p STRING)", "p STRING) PARTITIONED BY (p)"), confirm=False)
    session.run("CREATE OR REPLACE TABLE t (id INT, dt STRING) PARTITIONED BY (dt)", confirm=True)
    session.run("INSERT INTO t VALUES (1, 'x')")
    session.run(steps, confirm=True)
    with pytest.raises(UnconfirmedError) as question:
        session.run(drop, confirm=False)
    assert loss in question.value.message
    assert loss.removeprefix("removes ") in session.run(drop, dry_run=True).message
    assert rows(session, "SELECT * FROM t VERSION AS OF 1") == [(1, "x")]


def test_missing_table_is_created_by_or_replace_only(session: Session) -> None:
    session.run("CREATE OR REPLACE TABLE t AS SELECT 1 AS a")
    assert rows(session, "SELECT * FROM t") == [(1,)]
    with pytest.raises(UnknownNameError) as refusal:
        session.run("REPLACE TABLE tt (a INT)")
    assert refusal.value.message == "There is no table `default.tt` to replace."
    assert "`t`" in refusal.value.hint and "CREATE OR REPLACE TABLE" in refusal.value.hint
    assert rows(session, "SHOW TABLES") == [("default", "t", False)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE OR REPLACE TABLE t AS SELECT * FROM nope", "nope"),
        ("CREATE OR REPLACE TABLE t AS SELECT id, id FROM t", "id"),
        ("CREATE OR REPLACE TABLE t AS SELECT raise_error('no') AS a FROM t", "no"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1 / (id - 1) AS a FROM t", "zero"),
        ("CREATE OR REPLACE TABLE t (a INT, A INT)", "A"),
        ("CREATE OR REPLACE TABLE t (a INT) TBLPROPERTIES ('primary-key' = 'b')", "b"),
        ("CREATE OR REPLACE TABLE t (a INT) TBLPROPERTIES ('bucket' = 'many')", "many"),
        ("CREATE OR REPLACE TABLE t (a INT) LOCATION '/elsewhere'", "LOCATION"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)", "exclude each other"),
        ("CREATE OR REPLACE TABLE t$branch_b (a INT)", "b"),
        ("REPLACE TABLE t$files (a INT)", "files"),
        ("REPLACE TABLE t", "column"),
    ],
)
def test_wrong_replacement_leaves_the_table_and_no_files(
    t: Session, warehouse: Path, statement: str, expected: str
) -> None:
    before = files(warehouse)
    with pytest.raises(PaimonMagicsError) as refusal:
        t.run(statement)
    assert expected in f"{refusal.value.message} {refusal.value.hint}"
    assert files(warehouse) == before
    assert rows(t, "SELECT * FROM t ORDER BY id") == [(1, "a", 1), (2, "b", 2)]


@pytest.mark.parametrize("step", ["replace.emptied", "statement.written"])
def test_failure_between_the_steps_gives_the_old_table_back(
    t: Session, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = rows(t, "SHOW CREATE TABLE t")
    monkeypatch.setattr(faults, "_actions", {step: "raise"})
    with pytest.raises(Exception, match=f"armed at {step}"):
        t.run("CREATE OR REPLACE TABLE t AS SELECT id AS n, v AS id FROM t")
    assert faults._actions == {}
    assert rows(t, "SELECT * FROM t ORDER BY id") == [(1, "a", 1), (2, "b", 2)]
    assert rows(t, "SHOW CREATE TABLE t") == before
    assert [row[0] for row in rows(t, SNAPSHOTS)] == [1]
    t.run("CREATE OR REPLACE TABLE t AS SELECT id AS n, v AS id FROM t")
    assert rows(t, "SELECT * FROM t ORDER BY id") == [(1, "a"), (2, "b")]


def test_rows_of_others_since_the_query_began_stop_the_replacement(
    t: Session, warehouse: Path
) -> None:
    """The query takes a while: another process adds a row to the table meanwhile."""

    def insert() -> None:
        import pypaimon

        catalog = pypaimon.CatalogFactory.create({"warehouse": str(warehouse)})
        table = catalog.get_table("default.t")
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        import pyarrow as pa

        kinds = pa.schema([("id", pa.int32()), ("v", pa.string()), ("n", pa.int32())])
        write.write_arrow(pa.table({"id": [3], "v": ["c"], "n": [3]}, kinds))
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    timer = threading.Timer(2.0, insert)
    timer.start()
    try:
        with pytest.raises(CommitConflictError):
            t.run(
                "CREATE OR REPLACE TABLE t AS SELECT "
                "reflect('java.lang.Thread', 'sleep', CAST(4000 AS BIGINT)) AS a, id FROM t"
            )
    finally:
        timer.join()
    assert len(rows(t, "SELECT * FROM t")) == 3
    assert [row[:3] for row in rows(t, SNAPSHOTS)] == [(1, 0, "APPEND"), (2, 0, "APPEND")]


def test_replacement_is_previewed_and_explained(t: Session) -> None:
    statement = "CREATE OR REPLACE TABLE t AS SELECT 1 AS a"
    planned = t.run(statement, dry_run=True).message
    assert planned.startswith("Would replace `default.t`, which has 2 rows in 1 file")
    assert planned.endswith("and keep its history.")
    (lost,) = t.preview(statement).to_pylist()
    assert lost["record_count"] == 2
    assert rows(t, "SELECT count(*) FROM t") == [(2,)]
    assert "Would replace" in rows(t, f"EXPLAIN {statement}")[0][0]


def test_coordinator_replaces_tables(
    spark: object, warehouse: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(warehouse, spark=spark, coordinator="embedded") as session:
        session.run("CREATE TABLE t (id INT, v STRING); INSERT INTO t VALUES (1, 'a')")
        session.run("CREATE OR REPLACE TABLE t AS SELECT id AS other, v FROM t")
        session.run("CREATE TABLE u LIKE t")
        assert rows(session, "SELECT * FROM t") == [(1, "a")]
        assert rows(session, "SELECT * FROM t VERSION AS OF 1") == [(1, "a")]
        session.run("REPLACE TABLE t (id INT)")
        assert rows(session, "SELECT * FROM t") == []
        health = rows(session, SNAPSHOTS)
        assert [row[2] for row in health] == ["APPEND", "OVERWRITE", "OVERWRITE", "OVERWRITE"]
        session.run("CREATE OR REPLACE TABLE t (id INT, v STRING) PARTITIONED BY (v)", confirm=True)
        assert rows(session, SNAPSHOTS) == []


KEYED = "TBLPROPERTIES ('primary-key' = '{}', 'bucket' = '1')"
REPLACED = {
    "other columns": ("(a BIGINT, b BIGINT)", "(a STRING, b DATE)"),
    "a column that is not null": ("(a BIGINT, b BIGINT)", "(a BIGINT, c BIGINT NOT NULL)"),
    "one other column": ("(a BIGINT, b BIGINT)", "(a BIGINT, c BIGINT)"),
    "another key": (
        f"(a BIGINT NOT NULL, b BIGINT NOT NULL) {KEYED.format('a')}",
        f"(a BIGINT NOT NULL, b BIGINT NOT NULL) {KEYED.format('b')}",
    ),
    "a key of another type": (
        f"(a BIGINT NOT NULL, b BIGINT) {KEYED.format('a')}",
        f"(a STRING NOT NULL, b BIGINT) {KEYED.format('a')}",
    ),
    "no key any more": (
        f"(a BIGINT NOT NULL, b BIGINT) {KEYED.format('a')}",
        "(a BIGINT, b STRING)",
    ),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_insert_under_way_does_not_bring_rows_of_the_replaced_table(
    session: Session, tmp_path: Path, kind: str
) -> None:
    before, after = REPLACED[kind]
    session.run(f"CREATE TABLE t {before}")
    started, allowed = tmp_path / "started", tmp_path / "allowed"

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started.touch()
        while not allowed.exists():
            time.sleep(0.05)
        yield from batches

    frame = (
        session.spark.range(2).selectExpr("id AS a", "id AS b").mapInArrow(wait, "a LONG, b LONG")
    )
    results: list[object] = []

    def insert() -> None:
        try:
            results.append(
                session.run("INSERT INTO t SELECT * FROM frame", frames={"frame": frame})
            )
        except PaimonMagicsError as error:
            results.append(error)

    thread = threading.Thread(target=insert)
    thread.start()
    deadline = time.monotonic() + 60
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    session.run(f"CREATE OR REPLACE TABLE t {after}", confirm=True)
    allowed.touch()
    thread.join(120)
    (result,) = results
    left = rows(session, "SELECT * FROM t")
    if isinstance(result, PaimonMagicsError):
        assert "can't be read" not in result.message
        assert left == []
    else:  # it was planned again for the new table
        assert sorted(map(str, (row[0] for row in left))) == ["0", "1"]
        assert None not in {value for row in left for value in row}
    session.run("CALL sys.compact('t')")
    assert rows(session, "SELECT * FROM t") == left
