"""What an INSERT does to rows that are there: upserts, order, merge engines, odd partitions."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import only_in_soak, sampled
from tests.session.evidence import jobs
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def dynamic(session: Session) -> Iterator[None]:
    """Spark's dynamic partition overwrite."""
    session.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    yield
    session.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.java
@pytest.mark.parametrize(
    "partitioned",
    [pytest.param(False, marks=pytest.mark.soak), pytest.param(True, marks=pytest.mark.cluster)],
)
def test_last_row_of_key_wins_in_statements_order(
    session: Session, java_paimon: JavaPaimon, warehouse: Path, partitioned: bool
) -> None:
    """20,000 rows in eight partitions of input, 100 keys in three buckets: any other order of the
    rows, anywhere on the way, leaves a smaller value."""
    session.run(
        "CREATE TABLE t (k BIGINT, dt STRING, v BIGINT) "
        + ("PARTITIONED BY (dt) " if partitioned else "")
        + f"TBLPROPERTIES ('primary-key' = '{'dt,' if partitioned else ''}k', 'bucket' = '3')"
    )
    session.run(
        "INSERT INTO t SELECT id % 100, IF(id % 2 = 0, 'even', 'odd'), id "
        "FROM range(0, 20000, 1, 8)"
    )
    expected = [(k, "odd" if k % 2 else "even", 19_900 + k) for k in range(100)]
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected


def test_last_row_of_key_wins_in_values(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '4')")
    values = ", ".join(f"({n % 7}, {n})" for n in range(500))
    session.run(f"INSERT INTO t VALUES {values}")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [
        (k, max(n for n in range(500) if n % 7 == k)) for k in range(7)
    ]


def test_an_ordered_query_keeps_its_order(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')")
    session.run("INSERT INTO t SELECT id % 10, id FROM range(0, 1000, 1, 6) ORDER BY id DESC")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(k, k) for k in range(10)]


@pytest.mark.parametrize("options", ["'bucket' = '2'", "'dynamic-bucket.target-row-num' = '4'"])
def test_the_later_part_of_a_union_wins(session: Session, options: str) -> None:
    session.run(f"CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', {options})")
    for turn in (1, 2):  # dynamic buckets: without an index, then with one
        session.run(
            f"INSERT INTO t SELECT id % 10, id FROM range({turn}000, {turn}100, 1, 3) UNION ALL "
            f"SELECT id % 10, id FROM (SELECT id FROM range({turn}500, {turn}600, 1, 5)) "
            "UNION ALL VALUES (3, 7), (3, 8)"
        )
        assert rows(session, "SELECT * FROM t ORDER BY k") == [
            (k, 8 if k == 3 else turn * 1000 + 590 + k) for k in range(10)
        ]


