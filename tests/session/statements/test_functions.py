"""Functions that the catalog keeps, through a coordinator of its own process: what they return, who
sees them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.coordinator.__main__ import main
from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.coordinator.process import Process
from tests.coordinator.rest_server import client_options
from tests.session.coordinated import beside, rest_answer
from tests.session.rows import rows

pytestmark = pytest.mark.spark

BOXES = (
    "CREATE DATABASE shop; USE shop;"
    "CREATE TABLE boxes (side INT, label STRING);"
    "INSERT INTO boxes VALUES (1, 'a'), (2, 'b'), (3, 'c');"
    "CREATE FUNCTION volume(side INT COMMENT 'of a cube') RETURNS INT COMMENT 'of a box' "
    "RETURN side * side * side"
)


@pytest.fixture
def session(process: Process, spark: SparkSession) -> Iterator[Session]:
    with paimon_magics.connect(
        Path(process.warehouse), coordinator=process.address, token=process.token(), spark=spark
    ) as session:
        session.run("DROP DATABASE IF EXISTS shop CASCADE", confirm=True)
        session.run(BOXES)
        yield session


def of_catalog(session: Session, of: str = "") -> list[str]:
    """The catalog's functions in SHOW, which also has temporary ones."""
    names = (row[0] for row in rows(session, f"SHOW USER FUNCTIONS {of}"))
    return [name for name in names if name.startswith("paimon.")]


def refused(
    session: Session, statement: str, error: type[PaimonMagicsError] = StatementError
) -> str:
    """The message and the hint of the error, which leaves the functions as they were."""
    before = of_catalog(session)
    with pytest.raises(error) as caught:
        session.run(statement)
    assert caught.value.hint, caught.value
    assert of_catalog(session) == before
    return f"{caught.value.message} {caught.value.hint}"


def test_function_is_called_by_each_of_its_names(session: Session) -> None:
    for name in ("volume", "shop.volume", "paimon.shop.volume", "`shop`.`volume`", "`shop.volume`"):
        assert rows(session, f"SELECT {name}(side) FROM boxes ORDER BY 1") == [(1,), (8,), (27,)]
    session.run("USE default")
    assert rows(session, "SELECT shop.volume(2) + shop.volume(side => 1)") == [(9,)]
    with pytest.raises(UnknownNameError, match="no function `volume`"):
        session.run("SELECT volume(2)")
    assert session.run("SELECT shop.volume(3)").dataframe.columns == ["shop.volume(3)"]


def test_function_stands_where_expressions_stand(session: Session) -> None:
    assert rows(session, "SELECT label FROM boxes WHERE volume(side) > 8") == [("c",)]
    assert rows(
        session,
        "WITH volume(x) AS (SELECT 5), w AS (SELECT max(volume(side)) AS m FROM boxes) "
        "SELECT x, m, CASE WHEN volume(2) = 8 THEN volume(1) END FROM volume, w",
    ) == [(5, 27, 1)]
    assert "SELECT f(1)" in refused(session, "INSERT INTO boxes VALUES (volume(4), 'd')")
    session.run("CREATE TABLE volume (volume INT); INSERT INTO volume (volume) SELECT volume(4)")
    assert rows(session, "SELECT * FROM volume") == [(64,)]
    session.run("INSERT INTO boxes SELECT volume(side), 'big' FROM boxes WHERE side = 3")
    session.run("UPDATE boxes SET side = volume(2) WHERE volume(side) = 1")
    session.run("DELETE FROM boxes WHERE side = volume(3)")
    session.run(
        "MERGE INTO boxes AS t USING (SELECT volume(2) AS side, 'b' AS label) AS s "
        "ON t.label = s.label WHEN MATCHED THEN UPDATE SET side = volume(s.side)"
    )
    assert rows(session, "SELECT * FROM boxes ORDER BY label") == [(8, "a"), (512, "b"), (3, "c")]
    session.run("CREATE TABLE copy AS SELECT volume(side) AS v FROM boxes WHERE side = 3")
    assert rows(session, "SELECT v FROM copy WHERE v = :v", {"v": 27}) == [(27,)]
    (plan,) = rows(session, "EXPLAIN SELECT volume(side) FROM boxes")
    assert "boxes" in plan[0]


