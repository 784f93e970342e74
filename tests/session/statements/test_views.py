"""Views that the catalog keeps, through a coordinator of its own process: what they show, who sees
them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.coordinator.__main__ import main
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.statements.statement import TableName
from tests.coordinator.process import Process
from tests.coordinator.rest_server import client_options
from tests.session.coordinated import beside, rest_answer
from tests.session.rows import rows

pytestmark = pytest.mark.spark

ORDERS = (
    "CREATE DATABASE shop; USE shop;"
    "CREATE TABLE orders (id BIGINT NOT NULL, item STRING, day STRING) PARTITIONED BY (day);"
    "INSERT INTO orders VALUES (1, 'tea', 'a'), (2, 'milk', 'b'), (3, 'tea', 'b');"
)


@pytest.fixture
def session(process: Process, spark: SparkSession) -> Iterator[Session]:
    with paimon_magics.connect(
        Path(process.warehouse), coordinator=process.address, token=process.token(), spark=spark
    ) as session:
        session.run("DROP DATABASE IF EXISTS shop CASCADE", confirm=True)
        session.run(ORDERS)
        yield session


def refused(
    session: Session, statement: str, error: type[PaimonMagicsError] = StatementError
) -> str:
    """The message and the hint of the error, which leaves no view `new` behind."""
    with pytest.raises(error) as caught:
        session.run(statement)
    assert caught.value.hint, caught.value
    assert rows(session, "SHOW VIEWS LIKE 'new'") == []
    return f"{caught.value.message} {caught.value.hint}"


def test_view_is_read_as_a_table(session: Session) -> None:
    session.run("CREATE VIEW teas AS SELECT id, day FROM orders WHERE item = 'tea'")
    assert rows(session, "SELECT * FROM teas ORDER BY id") == [(1, "a"), (3, "b")]
    session.run("INSERT INTO orders VALUES (4, 'tea', 'c')")
    assert rows(session, "SELECT id FROM shop.teas WHERE day = 'c'") == [(4,)]
    joined = "SELECT t.id, o.item FROM teas AS t JOIN orders AS o ON t.id = o.id WHERE o.id > 3"
    assert rows(session, joined) == [(4, "tea")]
    assert rows(session, "SELECT count(*) FROM teas AS a CROSS JOIN teas AS b") == [(9,)]
    assert rows(session, "WITH teas AS (SELECT 1 AS x) SELECT * FROM teas") == [(1,)]
    assert rows(session, "SELECT id FROM orders WHERE id IN (SELECT id FROM teas) AND id < 2") == [
        (1,)
    ]
    assert session.table("teas", columns=["id"], where="day = 'a'").collect() == [(1,)]
    assert session.spark.table("shop.teas").count() == 3
    assert session.spark.sql("SELECT max(id) FROM shop.teas").collect() == [(4,)]
    session.run("CREATE TABLE copy AS SELECT * FROM teas; INSERT INTO copy SELECT * FROM teas")
    assert rows(session, "SELECT count(*) FROM copy") == [(6,)]


def test_view_reads_changes_by_a_function(session: Session) -> None:
    session.run("INSERT INTO orders VALUES (8, 'tea', 'c')")
    session.run("CREATE VIEW newer AS SELECT id FROM paimon_incremental_query('orders', 1, 2)")
    assert rows(session, "SELECT * FROM shop.newer") == [(8,)]


def test_conditions_on_a_view_choose_the_files_of_its_table(session: Session) -> None:
    session.run("CREATE VIEW teas (number, day_of) AS SELECT id, day FROM orders WHERE id > 0")
    (plan,) = rows(session, "EXPLAIN SELECT number FROM teas WHERE day_of = 'b'")
    assert "partitions: 1 file" in plan[0], plan
    assert rows(session, "SELECT number FROM teas WHERE day_of = 'b' ORDER BY 1") == [(2,), (3,)]
    bound = rows(session, "SELECT number FROM teas WHERE day_of = :day", {"day": "a"})
    assert bound == [(1,)]


def test_a_view_keeps_its_columns_and_their_types(session: Session) -> None:
    session.run(
        "CREATE VIEW all_orders AS SELECT * FROM orders;"
        "CREATE VIEW wide AS SELECT o.*, 1 AS one FROM orders AS o;"
        "ALTER TABLE orders ADD COLUMN first INT FIRST;"
        "ALTER TABLE orders ADD COLUMN last INT"
    )
    assert rows(session, "SELECT * FROM all_orders WHERE id = 1") == [(1, "tea", "a")]
    assert rows(session, "SELECT * FROM wide WHERE id = 1") == [(1, "tea", "a", 1)]
    session.run("ALTER TABLE orders DROP COLUMN item")
    with pytest.raises(UnknownNameError, match=r"view `shop.wide` can't be read.*`item`"):
        session.run("SELECT id FROM wide")


def test_names_mean_what_they_meant_where_the_view_was_made(session: Session) -> None:
    session.run(
        "CREATE DATABASE other; CREATE TABLE other.orders (id INT);"
        "CREATE VIEW other.ids AS SELECT id FROM orders;"
        "CREATE VIEW paimon.other.more AS SELECT orders.id FROM paimon.shop.orders;"
        "USE other"
    )
    try:
        assert rows(session, "SELECT count(*) FROM ids") == [(3,)]
        assert rows(session, "SELECT count(*) FROM more") == [(3,)]
        (text,) = rows(session, "SHOW CREATE TABLE ids")
        assert text[0].endswith("AS SELECT id FROM shop.orders")
        session.run("CREATE TEMPORARY VIEW orders AS SELECT 'x' AS id")
        assert rows(session, "SELECT count(*) FROM ids") == [(3,)]
    finally:
        session.run("DROP VIEW orders; USE shop; DROP DATABASE other CASCADE", confirm=True)


def test_views_on_views_and_no_cycle(session: Session) -> None:
    session.run(
        "CREATE VIEW a AS SELECT id FROM orders; CREATE VIEW b AS SELECT id FROM a WHERE id > 1;"
        "CREATE VIEW c AS SELECT count(*) AS n FROM b"
    )
    assert rows(session, "SELECT * FROM c") == [(2,)]
    for statement in ("CREATE OR REPLACE VIEW a AS", "ALTER VIEW a AS"):
        with pytest.raises(UnsupportedStatementError, match=r"`shop\.a` reads itself") as caught:
            session.run(f"{statement} SELECT n AS id FROM c")
        assert caught.value.position is not None
    with pytest.raises(UnsupportedStatementError, match=r"`shop\.a` reads itself"):
        session.run("CREATE OR REPLACE VIEW a AS SELECT id FROM a")
    assert rows(session, "SELECT * FROM c") == [(2,)]
    session.run("DROP VIEW a")
    with pytest.raises(UnknownNameError, match=r"view `shop.b` can't be read.*`a`"):
        session.run("SELECT * FROM c")


def test_a_cycle_that_others_made_is_refused(session: Session, process: Process) -> None:
    session.run("CREATE VIEW a AS SELECT id FROM orders; CREATE VIEW b AS SELECT id FROM a")
    change = {"action": "updateDialect", "dialect": "spark", "query": "SELECT id FROM b"}
    rest_answer(process, "POST", "/databases/shop/views/a", {"changes": [change]})
    with pytest.raises(UnsupportedStatementError, match=r"reads itself: `shop\.a` → `shop\.b`"):
        session.run("SELECT * FROM a")


def test_describe_and_show(session: Session) -> None:
    session.run(
        "CREATE VIEW days (day COMMENT 'the day', n) COMMENT 'by day' "
        "TBLPROPERTIES ('team' = 'red') AS SELECT day, count(*) FROM orders GROUP BY day"
    )
    assert rows(session, "SHOW VIEWS") == [("shop", "days", False)]
    assert rows(session, "SHOW VIEWS IN default") == []
    assert rows(session, "SHOW TABLES LIKE 'd*'") == []
    assert rows(session, "DESCRIBE days") == [("day", "string", "the day"), ("n", "bigint", None)]
    extended = {row[0]: row[1] for row in rows(session, "DESCRIBE EXTENDED days")}
    assert extended["View Text"] == "SELECT day, count(*) FROM shop.orders GROUP BY day"
    assert (extended["Comment"], extended["View Properties"]) == ("by day", "[team=red]")
    assert rows(session, "SHOW COLUMNS IN days") == [("day",), ("n",)]
    assert rows(session, "SHOW TBLPROPERTIES days") == [("team", "red")]
    ((text,),) = rows(session, "SHOW CREATE TABLE days")
    before = rows(session, "SELECT * FROM days ORDER BY day")
    session.run("DROP VIEW days")
    session.run(text)
    assert rows(session, "SELECT * FROM days ORDER BY day") == before == [("a", 1), ("b", 2)]
    assert rows(session, "SHOW CREATE TABLE days") == [(text,)]


def test_alter_view(session: Session) -> None:
    session.run("CREATE VIEW v COMMENT 'old' TBLPROPERTIES ('a' = '1') AS SELECT id FROM orders")
    session.run("ALTER VIEW v SET TBLPROPERTIES ('b' = '2', 'comment' = 'new')")
    session.run("ALTER VIEW v UNSET TBLPROPERTIES ('a')")
    assert rows(session, "SHOW TBLPROPERTIES v") == [("b", "2")]
    session.run("ALTER VIEW v UNSET TBLPROPERTIES IF EXISTS ('a', 'comment')")
    assert "Did you mean `b`" in refused(session, "ALTER VIEW v UNSET TBLPROPERTIES ('bb')")
    session.run("ALTER VIEW v AS SELECT id, item FROM orders WHERE id = 3")
    assert rows(session, "SELECT * FROM v") == [(3, "tea")]
    assert rows(session, "SHOW TBLPROPERTIES v") == [("b", "2")]
    session.run("CREATE VIEW w AS SELECT 1 AS one")
    assert "`shop.w` exists already" in refused(session, "ALTER VIEW v RENAME TO w")
    assert "is a table" in refused(session, "ALTER VIEW v RENAME TO orders")
    session.run("ALTER VIEW v RENAME TO default.u")
    assert rows(session, "SELECT * FROM default.u") == [(3, "tea")]
    assert "no view `shop.v`" in refused(session, "ALTER VIEW v AS SELECT 1 AS x")
    session.run("DROP VIEW default.u; DROP VIEW IF EXISTS v")


def test_create_or_replace_keeps_who_made_it(session: Session, process: Process) -> None:
    session.run("CREATE VIEW v AS SELECT 1 AS x")
    before = rest_answer(process, "GET", "/databases/shop/views/v")
    assert "IF NOT EXISTS" in refused(session, "CREATE VIEW v AS SELECT 2 AS x")
    session.run("CREATE VIEW IF NOT EXISTS v AS SELECT 3 AS x")
    assert rows(session, "SELECT * FROM v") == [(1,)]
    session.run("CREATE OR REPLACE VIEW v AS SELECT 'a' AS y")
    after = rest_answer(process, "GET", "/databases/shop/views/v")
    assert rows(session, "SELECT * FROM v") == [("a",)]
    assert after["id"] == before["id"] and after["createdAt"] == before["createdAt"]
    assert after["schema"]["fields"] == [
        {"id": 0, "name": "y", "type": "STRING NOT NULL"}
    ] or after["schema"]["fields"][0]["type"].startswith("STRING")


def test_engines_see_it_and_their_views_are_read(session: Session, process: Process) -> None:
    session.run("CREATE VIEW v (k) AS SELECT id FROM orders WHERE id = 2")
    schema = rest_answer(process, "GET", "/databases/shop/views/v")["schema"]
    text = "SELECT id FROM shop.orders WHERE id = 2"
    assert (schema["query"], schema["dialects"]) == (text, {"spark": text})
    fields = [{"id": 0, "name": "k", "type": "INT"}]
    for name, dialects in (
        ("of_spark", {"spark": "SELECT id FROM orders WHERE id = 3"}),
        ("of_none", {}),
        ("of_flink", {"flink": "SELECT id FROM orders /*+ OPTIONS() */"}),
    ):
        body = {"fields": fields, "query": "SELECT id FROM orders WHERE id = 1"}
        identifier = {"database": "shop", "object": name}
        view = body | {"dialects": dialects, "comment": None, "options": {}}
        rest_answer(
            process, "POST", "/databases/shop/views", {"identifier": identifier, "schema": view}
        )
    session.run("USE default")
    assert rows(session, "SELECT k FROM shop.of_spark") == [(3,)]
    assert rows(session, "SELECT k FROM shop.of_none") == [(1,)]
    assert session.run("SELECT k FROM shop.of_none").dataframe.dtypes == [("k", "int")]  # type: ignore[union-attr]
    with pytest.raises(UnsupportedStatementError, match="in the dialect `flink` only"):
        session.run("SELECT k FROM shop.of_flink")
    session.run(
        "CALL sys.alter_view_dialect(view => 'shop.of_flink', action => 'add', "
        "query => 'SELECT id FROM orders WHERE id = 2')"
    )
    assert rows(session, "SELECT k FROM shop.of_flink") == [(2,)]
    session.run("CALL sys.alter_view_dialect('shop.of_flink', 'update', 'flink', 'SELECT 1')")
    session.run("CALL sys.alter_view_dialect('shop.of_flink', 'drop', 'flink')")
    stored = rest_answer(process, "GET", "/databases/shop/views/of_flink")["schema"]["dialects"]
    assert stored == {"spark": "SELECT id FROM shop.orders WHERE id = 2"}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("'v', 'added'", "add, update or drop"),
        ("'v', 'add', 'flink'", "needs a `query`"),
        ("'v', 'drop', 'spark', 'SELECT 1'", "takes no `query`"),
        ("'v', 'add', 'spark', 'SELECT 1 AS x'", "exists already|dialect `spark` already"),
        ("'v', 'update', 'flink', 'SELECT 1'", "no text in the dialect `flink`"),
        ("'v', 'update', 'spark', 'SELECT 1, 2'", "gives 2 columns"),
        ("'v', 'update', 'spark', 'SELECT nope FROM orders'", "no column `nope`"),
        ("'v', 'update', 'spark', 'DROP TABLE orders'", "it is no query"),
        ("'orders', 'drop'", "is a table, no view"),
        ("'vv', 'drop'", "no view `shop.vv`"),
    ],
)
def test_wrong_dialect_changes_are_refused(session: Session, call: str, expected: str) -> None:
    session.run("CREATE VIEW v AS SELECT 1 AS x")
    with pytest.raises(StatementError, match=expected):
        session.run(f"CALL sys.alter_view_dialect({call})")
    assert rows(session, "SELECT * FROM v") == [(1,)]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE VIEW new AS SELECT nope FROM orders", "no column `nope`"),
        ("CREATE VIEW new AS SELECT * FROM ordrs", "Did you mean `orders`"),
        ("CREATE VIEW nodb.new AS SELECT 1 AS x", "no database `nodb`"),
        ("CREATE VIEW orders AS SELECT 1 AS x", "is a table"),
        ("CREATE VIEW `new$files` AS SELECT 1 AS x", "`\\$` is for branches"),
        ("CREATE VIEW new AS SELECT * FROM temp", "temporary view"),
        ("CREATE VIEW new AS SELECT * FROM parquet.`/x`", "a file"),
        ("CREATE VIEW new AS SELECT * FROM spark_catalog.default.x", "Spark's own"),
        ("CREATE VIEW new AS SELECT id, id FROM orders", "`id` twice"),
        ("CREATE VIEW new (a) AS SELECT id, item FROM orders", "its query gives 2"),
        ("CREATE VIEW new AS SELECT NULL AS x", "Cast `x`"),
        ("CREATE VIEW new AS SELECT plus_one(id) FROM orders", "can't call `plus_one`"),
    ],
)
def test_wrong_views_are_refused(session: Session, statement: str, expected: str) -> None:
    session.run("CREATE OR REPLACE TEMPORARY VIEW temp AS SELECT 1 AS x")
    session.run(
        "CREATE OR REPLACE TEMPORARY FUNCTION plus_one(x BIGINT) RETURNS BIGINT RETURN x + 1"
    )
    assert rows(session, "SELECT plus_one(id) FROM orders WHERE plus_one(id) = 3") == [(3,)]
    with pytest.raises(StatementError, match=expected) as caught:
        session.run(statement)
    shown = f"{caught.value.message} {caught.value.hint}"
    assert rows(session, "SHOW VIEWS LIKE 'new'") == [], shown
    session.run("DROP VIEW temp")


def test_frames_and_parameters_are_refused(session: Session) -> None:
    with pytest.raises(UnsupportedStatementError, match="a DataFrame of this notebook"):
        session.run("CREATE VIEW v AS SELECT * FROM df", frames={"df": pd.DataFrame({"x": [1]})})
    with pytest.raises(UnsupportedStatementError, match="such as :day"):
        session.run("CREATE VIEW v AS SELECT :day AS day", {"day": "a"})


@pytest.mark.parametrize(
    ("statement", "instead"),
    [
        ("INSERT INTO v VALUES (1)", "Name the table that it reads"),
        ("INSERT OVERWRITE v VALUES (1)", "Name the table that it reads"),
        ("UPDATE v SET id = 2", "Name the table that it reads"),
        ("DELETE FROM v WHERE id = 1", "Name the table that it reads"),
        (
            "MERGE INTO v USING orders AS o ON v.id = o.id WHEN MATCHED THEN DELETE",
            "Name the table",
        ),
        ("TRUNCATE TABLE v", "Name the table that it reads"),
        ("ALTER TABLE v ADD COLUMN x INT", "ALTER VIEW shop.v"),
        ("DROP TABLE v", "DROP VIEW shop.v"),
        ("DROP TABLE IF EXISTS v", "DROP VIEW shop.v"),
        ("CREATE TABLE v (x INT)", "Choose another name"),
        ("CREATE TABLE IF NOT EXISTS v (x INT)", "Choose another name"),
        ("CREATE OR REPLACE TABLE v (x INT)", "Choose another name"),
        ("CALL sys.compact('v')", "Name the table that it reads"),
        ("CALL sys.create_tag('v', 'x')", "Name the table that it reads"),
        ("SHOW PARTITIONS v", "Name the table that it reads"),
        ("DESCRIBE HISTORY v", "Name the table that it reads"),
        ("DESCRIBE v id", "DESCRIBE EXTENDED shop.v"),
        ("ANALYZE TABLE v COMPUTE STATISTICS", "Name the table that it reads"),
        ("COMMENT ON TABLE v IS 'x'", "'comment' = "),
        ("SELECT * FROM v VERSION AS OF 1", "Name them in its query"),
        ("SELECT * FROM v CHANGES FROM VERSION 1", "Name them in its query"),
        ("SELECT * FROM v$snapshots", "Name the table that it reads"),
        ("SELECT * FROM v WITH ('scan.snapshot-id' = '1')", "Name them in its query"),
        ("DROP VIEW orders", "TABLE in place of VIEW"),
    ],
)
def test_what_only_tables_have_is_refused(session: Session, statement: str, instead: str) -> None:
    session.run("CREATE VIEW v AS SELECT id FROM orders")
    with pytest.raises(UnsupportedStatementError, match=r"`shop\.(v|orders)` is a") as caught:
        session.run(statement, confirm=True)
    assert instead in caught.value.hint
    assert rows(session, "SELECT count(*) FROM v") == [(3,)]


def test_unknown_names_name_near_views(session: Session) -> None:
    session.run("CREATE VIEW customers AS SELECT 1 AS x")
    assert "Did you mean `customers`" in refused(session, "SELECT * FROM customer")
    assert "Did you mean `customers`" in refused(session, "DROP VIEW customer")
    session.known_names.tables("shop")
    session.known_names.table(TableName("customers", "shop"))
    assert session.known_names.wait(10)
    assert session.known_names.tables("shop") == ("customers", "orders")


def test_other_sessions_and_a_restart_see_the_same(
    session: Session, process: Process, spark: SparkSession
) -> None:
    session.run("CREATE VIEW v AS SELECT id FROM orders WHERE id > 1")
    with beside(spark, coordinator=process.address, token=process.token()) as other:
        assert rows(other, "SELECT count(*) FROM shop.v") == [(2,)]
        other.run("CREATE OR REPLACE VIEW shop.v AS SELECT id FROM shop.orders")
    process.kill()
    try:
        with pytest.raises(SetupError, match="can't be reached"):
            session.run("SELECT count(*) FROM v")
    finally:
        process.start()
    assert rows(session, "SELECT count(*) FROM v") == [(3,)]


def test_rights_are_those_of_the_reader(
    session: Session, process: Process, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run(
        "CREATE VIEW v AS SELECT id FROM orders; CREATE VIEW hidden AS SELECT 1 AS x;"
        "CREATE VIEW open AS SELECT 1 AS x"
    )
    words = ["ann", "--allow=read=shop.v", "--allow=read=shop.open", "--expires=1h"]
    assert main(["token", "add", *words, f"--state={process.state}"]) == 0
    token = capsys.readouterr().out.strip()
    with beside(spark, coordinator=process.address, token=token) as ann:
        ann.run("USE shop")
        assert rows(ann, "SHOW VIEWS") == [("shop", "open", False), ("shop", "v", False)]
        assert rows(ann, "SELECT * FROM open") == [(1,)]
        with pytest.raises(UnknownNameError, match=r"view `shop.v` can't be read.*`orders`"):
            ann.run("SELECT * FROM v")
        with pytest.raises(UnknownNameError, match="no table `hidden`"):
            ann.run("SELECT * FROM hidden")
        with pytest.raises(SetupError):
            ann.run("CREATE OR REPLACE VIEW open AS SELECT 2 AS x")
        with pytest.raises(SetupError):
            ann.run("DROP VIEW open")
    assert rows(session, "SELECT * FROM open") == [(1,)]


def test_through_a_rest_catalog(session: Session, process: Process, spark: SparkSession) -> None:
    session.run("CREATE VIEW v AS SELECT id FROM orders WHERE id = 1")
    options = client_options(process.address, Path(process.warehouse), process.token())
    with beside(spark, catalog=options) as other:
        other.run("USE shop")
        assert rows(other, "SELECT * FROM v") == [(1,)]
        other.run("CREATE VIEW w AS SELECT id + 1 AS next FROM v")
        other.run("ALTER VIEW w RENAME TO u; ALTER VIEW u SET TBLPROPERTIES ('a' = 'b')")
        assert rows(other, "SHOW VIEWS") == [("shop", "u", False), ("shop", "v", False)]
        other.run("CREATE OR REPLACE VIEW u AS SELECT 7 AS x; DROP VIEW v")
        with pytest.raises(StatementError, match="exists already"):
            other.run("CREATE VIEW u AS SELECT 1 AS x")
    assert rows(session, "SELECT * FROM u") == [(7,)]
    assert rows(session, "SHOW VIEWS") == [("shop", "u", False)]


def test_without_a_coordinator_they_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, session: Session, process: Process
) -> None:
    session.run("CREATE VIEW v AS SELECT id FROM orders")
    with beside(spark, warehouse=process.warehouse) as alone:
        with pytest.raises(UnknownNameError) as caught:
            alone.run("SELECT * FROM shop.v")
        assert "coordinator" in caught.value.hint
        for statement in ("CREATE VIEW shop.w AS SELECT id FROM shop.orders", "DROP VIEW shop.v"):
            with pytest.raises(UnsupportedStatementError, match="coordinator's store") as refusal:
                alone.run(statement)
            assert "embedded" in refusal.value.hint
        alone.run("CREATE VIEW spark_only AS SELECT 1 AS x")
        assert rows(alone, "SELECT * FROM spark_only") == [(1,)]
        alone.run("DROP VIEW spark_only")
    with pytest.raises(InvalidTableError, match="is a table"):
        session.run("CREATE OR REPLACE VIEW orders AS SELECT 1 AS x")
    with pytest.raises(InvalidValueError, match="names 2 columns"):
        session.run("CREATE OR REPLACE VIEW v (a, b) AS SELECT 1 AS x")
