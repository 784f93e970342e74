"""DELETE and UPDATE change the rows that Spark finds for their condition, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from paimon_magics import Session
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.session.row_changes.delete_update import prepare_row_change
from paimon_magics.session.row_changes.point_changes import PreparedKeys, commit_by_key
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Update
from tests.sampling import only_in_soak
from tests.session.evidence import jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYED = {
    "fixed": "'bucket' = '2'",
    "dynamic": "'bucket' = '-1', 'changelog-producer' = 'input'",
    "vectors": "'bucket' = '1', 'deletion-vectors.enabled' = 'true'",
    "orc": "'bucket' = '1', 'file.format' = 'orc', 'changelog-producer' = 'lookup'",
    "partial": "'bucket' = '1', 'merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true'",
    "postponed": "'bucket' = '-2'",
    "waiting": "'bucket' = '-2', 'postpone.batch-write-fixed-bucket' = 'false'",
}


@pytest.fixture(scope="module")
def shop(spark: SparkSession, module_session: Session) -> Session:
    spark.sql("SELECT 3 AS id UNION ALL SELECT NULL").createOrReplaceTempView("gone")
    return module_session


def given(numbers: Iterable[int], row: str) -> str:
    """A VALUES list, which is written without a job: `row` with each number `k`."""
    rows = (row.format(k=k, odd=k % 2, day=k % 3 + 1) for k in numbers)
    return f"VALUES ({'), ('.join(rows)})"


def rows(session: Session, table: str, order: str = "k") -> list[tuple[Any, ...]]:
    found = session.run(f"SELECT * FROM {table} ORDER BY {order}").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("name", only_in_soak([*KEYED], ["fixed", "orc", "postponed", "partial"]))
def test_delete_and_update_append_rows_to_keyed_tables(shop: Session, name: str) -> None:
    shop.run(
        f"CREATE TABLE {name} (k INT NOT NULL, v STRING, s STRUCT<a: INT, b: STRING>, "
        f"d INT DEFAULT 7, PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ({KEYED[name]});"
        f"INSERT INTO {name} " + given(range(4), "{k}, 'v{k}', struct({k}, 'b'), 1") + ", "
        "(4, 'v4', NULL, 1), (5, NULL, struct(5, 'b'), 1)"
    )
    if name == "waiting":
        shop.run("CALL sys.compact(table => 'waiting')")
    deleted = shop.run(f"DELETE FROM {name} AS x WHERE x.v > 'v1' AND k IN (SELECT id FROM gone)")
    assert (deleted.rows_deleted, deleted.commit_kind) == (1, "APPEND")
    updated = shop.run(
        f"WITH c AS (SELECT 4 AS i) UPDATE {name} SET v = concat(v, :end), s.a = k * 10, "
        f"d = DEFAULT WHERE k >= (SELECT min(i) FROM c) OR {name}.k = 0",
        {"end": "!"},
    )
    assert updated.rows_updated == 3
    assert rows(shop, name) == [
        (0, "v0!", {"a": 0, "b": "b"}, 7),
        (1, "v1", {"a": 1, "b": "b"}, 1),
        (2, "v2", {"a": 2, "b": "b"}, 1),
        (4, "v4!", {"a": 40, "b": None}, 7),
        (5, None, {"a": 50, "b": "b"}, 7),
    ]
    nothing = shop.run(f"DELETE FROM {name} WHERE k > 100 AND v IS NULL")
    assert (nothing.rows_deleted, nothing.snapshot_id) == (0, None)


UNDELETING = {
    "first": "'bucket' = '-1', 'merge-engine' = 'first-row'",
    "sums": "'bucket' = '1', 'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum',"
    "'write-only' = 'true'",
    "partly": "'bucket' = '1', 'merge-engine' = 'partial-update', 'file.format' = 'avro'",
    "marked_sums": "'bucket' = '1', 'merge-engine' = 'aggregation', "
    "'fields.n.aggregate-function' = 'sum', 'deletion-vectors.enabled' = 'true'",
}


@pytest.mark.parametrize("name", only_in_soak([*UNDELETING], ["partly"]))
def test_delete_changes_files_of_engines_without_deletes(shop: Session, name: str) -> None:
    shop.run(
        f"CREATE TABLE {name} (k INT NOT NULL, n INT, p STRING NOT NULL, "
        "PRIMARY KEY (k, p) NOT ENFORCED) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({UNDELETING[name]});"
        f"INSERT INTO {name} " + given(range(10), "{k}, {k} * 10, 'p{odd}'") + ";"
        f"CALL sys.compact(table => '{name}')"
    )
    levels = f"SELECT level, sum(record_count) AS n FROM {name}$files GROUP BY level"
    before = shop.run(levels).to_pylist()
    deleted = shop.run(f"DELETE FROM {name} WHERE n IN (20, 40) OR k = 9")
    assert (deleted.rows_deleted, deleted.commit_kind) == (3, "OVERWRITE")
    touched = (deleted.files_rewritten, deleted.vectors_written)
    assert touched == ((None, 2) if name.startswith("marked") else (2, None))
    kept = [k for k in range(9) if k not in (2, 4)]
    assert rows(shop, name) == [(k, k * 10, f"p{k % 2}") for k in kept]
    after = shop.run(levels).to_pylist()
    assert [each["level"] for each in after] == [each["level"] for each in before]
    # A deleted key begins anew.
    shop.run(f"INSERT INTO {name} VALUES (2, 7, 'p0'), (1, 5, 'p1')")
    if name == "sums":
        with pytest.raises(UnsupportedStatementError, match="merged by key") as caught:
            shop.run(f"DELETE FROM {name} WHERE n = 7")
        assert "sys.compact" in (caught.value.hint or "")
    shop.run(f"CALL sys.compact(table => '{name}')")
    merged = {"first": 10, "sums": 15, "partly": 5, "marked_sums": 15}[name]
    expected = {k: k * 10 for k in kept} | {1: merged, 2: 7}
    assert rows(shop, name) == [(k, expected[k], f"p{k % 2}") for k in sorted(expected)]
    shop.run(f"DELETE FROM {name} WHERE n >= 0")
    assert rows(shop, name) == []


def test_rows_with_cross_partition_keys_are_changed(shop: Session) -> None:
    shop.run(
        "CREATE TABLE moving (k INT NOT NULL, v STRING, p STRING, PRIMARY KEY (k) NOT ENFORCED) "
        "PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '-1', 'changelog-producer' = 'input');"
        "INSERT INTO moving VALUES (0, 'v0', 'p0'), (1, 'v1', 'p1'), (2, 'v2', 'p0'), "
        "(3, 'v3', NULL), (4, 'v4', 'p0'), (5, 'v5', 'p1')"
    )
    moved = shop.run("UPDATE moving SET p = 'q', v = upper(v) WHERE k IN (1, 2)")
    assert (moved.rows_updated, moved.commit_kind) == (2, "APPEND")
    shop.run("UPDATE moving SET p = 'p1' WHERE k = 1; UPDATE moving SET v = 'x' WHERE p = 'q'")
    expected = {
        0: (0, "v0", "p0"), 1: (1, "V1", "p1"), 2: (2, "x", "q"), 3: (3, "v3", None),
        4: (4, "v4", "p0"), 5: (5, "v5", "p1"),
    }  # fmt: skip
    assert rows(shop, "moving") == list(expected.values())
    deleted = shop.run("DELETE FROM moving WHERE k IN (1, 3) OR v = 'v4'")
    assert (deleted.rows_deleted, deleted.commit_kind) == (3, "APPEND")
    merged = shop.run(
        "MERGE INTO moving t USING (SELECT 5 AS k, 'm' AS v, 'p0' AS p UNION ALL SELECT 1, 'n', "
        "'q') s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
    assert rows(shop, "moving") == [expected[0], (1, "n", "q"), expected[2], (5, "m", "p0")]
    with pytest.raises(UnsupportedStatementError, match="move between partitions"):
        shop.run(
            "MERGE INTO moving t USING (SELECT 5 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE"
        )


def test_partial_update_row_stays_in_partition_of_its_key(shop: Session) -> None:
    shop.run(
        "CREATE TABLE staying (k INT NOT NULL, v STRING, p STRING, PRIMARY KEY (k) NOT ENFORCED) "
        "PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '-1', 'merge-engine' = 'partial-update');"
        "INSERT INTO staying VALUES (1, 'a', 'p'), (2, 'b', 'q');"
        "UPDATE staying SET v = 'c' WHERE k = 2"
    )
    assert rows(shop, "staying") == [(1, "a", "p"), (2, "c", "q")]
    with pytest.raises(UnsupportedStatementError, match="stays in the partition"):
        shop.run("UPDATE staying SET p = 'r' WHERE k = 1")


def test_row_changes_work_with_rowkind_field(shop: Session) -> None:
    shop.run(
        "CREATE TABLE forced (k INT NOT NULL, v STRING, rk STRING, PRIMARY KEY (k) NOT ENFORCED) "
        "TBLPROPERTIES ('bucket' = '1', 'rowkind.field' = 'rk');"
        "INSERT INTO forced " + given(range(5), "{k}, 'v{k}', '+I'")
    )
    assert shop.run("DELETE FROM forced WHERE v = 'v1'").rows_deleted == 1
    assert shop.run("UPDATE forced SET v = 'u', rk = '+U' WHERE k = 2").rows_updated == 1
    shop.run(
        "MERGE INTO forced t USING (SELECT 3 AS k UNION ALL SELECT 4 UNION ALL SELECT 7) s "
        "ON t.k = s.k WHEN MATCHED AND t.k = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED THEN INSERT (k, v, rk) VALUES (s.k, 'n', '+I')"
    )
    assert rows(shop, "forced") == [
        (0, "v0", "+I"), (2, "u", "+U"), (4, "m", "+I"), (7, "n", "+I"),
    ]  # fmt: skip


def test_changes_are_refused_while_rows_await_buckets(shop: Session) -> None:
    shop.run(
        "CREATE TABLE late (k INT NOT NULL, v STRING, p STRING NOT NULL, PRIMARY KEY (k, p) NOT "
        "ENFORCED) PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '-2', "
        "'postpone.batch-write-fixed-bucket' = 'false');"
        "INSERT INTO late VALUES (1, 'a', 'x'), (2, 'b', 'y');"
        "CALL sys.compact(table => 'late');"
        "INSERT INTO late VALUES (1, 'c', 'x')"
    )
    for statement in (
        "DELETE FROM late WHERE v = 'a'",
        "UPDATE late SET v = 'u' WHERE p <> 'y'",
        "MERGE INTO late t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(UnsupportedStatementError, match=r"1 row of .* still wait") as caught:
            shop.run(statement)
        assert "sys.compact" in (caught.value.hint or "")
    assert shop.run("UPDATE late SET v = 'u' WHERE p = 'y' AND v = 'b'").rows_updated == 1
    shop.run("CALL sys.compact(table => 'late'); UPDATE late SET v = 'w' WHERE p = 'x'")
    assert rows(shop, "late") == [(1, "w", "x"), (2, "u", "y")]


APPENDS = {
    "plain": "",
    "orc_files": "'file.format' = 'orc'",
    "bucketed": "'bucket' = '2', 'bucket-key' = 'k'",
    "marked": "'deletion-vectors.enabled' = 'true'",
    "marked_buckets": "'bucket' = '1', 'bucket-key' = 'k', 'deletion-vectors.enabled' = 'true'",
    "numbered": "'row-tracking.enabled' = 'true'",
    "marked_numbers": "'row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true'",
    "evolving": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true'",
}


@pytest.mark.parametrize(
    "name", only_in_soak([*APPENDS], ["orc_files", "bucketed", "marked", "marked_numbers"])
)
def test_delete_and_update_change_files_of_append_tables(shop: Session, name: str) -> None:
    options = APPENDS[name]
    row, first = "{k}, 'v{k}', struct({k}, 'x'), 'p{odd}'", (k for k in range(10) if k != 5)
    tracks, marks = "tracking" in options, "deletion" in options
    properties = ", ".join(filter(None, (options, "'write-only' = 'true'")))
    shop.run(
        f"CREATE TABLE {name} (k INT, v STRING, s STRUCT<a: INT, b: STRING>, p STRING) "
        f"PARTITIONED BY (p) TBLPROPERTIES ({properties});"
        f"INSERT INTO {name} {given(first, row)}, (5, NULL, struct(5, 'x'), 'p1');"
        f"INSERT INTO {name} {given(range(10, 13), row.replace('{odd}', '0'))}"
    )
    ids = f"SELECT k, _ROW_ID AS id FROM {name} ORDER BY k"
    before = {row["k"]: row["id"] for row in shop.run(ids).to_pylist()} if tracks else {}
    # A row whose condition is NULL stays.
    deleted = shop.run(f"DELETE FROM {name} WHERE v IN ('v1', 'v3', 'v11')")
    assert (deleted.rows_deleted, deleted.commit_kind) == (3, "OVERWRITE")
    touched = (deleted.files_rewritten, deleted.vectors_written)
    assert (touched[1] if marks else touched[0]) in (2, 3)
    assert (touched[0] if marks else touched[1]) is None
    updated = shop.run(f"UPDATE {name} SET v = upper(v), s.a = k * 10 WHERE k < 5 OR v IS NULL")
    assert updated.rows_updated == 4
    expected = {
        k: (k, f"v{k}", {"a": k, "b": "x"}, f"p{k % 2}") for k in range(13) if k not in (1, 3, 11)
    }
    for k in (0, 2, 4):
        expected[k] = (k, f"V{k}", {"a": k * 10, "b": "x"}, "p0")
    expected[5] = (5, None, {"a": 50, "b": "x"}, "p1")
    assert rows(shop, name) == list(expected.values())
    if tracks:
        kept = {row["k"]: row["id"] for row in shop.run(ids).to_pylist()}
        assert kept == {k: before[k] for k in expected}
    if "evolution" in options:
        with pytest.raises(UnsupportedStatementError, match="partition column"):
            shop.run(f"UPDATE {name} SET p = 'p9' WHERE k = 12")
        return
    shop.run(f"UPDATE {name} SET p = concat('q', k % 3) WHERE k IN (2, 4, 5, 12)")
    expected |= {k: (*expected[k][:3], f"q{k % 3}") for k in (2, 4, 5, 12)}
    assert rows(shop, name) == list(expected.values())
    if tracks:
        kept = {row["k"]: row["id"] for row in shop.run(ids).to_pylist()}
        assert kept == {k: before[k] for k in expected}
        chosen = ", ".join(str(before[k]) for k in (0, 12))
        shop.run(f"DELETE FROM {name} WHERE _ROW_ID IN ({chosen}) AND _SEQUENCE_NUMBER > 0")
    else:
        shop.run(f"DELETE FROM {name} WHERE k IN (0, 12)")
    del expected[0], expected[12]
    assert rows(shop, name) == list(expected.values())
    assert shop.run(f"DELETE FROM {name} WHERE k > 100").snapshot_id is None


@pytest.mark.parametrize("options", ["", "'primary-key' = 'c', 'bucket' = '1'"])
def test_char_columns_are_compared_with_padding_as_in_spark(shop: Session, options: str) -> None:
    """Spark pads what a CHAR column is compared with, in conditions of all statements."""
    table = f"padded_{len(options)}"
    shop.run(
        f"CREATE TABLE {table} (c CHAR(5) NOT NULL, d CHAR(3), v INT) TBLPROPERTIES ({options});"
        f"INSERT INTO {table} VALUES ('ab', 'ab', 1), ('x', 'y', 2), ('z', NULL, 3)"
    )
    actual = shop.run(f"SELECT v FROM {table} WHERE c IN ('ab', 'z') ORDER BY v").to_pylist()
    assert [row["v"] for row in actual] == [1, 3]
    assert shop.table(table).filter("'x ' = c").count() == 1
    assert shop.run(f"SELECT v FROM {table} WHERE c = d").to_pylist() == [{"v": 1}]
    assert shop.run(f"UPDATE {table} SET v = 9 WHERE c = 'ab'").rows_updated == 1
    assert shop.run(f"DELETE FROM {table} WHERE c IN ('x', 'z')").rows_deleted == 2
    assert shop.run(f"SELECT * FROM {table}").to_pylist() == [{"c": "ab   ", "d": "ab ", "v": 9}]


def test_delete_matches_padded_char_partitions(shop: Session) -> None:
    shop.run(
        "CREATE TABLE by_char (v INT, p CHAR(3)) PARTITIONED BY (p);"
        "INSERT INTO by_char VALUES (1, 'a'), (2, 'b'), (3, NULL);"
        "DELETE FROM by_char WHERE p = 'a'"
    )
    actual = shop.run("SELECT v FROM by_char ORDER BY v").to_pylist()
    assert [row["v"] for row in actual] == [2, 3]


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_every_column_selection_returns_all_rows(shop: Session, file_format: str) -> None:
    """Files of changed columns have none of the others: no row may get lost by that."""
    shop.run(
        f"CREATE TABLE in_{file_format} (k INT, v STRING, n INT) TBLPROPERTIES ('file.format' = "
        f"'{file_format}', 'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true');"
        f"INSERT INTO in_{file_format} VALUES (1, 'a', 1), (2, 'b', 2);"
        f"UPDATE in_{file_format} SET v = 'c' WHERE k = 2"
    )
    for columns in ("n, _ROW_ID AS r", "n, _ROW_ID AS r, _SEQUENCE_NUMBER AS s", "n, k, v"):
        actual = shop.run(f"SELECT {columns} FROM in_{file_format} ORDER BY n").to_pylist()
        assert [row["n"] for row in actual] == [1, 2]
        assert [row.get("r") for row in actual] in ([0, 1], [None, None])


@pytest.mark.parametrize("action", ["SET v = concat(t.v, s.v), n = s.n * 10", "SET *"])
def test_merge_matches_rows_of_a_table_by_their_ids(shop: Session, action: str) -> None:
    for name, values in (("ids", "(1, 'a', 1), (2, 'b', 2)"), ("other_ids", "(1, 'x', 5)")):
        shop.run(
            f"DROP TABLE IF EXISTS {name};"
            f"CREATE TABLE {name} (k INT, v STRING, n INT) TBLPROPERTIES "
            "('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true');"
            f"INSERT INTO {name} VALUES {values}"
        )
    shop.run(
        "MERGE INTO ids t USING other_ids s ON t._ROW_ID = s._ROW_ID "
        f"WHEN MATCHED THEN UPDATE {action}"
    )
    changed = (1, "ax", 50) if "concat" in action else (1, "x", 5)
    assert rows(shop, "ids") == [changed, (2, "b", 2)]
    shop.run(
        "MERGE INTO ids t USING ids s ON t._ROW_ID = s._ROW_ID "
        "WHEN MATCHED AND s.k = 2 THEN UPDATE SET n = s.n + t._ROW_ID"
    )
    assert rows(shop, "ids") == [changed, (2, "b", 3)]


def test_update_writes_files_of_changed_columns_only(shop: Session) -> None:
    shop.run(
        "CREATE TABLE wide (k INT, v STRING, w STRING, n BIGINT) TBLPROPERTIES "
        "('row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true');"
        "INSERT INTO wide SELECT id, concat('v', id), 'w', id FROM range(0, 4, 1, 1);"
        "INSERT INTO wide SELECT id, concat('v', id), 'w', id FROM range(4, 8, 1, 1)"
    )
    before = {row["file_path"] for row in shop.run("SELECT * FROM `wide$files`").to_pylist()}
    outcome = shop.run("UPDATE wide SET n = n * 10, v = concat(v, w) WHERE k IN (1, 2)")
    assert (outcome.rows_updated, outcome.files_written, outcome.files_rewritten) == (2, 1, None)
    assert outcome.commit_kind == "APPEND"
    files = shop.run("SELECT file_path, write_cols, first_row_id FROM `wide$files`").to_pylist()
    added = [row for row in files if row["file_path"] not in before]
    assert len(files) == len(before) + 1
    assert [(row["write_cols"], row["first_row_id"]) for row in added] == [(["v", "n"], 0)]
    shop.run("UPDATE wide SET w = (SELECT max(k) FROM wide) WHERE v LIKE '%w' OR _ROW_ID = 7")
    merged = shop.run(
        "MERGE INTO wide t USING (SELECT 2 AS k, 7 AS n UNION ALL SELECT 9, 9) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (k, n) VALUES (k, n) "
        "WHEN NOT MATCHED BY SOURCE AND t.k = 7 THEN UPDATE SET v = NULL"
    )
    assert (merged.rows_updated, merged.rows_inserted, merged.rows_deleted) == (2, 1, 0)
    actual = shop.run("SELECT *, _ROW_ID AS r FROM wide ORDER BY k").to_pylist()
    assert [tuple(row.values()) for row in actual] == [
        (0, "v0", "w", 0, 0),
        (1, "v1w", "7", 10, 1),
        (2, "v2w", "7", 7, 2),
        *((k, f"v{k}", "w", k, k) for k in (3, 4, 5, 6)),
        (7, None, "7", 7, 7),
        (9, None, None, 9, 8),
    ]
    with pytest.raises(UnsupportedStatementError, match="only be deleted with deletion vectors"):
        shop.run("DELETE FROM wide WHERE k = 1")
    with pytest.raises(UnsupportedStatementError, match="only be deleted with deletion vectors"):
        shop.run("MERGE INTO wide t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE")
    shop.run(
        "ALTER TABLE wide SET TBLPROPERTIES ('deletion-vectors.modifiable' = 'true');"
        "ALTER TABLE wide SET TBLPROPERTIES ('deletion-vectors.enabled' = 'true');"
        "DELETE FROM wide WHERE k BETWEEN 1 AND 7"
    )
    assert [row["k"] for row in shop.run("SELECT k FROM wide ORDER BY k").to_pylist()] == [0, 9]


def test_delete_by_partition_changes_only_metadata(shop: Session) -> None:
    shop.run(
        "CREATE TABLE days (id INT, day DATE, h INT) PARTITIONED BY (day, h);"
        "INSERT INTO days " + given(range(12), "{k}, DATE '2026-01-0{day}', {odd}")
    )
    first = shop.run("DELETE FROM days WHERE day = DATE '2026-01-01' AND h IN (SELECT 1)")
    assert first.commit_kind == "OVERWRITE"
    assert shop.run("SELECT count(*) AS n FROM days").to_pylist() == [{"n": 10}]
    before = shop.run("SELECT max(snapshot_id) AS n FROM days$snapshots").to_pylist()
    assert shop.run("DELETE FROM days WHERE day = '2030-01-01'").snapshot_id is None
    assert shop.run("SELECT max(snapshot_id) AS n FROM days$snapshots").to_pylist() == before
    shop.run("DELETE FROM days")
    assert rows(shop, "days", "id") == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM logged WHERE day = 'x'",
        "DELETE FROM logged",
        "TRUNCATE TABLE logged",
        "ALTER TABLE logged DROP PARTITION (day = 'x')",
        "INSERT OVERWRITE logged PARTITION (day = 'x') VALUES (3)",
        "INSERT OVERWRITE logged PARTITION (day = 'new') VALUES (3)",
    ],
)
def test_changes_without_changelog_are_named(shop: Session, statement: str) -> None:
    shop.run(
        "CREATE OR REPLACE TABLE logged (id INT NOT NULL, day STRING NOT NULL) "
        "PARTITIONED BY (day) TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1', "
        "'changelog-producer' = 'input');"
        "INSERT INTO logged VALUES (1, 'x'), (2, 'y')"
    )
    outcome = shop.run(statement)
    (count,) = shop.run(
        "SELECT changelog_record_count AS n FROM logged$snapshots ORDER BY snapshot_id DESC LIMIT 1"
    ).to_pylist()
    assert count["n"] is None
    assert any("The changelog does not have this change" in note for note in outcome.notes)
    assert "delete.force-produce-changelog" in str(outcome)


def test_deleted_partitions_can_be_in_the_changelog(shop: Session) -> None:
    shop.run(
        "CREATE TABLE forced_deletes (id INT NOT NULL, day STRING NOT NULL) PARTITIONED BY (day) "
        "TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1', 'changelog-producer' = 'input', "
        "'delete.force-produce-changelog' = 'true');"
        "INSERT INTO forced_deletes VALUES (1, 'x'), (2, 'y')"
    )
    outcome = shop.run("DELETE FROM forced_deletes WHERE day = 'x'")
    assert not any("changelog" in note for note in outcome.notes)
    counts = (
        "SELECT changelog_record_count AS n FROM forced_deletes$snapshots WHERE snapshot_id = 2"
    )
    assert shop.run(counts).to_pylist() == [{"n": 1}]


def test_failed_partition_condition_raises_paimon_magics_error(shop: Session) -> None:
    shop.run("CREATE TABLE named (id INT, p STRING) PARTITIONED BY (p)")
    shop.run("INSERT INTO named VALUES (1, 'x')")
    for statement in (
        "DELETE FROM named WHERE CAST(p AS INT) = 1",
        "CALL sys.compact(table => 'named', where => 'CAST(p AS INT) = 1')",
    ):
        with pytest.raises(PaimonMagicsError) as raised:
            shop.run(statement)
        assert "'x'" in raised.value.message, statement
    assert rows(shop, "named", "id") == [(1, "x")]


def test_preview_shows_rows_before_and_after_without_writing(shop: Session) -> None:
    columns = "(k INT NOT NULL, v STRING, s STRUCT<a: INT>"
    made = {
        "seen_keyed": (
            ", PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1')",
            "merged by key",
        ),
        "seen_files": (") TBLPROPERTIES ('write-only' = 'true')", "2 files would be written anew"),
        "seen_marked": (
            ") TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
            "2 files would get deletion vectors",
        ),
    }
    for table, (definition, told) in made.items():
        shop.run(
            f"CREATE TABLE {table} {columns}{definition};"
            f"INSERT INTO {table} SELECT id, 'a', struct(id) FROM range(30);"
            f"INSERT INTO {table} SELECT id, 'b', NULL FROM range(30, 33)"
        )
        snapshots = f"SELECT count(*) AS n FROM {table}$snapshots"
        before = (rows(shop, table), shop.run(snapshots).to_pylist())
        update = f"UPDATE {table} SET v = concat(v, :end), s.a = k * 10 WHERE k % 30 = 1"
        seen = shop.preview(update, {"end": "!"})
        actual = seen.to_pylist()
        assert {(each["rowkind"], each["k"], each["v"], str(each["s"])) for each in actual} == {
            ("-U", 1, "a", "{'a': 1}"),
            ("+U", 1, "a!", "{'a': 10}"),
            ("-U", 31, "b", "None"),
            ("+U", 31, "b!", "{'a': 310}"),
        }
        assert [each["rowkind"] for each in actual] == ["-U", "+U"] * 2
        assert seen.notes[0].startswith(f"`default.{table}`: 2 rows would be updated")
        assert told in seen.notes[0]
        gone = shop.preview(f"DELETE FROM {table} WHERE k > 5 AND v IS NOT NULL")
        assert [each["rowkind"] for each in gone.to_pylist()] == ["-D"] * 10
        assert "27 rows would be deleted" in gone.notes[0]
        assert shop.preview(f"{update} AND k > 50", {"end": ""}).to_arrow().num_rows == 0
        both = shop.preview(f"{update}; TRUNCATE TABLE {table}", {"end": ""})
        assert len(both.notes) == 2 and both.to_arrow().num_rows == 1
        with pytest.raises(UnknownNameError, match="`w`"):
            shop.preview(f"UPDATE {table} SET v = w")
        assert (rows(shop, table), shop.run(snapshots).to_pylist()) == before


def test_python_delete_and_update_change_rows(shop: Session) -> None:
    shop.run(
        "CREATE TABLE `by hand` (k INT NOT NULL, `a b` STRING, s STRUCT<x: INT>, n INT DEFAULT 7, "
        "PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1');"
        "INSERT INTO `by hand` SELECT id, 'v', struct(1), 1 FROM range(4)"
    )
    updated = shop.update(
        "`by hand`",
        {"a b": "concat(`a b`, :end)", "s.x": "k * 10", "n": "DEFAULT"},
        "k = (SELECT max(i) FROM df)",
        {"end": "!"},
        frames={"df": shop.spark.sql("SELECT 2 AS i")},
    )
    assert (updated.kind, updated.rows_updated) == ("UPDATE", 1)
    deleted = shop.delete("`by hand`", "k = 0 OR k > :k", {"k": 2})
    assert (deleted.kind, deleted.rows_deleted) == ("DELETE", 2)
    assert rows(shop, "`by hand`") == [(1, "v", {"x": 1}, 1), (2, "v!", {"x": 20}, 7)]
    assert shop.delete("`by hand`", "true").snapshot_id is not None
    assert rows(shop, "`by hand`") == []


def test_wrong_statements_write_nothing(shop: Session) -> None:
    shop.run(
        "CREATE TABLE checked (k INT NOT NULL, v INT NOT NULL, c VARCHAR(2), "
        "PRIMARY KEY (k) NOT ENFORCED) TBLPROPERTIES ('bucket' = '1');"
        "INSERT INTO checked VALUES (1, 1, 'a')"
    )
    for statement, error in (
        ("UPDATE checked SET v = NULL", InvalidValueError),
        ("UPDATE checked SET c = 'abc'", InvalidValueError),
        ("UPDATE checked SET v = array(1)", InvalidValueError),
        ("UPDATE checked SET v = w", UnknownNameError),
        ("DELETE FROM checked WHERE w = 1", UnknownNameError),
    ):
        with pytest.raises(error):
            shop.run(statement)
    assert rows(shop, "checked") == [(1, 1, "a")]
    assert shop.run("SELECT count(*) AS n FROM checked$snapshots").to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("options", ["'primary-key' = 'k', 'bucket' = '1'", ""])
def test_update_keeps_unassigned_columns(shop: Session, options: str) -> None:
    """A NULL from before its column got a default stays; one that is assigned becomes it."""
    table = f"defaults_{len(options)}"
    shop.run(
        f"CREATE TABLE {table} (k INT NOT NULL, n INT, v STRING) TBLPROPERTIES ({options});"
        f"INSERT INTO {table} VALUES (1, NULL, 'a'), (2, NULL, 'b'), (3, 3, 'c'), (4, 4, 'd');"
        f"ALTER TABLE {table} ALTER COLUMN n SET DEFAULT 7;"
        f"UPDATE {table} SET v = 'x' WHERE k = 1; UPDATE {table} SET v = 'y' WHERE v = 'b';"
        f"UPDATE {table} SET n = NULL WHERE k = 3; UPDATE {table} SET n = NULL WHERE v = 'd'"
    )
    assert rows(shop, table) == [(1, None, "x"), (2, None, "y"), (3, 7, "c"), (4, 7, "d")]


BY_KEY = {
    **{name: KEYED[name] for name in ("fixed", "dynamic", "vectors", "partial")},
    "orc": f"{KEYED['orc']}, 'orc.timestamp-ltz.legacy.type' = 'false'",
    "sequence": "'bucket' = '3', 'sequence.field' = 'at', 'write-only' = 'true'",
    "avro": "'bucket' = '1', 'file.format' = 'avro', 'write-only' = 'true'",
}


@pytest.mark.parametrize("name", only_in_soak([*BY_KEY], ["fixed", "partial", "avro"]))
def test_changes_by_key_run_no_job(shop: Session, name: str) -> None:
    table = f"{name}_by_key"
    shop.run(
        f"CREATE TABLE {table} (p STRING NOT NULL, k BIGINT NOT NULL, v STRING, at TIMESTAMP_LTZ, "
        "t DATE, PRIMARY KEY (p, k) NOT ENFORCED) PARTITIONED BY (p) "
        f"TBLPROPERTIES ({BY_KEY[name]});"
        f"INSERT INTO {table} SELECT concat('p', id % 2), id, if(id = 5, NULL, concat('v', id)), "
        "timestamp_seconds(id), DATE '1500-01-01' FROM range(20);"
        # Rows that were replaced are found as they are now, and those that were deleted are not.
        f"INSERT INTO {table} VALUES ('p0', 4, 'new', TIMESTAMP '2026-03-29 01:30:00.123456', "
        f"DATE '2024-02-28'); DELETE FROM {table} WHERE v = 'v6'"
    )
    whole = f"SELECT p, k, v, CAST(at AS STRING) AS at, CAST(t AS STRING) AS t FROM {table}"
    expected = {row["k"]: row for row in shop.run(whole).to_pylist()}
    before = jobs(shop.spark)
    deleted = shop.run(f"DELETE FROM {table} AS x WHERE x.p = 'p0' AND :k = k", {"k": 8})
    assert (deleted.rows_deleted, deleted.rows_written, deleted.commit_kind) == (1, 1, "APPEND")
    for missing in ("k = 6 AND p = 'p0'", "k = 400 AND p = 'p1'", "k = 3 AND p = 'p7'"):
        nothing = shop.run(f"UPDATE {table} SET v = 'x' WHERE {missing}")
        assert (nothing.rows_updated, nothing.snapshot_id) == (0, None)
    # Where the rest of the condition is NULL or FALSE, the row stays.
    updated = shop.run(
        f"UPDATE {table} SET v = upper(concat(v, :end)), t = t + INTERVAL 1 DAY "
        "WHERE k IN (1, 4, 5, 11) AND p IN ('p0', 'p1') AND v <> 'v11'",
        {"end": "!"},
    )
    assert updated.rows_updated == 2
    assert jobs(shop.spark) - before == set()
    del expected[8]
    expected[1] |= {"v": "V1!", "t": "1500-01-02"}
    expected[4] |= {"v": "NEW!", "t": "2024-02-29"}
    actual = {row["k"]: row for row in shop.run(whole).to_pylist()}
    assert actual == expected
    assert len(actual) == 18


def test_locally_computed_values_equal_sparks_values(shop: Session) -> None:
    """Of two equal rows one gets the values from here, the other from Spark, by a longer WHERE."""
    shop.run(
        "CREATE TABLE computed (k INT NOT NULL, tiny TINYINT, i INT, j INT, l BIGINT, d DOUBLE, "
        "dec DECIMAL(5,2), s STRING, v VARCHAR(3), day DATE, yes BOOLEAN, must INT NOT NULL) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', 'write-only' = 'true');"
        "INSERT INTO computed SELECT id, CAST(100 AS TINYINT), 2147483640, -3, 4, 0.1D, 1.25, 's', "
        "'v', DATE '1500-01-01', true, 1 FROM range(1, 3)"
    )
    values = {
        **{"a": 0.1, "n": -7, "text": "é!", "day": date(2024, 2, 29), "none": None},
        **{"dec": Decimal("0.7"), "flag": False, "long": "too long"},
    }
    taken = (
        "i = i + 7, j = j * -3, l = 5 - l, tiny = tiny - 1",
        "d = d * 0.1, dec = -12.5, v = :text, s = 'it is', day = DATE '0001-01-01'",
        "d = d + :a, j = :n, dec = :dec, s = :none, day = :day, yes = :flag",
        "d = -0.0, l = i, j = i + j, yes = true, tiny = 3",
        "d = d - l, s = NULL, j = j + NULL, must = must + must",
        "d = 3, dec = 7, i = i - 1.0, l = l * 3",
    )
    refused = (
        "i = i + 100",
        "tiny = tiny + 100",
        "must = NULL",
        "v = :long",
        "dec = 1000",
        "i = s",
    )
    for change in (*taken, *refused):
        actual = []
        for where in ("k = 1", "k = 2 AND true"):
            try:
                shop.run(f"UPDATE computed SET {change} WHERE {where}", values)
                actual.append("done")
            except PaimonMagicsError as error:
                actual.append(f"{type(error).__name__}: {error.message}")
        assert actual == (["done"] * 2 if change in taken else [actual[0]] * 2), change
        first, second = rows(shop, "computed")
        assert repr(first[1:]) == repr(second[1:]), change  # also the zero's sign


def test_waiting_update_is_outdated_by_added_column(
    shop: Session,
) -> None:
    shop.run(
        "CREATE TABLE widened (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '-1');"
        "INSERT INTO widened VALUES (1, 1)"
    )
    update = parse_statement("UPDATE widened SET v = 2 WHERE k = 1")
    assert isinstance(update, Update)
    scope = StatementScope(shop._connection)
    prepared = prepare_row_change(scope, update, {})
    assert isinstance(prepared, PreparedKeys)
    shop.run(
        "ALTER TABLE widened ADD COLUMNS (added STRING); INSERT INTO widened VALUES (1, 1, 'new')"
    )
    with pytest.raises(OutdatedPlanError, match="waited for its turn"):
        commit_by_key(scope, update, prepared, Attempts(reruns_max=0))
    shop.run(update.text)
    assert rows(shop, "widened") == [(1, 2, "new")]


@pytest.mark.parametrize("engine", ["aggregation", "partial-update", "first-row"])
def test_delete_rewrites_compacted_files_on_their_level(shop: Session, engine: str) -> None:
    name = f"levels_{engine.replace('-', '_')}"
    shop.run(
        f"CREATE TABLE {name} (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', "
        f"'merge-engine' = '{engine}'); INSERT INTO {name} VALUES (1, 1), (2, 2);"
        f"INSERT INTO {name} VALUES (3, 3); CALL sys.compact('{name}');"
        f"DELETE FROM {name} WHERE k = 1"
    )
    assert shop.run(f"SELECT * FROM {name} ORDER BY k").to_pylist() == [
        {"k": 2, "v": 2}, {"k": 3, "v": 3}
    ]  # fmt: skip
    (file,) = shop.run(f"SELECT level FROM `{name}$files`").to_pylist()
    assert file["level"] > 0


def test_hint_of_a_refused_delete_helps_in_postponed_buckets(shop: Session) -> None:
    shop.run(
        "CREATE TABLE fees (k INT, n INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '-2', "
        "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'max');"
        "INSERT INTO fees VALUES (1, 5), (2, 1); INSERT INTO fees VALUES (1, 9), (2, 7)"
    )
    with pytest.raises(UnsupportedStatementError, match="each key in only one file") as refused:
        shop.run("DELETE FROM fees WHERE k = 1")
    shop.run(refused.value.hint.partition("written. ")[2].partition(", then")[0])
    shop.run("DELETE FROM fees WHERE k = 1")
    assert rows(shop, "fees") == [(2, 7)]