def test_frames_keep_the_function_that_they_were_made_with(session: Session) -> None:
    frame = session.run("SELECT volume(2) AS v").dataframe
    session.run("CREATE OR REPLACE FUNCTION volume(side INT) RETURNS INT RETURN -side")
    assert frame.collect() == [(8,)]
    assert rows(session, "SELECT volume(2)") == [(-2,)]
    session.run("DROP FUNCTION volume")
    assert frame.collect() == [(8,)]
    with pytest.raises(UnknownNameError):
        session.run("SELECT volume(2)")


def test_functions_in_functions_and_views(session: Session) -> None:
    session.run(
        "CREATE FUNCTION twice(x INT, times INT DEFAULT volume(1) + 1) RETURN volume(x) * times;"
        "CREATE VIEW volumes AS SELECT label, twice(side) AS v FROM boxes;"
        "CREATE TEMPORARY FUNCTION thrice(x INT) RETURNS INT RETURN twice(x, 3);"
        "USE default"
    )
    assert rows(session, "SELECT shop.twice(2), shop.twice(2, 5), thrice(1)") == [(16, 40, 3)]
    shown = [line for (line,) in rows(session, "DESCRIBE FUNCTION EXTENDED shop.twice")]
    assert any(line.endswith("times INT DEFAULT shop.volume(1) + 1") for line in shown), shown
    assert rows(session, "SELECT v FROM shop.volumes WHERE label = 'b'") == [(16,)]
    session.run("DROP TEMPORARY FUNCTION thrice")
    session.run("CREATE OR REPLACE FUNCTION shop.volume(side INT) RETURNS INT RETURN 0")
    assert rows(session, "SELECT shop.twice(2), max(v) FROM shop.volumes") == [(0, 0)]
    session.run("DROP FUNCTION shop.volume")
    with pytest.raises(UnknownNameError, match=r"`shop.twice` can't be called.*`shop.volume`"):
        session.run("SELECT shop.twice(2)")


def test_functions_that_call_themselves_are_refused(session: Session) -> None:
    session.run("CREATE FUNCTION twice(x INT) RETURNS INT RETURN volume(x) * 2")
    message = refused(
        session, "CREATE OR REPLACE FUNCTION volume(x INT) RETURNS INT RETURN twice(x)"
    )
    assert "`shop.volume` calls itself" in message
    assert "`shop.volume` → `shop.twice` → `shop.volume`" in message
    message = refused(
        session, "CREATE OR REPLACE FUNCTION volume(x INT) RETURNS INT RETURN volume(x)"
    )
    assert "calls itself" in message
    refused(session, "CREATE FUNCTION again(x INT) RETURNS INT RETURN again(x)")


def test_spark_order_of_names(session: Session) -> None:
    outcome = session.run("CREATE FUNCTION upper(x STRING) RETURNS STRING RETURN 'kept'")
    assert "hides it" in outcome.notes[0]
    assert rows(session, "SELECT upper('a'), shop.upper('a')") == [("A", "kept")]
    session.run("CREATE TEMPORARY FUNCTION volume(x INT) RETURNS INT RETURN 7")
    assert rows(session, "SELECT volume(2), shop.volume(2)") == [(7, 8)]
    session.run("DROP TEMPORARY FUNCTION volume")
    assert rows(session, "SELECT volume(2)") == [(8,)]


def test_show_and_describe(session: Session) -> None:
    assert of_catalog(session) == ["paimon.shop.volume"]
    assert rows(session, "SELECT volume(1)") == [(1,)]
    assert of_catalog(session, "IN shop LIKE 'vol*'") == ["paimon.shop.volume"]
    assert of_catalog(session, "IN default") == []
    assert rows(session, "SHOW SYSTEM FUNCTIONS LIKE 'upper|volume'") == [("upper",)]
    shown = rows(session, "SHOW FUNCTIONS LIKE 'upper|volume'")
    assert shown == [("upper",), ("paimon.shop.volume",)]
    lines = [row[0] for row in rows(session, "DESCRIBE FUNCTION EXTENDED volume")]
    assert lines[:6] == [
        "Function:      shop.volume",
        "Type:          SCALAR",
        "Input:         side INT 'of a cube'",
        "Returns:       INT",
        "Comment:       of a box",
        "Deterministic: true",
    ]
    assert lines[-1] == "Body:          side * side * side"
    assert len(rows(session, "DESC FUNCTION shop.volume")) == 4
    assert "upper" in str(rows(session, "DESCRIBE FUNCTION upper"))


