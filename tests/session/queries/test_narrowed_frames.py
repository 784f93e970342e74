"""What is done with the frame of a table decides what is read of it, and never changes its rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, StatementError, UnknownNameError
from paimon_magics.statements.statement import TableName
from tests.session.queries.frame_steps import CREATE, INSERT, STEPS, Steps
from tests.session.rows import rows

pytestmark = pytest.mark.spark

# Spark and its tasks read all files, however few they are.
SETTINGS = {"local_rows_max": 0}

_READ = re.compile(r"MapInArrow _ReadTasks\(.*?\)#\d+, \[(.*?)\], ")


@pytest.fixture(scope="module")
def tables(module_session: Session) -> Session:
    """The session with the table `kept`, and with `pruned`: the same, but without the files of
    other partitions than 1."""
    for name in ("kept", "pruned"):
        module_session.run(CREATE.replace("kept", name))
        for _ in range(2):
            module_session.run(INSERT.replace("kept", name))
    folder = Path(module_session.catalog.load(TableName("pruned", "default")).location)
    for file in folder.glob("p=[023]/*/*.parquet"):
        file.unlink()
    return module_session


def in_order(frame: DataFrame) -> list[str]:
    return sorted(str(tuple(row)) for row in frame.collect())


@pytest.mark.parametrize("name", STEPS)
def test_frame_steps_return_the_rows_of_the_query(tables: Session, name: str) -> None:
    steps = STEPS[name]
    expected = sorted(map(str, rows(tables, steps.sql)))
    assert in_order(steps.made(tables.table("kept"))) == expected
    if steps.prunes:
        assert in_order(steps.made(tables.table("pruned"))) == expected


@pytest.mark.parametrize("name", [name for name, each in STEPS.items() if each.columns])
def test_unused_columns_are_not_read(
    tables: Session, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read = columns_read(STEPS[name], tables, capsys)
    assert read and read <= set(re.findall(r"we ird|\w+", STEPS[name].columns or ""))


def columns_read(steps: Steps, tables: Session, capsys: pytest.CaptureFixture[str]) -> set[str]:
    steps.made(tables.table("kept")).explain()
    plan = capsys.readouterr().out
    return {
        re.sub(r"#\d+L?$", "", column)
        for each in _READ.findall(plan)
        for column in each.split(", ")
    }


def test_frame_count_returns_number_of_rows(tables: Session) -> None:
    assert tables.table("kept").count() == 200
    assert tables.table("pruned").where("p = 1").count() == 50


def test_cached_frames_stay_cached_and_return_their_rows(tables: Session) -> None:
    frame = tables.table("pruned").where("p = 1").select("k", "a")
    kept = frame.cache()
    assert kept.is_cached and frame.count() == kept.count() == 50
    assert frame.where("a > 2").agg({"k": "count"}).collect()[0][0] > 0
    kept.unpersist()
    whole = tables.table("kept")
    assert whole.cache() is whole and whole.select("k").count() == 200
    whole.unpersist()


def test_frame_reads_the_snapshot_of_its_creation(tables: Session) -> None:
    tables.run("CREATE TABLE growing (k BIGINT, p INT) TBLPROPERTIES ('primary-key' = 'k')")
    tables.run("INSERT INTO growing VALUES (1, 1), (2, 2)")
    frame = tables.table("growing")
    chosen = tables.table("growing", columns=["k"], where="p > 0")
    tables.run("INSERT INTO growing VALUES (3, 1)")
    assert in_order(frame.where("p = 1").select("k")) == ["(1,)"]
    assert chosen.count() == 2 and in_order(chosen.select("k")) == ["(1,)", "(2,)"]
    assert tables.table("growing").count() == 3


def test_invalid_frame_step_raises_sparks_error(tables: Session) -> None:
    frame = tables.table("kept")
    with pytest.raises(PySparkException, match="nope"):
        frame.select("nope")
    other = tables.table("pruned").select("k")
    with pytest.raises(PySparkException):
        frame.where(other.k == 1).collect()


def test_self_join_needs_aliases_for_ambiguous_columns(
    tables: Session,
) -> None:
    first, second = tables.table("kept").where("p = 1"), tables.table("kept").select("k", "a")
    actual = first.alias("x").join(second.alias("y"), F.expr("x.k = y.k")).selectExpr("x.k", "y.a")
    expected = rows(tables, "SELECT k, a FROM kept WHERE p = 1")
    assert in_order(actual) == sorted(map(str, expected))
    queried = tables.run("SELECT k, b FROM kept WHERE k < 9").dataframe
    for left, right in ((first, second), (second, first), (first, queried), (queried, first)):
        with pytest.raises(PySparkException, match="ambiguous"):
            left.join(right, left.k > right.k).select("k").collect()


def test_views_files_and_tables_made_of_frame_have_its_rows(
    tables: Session, tmp_path: Path
) -> None:
    frame = tables.table("pruned").where("p = 1").select("k", "p")
    frame.createOrReplaceTempView("narrow")
    assert rows(tables, "SELECT count(*) FROM narrow WHERE p = 1") == [(50,)]
    frame.write.parquet(str(tmp_path / "written"))
    assert tables.spark.read.parquet(str(tmp_path / "written")).count() == 50
    assert rows(tables, "SELECT count(*) FROM f WHERE p = 1", frames={"f": frame}) == [(50,)]
    tables.write(frame, "copied", create=True)
    assert rows(tables, "SELECT count(*) FROM copied") == [(50,)]


def test_table_call_selects_columns_and_rows(tables: Session) -> None:
    frame = tables.table("pruned", columns=["C", "k"], where="p = 1 AND c = 'v 5' -- fives")
    assert frame.columns == ["c", "k"]
    expected = rows(tables, "SELECT c, k FROM kept WHERE p = 1 AND c = 'v 5'")
    assert in_order(frame) == sorted(map(str, expected))
    assert in_order(frame.select("c").distinct()) == ["('v 5',)"]
    assert tables.table("pruned", where="p = 1").columns == tables.table("kept").columns
    files = tables.table("kept$files", columns=["file_path"], where="record_count > 0")
    assert files.columns == ["file_path"] and files.count() > 0


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"columns": "k"}, InvalidValueError, "not a list of columns' names"),
        ({"columns": []}, InvalidValueError, "an empty list, not a list of columns' names"),
        ({"columns": ["k", 3]}, InvalidValueError, "a list with 3 in it, not a list of"),
        ({"columns": ["k", "K"]}, InvalidValueError, "names `k` twice"),
        ({"columns": ["nope"]}, UnknownNameError, "`default.kept` has no column `nope`"),
        ({"where": " "}, InvalidValueError, "not a condition"),
        ({"where": ["p = 1"]}, InvalidValueError, "call .where(…) on the frame"),
        ({"where": "nope = 1"}, UnknownNameError, "no column `nope`"),
        ({"where": "p = "}, StatementError, "Syntax error"),
        ({"where": "p"}, StatementError, "p"),
    ],
)
def test_table_call_refuses_invalid_columns_or_condition(
    tables: Session, given: dict[str, object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as raised:
        tables.table("kept", **given)
    assert told in str(raised.value)


@pytest.mark.soak
@pytest.mark.slow
def test_frame_steps_return_the_same_rows_on_spark_connect(tmp_path: Path) -> None:
    script = Path(__file__).with_name("frames_on_connect.py")
    command = [sys.executable, str(script), str(tmp_path)]
    # The server starts its tasks by this Python, not by the first of the path.
    env = os.environ | {"PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, env=env)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


VIEWS = {
    "everything": "SELECT * FROM pruned",
    "columns": "SELECT k, a, c, p FROM pruned",
    "rows": "SELECT p, a, k FROM pruned VERSION AS OF 2 WHERE a >= 0 -- all",
    "names": "SELECT p AS p, x.k k, upper(c) AS c, x.a FROM pruned AS x WHERE x.k IN (k, a)",
    "expressions": "SELECT k, a + 0 AS a, IF(a > 3, b, 0D) AS z, pruned.p FROM pruned",
}


@pytest.mark.parametrize("name", VIEWS)
def test_query_of_view_reads_only_used_columns(
    tables: Session, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.run(f"CREATE OR REPLACE TEMPORARY VIEW seen AS {VIEWS[name]}")
    query = "SELECT v.a FROM seen AS v WHERE v.p = 1 AND k > 5"
    assert sorted(rows(tables, query)) == sorted(rows(tables, query.replace("seen", "kept")))
    frame = tables.run(query).dataframe
    assert frame is not None
    frame.explain()
    read = set(re.findall(r"(\w+)#", "".join(_READ.findall(capsys.readouterr().out))))
    assert read == {"a", "k", "p"}


def test_view_column_list_renames_columns(
    tables: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    view = "CREATE OR REPLACE TEMPORARY VIEW named (part, `no`, sum) AS SELECT p, k, a + b"
    tables.run(f"{view} FROM pruned WHERE a > 2")
    query = "SELECT max(sum), count(*) FROM named WHERE part = 1 AND no > 5"
    expected = "SELECT max(a + b), count(*) FROM kept WHERE p = 1 AND k > 5 AND a > 2"
    assert rows(tables, query) == rows(tables, expected)
    frame = tables.run("SELECT part FROM named WHERE part = 1 AND sum > 3").dataframe
    assert frame is not None
    frame.explain()
    read = set(re.findall(r"(\w+)#", "".join(_READ.findall(capsys.readouterr().out))))
    assert read == {"a", "b", "p"}
    tables.run(f"{view} FROM kept ORDER BY k LIMIT 3")
    assert rows(tables, "SELECT count(sum) FROM named WHERE no >= 0") == [(3,)]
    with pytest.raises(InvalidValueError, match="names 3 columns, and its query gives 2"):
        tables.run(view.replace(", a + b", " FROM kept"))


def test_replaced_or_complex_view_is_read_by_spark(tables: Session) -> None:
    tables.run("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM kept WHERE p = 1")
    tables.spark.range(3).selectExpr("id AS k", "1 AS p").createOrReplaceTempView("seen")
    assert rows(tables, "SELECT count(*) FROM seen WHERE p = 1") == [(3,)]
    for query, expected in (
        ("SELECT max(k) AS k, p FROM kept GROUP BY p", 1),
        ("SELECT k, row_number() OVER (ORDER BY k) AS p FROM kept", 1),
        ("SELECT k, p FROM kept ORDER BY k LIMIT 3", 1),
        ("SELECT k, p + 1 AS p FROM kept", 50),
        ("SELECT DISTINCT k, p FROM kept", 50),
        ("SELECT count(k) AS k, 1 AS p FROM kept", 1),
        ("SELECT p AS z, z + 0 AS y, k, y AS p FROM kept", 50),
        ("SELECT explode(array(k, k, k)) AS k, p FROM kept", 150),
    ):
        tables.run(f"CREATE OR REPLACE TEMPORARY VIEW seen AS {query}")
        assert rows(tables, "SELECT count(k) FROM seen WHERE p = 1") == [(expected,)], query
    tables.run("CREATE TEMPORARY VIEW dropped AS SELECT k FROM kept; DROP VIEW dropped")
    with pytest.raises(UnknownNameError, match="dropped"):
        tables.run("SELECT * FROM dropped")
