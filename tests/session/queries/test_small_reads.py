"""Few rows of small files are read in this process, counts and bounds come from manifests: no Spark
job runs, and the rows are those that Spark reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from paimon_magics import Session
from paimon_magics.errors import TableDamagedError, UnknownNameError
from tests.sampling import sampled
from tests.session.evidence import jobs
from tests.session.queries.small_reads import settings
from tests.session.rows import rows

pytestmark = pytest.mark.spark

EVERY_TYPE = (
    "b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f FLOAT, d DOUBLE, n DECIMAL(9, 2), "
    "w DECIMAL(38, 10), c CHAR(4), vc VARCHAR(9), s STRING, bin BINARY, dt DATE, "
    "ts TIMESTAMP_NTZ, lt TIMESTAMP, a ARRAY<STRING>, m MAP<STRING, INT>, "
    "st STRUCT<x: INT, y: STRUCT<z: ARRAY<DATE>>>"
)
VALUES = (
    "IF(id % 7 = 0, NULL, id % 2 = 0), CAST(id AS TINYINT), CAST(-id AS SMALLINT), "
    "IF(id % 5 = 0, NULL, CAST(id AS INT)), id, "
    "CASE id WHEN 1 THEN FLOAT('NaN') WHEN 2 THEN FLOAT('-0.0') ELSE CAST(id AS FLOAT) END, "
    "CASE id WHEN 3 THEN DOUBLE('Infinity') WHEN 4 THEN NULL ELSE id / 7D END, "
    "CAST(id AS DECIMAL(9, 2)) / 4, CAST(id AS DECIMAL(38, 10)) * 12345678901234567890, "
    "'ab', concat('v', id), IF(id % 3 = 0, '', concat('ä', id)), CAST(concat('x', id) AS BINARY), "
    "IF(id = 6, DATE'0044-03-15', date_add(DATE'1969-12-30', CAST(id AS INT))), "
    "timestampadd(MICROSECOND, id, TIMESTAMP_NTZ'2026-03-08 02:30:00.999999'), "
    "timestampadd(HOUR, id, TIMESTAMP'2026-03-29 00:30:00 UTC'), "
    "IF(id % 4 = 0, NULL, array('p', NULL, concat('q', id))), "
    "IF(id % 4 = 1, map(), map('k', CAST(id AS INT), 'l', NULL)), "
    "IF(id % 4 = 2, NULL, named_struct('x', IF(id = 9, NULL, CAST(id AS INT)), 'y', "
    "IF(id % 3 = 1, NULL, named_struct('z', array(DATE'2026-01-01', NULL)))))"
)


@pytest.fixture(scope="module")
def tables(module_session: Session) -> Session:
    session = module_session
    for kind, options in {
        "parquet": "",
        "orc": "TBLPROPERTIES ('file.format' = 'orc', 'orc.timestamp-ltz.legacy.type' = 'false')",
        "keyed": "TBLPROPERTIES ('primary-key' = 'i8', 'bucket' = '2', 'write-only' = 'true')",
        "log": "TBLPROPERTIES ('primary-key' = 'i8', 'bucket' = '1', "
        "'changelog-producer' = 'input', 'write-only' = 'true')",
    }.items():
        session.run(f"CREATE TABLE {kind} ({EVERY_TYPE}) {options}")
        session.run(f"INSERT INTO {kind} SELECT {VALUES} FROM range(0, 12, 1, 1)")
        session.run(f"INSERT INTO {kind} SELECT {VALUES} FROM range(8, 14, 1, 1)")
    session.run(
        "CREATE TABLE parts (k BIGINT, p INT, d DATE, v STRING, f DOUBLE, c CHAR(3)) "
        "PARTITIONED BY (p); "
        "INSERT INTO parts SELECT id, id % 3, IF(id % 2 = 0, NULL, date_add(DATE'2026-01-01', "
        "CAST(id AS INT))), 'v' || id, IF(id = 5, DOUBLE('NaN'), -id), 'a' FROM range(60); "
        "INSERT INTO parts VALUES (-7, NULL, NULL, NULL, -0.0, 'zz')"
    )
    session.run(
        "CREATE TABLE marked (k INT, v STRING) "
        "TBLPROPERTIES ('deletion-vectors.enabled' = 'true', 'write-only' = 'true'); "
        "INSERT INTO marked SELECT CAST(id AS INT), 'v' FROM range(0, 50, 1, 1); "
        "DELETE FROM marked WHERE k IN (0, 3, 49)"
    )
    session.run(
        "CREATE TABLE once (k INT NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', 'write-only' = 'true'); "
        "INSERT INTO once SELECT CAST(id AS INT), CAST(-id AS INT) FROM range(30)"
    )
    session.run(
        "CREATE TABLE first (k INT NOT NULL, v INT) TBLPROPERTIES ('primary-key' = 'k', "
        "'bucket' = '1', 'merge-engine' = 'first-row', 'changelog-producer' = 'none'); "
        "INSERT INTO first SELECT CAST(id AS INT), 1 FROM range(9); "
        "INSERT INTO first SELECT CAST(id AS INT), 2 FROM range(5, 12)"
    )
    session.run(
        "CREATE TABLE evolving (k INT, v INT) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        "'data-evolution.enabled' = 'true', 'deletion-vectors.enabled' = 'true'); "
        "INSERT INTO evolving SELECT CAST(id AS INT), 0 FROM range(0, 20, 1, 1); "
        "UPDATE evolving SET v = 1 WHERE k = 4; DELETE FROM evolving WHERE k = 5"
    )
    session.run(
        "CREATE TABLE widened (k INT, v INT); INSERT INTO widened VALUES (1, 5), (2, NULL); "
        "ALTER TABLE widened ALTER COLUMN k TYPE BIGINT; ALTER TABLE widened ADD COLUMN more INT; "
        "INSERT INTO widened VALUES (9999999999, 1, 7)"
    )
    session.run(
        "CREATE TABLE untold (k INT) TBLPROPERTIES ('metadata.stats-mode' = 'none'); "
        "INSERT INTO untold VALUES (1), (2); CREATE TABLE empty (k INT, v STRING)"
    )
    return session


def both(session: Session, query: str) -> pa.Table:
    """The rows of a query, which are the same if Spark reads them."""
    with settings(session, local_rows_max=0):
        expected = session.run(query).to_arrow()
    result = session.run(query).to_arrow()
    assert (result.column_names, result.schema.types) == (
        expected.column_names,
        expected.schema.types,
    )
    assert sorted(map(repr, result.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    return result


@pytest.fixture
def zone(tables: Session, request: pytest.FixtureRequest) -> Iterator[str]:
    key = "spark.sql.session.timeZone"
    before = tables.spark.conf.get(key)
    tables.spark.conf.set(key, request.param)
    yield request.param
    tables.spark.conf.set(key, before)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("zone", "table"),
    sampled(["Asia/Kolkata", "America/New_York"], ["parquet", "orc", "keyed", "log"]),
    indirect=["zone"],
)
def test_small_reads_match_spark_for_every_type(tables: Session, table: str, zone: str) -> None:
    assert both(tables, f"SELECT * FROM {table}").num_rows == (
        14 if table in ("keyed", "log") else 18
    )
    text = "CAST(lt AS STRING), CAST(ts AS STRING), hash(s, f, w, st), st.y.z, isnan(f), -0.0 = f"
    both(tables, f"SELECT {text} FROM {table} WHERE d IS NULL OR d >= 1")
    for view in ("audit_log", "binlog", "ro"):
        if table != "parquet" or view != "binlog":
            both(tables, f"SELECT * FROM {table}${view}")
    both(tables, f"SELECT * FROM {table} VERSION AS OF 1")
    both(tables, f"SELECT * FROM paimon_incremental_query('{table}$audit_log', 1, 2)")


QUERIES = {
    "SELECT s, lt, n, f FROM keyed WHERE i8 = 9": "2 files read here",
    "SELECT s, ts FROM keyed WHERE i8 IN (1, 9, 13, 99) AND s <> 'x'": "read here",
    "SELECT b, d FROM parquet ORDER BY i8 DESC": None,
    "SELECT k FROM parts LIMIT 3": "read here",
    "SELECT k + 1 AS n, * FROM parts WHERE p = 2 LIMIT 2 OFFSET 3": "read here",
    "SELECT * FROM empty": "no snapshot yet",
    "SELECT * FROM parts$snapshots": "metadata",
    "SELECT k FROM marked WHERE k < 6": "read here",
    "SELECT * FROM once WHERE k = 31": "no files",
    "SELECT v FROM once WHERE k = 7 OR k = 8": "read here",
    "SELECT count(*) FROM parts": "from the manifests",
    "SELECT count(*) AS n, max(k) - min(k) + 1, MAX(D) d FROM parts AS q": "from the manifests",
    "SELECT count(1), min(q.d), max(p) FROM parts q WHERE p = 1": "from the manifests",
    "SELECT max(k) FROM parts WHERE p IN (7, 8)": "from the manifests",
    "SELECT count(*), min(d) FROM parts WHERE p IS NULL": "from the manifests",
    "SELECT count(*) FROM marked": "from the manifests",
    "SELECT count(*), min(k), max(v) FROM once": "from the manifests",
    "SELECT count(*) FROM empty": "from the manifests",
    "SELECT max(k) FROM empty": "from the manifests",
    "SELECT count(*) FROM evolving": "from the manifests",
    "SELECT count(*) FROM once WITH ('scan.snapshot-id' = '1')": "from the manifests",
    "SELECT count(*) FROM once$ro": "from the manifests",
    "SELECT count(*) FROM parts$audit_log": "from the manifests",
    "SELECT count(*), max(more) FROM widened": None,
    "SELECT max(k) FROM widened": None,
    "SELECT max(v), min(v) FROM widened": "from the manifests",
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_small_query_runs_no_job_unless_it_sorts_or_aggregates(
    tables: Session, query: str
) -> None:
    session = tables
    told, before = QUERIES[query], jobs(session.spark)
    outcome = session.run(query)
    outcome.to_arrow()
    str(outcome)
    if told is not None:
        assert told in str(session.explain(query))
        assert jobs(session.spark) - before == set()
    if "LIMIT" not in query and "$snapshots" not in query:
        both(session, query)
    elif "$snapshots" not in query:
        assert outcome.to_arrow().num_rows == (3 if "OFFSET" not in query else 2)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM keyed",
        "SELECT count(*) FROM first",
        "SELECT count(*), min(k), max(k) FROM first",
        "SELECT count(*) FROM log$binlog",
        "SELECT min(f), max(f) FROM parts",
        "SELECT min(v), max(c) FROM parts",
        "SELECT max(ts), min(n) FROM parquet",
        "SELECT max(k) FROM marked",
        "SELECT max(k) FROM untold",
        "SELECT min(k) FROM evolving",
        "SELECT count(*) FROM parts WHERE k = 3",
        "SELECT count(*) FROM parts WHERE p = 1 AND v = 'v1'",
        "SELECT count(*) FROM parts WHERE p = 1 OR p = 2",
        "SELECT count(*) FROM parts WHERE p + 1 = 2 AND p = 1",
        "SELECT count(*) FROM parts WHERE 1 = 0",
        "SELECT count(*) FROM parts WHERE p = 1.5",
        "SELECT count(*) FROM parts TABLESAMPLE (100 PERCENT)",
        "SELECT count(*), p FROM parts GROUP BY p",
        "SELECT count(*) FILTER (WHERE k > 3), count(DISTINCT p) FROM parts",
        "SELECT count(*) FROM parts HAVING count(*) > 99",
        "SELECT count(*) OVER () FROM parts",
        "SELECT count(*) FROM parts a, once b",
        "SELECT count(*) FROM parts JOIN once USING (k)",
        "SELECT (SELECT count(*) FROM parts WHERE parts.k = once.k) FROM once",
        "SELECT count(*) FROM (SELECT k FROM parts LIMIT 7)",
        "SELECT sum(k) FROM (SELECT DISTINCT p AS k FROM parts)",
        "SELECT count(*) AS n FROM parts UNION ALL SELECT count(*) FROM once",
        "WITH parts AS (SELECT 1) SELECT count(*) FROM parts",
        "SELECT try_sum(k) FROM parts LIMIT 1",
        "SELECT DISTINCT p FROM parts LIMIT 9",
        "SELECT k FROM parts ORDER BY k LIMIT 2",
        "SELECT 1 AS one FROM parts",
        "SELECT explode(array(1, 2)) FROM once",
        "SELECT count(*) FROM once LATERAL VIEW explode(array(1, 2)) AS e",
    ],
)
def test_counts_and_bounds_missing_in_manifests_are_read(tables: Session, query: str) -> None:
    both(tables, query)


def test_missing_column_is_named_in_error(tables: Session) -> None:
    for query in ("SELECT max(kk) FROM parts", "SELECT kk FROM parts LIMIT 1"):
        with pytest.raises(UnknownNameError, match="kk"):
            tables.run(query)


def test_frames_are_read_and_counted_like_queries(tables: Session) -> None:
    session, before = tables, jobs(tables.spark)
    for name in ("parts", "marked", "once", "evolving", "empty", "parts$audit_log"):
        frame = session.table(name)
        counts = {frame.count(), frame.drop("k").count(), session.table(name, ["k"]).count()}
        assert counts == {rows(session, f"SELECT count(*) FROM {name}")[0][0]}
    assert [each["v"] for each in session.table("once").where("k = 7").collect()] == [-7]
    for name, shown in (("audit_log", 7), ("binlog", [7])):
        logged = session.table(f"parts${name}").select("rowkind", "k").collect()
        assert ("+I", shown) in logged
    assert jobs(session.spark) - before == set()
    assert session.table("keyed").count() == 14
    assert session.table("keyed").orderBy("i8").where("i8 > 4").count() == 9
    assert session.table("parts").where("p = 1").count() == 20
    assert session.table("parts").groupBy("p").count().count() == 4


FIRST_ROWS: Mapping[str, tuple[Callable[[DataFrame], object], int]] = {
    "limit": (lambda t: t.limit(3).collect(), 3),
    "limit of columns": (lambda t: t.select("k", (t.p + 1).alias("z")).limit(2).collect(), 2),
    "limit, a condition, take": (lambda t: t.limit(5).where("k >= 0").take(3), 3),
    "take": (lambda t: t.where("p = 2").take(4), 4),
    "take of a column's rows": (lambda t: t.where((t.p == 2) & (t.p < 3)).take(4), 4),
    "head": (lambda t: [t.drop("v").head()], 1),
    "head of some": (lambda t: t.withColumn("up", F.upper("v")).head(6), 6),
    "first": (lambda t: [t.first()], 1),
    "show": (lambda t: t.show(2), 0),
    "isEmpty": (lambda t: [t.isEmpty()], 1),
}


@pytest.mark.parametrize("name", FIRST_ROWS)
def test_first_rows_of_frame_are_read_without_a_spark_job(tables: Session, name: str) -> None:
    taken, count = FIRST_ROWS[name]
    whole = {row["k"]: row for row in tables.table("parts").collect()}
    with settings(tables, local_rows_max=10):  # of the table's 61
        before = jobs(tables.spark)
        actual = taken(tables.table("parts"))
        assert jobs(tables.spark) - before == set()
    if isinstance(actual, list):
        assert len(actual) == count
        for row in actual:
            if not isinstance(row, bool) and "k" in row:
                assert whole[row["k"]]["p"] == row.asDict().get("p", row.asDict().get("z", 1) - 1)


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (lambda t: len(t.where("k > 55").take(9)), 4),
        (lambda t: len(t.where(F.col("p").isin(1, 2) & (F.col("k") % 2 == 1)).take(60)), 20),
        (lambda t: t.where("p = 1 AND k % 7 = 4").first()["k"], 4),
        (lambda t: t.orderBy(F.desc("k")).first()["k"], 59),
        (lambda t: t.orderBy("k").limit(2).collect()[1]["k"], 0),
        (lambda t: t.limit(20).where("p = 9").isEmpty(), True),
        (lambda t: t.agg(F.count("*").alias("n")).first()["n"], 61),
        (lambda t: t.select(F.count("*").alias("n")).first()["n"], 61),
        (lambda t: t.selectExpr("max(k) AS n").first()["n"], 59),
        (lambda t: t.selectExpr("explode/**/(IF(k = 30, array(1), array()))").head(1)[0][0], 1),
        (lambda t: t.groupBy("p").count().limit(9).count(), 4),
        (lambda t: t.distinct().limit(70).count(), 61),
        (lambda t: t.select("p").distinct().take(9).__len__(), 4),
        (lambda t: t.withColumn("n", F.max("k").over(Window.partitionBy(F.lit(1)))).first().n, 59),
        (lambda t: t.limit(0).count(), 0),
        (lambda t: t.limit(7).limit(5).count() + t.limit(5).limit(7).count(), 10),
        (lambda t: t.limit(70).tail(1).__len__(), 1),
    ],
)
def test_first_rows_after_filter_or_sort_come_from_all_rows(
    tables: Session, taken: Callable[[DataFrame], object], expected: object
) -> None:
    with settings(tables, local_rows_max=70):
        assert taken(tables.table("parts")) == expected
        frame = tables.table("parts")
        frame.first()
        assert frame.limit(100).count() == len(frame.collect()) == 61


def test_reads_beyond_local_limits_are_left_to_spark(tables: Session) -> None:
    session = tables
    session.run(
        "CREATE TABLE wide (k INT, v STRING); "
        "INSERT INTO wide SELECT CAST(id AS INT), repeat('x', 100000) FROM range(0, 200, 1, 1)"
    )
    query = "SELECT k, length(v) FROM wide"
    with settings(session, local_bytes_max=4_000_000):
        before = jobs(session.spark)
        assert len(rows(session, query)) == 200  # 20 MB in memory, some kB in the file
        assert jobs(session.spark) - before
        assert rows(session, "SELECT count(k) FROM wide") == [(200,)]
    with settings(session, local_rows_max=199):
        assert "raw scan" in str(session.explain("SELECT k FROM wide"))
    with settings(session, local_rows_max=200):
        assert "read here" in str(session.explain("SELECT k FROM wide"))


def test_local_read_names_the_damaged_file(tables: Session, module_warehouse: Path) -> None:
    tables.run("CREATE TABLE cut (k INT); INSERT INTO cut VALUES (1)")
    (file,) = module_warehouse.glob("default.db/cut/bucket-*/*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(TableDamagedError, match=file.name):
        tables.run("SELECT * FROM cut").to_arrow()
    assert rows(tables, "SELECT count(*) FROM cut") == [(1,)]  # opens no file