def test_create_drop_and_their_words(session: Session) -> None:
    assert "exists already" in refused(session, "CREATE FUNCTION volume() RETURNS INT RETURN 1")
    again = session.run("CREATE FUNCTION IF NOT EXISTS volume() RETURNS INT RETURN 1")
    assert "exists already" in again.message
    assert rows(session, "SELECT volume(2)") == [(8,)]
    assert "`volume`" in refused(session, "DROP FUNCTION volum", UnknownNameError)
    assert "no function" in session.run("DROP FUNCTION IF EXISTS volum").message
    assert "Did you mean `volume`" in refused(session, "SELECT volum(2)", UnknownNameError)
    assert "Did you mean `volume`" in refused(session, "SELECT shop.volum(2)", UnknownNameError)
    session.run(
        "CREATE FUNCTION pick() RETURNS DOUBLE LANGUAGE SQL NOT DETERMINISTIC RETURN rand()"
    )
    assert 0 <= rows(session, "SELECT pick()")[0][0] < 1
    session.run("CREATE FUNCTION plus(x INT) RETURNS INT RETURN SELECT x + 1")
    assert rows(session, "SELECT plus(2)") == [(3,)]
    session.run("DROP DATABASE shop CASCADE; CREATE DATABASE shop", confirm=True)
    assert of_catalog(session, "IN shop") == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT) RETURN SELECT x", "RETURNS TABLE"),
        ("CREATE FUNCTION f AS 'com.example.F'", "AS with a class"),
        ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ x $$", "LANGUAGE PYTHON"),
        (
            "CREATE FUNCTION f(x INT) RETURNS INT RETURN SELECT max(side) FROM boxes",
            "reads a table",
        ),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN y", "`y`"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN sum(x)", "aggregate"),
        (
            "CREATE FUNCTION f(x INT) RETURNS INT RETURN mine(x)",
            "`mine`, a function of this session",
        ),
        ("CREATE FUNCTION f$x(x INT) RETURNS INT RETURN x", "without `$`"),
        ("CREATE FUNCTION f(x INT) RETURNS INT", "RETURN"),
        ("CREATE FUNCTION nowhere.f(x INT) RETURNS INT RETURN x", "nowhere"),
    ],
)
def test_wrong_functions_are_refused(session: Session, statement: str, expected: str) -> None:
    session.run("CREATE OR REPLACE TEMPORARY FUNCTION mine(x INT) RETURNS INT RETURN x")
    try:
        assert expected in refused(session, statement)
    finally:
        session.run("DROP TEMPORARY FUNCTION mine")


def test_documents_are_those_of_the_connector(session: Session, process: Process) -> None:
    document = rest_answer(process, "GET", "/databases/shop/functions/volume")
    assert document["definitions"] == {"spark": {"type": "sql", "definition": "side * side * side"}}
    (parameter,) = document["inputParams"]
    assert parameter == {"id": 0, "name": "side", "type": "INT", "description": "of a cube"}
    assert document["returnParams"] == [{"id": 0, "name": "volume", "type": "INT"}]
    assert document["deterministic"] is True
    options = document["options"]
    assert options["spark.sql-function.is-query"] == "false"
    assert options["spark.sql-function.contains-sql"] == "true"
    assert options["sqlConfig.spark.sql.ansi.enabled"] == "true"
    body = {
        "name": "root",
        "inputParams": [{"id": 0, "name": "x", "type": "DOUBLE"}],
        "returnParams": [{"id": 0, "name": "root", "type": "DOUBLE"}],
        "deterministic": True,
        "definitions": {"spark": {"type": "sql", "definition": "SELECT sqrt(x)"}},
        "options": {"sqlConfig.spark.sql.ansi.enabled": "false"},
    }
    rest_answer(process, "POST", "/databases/shop/functions", body)
    message = refused(session, "SELECT root(4)", UnsupportedStatementError)
    assert "spark.sql.ansi.enabled = false" in message
    change = {"action": "setOption", "key": "sqlConfig.spark.sql.ansi.enabled", "value": "true"}
    rest_answer(process, "POST", "/databases/shop/functions/root", {"changes": [change]})
    assert rows(session, "SELECT root(4)") == [(2.0,)]


