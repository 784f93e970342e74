"""Statements about partitions: INSERT … REPLACE, ADD and DROP PARTITION, DESCRIBE and SHOW of them;
and REFRESH, COMMENT ON TABLE, DESCRIBE DETAIL, USE spark_catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

ROWS = [(1, "a", "x"), (2, "b", "y"), (3, "c", "z")]
ALL = "SELECT * FROM t ORDER BY id"
KINDS = "SELECT commit_kind FROM t$snapshots ORDER BY snapshot_id"


@pytest.fixture
def t(session: Session) -> Session:
    """A session with a table of three partitions."""
    session.run(
        "CREATE TABLE t (id INT, v STRING, day STRING) PARTITIONED BY (day);"
        "INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')"
    )
    return session


# ---- INSERT … REPLACE


@pytest.mark.parametrize(
    ("clause", "values", "expected"),
    [
        ("REPLACE WHERE day = 'x'", "(7, 'n', 'x')", [(2, "b", "y"), (3, "c", "z"), (7, "n", "x")]),
        ("REPLACE WHERE day < 'z'", "(7, 'n', 'x')", [(3, "c", "z"), (7, "n", "x")]),
        ("REPLACE WHERE day IN ('x', 'n')", "(7, 'n', 'n')", [*ROWS[1:], (7, "n", "n")]),
        ("REPLACE WHERE day = 'n'", "(7, 'n', 'n')", [*ROWS, (7, "n", "n")]),
        ("REPLACE WHERE true", "(7, 'n', 'n')", [(7, "n", "n")]),
        ("BY NAME REPLACE WHERE t.day >= :day", None, [(1, "a", "x"), (8, "by", "y")]),
        ("REPLACE USING (day)", "(7, 'n', 'x'), (8, 'n', 'n')",
         [*ROWS[1:], (7, "n", "x"), (8, "n", "n")]),
    ],
)  # fmt: skip
def test_insert_replaces_the_partitions_of_its_clause(
    t: Session, clause: str, values: str | None, expected: list[tuple[object, ...]]
) -> None:
    source = f"VALUES {values}" if values else "SELECT 'y' AS day, 8 AS id, 'by' AS v"
    parameters = {"day": "y"} if ":day" in clause else None
    outcome = t.run(f"INSERT INTO t {clause} {source}", parameters)
    assert rows(t, ALL) == sorted(expected)
    assert outcome.kind == "INSERT REPLACE"
    assert len(rows(t, KINDS)) == 2


def test_insert_replaces_by_some_partition_columns(session: Session) -> None:
    session.run(
        "CREATE TABLE t (id INT, day STRING, hour INT) PARTITIONED BY (day, hour);"
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1)"
    )
    session.run("INSERT INTO t REPLACE USING (day) SELECT 7, 'x', 5")
    assert rows(session, ALL) == [(3, "y", 1), (7, "x", 5)]
    session.run("INSERT INTO t REPLACE USING (day, hour) SELECT 8, 'y', 1")
    assert rows(session, ALL) == [(7, "x", 5), (8, "y", 1)]
    session.run("INSERT INTO t REPLACE USING (day) SELECT * FROM t WHERE false")
    assert len(rows(session, ALL)) == 2
    session.run("INSERT INTO t REPLACE WHERE day = 'x' SELECT * FROM t WHERE false")
    assert rows(session, ALL) == [(8, "y", 1)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO t REPLACE WHERE day = 'x' SELECT 4, 'c', 'y'", "partition (day = 'y')"),
        ("INSERT INTO t REPLACE WHERE id = 3 SELECT 5, 'c', 'y'", "not choose whole partitions"),
        ("INSERT INTO t REPLACE WHERE dya = 'x' SELECT 5, 'c', 'y'", "dya"),
        ("INSERT INTO t REPLACE WHERE SELECT 5, 'c', 'y'", "a condition on partition columns"),
        ("INSERT INTO t REPLACE day = 'x' SELECT 5, 'c', 'y'", "WHERE or USING"),
        ("INSERT OVERWRITE t REPLACE WHERE day = 'x' SELECT 5, 'c', 'y'", "exclude each other"),
        ("INSERT INTO t PARTITION (day = 'x') REPLACE WHERE day = 'x' SELECT 5, 'c'", "exclude"),
        ("INSERT INTO t REPLACE USING (id) SELECT 5, 'c', 'y'", "MERGE INTO default.t AS t"),
        ("INSERT INTO t REPLACE USING (nope) SELECT 5, 'c', 'y'", "no column `nope`"),
        ("INSERT INTO t REPLACE USING () SELECT 5, 'c', 'y'", "a partition column"),
        ("INSERT INTO t REPLACE WHERE day = 'x' SELECT 5, 'c'", "3 columns"),
        ("INSERT INTO t REPLACE ON t.id = s.id SELECT 5, 'c', 'y'", "MERGE INTO"),
        ("INSERT INTO t REPLACE WHERE day = 'x' SELECT 1 / 0, 'c', 'x'", "zero"),
    ],
)  # fmt: skip
def test_wrong_replacing_insert_leaves_table_and_files(
    t: Session, warehouse: Path, statement: str, expected: str
) -> None:
    before = {path for path in warehouse.rglob("*") if path.is_file()}
    with pytest.raises(PaimonMagicsError) as refusal:
        t.run(statement)
    assert expected in f"{refusal.value.message} {refusal.value.hint}"
    assert rows(t, ALL) == ROWS
    assert {path for path in warehouse.rglob("*") if path.is_file()} == before


def test_replacing_insert_is_planned_explained_and_previewed(t: Session) -> None:
    statement = "INSERT INTO t REPLACE WHERE day >= 'y' SELECT 5, 'c', 'y'"
    plan = rows(t, f"EXPLAIN {statement}")[0][0]
    assert "the partitions with day = y; day = z are replaced" in plan
    assert [lost["partition"] for lost in t.preview(statement).to_pylist()] == ["day=y", "day=z"]
    assert t.run(statement, dry_run=True).message.startswith("Would run.")
    using = "INSERT INTO t REPLACE USING (day) SELECT 5, 'c', 'y'"
    assert "whose day a new row has" in rows(t, f"EXPLAIN {using}")[0][0]
    assert rows(t, ALL) == ROWS


def test_condition_on_several_partitions_asks_before_it_replaces_them(t: Session) -> None:
    for condition in ("true", "day >= 'y'"):
        statement = f"INSERT INTO t REPLACE WHERE {condition} SELECT * FROM t WHERE false"
        with pytest.raises(UnconfirmedError, match=r"REPLACE WHERE .* removes [23] rows") as error:
            t.run(statement, confirm=False)
        assert "CALL sys.rollback('default.t', '1')" in error.value.hint
    assert rows(t, ALL) == ROWS
    t.run("INSERT INTO t REPLACE WHERE day = 'x' SELECT 5, 'c', 'x'", confirm=False)
    t.run("INSERT INTO t REPLACE USING (day) SELECT 6, 'c', 'y'", confirm=False)
    assert [number for number, *_ in rows(t, ALL)] == [3, 5, 6]


def test_replacing_insert_says_what_it_removed(t: Session) -> None:
    none = t.run("INSERT INTO t REPLACE WHERE day < 'z' SELECT * FROM t WHERE false")
    assert none.message.startswith(
        "INSERT REPLACE `default.t`: 0 rows written (snapshot 2). 2 rows"
    )
    assert "of 2 partitions replaced." in none.message
    assert "CALL sys.rollback('default.t', '1')" in none.notes[-1]
    using = t.run("INSERT INTO t REPLACE USING (day) SELECT 5, 'c', 'z'")
    assert "1 row in 1 file" in using.message and "1 partition replaced." in using.message
    added = t.run("INSERT INTO t REPLACE USING (day) SELECT 5, 'c', 'new'")
    assert "replaced." not in added.message and added.notes == ()


def test_plan_of_a_replacing_insert_is_what_it_does(session: Session) -> None:
    session.run(
        "CREATE TABLE t (id INT, day STRING, hour INT) PARTITIONED BY (day, hour);"
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 2), (3, NULL, 1)"
    )
    null = "INSERT INTO t REPLACE WHERE day IS NULL SELECT * FROM t WHERE false"
    dry = session.run(null, dry_run=True).message
    assert "day = NULL, hour = 1 are replaced: 1 row" in dry and "None" not in dry
    none = "INSERT INTO t REPLACE WHERE day = 'q' SELECT * FROM t WHERE false"
    assert "no partition meets the condition" in session.run(none, dry_run=True).message
    using = "INSERT INTO t REPLACE USING (day) SELECT 7, 'x', 9"
    shown = session.preview(using).to_pylist()
    assert [lost["record_count"] for lost in shown] == [1, 1]
    assert "2 rows in 2 files" in session.run(using).message


@pytest.mark.parametrize(
    ("statement", "mode", "lost"),
    [
        ("INSERT OVERWRITE t VALUES (7, 'n', 'x')", "static", "3 rows in 3 files"),
        ("INSERT OVERWRITE t VALUES (7, 'n', 'x'), (8, 'n', 'n')", "dynamic", "1 row in 1 file"),
        ("INSERT OVERWRITE t PARTITION (day = 'y') VALUES (7, 'n')", "static", "1 row in 1 file"),
        ("INSERT OVERWRITE t PARTITION (day = 'n') VALUES (7, 'n')", "static", ""),
        ("INSERT OVERWRITE t SELECT 7, 'n', 'n'", "dynamic", ""),
    ],
)
def test_overwrite_says_what_it_replaced(t: Session, statement: str, mode: str, lost: str) -> None:
    t.run(f"SET spark.sql.sources.partitionOverwriteMode = {mode}")
    outcome = t.run(statement, confirm=True)
    if lost:
        assert lost in outcome.message and outcome.message.endswith(" replaced."), outcome.message
        assert any("CALL sys.rollback('default.t', '1')" in note for note in outcome.notes)
        t.run("CALL sys.rollback('default.t', '1')", confirm=True)
        assert rows(t, ALL) == ROWS
    else:
        assert "replaced" not in outcome.message and outcome.notes == ()
    t.run("RESET spark.sql.sources.partitionOverwriteMode")


# ---- ADD and DROP PARTITION


def test_partition_to_add_begins_with_its_first_row(t: Session) -> None:
    outcome = t.run("ALTER TABLE t ADD PARTITION (day = 'n')")
    assert "begins with its first row" in outcome.message
    t.run("ALTER TABLE t ADD IF NOT EXISTS PARTITION (day = 'x') PARTITION (day = 'n')")
    assert len(rows(t, KINDS)) == 1


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE t ADD PARTITION (day = 'x')", "IF NOT EXISTS"),
        ("ALTER TABLE t ADD PARTITION (dya = 'x')", "`day`"),
        ("ALTER TABLE t ADD PARTITION (day)", "`=`"),
        ("ALTER TABLE t ADD PARTITION (day = 'n') LOCATION '/x'", "Leave LOCATION out"),
        ("ALTER TABLE t DROP PARTITION (day > 'zz')", "no partition with `day` > 'zz'"),
        ("ALTER TABLE t DROP PARTITION (id > 1)", "`id` is not a partition column"),
        ("ALTER TABLE t DROP PARTITION (day >)", "the partition's value"),
        ("ALTER TABLE t DROP PARTITION (day > 'a' OR day < 'b')", "PARTITION (…), PARTITION (…)"),
        ("ALTER TABLE t DROP PARTITION (day BETWEEN 'a')", "AND"),
        ("ALTER TABLE t DROP PARTITION (day IN 'a')", "IN needs a list"),
        ("ALTER TABLE t DROP PARTITION (day IS 'a')", "NULL"),
        ("ALTER TABLE t DROP PARTITION (day IN ('nope'))", "no partition with `day` IN ('nope')"),
        ("ALTER TABLE t DROP PARTITION (day IS NULL)", "no partition with `day` IS NULL"),
        ("DESCRIBE t PARTITION (day = 'n')", "no partition (day = 'n')"),
        ("DESCRIBE t PARTITION (day = 'x') id", "not both"),
        ("SHOW TABLE EXTENDED", "LIKE"),
        ("SHOW TABLE EXTENDED LIKE 't' PARTITION (day = 'n')", "no partition"),
        ("SHOW TABLE EXTENDED LIKE 'nope' PARTITION (day = 'n')", "No table of `default` matches"),
        ("SHOW TABLE EXTENDED IN nope LIKE '*'", "nope"),
        ("DESCRIBE DETAIL nope", "no table `nope`"),
        ("REFRESH TABLE nope", "no table `nope`"),
        ("COMMENT ON TABLE nope IS 'x'", "no table `nope`"),
        ("COMMENT ON TABLE t 'x'", "IS and the comment"),
    ],
)
def test_wrong_statement_about_a_partition_names_the_next_step(
    t: Session, statement: str, expected: str
) -> None:
    with pytest.raises(PaimonMagicsError) as refusal:
        t.run(statement)
    assert expected in f"{refusal.value.message} {refusal.value.hint}"
    assert rows(t, ALL) == ROWS


def test_partitions_are_dropped_by_comparison(t: Session) -> None:
    statement = "ALTER TABLE t DROP PARTITION (day >= 'y')"
    assert len(t.preview(statement).to_pylist()) == 2
    with pytest.raises(UnconfirmedError, match="2 partitions"):
        t.run(statement, confirm=False)
    t.run("ALTER TABLE t DROP IF EXISTS PARTITION (day > 'zz')")
    assert rows(t, ALL) == ROWS
    t.run(statement, confirm=True)
    assert rows(t, ALL) == ROWS[:1]


def test_value_of_another_type_than_its_partition_column_is_named(session: Session) -> None:
    session.run(
        "CREATE TABLE days (id INT, day DATE) PARTITIONED BY (day);"
        "INSERT INTO days VALUES (1, DATE '2026-11-20')"
    )
    for statement in (
        "ALTER TABLE days DROP PARTITION (day < 20261122)",
        "INSERT INTO days REPLACE WHERE day < 20261122 SELECT * FROM days",
    ):
        with pytest.raises(PaimonMagicsError) as refusal:
            session.run(statement)
        text = f"{refusal.value.message} {refusal.value.hint}"
        assert "DATE" in text and "whole partitions" not in text, text
    assert rows(session, "SELECT id FROM days") == [(1,)]


def test_dry_run_counts_the_rows_of_partitions_that_would_go(t: Session) -> None:
    counted = {
        "ALTER TABLE t DROP PARTITION (day >= 'y')": "2 rows in 2 files",
        "ALTER TABLE t DROP IF EXISTS PARTITION (day = 'n')": "nothing would be removed",
        "TRUNCATE TABLE t PARTITION (day = 'y')": "1 row in 1 file",
        "TRUNCATE TABLE t": "3 rows in 3 files",
        "ALTER TABLE t RENAME TO u": "Would rename `default.t` to `default.u`.",
        "ALTER TABLE t ADD PARTITION (day = 'n')": "needs no ADD PARTITION",
    }
    for statement, sentence in counted.items():
        assert sentence in t.run(statement, dry_run=True).message
    with pytest.raises(UnknownNameError, match="no partition"):
        t.run("ALTER TABLE t DROP PARTITION (day = 'n')", dry_run=True)
    assert rows(t, ALL) == ROWS


def test_partitions_are_dropped_by_a_range_of_dates(session: Session) -> None:
    session.run("CREATE TABLE t (id INT, day DATE, kind STRING) PARTITIONED BY (day, kind)")
    session.run(
        "INSERT INTO t SELECT id, date_add(DATE'2026-01-01', CAST(id AS INT)), "
        "IF(id % 2 = 0, 'a', 'b') FROM range(6)"
    )
    session.run(
        "ALTER TABLE t DROP PARTITION (day >= '2026-01-02', day < '2026-01-05', kind = 'a')"
    )
    assert [row[0] for row in rows(session, ALL)] == [0, 1, 3, 4, 5]
    session.run(
        "ALTER TABLE t DROP PARTITION (day < :d), PARTITION (day > '2026-01-05')",
        {"d": "2026-01-03"},
    )
    assert [row[0] for row in rows(session, ALL)] == [3, 4]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("day BETWEEN '2026-01-02' AND '2026-01-04'", {1, 5, None}),
        ("day NOT BETWEEN '2026-01-02' AND '2026-01-04'", {2, 3, 4, None}),
        ("day IN ('2026-01-01', '2026-01-05')", {2, 3, 4, None}),
        ("day NOT IN ('2026-01-01', '2026-01-05')", {1, 5, None}),
        ("day IS NULL", {1, 2, 3, 4, 5}),
        ("day is not null, day > '2026-01-02'", {1, 2, None}),
        ("day LIKE '%-03'", {1, 2, 4, 5, None}),
        ("day IN (:one, :two)", {2, 3, 4, 5, None}),
    ],
)
def test_partitions_are_dropped_by_any_condition(
    session: Session, condition: str, left: set[int | None]
) -> None:
    session.run(
        "CREATE TABLE t (id INT, day DATE) PARTITIONED BY (day);"
        "INSERT INTO t VALUES (NULL, NULL), "
        + ", ".join(f"({day}, DATE '2026-01-0{day}')" for day in range(1, 6))
    )
    parameters = {"one": "2026-01-01", "two": "2027-01-01"} if ":one" in condition else {}
    session.run(f"ALTER TABLE t DROP PARTITION ({condition})", parameters, confirm=True)
    assert {row[0] for row in rows(session, "SELECT id FROM t")} == left


# ---- what is known of tables


def test_describe_tells_of_a_partition(t: Session) -> None:
    described = dict(row[:2] for row in rows(t, "DESCRIBE TABLE t PARTITION (day = 'x')"))
    assert described["Partition Values"] == "[day=x]"
    assert (described["Stored Rows"], described["Files"]) == ("1", "1")
    assert ("id", "int", None) in rows(t, "DESCRIBE t")


def test_show_table_extended_describes_tables_and_partitions(t: Session) -> None:
    t.run("CREATE TABLE tt (id INT NOT NULL) COMMENT 'about'")
    t.run("CREATE OR REPLACE TEMPORARY VIEW tv AS SELECT 1 AS one")
    shown = rows(t, "SHOW TABLE EXTENDED LIKE 't*'")
    assert [row[:3] for row in shown] == [
        ("default", "t", False),
        ("default", "tt", False),
        ("", "tv", True),
    ]
    assert "Partition Columns: [`day`]" in shown[0][3] and "Comment: about" in shown[1][3]
    assert " |-- id: int (nullable = false)" in shown[1][3]
    (part,) = rows(t, "SHOW TABLE EXTENDED IN default LIKE 't' PARTITION (day = 'y')")
    assert part[3].startswith("Partition Values: [day=y]\nStored Rows: 1\n")


def test_describe_detail_is_one_row(t: Session, warehouse: Path) -> None:
    (row,) = t.run("DESCRIBE DETAIL t").to_pylist()
    assert (row["name"], row["numFiles"], row["storedRows"]) == ("default.t", 3, 3)
    assert row["partitionColumns"] == ["day"] and str(warehouse) in row["location"]


def test_comment_on_table_is_its_comment(t: Session) -> None:
    t.run("COMMENT ON TABLE t IS 'about'")
    assert "COMMENT 'about'" in rows(t, "SHOW CREATE TABLE t")[0][0]
    t.run("COMMENT ON TABLE t IS NULL")
    assert "COMMENT" not in rows(t, "SHOW CREATE TABLE t")[0][0]


def test_refresh_has_nothing_to_do(t: Session) -> None:
    assert "needs no REFRESH" in t.run("REFRESH TABLE t").message


@pytest.fixture
def in_spark_catalog(session: Session) -> Iterator[Session]:
    yield session
    session.spark.sql("USE spark_catalog.default")


def test_use_of_sparks_catalog_keeps_paimons_names(in_spark_catalog: Session) -> None:
    session = in_spark_catalog
    session.run("CREATE TABLE t (id INT)")
    outcome = session.run("USE spark_catalog")
    assert "still means Paimon's table" in outcome.notes[0]
    session.run("INSERT INTO t VALUES (1)")
    assert rows(session, "SELECT * FROM t") == [(1,)]
    with pytest.raises(UnknownNameError):
        session.run("USE nope_catalog")


# ---- statements of other table formats


def test_optimize_compacts_and_restore_rolls_back(t: Session) -> None:
    t.run("INSERT INTO t VALUES (9, 'n', 'x')")
    planned = t.run("OPTIMIZE t WHERE day = 'x' ZORDER BY (id)", dry_run=True)
    assert (
        planned.message
        == t.run(
            "CALL sys.compact(table => 't', where => \"day = 'x'\", order_strategy => 'zorder', "
            "order_by => 'id')",
            dry_run=True,
        ).message
    )
    t.run("OPTIMIZE t")
    with pytest.raises(UnconfirmedError):
        t.run("RESTORE TABLE t TO VERSION AS OF 1", confirm=False)
    t.run("RESTORE TABLE t TO VERSION AS OF 1", confirm=True)
    assert rows(t, ALL) == ROWS
    with pytest.raises(PaimonMagicsError, match="snapshot 9"):
        t.run("RESTORE t VERSION AS OF 9")