def test_repeated_upserts_leave_a_single_row_per_key(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')")
    for turn in range(5):
        session.run(f"INSERT INTO t SELECT id, {turn} FROM range({turn * 10}, {turn * 10 + 30})")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(k, min(k // 10, 4)) for k in range(70)]


MERGING = {
    "sequence field": (
        "'sequence.field' = 'n'",
        [
            "VALUES (1, 5, 'new'), (1, 3, 'old'), (2, 1, 'a')",
            "VALUES (1, 4, 'older'), (2, 1, 'b')",
        ],
        [(1, 5, "new"), (2, 1, "b")],
    ),
    "partial update": (
        "'merge-engine' = 'partial-update'",
        [
            "VALUES (1, 5, NULL), (1, NULL, 'x'), (2, NULL, NULL)",
            "VALUES (1, NULL, 'y'), (2, 7, NULL)",
        ],
        [(1, 5, "y"), (2, 7, None)],
    ),
    "aggregation": (
        "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum', "
        "'fields.s.aggregate-function' = 'max'",
        [
            "VALUES (1, 5, 'b'), (1, 6, 'a'), (2, NULL, NULL)",
            "VALUES (1, 1, NULL), (2, 7, 'z')",
        ],
        [(1, 12, "b"), (2, 7, "z")],
    ),
}


@pytest.mark.java
@pytest.mark.parametrize(
    ("merging", "form"), sampled(MERGING, {"values": "{}", "select": "SELECT * FROM ({})"})
)
def test_merge_engines_merge_as_in_java(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    merging: tuple[str, list[str], list[tuple[Any, ...]]],
    form: str,
) -> None:
    options, statements, expected = merging
    session.run(
        "CREATE TABLE t (k INT, n INT, s STRING) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', {options})"
    )
    for statement in statements:
        session.run(f"INSERT INTO t {form.format(statement)}")
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected


@pytest.mark.java
def test_session_and_java_write_to_the_same_table_in_turn(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')"
    )
    session.run("INSERT INTO t SELECT id, 'ours' FROM range(100)")
    java_paimon.write(warehouse, "default.t", [(k, "java") for k in range(50, 150)])
    session.run("INSERT INTO t SELECT id, 'ours again' FROM range(140, 160)")
    expected = (
        [(k, "ours") for k in range(50)]
        + [(k, "java") for k in range(50, 140)]
        + [(k, "ours again") for k in range(140, 160)]
    )
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected


@pytest.mark.cluster
def test_overwrite_can_read_its_own_target_table(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, dt STRING) PARTITIONED BY (dt)")
    session.run("INSERT INTO t SELECT id, 'd' || id % 3 FROM range(30)")
    session.run("INSERT OVERWRITE t SELECT k + 1, dt FROM t WHERE dt <> 'd0'")
    assert rows(session, "SELECT k FROM t ORDER BY k") == [(k + 1,) for k in range(30) if k % 3]
    session.run("INSERT OVERWRITE t PARTITION (dt = 'd1') SELECT k FROM t WHERE dt = 'd2'")
    assert rows(session, "SELECT count(*), count(DISTINCT k) FROM t") == [(20, 10)]


@pytest.mark.java
def test_null_and_blank_partition_values_are_kept_apart(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    session.run("CREATE TABLE t (k INT, s STRING, n INT) PARTITIONED BY (s, n)")
    stored = [(1, None, 1), (2, "", 1), (3, " ", None), (4, "null", 1), (5, "a/b=c%d", -1)]
    values = "(1, NULL, 1), (2, '', 1), (3, ' ', NULL), (4, 'null', 1), (5, 'a/b=c%d', -1)"
    session.run(f"INSERT INTO t VALUES {values}")
    assert rows(session, "SELECT * FROM t ORDER BY k") == stored
    assert sorted(java_paimon.rows(warehouse, "default.t")) == stored
    session.run("INSERT OVERWRITE t PARTITION (s = NULL, n = 1) VALUES (10)")
    session.run("INSERT OVERWRITE t PARTITION (s = ' ', n = NULL) SELECT 30")
    expected = [(2, "", 1), (4, "null", 1), (5, "a/b=c%d", -1), (10, None, 1), (30, " ", None)]
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    assert sorted(java_paimon.rows(warehouse, "default.t")) == expected
    session.run("TRUNCATE TABLE t PARTITION (s = NULL)")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [
        row for row in expected if row[1] is not None
    ]


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("DATE", "'2026-11-21'", "DATE'2026-11-21'"),
        pytest.param("INT", "'007'", "7", marks=pytest.mark.soak),
        ("BIGINT", "2 * 3", "6"),
        pytest.param("BOOLEAN", "'true'", "true", marks=pytest.mark.soak),
        pytest.param("STRING", "upper('x')", "'X'", marks=pytest.mark.soak),
        ("DECIMAL(5, 2)", "1.5", "1.50"),
    ],
)
def test_a_partition_value_is_cast_to_its_column(
    session: Session, column: str, value: str, stored: str
) -> None:
    session.run(f"CREATE TABLE t (k INT, p {column}) PARTITIONED BY (p)")
    session.run(f"INSERT INTO t PARTITION (p = {value}) VALUES (1)")
    session.run(f"INSERT OVERWRITE t PARTITION (p = {value}) VALUES (2)")
    assert rows(session, f"SELECT k, p = {stored} FROM t") == [(2, True)]
    session.run(f"ALTER TABLE t DROP PARTITION (p = {stored})")
    assert rows(session, "SELECT * FROM t") == []


@pytest.mark.usefixtures("dynamic")
def test_dynamic_overwrite_replaces_only_partitions_with_rows(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, dt STRING, v INT) PARTITIONED BY (dt) "
        "TBLPROPERTIES ('primary-key' = 'dt,k', 'bucket' = '2')"
    )
    session.run("INSERT INTO t VALUES (1, 'a', 1), (2, 'a', 1), (1, 'b', 1), (1, 'c', 1)")
    session.run("INSERT OVERWRITE t VALUES (9, 'b', 2), (9, 'd', 2)")
    assert rows(session, "SELECT k, dt, v FROM t ORDER BY dt, k") == [
        (1, "a", 1),
        (2, "a", 1),
        (9, "b", 2),
        (1, "c", 1),
        (9, "d", 2),
    ]


LAYOUTS = {
    "append": "",
    "buckets": "'bucket' = '2', 'bucket-key' = 'k'",
    "fixed": "'primary-key' = 'k,p', 'bucket' = '2'",
    "dynamic": "'primary-key' = 'k,p'",
    "keys that move": "'primary-key' = 'k'",
    "postponed": "'primary-key' = 'k,p', 'bucket' = '-2'",
}


@pytest.mark.parametrize("options", only_in_soak(LAYOUTS, ["buckets", "fixed", "postponed"]))
def test_insert_of_values_runs_no_job(session: Session, options: str) -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING DEFAULT 'none', at TIMESTAMP, p DATE NOT NULL) "
        f"PARTITIONED BY (p){f' TBLPROPERTIES ({options})' if options else ''}"
    )
    before = jobs(session.spark)
    day = "DATE'1969-12-31'"
    session.run(f"INSERT INTO t VALUES (1, 'a', NULL, {day}), (2, DEFAULT, NULL, {day})")
    session.run(
        f"INSERT INTO t VALUES (1 + 2, upper('b'), TIMESTAMP'2026-11-01 05:30:00 UTC', {day})"
    )
    session.run(f"INSERT INTO t PARTITION (p = {day}) (k) VALUES (:k)", {"k": 4})
    session.run("INSERT OVERWRITE t PARTITION (p = '2026-01-01') (k, v) VALUES (5, NULL)")
    assert jobs(session.spark) - before == set()
    assert rows(session, "SELECT k, v, unix_seconds(at), CAST(p AS STRING) FROM t ORDER BY k") == [
        (1, "a", None, "1969-12-31"),
        (2, "none", None, "1969-12-31"),
        (3, "B", 1793511000, "1969-12-31"),
        (4, "none", None, "1969-12-31"),
        (5, "none", None, "2026-01-01"),
    ]