def test_procedures(session: Session, process: Process) -> None:
    call = (
        "CALL sys.create_function(`function` => 'shop.surface', `inputParams` => "
        """'[{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "b", "type": "INT"}]', """
        """`returnParams` => '[{"id": 0, "name": "surface", "type": "BIGINT"}]', """
        "comment => 'a rectangle', options => 'k=v')"
    )
    assert rows(session, call) == [(True,)]
    assert "no definition" in refused(session, "SELECT surface(2, 3)")
    definition = {"type": "sql", "definition": "a * b"}
    add = json.dumps({"action": "addDefinition", "name": "spark", "definition": definition})
    assert rows(session, f"CALL sys.alter_function('surface', '{add}')") == [(True,)]
    assert rows(session, "SELECT surface(2, 3)") == [(6,)]
    assert "updateDefinition" in refused(session, f"CALL sys.alter_function('surface', '{add}')")
    java = json.dumps({"type": "lambda", "definition": "() -> 1", "language": "JAVA"})
    change = f'{{"action": "addDefinition", "name": "spark", "definition": {java}}}'
    assert "lambda" in refused(session, f"CALL sys.alter_function('surface', '{change}')")
    for text in ("x", "", "{}, {}"):
        assert "JSON" in refused(session, f"CALL sys.alter_function('surface', '{text}')")
    refused(session, "CALL sys.drop_function('nothing')", UnknownNameError)
    body = {"name": "doubled", "definitions": {"spark": json.loads(java)}}
    rest_answer(process, "POST", "/databases/shop/functions", body)
    assert "lambda" in refused(session, "SELECT doubled(1)", UnsupportedStatementError)
    assert rows(session, "CALL sys.drop_function('doubled')") == [(True,)]
    assert rows(session, "CALL sys.drop_function(`function` => 'surface')") == [(True,)]
    assert of_catalog(session) == ["paimon.shop.volume"]


def test_other_sessions_and_rest_catalogs_call_it(
    session: Session, process: Process, spark: SparkSession
) -> None:
    with beside(
        spark, warehouse=process.warehouse, coordinator=process.address, token=process.token()
    ) as other:
        assert rows(other, "SELECT shop.volume(2)") == [(8,)]
    options = client_options(process.address, Path(process.warehouse), process.token())
    with beside(spark, catalog=options) as rest:
        rest.run("CREATE FUNCTION shop.plus(x INT) RETURNS INT RETURN shop.volume(x) + 1")
        assert rows(rest, "SELECT shop.plus(2)") == [(9,)]
    assert rows(session, "SELECT plus(1)") == [(2,)]


def test_rights_are_those_of_who_calls(
    session: Session, process: Process, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run("CREATE FUNCTION hidden() RETURNS INT RETURN 1")
    words = ["reader", "--allow=read=shop.volume", "--expires=1h"]
    assert main(["token", "add", *words, f"--state={process.state}"]) == 0
    token = capsys.readouterr().out.strip()
    with beside(spark, coordinator=process.address, token=token) as reader:
        assert rows(reader, "SELECT shop.volume(2)") == [(8,)]
        assert of_catalog(reader, "IN shop") == ["paimon.shop.volume"]
        with pytest.raises(UnknownNameError, match=r"no function `shop\.hidden`"):
            reader.run("SELECT shop.hidden()")
        for statement in (
            "CREATE FUNCTION shop.mine(x INT) RETURNS INT RETURN x",
            "DROP FUNCTION shop.volume",
        ):
            with pytest.raises(SetupError):
                reader.run(statement)
    assert rows(session, "SELECT volume(2), hidden()") == [(8, 1)]


def test_nothing_is_left_in_spark(session: Session, process: Process, spark: SparkSession) -> None:
    connection = {"coordinator": process.address, "token": process.token(), "spark": spark}
    with paimon_magics.connect(Path(process.warehouse), **connection) as other:
        assert rows(other, "SELECT shop.volume(2)") == [(8,)]
        assert rows(session, "SELECT volume(2)") == [(8,)]
    assert rows(session, "SELECT volume(3)") == [(27,)]
    session.close()
    assert "volume" not in str(spark.sql("SHOW USER FUNCTIONS").collect())


def test_without_a_coordinator_they_are_refused_by_name(
    tmp_path: Path, spark: SparkSession
) -> None:
    with beside(spark, warehouse=tmp_path / "alone") as alone:
        alone.run("CREATE DATABASE shop")
        with pytest.raises(UnsupportedStatementError, match=r"`shop.f` can't be kept") as caught:
            alone.run("CREATE FUNCTION shop.f(x INT) RETURNS INT RETURN x")
        assert "CREATE TEMPORARY FUNCTION" in caught.value.hint
        assert alone.spark.sql("SHOW USER FUNCTIONS").collect() == []
        alone.run("CREATE FUNCTION spark_catalog.default.own(x INT) RETURNS INT RETURN x")
        assert rows(alone, "SELECT own(1)") == [(1,)]
        alone.run("DROP FUNCTION spark_catalog.default.own")
