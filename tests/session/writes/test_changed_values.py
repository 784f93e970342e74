"""What a cast of a query's rows rounds or cuts is counted, by column, or refused."""

from __future__ import annotations

import decimal
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.errors import InvalidValueError

pytestmark = pytest.mark.spark

COLUMNS = """
    k INT NOT NULL, i INT, d DECIMAL(5, 2), f FLOAT, x DOUBLE, b BOOLEAN, day DATE,
    t TIMESTAMP_LTZ(3), n TIMESTAMP_NTZ(0), a ARRAY<INT>
"""
KEYED = f"{COLUMNS}, PRIMARY KEY (k) NOT ENFORCED"
SOURCE = """
    CREATE OR REPLACE TEMPORARY VIEW given AS SELECT * FROM VALUES
        (1, 3.7D, 3.14159D, 16777217L, 9007199254740993L, 5, TIMESTAMP '2026-01-01 10:00:00',
            TIMESTAMP '2026-01-01 10:00:00.123456', TIMESTAMP_NTZ '2026-01-01 10:00:00.5',
            array(1.5)),
        (2, 4.0D, 2.5D, 1L, 1L, 1, TIMESTAMP '2026-01-01 00:00:00',
            TIMESTAMP '2026-01-01 10:00:00.123', TIMESTAMP_NTZ '2026-01-01 10:00:00', array(1.0)),
        (3, NULL, 2.005D, NULL, 5L, 0, NULL, NULL, NULL, NULL)
        AS v (k, i, d, f, x, b, day, t, n, a)
"""
CHANGED = {"i": 1, "d": 2, "f": 1, "x": 1, "b": 1, "day": 1, "t": 1, "n": 1, "a": 1}
LAYOUTS = [
    ("plain", f"CREATE TABLE plain ({COLUMNS})"),
    ("parted", f"CREATE TABLE parted ({COLUMNS}) PARTITIONED BY (day)"),
    ("bucketed", f"CREATE TABLE bucketed ({COLUMNS}) TBLPROPERTIES "
     "('bucket' = '2', 'bucket-key' = 'k')"),
    ("keyed", f"CREATE TABLE keyed ({KEYED}) TBLPROPERTIES ('bucket' = '2')"),
    ("dynamic", f"CREATE TABLE dynamic ({KEYED}) TBLPROPERTIES ('bucket' = '-1')"),
    ("orc", f"CREATE TABLE orc ({COLUMNS}) TBLPROPERTIES "
     "('file.format' = 'orc', 'orc.timestamp-ltz.legacy.type' = 'false')"),
]  # fmt: skip


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAIMON_COORDINATOR", "in-process")
        warehouse = tmp_path_factory.mktemp("changed")
        with paimon_magics.connect(warehouse, spark=spark) as session:
            for _, text in LAYOUTS:
                session.run(text)
            session.run(SOURCE)
            yield session


@pytest.fixture(scope="module")
def strict(opened: Session, spark: SparkSession) -> Iterator[Session]:
    """A session that refuses values that would be changed. Tests with it come last."""
    opened.close()
    with paimon_magics.connect(
        opened.warehouse, spark=spark, coordinator="in-process", store_assignment="exact"
    ) as session:
        session.run(SOURCE)
        yield session