def test_insert_of_nested_values_or_query_runs_few_jobs(session: Session) -> None:
    """Spark fetches nested values by a job of its own; adaptive execution runs the stage before a
    shuffle as a job."""
    session.run("CREATE TABLE t (k INT, v ARRAY<STRING>)")
    before = jobs(session.spark)
    session.run("INSERT INTO t VALUES (1, array('a')), (2, NULL)")
    assert len(jobs(session.spark) - before) <= 1
    before = jobs(session.spark)
    session.run("INSERT INTO t SELECT id, array('c') FROM range(3, 5)")
    assert len(jobs(session.spark) - before) in (1, 2)
    assert session.table("t").count() == 4


def test_parameters_are_bound_and_never_pasted(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v STRING)")
    nasty = "'); DROP TABLE t; --"
    session.run("INSERT INTO t VALUES (:k, :v)", {"k": 1, "v": nasty})
    session.run("INSERT INTO t SELECT k + :k, v FROM t WHERE v = :v", {"k": 1, "v": nasty})
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(1, nasty), (2, nasty)]


ROW_IDS = "'row-tracking.enabled' = 'true'"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("'commit.callbacks' = 'a.B'", "commit.callbacks"),
    ],
)
def test_unsupported_table_option_is_named_on_write(
    session: Session, options: str, named: str
) -> None:
    session.run(f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({options})")
    for statement in ("INSERT INTO t VALUES (1, 'a')", "INSERT OVERWRITE t SELECT 1, 'a'"):
        with pytest.raises(UnsupportedStatementError) as caught:
            session.run(statement)
        assert named in caught.value.message and caught.value.hint


@pytest.mark.parametrize("more", only_in_soak(["", ", 'data-evolution.enabled' = 'true'"], [""]))
def test_row_tracking_assigns_row_ids_and_sequence_numbers(session: Session, more: str) -> None:
    session.run(f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({ROW_IDS}{more})")
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("INSERT INTO t VALUES (3, 'c')")
    shown = "SELECT * FROM `t$row_tracking` ORDER BY k"
    assert rows(session, shown) == [(1, "a", 0, 1), (2, "b", 1, 1), (3, "c", 2, 2)]
    assert rows(session, "SELECT *, _ROW_ID, _sequence_number FROM t ORDER BY k") == [
        (1, "a", 0, 1),
        (2, "b", 1, 1),
        (3, "c", 2, 2),
    ]
    session.run("INSERT OVERWRITE t SELECT k + 3, v FROM t WHERE _ROW_ID = 1")
    assert rows(session, shown) == [(5, "b", 3, 3)]
    same = "SELECT a.*, b._ROW_ID FROM t a JOIN t b ON a.k = b.k AND a._ROW_ID = b._ROW_ID"
    assert rows(session, same) == [(5, "b", 3)]
    assert rows(session, "SELECT * FROM t ORDER BY _ROW_ID") == [(5, "b")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'merge-engine' = 'first-row'", [(1, "a"), (2, "b"), (3, "c")]),
        pytest.param(
            *("'deletion-vectors.enabled' = 'true'", [(1, "a"), (2, "new"), (3, "c")]),
            marks=pytest.mark.soak,
        ),
        (
            "'deletion-vectors.enabled' = 'true', 'deletion-vectors.bitmap64' = 'true', "
            "'changelog-producer' = 'lookup'",
            [(1, "a"), (2, "new"), (3, "c")],
        ),
    ],
)
def test_insert_compacts_so_its_rows_are_visible(
    session: Session, options: str, expected: list[tuple[int, str]]
) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', {options})"
    )
    outcome = session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    assert outcome.notes == () and rows(session, "SELECT count(*) FROM t") == [(2,)]
    session.run("INSERT INTO t SELECT * FROM VALUES (2, 'new'), (3, 'c') AS given(k, v)")
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected
    session.run("INSERT OVERWRITE t VALUES (1, 'only')")
    assert rows(session, "SELECT * FROM t") == [(1, "only")]
    assert rows(session, "SELECT row_count FROM t$table_indexes") == []


