"""Where a row is stored: the metadata columns of Paimon's connector, with its values.

The expected rows are those of the connector's own `PaimonQueryTest` where a test names one of its
tests, and else follow from `$files` and the order in which a file's rows were written.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from tests.session.rows import rows

pytestmark = pytest.mark.spark

PLACES = "__paimon_file_path AS f, __paimon_row_index AS i, __paimon_bucket AS b"
KEYED = "'primary-key' = 'k', 'bucket' = '1', 'write-only' = 'true'"


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    return module_session


def files(session: Session, table: str) -> dict[str, int]:
    return dict(rows(session, f"SELECT file_path, record_count FROM `{table}$files`"))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_path_and_index_name_each_row_of_an_append_table(shop: Session, kind: str) -> None:
    # "Query metadata columns": as many indexes as rows in each file, and the file's path.
    shop.run(
        f"CREATE TABLE {kind} (id INT, v STRING) TBLPROPERTIES ('file.format' = '{kind}');"
        f"INSERT INTO {kind} VALUES (1, 'x1'), (2, 'x3'), (3, 'x3');"
        f"INSERT INTO {kind} SELECT 4, 'x'"
    )
    stored = rows(shop, f"SELECT id, {PLACES} FROM {kind} ORDER BY id")
    assert [row[:1] + row[2:] for row in stored] == [(1, 0, 0), (2, 1, 0), (3, 2, 0), (4, 0, 0)]
    assert Counter(path for _, path, *_ in stored) == files(shop, kind)
    third = f"WHERE __PAIMON_ROW_INDEX = 2 AND __paimon_file_path LIKE '%.{kind}'"
    assert rows(shop, f"SELECT * FROM {kind} {third}") == [(3, "x3")]
    assert rows(shop, f"SELECT count(*), count(__paimon_bucket) FROM {kind}") == [(4, 4)]


def test_partition_and_bucket_are_those_of_the_connector(shop: Session) -> None:
    shop.run(
        "CREATE TABLE by_bucket (c1 INT, c2 STRING) "
        "TBLPROPERTIES ('bucket-key' = 'c1', 'bucket' = '3');"
        "INSERT INTO by_bucket VALUES (1, 'x1'), (2, 'x3'), (3, 'x3'), (4, 'x4'), (5, 'x5'), "
        "(6, 'x6');"
        "CREATE TABLE by_day (c1 INT) PARTITIONED BY (p1 INT, p2 STRING);"
        "INSERT INTO by_day VALUES (1, 1, 'x1'), (2, 1, 'x2'), (3, 2, 'x1'), (4, 2, 'x2'), "
        "(5, 3, 'x3')"
    )
    # "Query metadata columns for bucket"
    assert rows(
        shop,
        "SELECT __paimon_partition, __paimon_bucket, min(__paimon_row_index), "
        "max(__paimon_row_index) FROM by_bucket GROUP BY 1, 2 ORDER BY 1, 2",
    ) == [({}, 0, 0, 1), ({}, 1, 0, 1), ({}, 2, 0, 1)]
    # "Query metadata columns for partition"
    places = "__paimon_partition, __paimon_bucket"
    assert rows(shop, f"SELECT {places} FROM by_day GROUP BY {places} ORDER BY {places}") == [
        ({"p1": 1, "p2": "x1"}, 0),
        ({"p1": 1, "p2": "x2"}, 0),
        ({"p1": 2, "p2": "x1"}, 0),
        ({"p1": 2, "p2": "x2"}, 0),
        ({"p1": 3, "p2": "x3"}, 0),
    ]
    inside = "SELECT c1 FROM by_day WHERE __paimon_partition.p2 = 'x2' ORDER BY c1"
    assert rows(shop, inside) == [(2,), (4,)]
    # "Paimon Query: query metadata columns"
    kind = "element_at(split(__paimon_file_path, '[.]'), -1)"
    assert rows(shop, f"SELECT *, {kind}, {places} FROM by_day WHERE c1 = 1") == [
        (1, 1, "x1", "parquet", {"p1": 1, "p2": "x1"}, 0)
    ]


def test_rows_of_tasks_and_of_this_process_have_the_same_places(shop: Session) -> None:
    shop.run(
        "CREATE TABLE wide (id INT, v STRING) PARTITIONED BY (d STRING) "
        "TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'id', 'deletion-vectors.enabled' = 'true');"
        "INSERT INTO wide SELECT CAST(id AS INT), 'v', 'a' FROM range(0, 30000, 1, 1);"
        "DELETE FROM wide WHERE id < 100"
    )
    of_row = "SELECT id, __paimon_partition.d AS p, {} FROM wide WHERE {} ORDER BY id"
    by_process = rows(shop, of_row.format(PLACES, "id IN (100, 101, 7000)"))
    by_tasks = rows(shop, of_row.format(PLACES, "id + 0 IN (100, 101, 7000)"))
    assert by_tasks == by_process and {row[1] for row in by_tasks} == {"a"}
    # An index counts deleted rows, too.
    shop.run("CREATE TEMPORARY VIEW before AS SELECT *, __paimon_bucket AS b, __paimon_row_index "
             "AS i, __paimon_file_path AS f FROM wide VERSION AS OF 1")  # fmt: skip
    same = "FROM wide w JOIN before o ON w.__paimon_file_path = o.f AND w.__paimon_row_index = o.i"
    assert rows(shop, f"SELECT count(*), count_if(w.id = o.id) {same}") == [(29900, 29900)]
    frame = shop.table("wide", columns=["id", "__paimon_bucket"], where="__paimon_row_index = 5000")
    assert sorted(row["__paimon_bucket"] for row in frame.collect()) == [0, 1]
    assert shop.table("wide", where="__paimon_row_index = 5000").columns == ["id", "v", "d"]


def test_merged_rows_have_a_bucket_but_no_file(shop: Session) -> None:
    # "Paimon Query: not support querying metadata columns for pk table"
    shop.run(
        f"CREATE TABLE keyed (k INT, v STRING) TBLPROPERTIES ({KEYED});"
        "INSERT INTO keyed VALUES (1, 'a'), (2, 'b')"
    )
    path = "SELECT *, __paimon_file_path AS f, __paimon_row_index AS i FROM keyed"
    assert [row[:2] + row[3:] for row in rows(shop, path)] == [(1, "a", 0), (2, "b", 1)]
    shop.run("INSERT INTO keyed VALUES (2, 'c')")
    with pytest.raises(UnsupportedStatementError, match=r"`__paimon_file_path`.*default.keyed"):
        shop.run(path)
    assert rows(shop, "SELECT *, __paimon_bucket FROM keyed ORDER BY k") == [
        (1, "a", 0), (2, "c", 0),
    ]  # fmt: skip
    assert rows(shop, "SELECT k, __paimon_row_index FROM keyed$ro") == []
    shop.run("CALL sys.compact(table => 'keyed')")
    assert Counter(f for _, _, f, _ in rows(shop, path)) == files(shop, "keyed")
    assert rows(shop, "SELECT *, __paimon_row_index FROM keyed$ro ORDER BY k") == [
        (1, "a", 0), (2, "c", 1),
    ]  # fmt: skip
    # Only the table whose column is named needs files.
    joined = (
        "SELECT a.k FROM parquet_rows a WHERE __paimon_row_index = 1 AND a.k IN "
        "(SELECT k FROM keyed WHERE __paimon_bucket = 0)"
    )
    shop.run("CREATE TABLE parquet_rows (k INT); INSERT INTO parquet_rows VALUES (9), (2);"
             "INSERT INTO keyed VALUES (2, 'd')")  # fmt: skip
    assert rows(shop, joined) == [(2,)]


def test_row_ids_and_places_are_shown_together(shop: Session) -> None:
    shop.run(
        "CREATE TABLE tracked (k INT, v STRING) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        "'data-evolution.enabled' = 'true');"
        "INSERT INTO tracked VALUES (1, 'a'), (2, 'b'); INSERT INTO tracked VALUES (3, 'c')"
    )
    both = "SELECT *, _ROW_ID, __paimon_row_index AS i FROM tracked ORDER BY k"
    assert rows(shop, both) == [(1, "a", 0, 0), (2, "b", 1, 1), (3, "c", 2, 0)]
    whole = "SELECT *, __paimon_bucket AS b FROM tracked$row_tracking ORDER BY k"
    assert rows(shop, whole) == [(1, "a", 0, 1, 0), (2, "b", 1, 1, 0), (3, "c", 2, 2, 0)]
    structs = "SELECT struct(*) AS s FROM tracked WHERE _ROW_ID = 1"
    assert rows(shop, structs) == [({"k": 2, "v": "b"},)]
    shop.run("UPDATE tracked SET v = 'x' WHERE k = 2")
    with pytest.raises(UnsupportedStatementError, match="several files"):
        shop.run(both)


def test_steps_of_a_frame_name_hidden_columns(shop: Session) -> None:
    shop.run(
        "CREATE TABLE stepped (k INT, v STRING) TBLPROPERTIES "
        "('bucket' = '2', 'bucket-key' = 'k');"
        "INSERT INTO stepped SELECT CAST(id AS INT), 'v' FROM range(0, 100, 1, 1)"
    )
    stored = rows(shop, "SELECT k, __paimon_bucket AS b, __paimon_row_index AS i FROM stepped")
    frame = shop.table("stepped")

    def of(result: DataFrame) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in result.collect())

    assert of(frame.select("k", "__paimon_bucket", F.col("__paimon_row_index"))) == sorted(stored)
    assert frame.select("*", "__paimon_bucket").columns == ["k", "v", "__paimon_bucket"]
    first = frame.where("__paimon_bucket = 0").filter(F.col("__paimon_row_index") < 3)
    assert first.columns == ["k", "v"]
    expected = [(k, "v") for k, bucket, index in stored if bucket == 0 and index < 3]
    assert of(first) == sorted(expected) and len(expected) == 3
    assert of(first.select("k", "__paimon_bucket")) == sorted((k, 0) for k, _ in expected)
    counts = Counter(bucket for _, bucket, _ in stored)
    assert of(frame.groupBy("__paimon_bucket").count()) == sorted(counts.items())
    doubled = frame.withColumn("r", F.col("__paimon_row_index") * 2).orderBy("__paimon_row_index")
    assert doubled.columns == ["k", "v", "r"]
    assert of(doubled.agg(F.sum("r"))) == [(2 * sum(i for _, _, i in stored),)]
    assert frame.withColumn("__paimon_bucket", F.lit("own")).columns[-1] == "__paimon_bucket"
    assert of(frame.agg(F.max("__paimon_row_index"))) == [(max(i for _, _, i in stored),)]


def test_own_columns_go_before_hidden_ones(shop: Session) -> None:
    shop.run("CREATE TABLE own (__paimon_bucket STRING); INSERT INTO own VALUES ('mine')")
    assert rows(shop, "SELECT *, __paimon_bucket AS b FROM own") == [("mine", "mine")]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELECT __paimon_bucket FROM plain$audit_log", "__paimon_bucket"),
        ("SELECT __paimon_file_path FROM plain$files", "__paimon_file_path"),
        ("SELECT _ROW_ID FROM plain", "_ROW_ID"),
        ("SELECT _metadata.file_path FROM plain", "_metadata"),
        ("SELECT __paimon_search_score FROM plain", "__paimon_search_score"),
        ("DELETE FROM plain WHERE __paimon_row_index = 1", "__paimon_row_index"),
        ("SELECT a.*, a.__paimon_bucket FROM plain a NATURAL JOIN plain b", "NATURAL"),
        ("FROM plain |> WHERE __paimon_bucket = 0", "__paimon_bucket"),
    ],
)
def test_hidden_columns_are_refused_by_name(shop: Session, statement: str, named: str) -> None:
    shop.run("CREATE TABLE IF NOT EXISTS plain (k INT); INSERT INTO plain VALUES (1)")
    with pytest.raises(PaimonMagicsError, match=named) as caught:
        shop.run(statement)
    assert isinstance(caught.value, UnsupportedStatementError) and caught.value.hint