def rows_of(session: Session, table: str) -> int:
    return session.run(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"].to_pylist()[0]


@pytest.mark.parametrize("table", [name for name, _ in LAYOUTS])
def test_insert_counts_values_changed_by_casts(opened: Session, table: str) -> None:
    outcome = opened.run(f"INSERT INTO {table} SELECT * FROM given")
    assert outcome.values_changed == CHANGED
    for each in (
        "1 value of `i` was cut to INT, such as 3.7.",
        "2 values of `d` were rounded to DECIMAL(5, 2), such as ",
        "1 value of `f` was rounded to FLOAT, such as 16777217.",
        "1 value of `day` was cut to DATE, such as 2026-01-01 10:00:00.",
        "1 value of `t` was cut to TIMESTAMP_LTZ(3), such as 2026-01-01 10:00:00.123456.",
        "1 value of `a` was changed to ARRAY<INT>, such as [1.5].",
    ):
        assert any(note.startswith(each) for note in outcome.notes), (each, outcome.notes)
    assert rows_of(opened, table) == 3
    outcome = opened.run(f"INSERT OVERWRITE {table} SELECT * FROM given WHERE k = 2")
    assert outcome.values_changed == {} and not [n for n in outcome.notes if "value" in n]


def test_spark_frame_write_counts_values_changed_by_casts(
    opened: Session, spark: SparkSession
) -> None:
    frame = spark.sql("SELECT 7 AS k, 5.7 AS i, 1.239 AS d")
    assert opened.write(frame, "plain").values_changed == {"i": 1, "d": 1}


def test_changed_values_of_several_tasks_are_all_counted(opened: Session) -> None:
    opened.run("CREATE TABLE many (k BIGINT, d DECIMAL(9, 1), i INT)")
    outcome = opened.run(
        "INSERT INTO many SELECT id, id / 100.0D, CAST(id AS DECIMAL(12, 1)) / 2 FROM "
        "range(0, 200000, 1, 4)"
    )
    # id / 100 has a second digit in 9 of 10 rows, id / 2 a fraction in every other row.
    assert outcome.values_changed == {"d": 180_000, "i": 100_000}


@pytest.mark.parametrize(
    ("table", "properties"),
    [
        ("changed_append", "'bucket' = '-1'"),
        ("changed_marks", "'bucket' = '-1', 'deletion-vectors.enabled' = 'true'"),
        ("changed_buckets", "'bucket' = '2', 'bucket-key' = 'k'"),
        ("changed_keys", "'bucket' = '2', 'primary-key' = 'k'"),
        ("changed_partial", "'primary-key' = 'k', 'merge-engine' = 'partial-update'"),
        ("changed_columns", "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true'"),
    ],
)
def test_update_and_merge_count_values_changed_by_casts(
    opened: Session, table: str, properties: str
) -> None:
    opened.run(
        f"CREATE TABLE {table} (k INT NOT NULL, d DECIMAL(5, 2), i INT) "
        f"TBLPROPERTIES ({properties})"
    )
    opened.run(f"INSERT INTO {table} VALUES (1, 1.5, 1), (2, 2.5, 2), (3, NULL, 3)")
    update = f"UPDATE {table} SET d = d / 3, i = 7.5 WHERE k < 3 OR k > 100"
    assert "2 values of `i` would be cut to INT, such as 7.5." in str(opened.preview(update))
    outcome = opened.run(update)
    assert outcome.values_changed == {"d": 1, "i": 2}
    assert "2 values of `i` were cut to INT, such as 7.5." in outcome.notes
    assert opened.run(f"UPDATE {table} SET d = d + 1.20, i = i + 1").values_changed == {}
    by_key = opened.run(f"UPDATE {table} SET d = 1.239 WHERE k = 2")
    assert by_key.values_changed == {"d": 1}
    merge = f"""
        MERGE INTO {table} AS t USING (
            SELECT * FROM VALUES (1, 1.111BD, 1.0D), (2, 2.2BD, 2.5D), (9, 9.999BD, 9.9D)
            AS v (k, d, i)) AS s
        ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET t.d = s.d + 0, t.i = s.i WHEN NOT MATCHED THEN INSERT *
    """
    assert "2 values of `d` would be rounded to DECIMAL(5, 2)" in str(opened.preview(merge))
    outcome = opened.run(merge)
    assert outcome.values_changed == {"d": 2, "i": 2}
    assert outcome.rows_inserted == 1 and outcome.rows_updated == 2
    only = f"MERGE INTO {table} AS t USING (SELECT 10 AS k, 0.125 AS d, 1 AS i) AS s ON t.k = s.k "
    assert opened.run(only + "WHEN NOT MATCHED THEN INSERT *").values_changed == {"d": 1}


def test_upsert_counts_values_changed_by_casts(opened: Session) -> None:
    opened.run(
        "CREATE TABLE upserted (k INT, d DECIMAL(5, 2)) TBLPROPERTIES "
        "('upsert-key' = 'k', 'write.merge-schema' = 'true')"
    )
    opened.run("INSERT INTO upserted VALUES (1, 1.5)")
    outcome = opened.run("INSERT INTO upserted SELECT id, id + 0.125 FROM range(1, 4)")
    assert outcome.values_changed == {"d": 3}
    assert opened.run("SELECT * FROM upserted").to_arrow().column_names == ["k", "d"]


def test_explain_names_casts_that_may_change_values(opened: Session) -> None:
    text = str(opened.explain("INSERT INTO plain (k, d, x) SELECT 1, 2.5D, 3"))
    assert "Casts that may round or cut values: `d` from DOUBLE to DECIMAL(5, 2)." in text


def test_numbers_that_no_decimal_has_are_counted(opened: Session) -> None:
    opened.run("CREATE TABLE endless (k INT, d DECIMAL(5, 1))")
    outcome = opened.run(
        "INSERT INTO endless SELECT k, d FROM VALUES (1, double('NaN')), (2, double('Infinity')), "
        "(3, 1.5D) AS v (k, d)"
    )
    assert outcome.values_changed == {"d": 2}
    assert "NaN" in str(outcome.notes) or "Infinity" in str(outcome.notes)


def test_lossless_casts_count_no_changed_values(opened: Session) -> None:
    opened.run("CREATE TABLE wide (a BIGINT, b DECIMAL(20, 4), c STRING, d DOUBLE)")
    outcome = opened.run("INSERT INTO wide SELECT 1, 1.5BD, 7, 3")
    assert outcome.values_changed == {}
    actual = opened.run("SELECT b FROM wide").to_arrow()["b"].to_pylist()
    assert actual == [decimal.Decimal("1.5000")]


@pytest.mark.parametrize("table", ["plain", "keyed", "parted"])
def test_setting_refuses_insert_with_lossy_casts(strict: Session, table: str) -> None:
    before = strict.run(f"SELECT max(snapshot_id) AS n FROM {table}$snapshots").to_arrow()
    for verb in ("INTO", "OVERWRITE"):
        with pytest.raises(InvalidValueError) as caught:
            strict.run(f"INSERT {verb} {table} (k, d, i) SELECT k, d, i FROM given")
        error = caught.value
        assert f"`default.{table}` does not store all values as they are" in error.message
        assert "1 value of `i` would be cut to INT, such as 3.7." in error.message
        assert "2 values of `d` would be rounded to DECIMAL(5, 2)" in error.message
        assert "Nothing was written." in error.hint
    after = strict.run(f"SELECT max(snapshot_id) AS n FROM {table}$snapshots").to_arrow()
    assert before == after
    strict.run(f"INSERT INTO {table} (k, d, i) SELECT k, round(d, 2), floor(i) FROM given")


def test_setting_refuses_spark_frame_with_lossy_casts(strict: Session, spark: SparkSession) -> None:
    frame = spark.sql("SELECT 7 AS k, 5.7 AS i, 1.239 AS d")
    with pytest.raises(InvalidValueError, match="1 value of `i` would be cut"):
        strict.write(frame, "plain")
