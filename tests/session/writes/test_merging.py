"""MERGE INTO changes the rows that its clauses decide about, by one commit, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.sampling import only_in_soak
from tests.session.writes.held_writes import run_while

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYED = {
    "fixed": "'bucket' = '2'",
    "dynamic": "'bucket' = '-1'",
    "input": "'bucket' = '1', 'changelog-producer' = 'input'",
    "partial": "'bucket' = '1', 'merge-engine' = 'partial-update', "
    "'partial-update.remove-record-on-delete' = 'true'",
}
ROWS = "(1, 'a', 1), (2, 'b', 2), (3, 'c', NULL), (4, NULL, 4)"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, module_session: Session) -> Session:
    spark.sql(
        "SELECT * FROM VALUES (1, 's1', 100), (2, 's2', NULL), (5, 's5', 500), (6, NULL, 600) "
        "AS t(id, v, n)"
    ).createOrReplaceTempView("news")
    return module_session


def made(session: Session, name: str, options: str) -> None:
    session.run(
        f"CREATE TABLE {name} (id INT, v STRING, n INT) TBLPROPERTIES ({options}); "
        f"INSERT INTO {name} VALUES {ROWS}"
    )


def rows(session: Session, table: str) -> list[tuple[Any, ...]]:
    found = session.run(f"SELECT * FROM {table} ORDER BY 1, 2").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("name", only_in_soak([*KEYED], ["fixed", "input"]))
def test_first_clause_with_true_condition_decides(shop: Session, name: str) -> None:
    made(shop, name, f"'primary-key' = 'id', {KEYED[name]}")
    null = "CAST(NULL AS INT)" if name == "partial" else "DEFAULT"
    outcome = shop.run(
        f"WITH s AS (SELECT id + 1 AS id, upper(v) AS v, n FROM news) MERGE INTO {name} t "
        "USING (SELECT * FROM s WHERE id > :least) s ON t.id = s.id "
        f"WHEN MATCHED AND t.n < 3 THEN UPDATE SET v = concat(s.v, t.v), n = {null}, id = s.id "
        "WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND n > 500 THEN INSERT (id, v) VALUES (id, (SELECT max(v) FROM news)) "
        "WHEN NOT MATCHED AND n > 900 THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND n = 4 THEN UPDATE SET t.v = :word, n = n + 1",
        {"least": 1, "word": "orphan"},
    )
    assert (outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted) == (2, 1, 1)
    assert outcome.commit_kind == "APPEND"
    kept = 2 if name == "partial" else None  # partial-update passes NULLs over
    assert rows(shop, name) == [(1, "a", 1), (2, "S1b", kept), (4, "orphan", 5), (7, "s5", None)]


def test_star_clauses_assign_columns_by_name(shop: Session) -> None:
    made(shop, "whole", "'primary-key' = 'id', 'bucket' = '1'")
    shop.run(
        "MERGE INTO whole USING (SELECT n, 1 AS more, v, id FROM news) AS s ON whole.id = s.id "
        "WHEN NOT MATCHED THEN INSERT * WHEN MATCHED THEN UPDATE SET *"
    )
    assert rows(shop, "whole") == [
        (1, "s1", 100),
        (2, "s2", None),
        (3, "c", None),
        (4, None, 4),
        (5, "s5", 500),
        (6, None, 600),
    ]
    same = shop.run(
        "MERGE INTO whole t USING whole s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET v = concat('after', s.id)"
    )
    assert same.rows_updated == 5
    none = shop.run(
        "MERGE INTO whole t USING (SELECT 99 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    assert (none.rows_deleted, none.snapshot_id) == (0, None)


def test_row_keeps_its_key_if_source_spells_it_differently(
    shop: Session,
) -> None:
    shop.run(
        "CREATE TABLE texts (id STRING, v STRING) TBLPROPERTIES ('primary-key' = 'id', "
        "'bucket' = '1'); INSERT INTO texts VALUES ('01', 'old'), ('2', 'old')"
    )
    shop.run(
        "MERGE INTO texts t USING (SELECT 1 AS id, 'new' AS v) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    assert rows(shop, "texts") == [("01", "new"), ("2", "old")]


def test_merge_rejects_row_changed_by_two_source_rows(shop: Session) -> None:
    made(shop, "twice", "'primary-key' = 'id', 'bucket' = '1'")
    source = "(SELECT * FROM VALUES (2, 'x'), (2, 'y') AS x(id, v)) s ON t.id = s.id"
    before = rows(shop, "twice")
    with pytest.raises(InvalidValueError, match="multiple rows of the source"):
        shop.run(f"MERGE INTO twice t USING {source} WHEN MATCHED THEN UPDATE SET v = s.v")
    with pytest.raises(InvalidValueError, match="multiple rows of the source"):
        shop.run(
            f"MERGE INTO twice t USING {source} WHEN MATCHED AND s.v = 'x' THEN UPDATE SET v = s.v "
            "WHEN MATCHED THEN DELETE"
        )
    assert rows(shop, "twice") == before
    # Paimon's connector looks at ON alone; here only one of the two rows changes anything.
    shop.run(
        f"MERGE INTO twice t USING {source} WHEN MATCHED AND s.v = 'x' THEN UPDATE SET v = s.v"
    )
    assert rows(shop, "twice")[1] == (2, "x", 2)


WRONG = [
    ("t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1", "no column `nope`"),
    ("t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.nope", "nope"),
    ("t USING news s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)", "`t`.`id`"),
    ("t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *", "no `v`"),
    ("t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id + 1", "primary key"),
    ("t USING news s ON t.v = s.v WHEN MATCHED THEN UPDATE SET *", "primary key"),
    ("t USING nope s ON t.id = s.id WHEN MATCHED THEN DELETE", "nope"),
    ("t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.v", "'a'"),
    (
        "t USING news s ON t.id IN (SELECT id FROM news) WHEN MATCHED THEN DELETE",
        "subquery in a condition",
    ),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_invalid_merge_is_refused_before_write(shop: Session, text: str, said: str) -> None:
    shop.run(
        "CREATE TABLE IF NOT EXISTS wrong (id INT, v STRING, n INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
    )
    if not rows(shop, "wrong"):
        shop.run("INSERT INTO wrong VALUES (1, 'a', 1)")
    with pytest.raises(PaimonMagicsError) as raised:
        shop.run(f"MERGE INTO wrong {text}")
    assert said in str(raised.value)
    assert rows(shop, "wrong") == [(1, "a", 1)]


def test_merge_delete_is_refused_for_engines_without_deletes(shop: Session) -> None:
    for engine, more in {"aggregation": "", "first-row": "", "partial-update": ""}.items():
        name = engine.replace("-", "_")
        made(shop, name, f"'primary-key' = 'id', 'bucket' = '1', 'merge-engine' = '{engine}'{more}")
        with pytest.raises(UnsupportedStatementError, match=engine):
            shop.run(f"MERGE INTO {name} t USING news s ON t.id = s.id WHEN MATCHED THEN DELETE")


APPENDS = {
    "plain": "",
    "bucketed": "'bucket' = '2', 'bucket-key' = 'id'",
    "numbered": "'row-tracking.enabled' = 'true'",
    "marked": "'bucket' = '1', 'bucket-key' = 'id', 'deletion-vectors.enabled' = 'true'",
    "marked_numbers": "'row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true'",
    "evolving": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true', "
    "'deletion-vectors.enabled' = 'true'",
}


@pytest.mark.parametrize(
    "name", only_in_soak([*APPENDS], ["bucketed", "numbered", "marked_numbers"])
)
def test_merge_into_append_table_makes_a_single_commit(shop: Session, name: str) -> None:
    options = APPENDS[name]
    marks, tracks = "deletion" in options, "tracking" in options
    made(shop, name, ", ".join(filter(None, (options, "'write-only' = 'true'"))))
    shop.run(f"INSERT INTO {name} VALUES (8, 'h', 8), (8, 'i', 8)")
    ids = f"SELECT id, _ROW_ID AS r FROM {name}"
    before = {row["id"]: row["r"] for row in shop.run(ids).to_pylist()} if tracks else {}
    untouched = names_of_files(shop, name, "max_value_stats LIKE '%8%'")
    outcome = shop.run(
        f"MERGE INTO {name} t USING news s ON t.id = s.id "
        "WHEN MATCHED AND s.n = 100 THEN UPDATE SET n = t.n + s.n, id = t.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND v IS NOT NULL THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND n = 4 THEN UPDATE SET v = 'orphan' "
        "WHEN NOT MATCHED BY SOURCE AND n IS NULL THEN DELETE"
    )
    assert (outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted) == (2, 2, 1)
    assert outcome.commit_kind == "OVERWRITE"
    assert (outcome.files_rewritten is None, outcome.vectors_written is None) == (marks, not marks)
    expected = [(1, "a", 101), (4, "orphan", 4), (5, "s5", 500), (8, "h", 8), (8, "i", 8)]
    assert rows(shop, name) == expected
    assert untouched <= names_of_files(shop, name)
    assert len(shop.run(f"SELECT * FROM `{name}$snapshots`").to_pylist()) == 3
    if tracks:
        after = {row["id"]: row["r"] for row in shop.run(ids).to_pylist()}
        assert {key: after[key] for key in (1, 4, 8)} == {key: before[key] for key in (1, 4, 8)}
        assert after[5] > max(before.values())
    # A row that two source rows would change: nothing happens.
    with pytest.raises(InvalidValueError, match="multiple rows of the source"):
        shop.run(
            f"MERGE INTO {name} t USING (SELECT * FROM VALUES (1, 'x'), (1, 'y') AS x(id, v)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE"
        )
    assert rows(shop, name) == expected
    # One source row may change many rows, and all columns of them.
    shop.run(
        f"MERGE INTO {name} t USING (SELECT 8 AS id, 'all' AS v, 0 AS n) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert rows(shop, name) == [(8, "all", 0), (8, "all", 0)]


def test_merge_of_large_source_inserts_all_new_rows(shop: Session) -> None:
    made(shop, "several", "'bucket' = '-1'")
    source = (
        "SELECT CAST(id AS INT) AS id, 'x' AS v, 1 AS n FROM range(1000000) WHERE id % 1000 = 2"
    )
    outcome = shop.run(
        f"MERGE INTO several t USING ({source}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    assert (outcome.rows_updated, outcome.rows_inserted) == (1, 999)
    counts = "SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(id) AS s FROM several"
    whole = {"n": 1003, "ids": 1003, "s": 8 + sum(range(2, 1_000_000, 1000))}
    assert shop.run(counts).to_pylist() == [whole]
    # A row that is changed twice leaves the new ones out, too.
    with pytest.raises(InvalidValueError, match="multiple rows of the source"):
        shop.run(
            f"MERGE INTO several t USING (SELECT id - id % 2000 + 1 AS id, v, n FROM ({source})) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        )
    assert shop.run(counts).to_pylist() == [whole]


def names_of_files(session: Session, table: str, condition: str = "true") -> set[str]:
    found = session.run(f"SELECT file_path FROM `{table}$files` WHERE {condition}").to_pylist()
    return {row["file_path"] for row in found}


def test_merge_moves_append_rows_to_assigned_partition(shop: Session) -> None:
    shop.run(
        "CREATE TABLE moved (id INT, v STRING NOT NULL, p STRING) PARTITIONED BY (p); "
        "INSERT INTO moved VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y')"
    )
    shop.run(
        "WITH s AS (SELECT * FROM VALUES (2, 'B', 'z'), (9, 'i', 'y') AS x(id, v, p)) "
        "MERGE INTO moved t USING s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    expected = [(1, "a", "x"), (2, "B", "z"), (3, "c", "y"), (9, "i", "y")]
    assert rows(shop, "moved") == expected
    with pytest.raises(PaimonMagicsError, match=r"(?i)null"):
        shop.run(
            "MERGE INTO moved t USING (SELECT 1 AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = NULL"
        )
    assert rows(shop, "moved") == expected


def test_concurrent_merges_insert_a_missing_row_once(shop: Session, tmp_path: Path) -> None:
    shop.run("CREATE TABLE once (id INT, v STRING); INSERT INTO once VALUES (1, 'a')")
    merge = "MERGE INTO once t USING (SELECT {} AS id, '{}' AS v) s ON t.id = s.id "
    adds = "WHEN NOT MATCHED THEN INSERT *"
    second = run_while(
        lambda: shop.run(merge.format("7", "first") + adds),
        shop,
        merge.format("held(CAST(7 AS INT))", "second") + adds,
        tmp_path,
    )
    assert second.rows_inserted == 0
    assert rows(shop, "once") == [(1, "a"), (7, "first")]


def test_struct_fields_and_star_are_assigned_by_name(shop: Session) -> None:
    shop.run(
        "CREATE TABLE places (id INT, s STRUCT<a: INT, b: STRING>) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1'); "
        "INSERT INTO places VALUES (1, struct(1, 'x')), (2, NULL), (3, struct(3, 'z'))"
    )
    shop.run(
        "MERGE INTO places t USING (SELECT id, named_struct('b', 'new', 'a', 0) AS s "
        "FROM VALUES (1), (2), (3), (4) AS v(id)) x ON t.id = x.id "
        "WHEN MATCHED AND t.id < 3 THEN UPDATE SET t.s.a = x.id * 10 "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(shop, "places") == [
        (1, {"a": 10, "b": "x"}),
        (2, {"a": 20, "b": None}),
        (3, {"a": 0, "b": "new"}),
        (4, {"a": 0, "b": "new"}),
    ]


@pytest.mark.parametrize(
    ("table", "options", "told"),
    [
        pytest.param(
            *("seen_keyed", "'primary-key' = 'id', 'bucket' = '1'", "merged by key"),
            marks=pytest.mark.soak,
        ),
        ("seen_files", "'write-only' = 'true'", "1 file would be written anew"),
        ("seen_marked", "'deletion-vectors.enabled' = 'true'", "1 file would get deletion vectors"),
    ],
)
def test_preview_counts_rows_and_writes_nothing(
    shop: Session, table: str, options: str, told: str
) -> None:
    made(shop, table, options)
    on = f"MERGE INTO {table} t USING news s ON t.id = s.id"
    seen = shop.preview(
        f"{on} WHEN MATCHED AND t.id = 1 THEN UPDATE SET v = s.v, n = :n WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT *",
        {"n": 7},
    )
    assert "1 row would be updated, 1 deleted, 1 inserted" in seen.notes[0]
    assert told in seen.notes[0]
    actual = {each["rowkind"]: (each["v"], each["n"]) for each in seen.to_pylist()}
    assert actual == {"+U": ("s1", 7), "+I": ("s5", 500), "-D": ("b", 2)}
    only = shop.preview(f"{on} WHEN NOT MATCHED THEN INSERT *")
    assert [each["rowkind"] for each in only.to_pylist()] == ["+I"] * 2
    with pytest.raises(InvalidValueError, match="matched a single row"):
        shop.preview(
            f"MERGE INTO {table} t USING news s ON t.id < 3 WHEN MATCHED THEN UPDATE SET n = s.n"
        )
    assert rows(shop, table) == [(1, "a", 1), (2, "b", 2), (3, "c", None), (4, None, 4)]
    assert shop.run(f"SELECT count(*) AS n FROM {table}$snapshots").to_pylist() == [{"n": 1}]


def test_python_builder_previews_and_runs_a_merge(shop: Session) -> None:
    made(shop, "built", "'primary-key' = 'id', 'bucket' = '1'")
    frame = shop.spark.table("news")
    builder = (
        shop.merge(frame, "built", on="id")
        .when_matched_update({"v": "concat(t.v, :end)", "n": "DEFAULT"}, condition="s.n > 1")
        .when_matched_delete()
        .when_not_matched_insert(condition="s.v IS NOT NULL")
        .when_not_matched_by_source_update({"n": "0"}, condition="n IS NULL")
        .when_not_matched_by_source_delete()
    )
    seen = builder.preview({"end": "!"})
    assert "2 rows would be updated, 2 deleted, 1 inserted" in seen.notes[0]
    assert sorted(each["rowkind"] for each in seen.to_pylist()) == ["+I", "+U", "+U", "-D", "-D"]
    outcome = builder.run({"end": "!"})
    assert (outcome.rows_updated, outcome.rows_deleted, outcome.rows_inserted) == (2, 2, 1)
    assert outcome.seconds > 0
    assert rows(shop, "built") == [(1, "a!", None), (3, "c", 0), (5, "s5", 500)]
    again = shop.merge(frame.limit(0), "built", on="id").when_matched_delete().execute()
    assert (again.rows_deleted, again.snapshot_id) == (0, None)
    wrong: tuple[Any, ...] = ({"v": 5}, {}, {"v": ""})
    for values in wrong:
        with pytest.raises(InvalidValueError, match=r"SQL|No column"):
            shop.merge(frame, "built", on=["id"]).when_matched_update(values)
    with pytest.raises(InvalidValueError, match="not a frame"):
        shop.merge(5, "built", on="id")


def test_merge_builder_accepts_rows_and_errors_name_both_sides(shop: Session) -> None:
    made(shop, "listed", "'bucket' = '1', 'bucket-key' = 'id'")
    given = [{"id": 1, "v": "new"}, {"id": 9, "v": None}]
    builder = shop.merge(given, "listed", on="id").when_matched_update({"v": "s.v"})
    assert "1 row would be updated" in builder.preview().notes[0]
    assert builder.when_not_matched_insert({"id": "s.id", "v": "s.v"}).run().rows_inserted == 1
    assert rows(shop, "listed")[0] == (1, "new", 1)
    with pytest.raises(InvalidValueError, match="unless it holds dictionaries"):
        shop.merge([], "listed", on="id").when_matched_delete().run()
    dropped = shop.merge(given, "listed", on="id").when_matched_delete("s.v = 'x'")
    assert dropped.sql.endswith("WHEN MATCHED AND (s.v = 'x') THEN DELETE")
    for name, told in (("source.v", "the table is `t` and the frame is `s`"), ("s.w", "`s`.`v`")):
        one = shop.merge(given, "listed", on="id").when_matched_update({"v": name})
        for act in (one.run, one.preview):
            with pytest.raises(UnknownNameError, match="There is no column") as raised:
                act()
            assert told in str(raised.value)


def test_deleting_rows_missing_in_source_needs_confirmation(shop: Session) -> None:
    made(shop, "asked", "'bucket' = '1', 'bucket-key' = 'id'")
    merge = "MERGE INTO asked t USING news s ON t.id = s.id WHEN MATCHED THEN DELETE "
    with pytest.raises(UnconfirmedError, match="the table has 4 rows in 1 file"):
        shop.check_confirmed(merge + "WHEN NOT MATCHED BY SOURCE THEN DELETE")
    shop.check_confirmed(merge + "WHEN NOT MATCHED BY SOURCE AND n = 4 THEN DELETE")
    shop.check_confirmed(merge)


def test_merge_into_missing_table_is_refused(shop: Session) -> None:
    with pytest.raises(UnknownNameError, match="nowhere"):
        shop.run("MERGE INTO nowhere t USING news s ON t.id = s.id WHEN MATCHED THEN DELETE")


def test_merge_with_schema_evolution_adds_missing_columns(shop: Session) -> None:
    shop.run(
        "CREATE TABLE growing (k INT NOT NULL, v STRING, d INT DEFAULT 7, PRIMARY KEY (k) NOT "
        "ENFORCED) TBLPROPERTIES ('bucket' = '1'); INSERT INTO growing VALUES (1, 'a', 1);"
        "SET `spark.paimon.write.merge-schema` = true"
    )
    source = "(SELECT 1 AS k, 'b' AS v, 5 AS n UNION ALL SELECT 2, 'c', NULL)"
    try:
        with pytest.raises(UnknownNameError, match="no column `w`"):
            shop.run(
                f"MERGE INTO growing t USING {source} s ON t.k = s.k "
                "WHEN MATCHED THEN UPDATE SET w = 1 WHEN NOT MATCHED THEN INSERT *"
            )
        assert "n" not in shop.run("SELECT * FROM growing").to_arrow().column_names
        done = shop.run(
            f"MERGE INTO growing t USING {source} s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert "Columns added: n INT." in done.notes
        shop.run(
            "MERGE INTO growing t USING (SELECT 2 AS k, 'x' AS v, 'e' AS m, 0 AS d) s "
            "ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.m = s.m"
        )
    finally:
        shop.run("SET `spark.paimon.write.merge-schema` = false")
    assert rows(shop, "growing") == [(1, "b", 1, 5, None), (2, "c", 7, None, "e")]
    done = shop.run(
        "MERGE WITH SCHEMA EVOLUTION INTO growing t USING (SELECT 1 AS k, 5000000000 AS n, 'w' AS "
        "w) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *"
    )
    assert done.notes == ("Columns added: w STRING.", "Types changed: n BIGINT.")
    actual = shop.run("SELECT * FROM growing WHERE k = 1").to_pylist()
    assert actual == [{"k": 1, "v": "b", "d": 1, "n": 5000000000, "m": None, "w": "w"}]


@pytest.mark.parametrize("marks", [False, True])
def test_insert_replaces_rows_of_the_same_upsert_key(shop: Session, marks: bool) -> None:
    name = f"prices_{marks}".lower()
    shop.run(
        f"CREATE TABLE {name} (a INT, b STRING, at INT, v STRING DEFAULT 'd') TBLPROPERTIES "
        f"('upsert-key' = 'a,b', 'deletion-vectors.enabled' = '{str(marks).lower()}')"
    )
    first = shop.run(
        f"INSERT INTO {name} (a, b, at) VALUES (1, 'x', 1), (1, NULL, 1), (2, 'x', 9), (1, 'x', 5)"
    )
    assert (first.kind, first.rows_inserted) == ("INSERT INTO", 3)
    shop.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('sequence.field' = 'at')")
    second = shop.run(
        f"INSERT INTO {name} SELECT a, b, at, v FROM VALUES (1, NULL, 1, 'same'), (2, 'x', 8, "
        "'older'), (1, 'x', 7, 'newer'), (1, 'x', 6, 'between'), (3, NULL, NULL, 'new') "
        "AS s (a, b, at, v)"
    )
    assert (second.rows_updated, second.rows_inserted) == (2, 1)
    shop.write([{"a": 3, "b": None, "at": None, "v": "again"}], name)
    with pytest.raises(UnsupportedStatementError, match="reads the table that it writes"):
        shop.run(f"INSERT INTO {name} SELECT a + 1, b, at, v FROM {name}")
    actual = shop.run(f"SELECT * FROM {name} ORDER BY a, b").to_pylist()
    assert [tuple(row.values()) for row in actual] == [
        (1, None, 1, "same"), (1, "x", 7, "newer"), (2, "x", 9, "d"), (3, None, None, "again"),
    ]  # fmt: skip


def test_strict_store_policy_applies_to_columns_and_fields(shop: Session) -> None:
    shop.run(
        "CREATE TABLE strict (id INT, d DECIMAL(3, 2), s STRUCT<n: DECIMAL(3, 2)>) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
    )
    shop.spark.conf.set("spark.sql.storeAssignmentPolicy", "STRICT")
    try:
        for column in ("d", "s.n"):
            with pytest.raises(InvalidValueError, match=rf"`{column}` is .* `{column}` is DECIMAL"):
                shop.run(
                    "MERGE INTO strict t USING news s ON t.id = s.id "
                    f"WHEN MATCHED THEN UPDATE SET {column} = 1.239"
                )
    finally:
        shop.spark.conf.unset("spark.sql.storeAssignmentPolicy")


def test_dry_run_accepts_subquery_on_table_created_in_the_cell(shop: Session) -> None:
    made(shop, "awaiting", "'primary-key' = 'id', 'bucket' = '1'")
    planned = shop.run(
        "CREATE TABLE coming (n INT); MERGE INTO awaiting t USING news s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = (SELECT max(n) FROM coming)",
        dry_run=True,
    )
    assert "would create `default.coming` first" in str(planned.message)