def test_lookup_compaction_records_each_change_once(session: Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
        "'changelog-producer' = 'lookup', 'changelog-producer.row-deduplicate' = 'true')"
    )
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'c'), (3, 'd')")
    actual = session.run("SELECT * FROM t$snapshots ORDER BY snapshot_id").to_arrow()
    assert actual["commit_kind"].to_pylist() == ["APPEND", "COMPACT"] * 2
    assert actual["changelog_record_count"].to_pylist() == [None, 2, None, 3]
    changes = rows(session, "SELECT * FROM paimon_incremental_query('t$audit_log', '3', '4')")
    assert changes == [("-U", 2, "b"), ("+U", 2, "c"), ("+I", 3, "d")]
    session.run("INSERT OVERWRITE t VALUES (9, 'z')")
    last = session.run("SELECT * FROM t$snapshots ORDER BY snapshot_id").to_arrow()
    assert last["commit_kind"].to_pylist()[4:] == ["OVERWRITE", "COMPACT"]
    assert last["changelog_record_count"].to_pylist()[4:] == [None, None]


def test_job_refuses_null_for_not_null_column(session: Session) -> None:
    session.run("CREATE TABLE t (k INT NOT NULL, v STRING)")
    with pytest.raises(InvalidValueError, match="`k` is NOT NULL"):
        session.run("INSERT INTO t SELECT IF(id = 7, NULL, id), 'v' FROM range(10)")
    assert rows(session, "SELECT * FROM t") == []


def test_default_keyword_in_values_takes_column_default(session: Session) -> None:
    session.run("CREATE TABLE t (k INT, v STRING DEFAULT 'none')")
    session.run("INSERT INTO t VALUES (1, DEFAULT), (DEFAULT, 'some')")
    assert rows(session, "SELECT * FROM t ORDER BY v") == [(1, "none"), (None, "some")]


def test_columns_with_and_without_default_store_the_same_value(session: Session) -> None:
    """The value is cast alone: the common type of a text and a DECIMAL is DOUBLE."""
    session.run(
        "CREATE TABLE t (k INT, v DECIMAL(20, 2) DEFAULT 1, w DECIMAL(20, 2));"
        "INSERT INTO t SELECT id, text, text FROM (SELECT id, '12345678901234567.89' AS text "
        "FROM range(2)); UPDATE t SET v = NULL, w = 1 WHERE k = 1"
    )
    stored = Decimal("12345678901234567.89")
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(0, stored, stored), (1, 1, 1)]
    for statement in ("INSERT INTO t SELECT 2, 'many', 1", "UPDATE t SET v = 'many' WHERE k = 0"):
        with pytest.raises(InvalidValueError, match=r"Column `v` is DECIMAL\(20,2\), .*'many'"):
            session.run(statement)


def test_create_table_as_select_fills_the_table_or_leaves_none(session: Session) -> None:
    outcome = session.run(
        "CREATE TABLE t PARTITIONED BY (p) AS SELECT id AS k, id % 2 AS p FROM range(6)"
    )
    assert (outcome.kind, outcome.rows_written) == ("CREATE TABLE", 6)
    assert rows(session, "SELECT * FROM t ORDER BY k") == [(k, k % 2) for k in range(6)]
    with pytest.raises(InvalidValueError):
        session.run("CREATE TABLE u AS SELECT CAST(IF(id = 3, 'x', '1') AS INT) AS k FROM range(6)")
    assert rows(session, "SHOW TABLES") == [("default", "t", False)]
