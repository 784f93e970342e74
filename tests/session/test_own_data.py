"""From one's own data: tables made of frames, frames and files that queries name."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

NOON = datetime.datetime(2026, 3, 29, 12, 30, 15, 123456)
PANDAS = pd.DataFrame(
    {
        "text": ["a", None],
        "category": pd.Categorical(["x", "y"]),
        "big": np.array([2**64 - 1, 1], dtype="uint64"),
        "small": np.array([255, 1], dtype="uint8"),
        "whole": pd.array([2**63 - 1, None], dtype="Int64"),
        "yes": pd.array([True, None], dtype="boolean"),
        "share": [1.5, np.nan],
        "at": pd.to_datetime([NOON, None]),
        "moment": pd.to_datetime([NOON, None]).tz_localize("Europe/Berlin"),
        "day": [NOON.date(), None],
        "price": [decimal.Decimal("1.25"), None],
        "nothing": [None, None],
        "list": [[1, 2], None],
        "time": [datetime.time(1, 2, 3, 4000), None],
        "bytes": [b"\x00\xff", None],
    },
)
TYPES = {
    "text": "string",
    "category": "string",
    "big": "decimal(20,0)",
    "small": "smallint",
    "whole": "bigint",
    "yes": "boolean",
    "share": "double",
    "at": "timestamp_ntz",
    "moment": "timestamp",
    "day": "date",
    "price": "decimal(3,2)",
    "nothing": "string",
    "list": "array<bigint>",
    "time": "int",
    "bytes": "binary",
}


@pytest.fixture(scope="module")
def session(module_session: Session) -> Session:
    module_session.run("CREATE TABLE taken (id INT); INSERT INTO taken VALUES (1)")
    return module_session


def test_table_created_from_pandas_frame_keeps_all_values(session: Session) -> None:
    outcome = session.write(PANDAS, "of_pandas", create=True)
    assert outcome.kind == "CREATE TABLE" and outcome.rows_written == 2
    assert outcome.notes == ("Column `nothing` has no values; it became a STRING.",)
    frame = session.table("of_pandas")
    assert {each.name: each.dataType.simpleString() for each in frame.schema} == TYPES
    actual = session.run("SELECT * FROM of_pandas WHERE text = 'a'").to_arrow().to_pylist()[0]
    assert actual["big"] == 2**64 - 1 and actual["small"] == 255 and actual["whole"] == 2**63 - 1
    assert actual["at"] == NOON
    assert actual["moment"] == pd.Timestamp(NOON, tz="Europe/Berlin")
    assert actual["day"] == NOON.date() and actual["price"] == decimal.Decimal("1.25")
    assert actual["list"] == [1, 2] and actual["bytes"] == b"\x00\xff"
    missing = session.run("SELECT * FROM of_pandas WHERE text IS NULL").to_arrow().to_pylist()[0]
    assert [name for name in ("share", "at", "moment", "list") if missing[name] is not None] == []
    assert "TIME" in str(session.run("SHOW CREATE TABLE of_pandas"))


def test_frames_of_every_kind_become_tables(session: Session) -> None:
    given = {
        "polars": pl.DataFrame({"id": [1, 2]}, schema={"id": pl.UInt32}),
        "reader": pa.table({"id": [1, 2]}).to_reader(),
        "spark": session.spark.range(1, 3),
        "outcome": session.run("VALUES (1), (2) AS t(id)"),
        "dictionaries": [{"id": 1}, {"id": 2, "v": "late"}],
    }
    for name, frame in given.items():
        session.write(frame, f"of_{name}", create=True)
        assert rows(session, f"SELECT id FROM of_{name} ORDER BY id") == [(1,), (2,)], name
    assert rows(session, "SELECT v FROM of_dictionaries ORDER BY id") == [(None,), ("late",)]


def test_write_creates_table_with_keys_partitions_and_options(session: Session) -> None:
    frame = pd.DataFrame({"id": [1, 2], "day": ["mon", "tue"], "v": ["a", "b"]})
    said = {"primary_key": ["day", "id"], "partition_by": "day", "options": {"bucket": 1}}
    session.write(frame, "keyed", create=True, **said)
    text = str(session.run("SHOW CREATE TABLE keyed"))
    assert "PARTITIONED BY (`day`)" in text and "'primary-key' = 'day,id'" in text
    assert "`id` BIGINT NOT NULL" in text
    # A cell that is run again says what becomes of the rows.
    with pytest.raises(StatementError, match="exists already") as raised:
        session.write(frame, "keyed", create=True, **said)
    assert "mode='overwrite'" in raised.value.hint
    session.write(frame, "keyed", mode="append", create=True, **said)
    session.write(frame, "keyed", "overwrite", create=True, **said)
    assert rows(session, "SELECT id, v FROM keyed ORDER BY id") == [(1, "a"), (2, "b")]
    for wrong in ({"primary_key": "id"}, {"partition_by": []}, {"options": {"bucket": 2}}):
        with pytest.raises(InvalidTableError, match="keyed` exists with"):
            session.write(frame, "keyed", "append", create=True, **wrong)


@pytest.mark.parametrize(
    ("frame", "said", "error", "message"),
    [
        (
            pd.DataFrame({"id": [1, None]}, dtype="Int64"),
            {"primary_key": "id"},
            InvalidValueError,
            "Column `id` is NOT NULL",
        ),
        (pd.DataFrame({"id": [1]}), {"primary_key": "no"}, StatementError, "no"),
        (pd.DataFrame({"id": [1]}), {"options": {"buckets": 2}}, StatementError, "buckets"),
        (
            pd.DataFrame({"id": [1, "two"]}),
            {},
            InvalidValueError,
            r"`id` .* int \(row 1: 1\), str \(row 2: 'two'\)",
        ),
        (pd.DataFrame({"d": pd.to_timedelta([1], "s")}), {}, InvalidValueError, "`d` .*duration"),
        (
            pd.DataFrame({"p": pd.period_range("2026", periods=1, freq="M")}),
            {},
            InvalidValueError,
            "`p` .*period",
        ),
        (
            pd.DataFrame({"at": pd.to_datetime(["2026-01-01 00:00:00.123456789"])}),
            {},
            InvalidValueError,
            "`at` .*microseconds would cut",
        ),
        (
            pd.DataFrame({("a", "b"): [1]}),
            {},
            InvalidValueError,
            "frame have several levels",
        ),
        (pd.Series([1]), {}, InvalidValueError, "A Series can't be written"),
        ([1, 2], {}, InvalidValueError, "unless it holds dictionaries"),
        (pd.DataFrame(), {}, InvalidValueError, "has no columns"),
        (pd.DataFrame({"a": [1 + 2j]}), {}, InvalidValueError, "`a` is of the type complex128"),
        (pl.DataFrame({"a": [object()]}), {}, InvalidValueError, "`a` is of the type Object"),
        (pd.DataFrame({"id": [1]}), {"primary_key": 5}, InvalidValueError, "`primary_key` is 5"),
    ],
)
def test_invalid_table_definition_is_refused_and_creates_no_table(
    session: Session, frame: object, said: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        session.write(frame, "never", create=True, **said)
    assert not session.catalog.table_exists(paimon_magics_name("never"))


def paimon_magics_name(name: str) -> Any:
    from paimon_magics.statements.statement import TableName

    return TableName(name, "default")


def test_values_without_a_type_fit_every_column(session: Session) -> None:
    session.run(
        "CREATE TABLE lists (id BIGINT, arr ARRAY<STRUCT<x: INT, y: STRING>>, "
        "st STRUCT<a: ARRAY<DATE>>, m MAP<STRING, INT>)"
    )
    session.write([{"id": 1, "arr": [], "st": {"a": []}, "m": None}], "lists")
    session.write(pd.DataFrame({"id": [2], "arr": [[]]}), "lists")
    typeless = pa.table({"id": [3], "arr": pa.array([[]], pa.list_(pa.null()))})
    session.write(typeless.to_reader(), "lists")
    merge = session.merge([{"id": 1, "arr": [], "st": None, "m": None}], "lists", on="id")
    assert merge.when_matched_update().run().rows_updated == 1
    expected = [(1, [], None, None), (2, [], None, None), (3, [], None, None)]
    assert rows(session, "SELECT * FROM lists ORDER BY id") == expected
    session.write([{"id": 4, "arr": []}], "void_rows", create=True)
    assert rows(session, "SELECT * FROM void_rows") == [(4, [])]


def test_names_of_columns_may_have_dots(session: Session) -> None:
    # pandas names a second column `amount` so.
    frame = pd.DataFrame({"amount": [1], "amount.1": [2]})
    session.write(frame, "dots", create=True)
    session.run("INSERT INTO dots SELECT `amount.1`, amount + 2 FROM dots")
    assert rows(session, "SELECT `amount.1`, amount FROM dots ORDER BY 1") == [(2, 1), (3, 2)]
    keyed = {"primary_key": "amount.1", "options": {"bucket": 2}}
    session.write(frame, "keyed_dots", create=True, **keyed)
    assert rows(session, "SELECT `amount.1` FROM keyed_dots") == [(2,)]


def test_primary_key_is_refused_unless_table_is_created(session: Session) -> None:
    with pytest.raises(InvalidValueError, match="for a new table only"):
        session.write(PANDAS, "taken", primary_key="id")


def test_write_notes_the_unwritten_named_index(session: Session) -> None:
    frame = pd.DataFrame({"v": [1]}, index=pd.Index([7], name="id"))
    notes = session.write(frame, "of_indexed", create=True).notes
    assert notes == (
        "The frame's index `id` was not written; frame.reset_index() makes a column of it.",
    )
    assert session.write(frame, "of_indexed").notes == notes


def test_query_reads_frames_of_pandas_polars_arrow_and_spark(session: Session) -> None:
    frame = pd.DataFrame({"id": range(1234), "v": "x"})
    actual = session.run("SELECT count(*) AS n FROM df", frames={"df": frame})
    assert actual.to_arrow()["n"].to_pylist() == [1234]
    assert actual.notes == ("`df` is Python's variable, a pandas frame of 1,234 rows.",)
    others = {"p": pl.DataFrame({"id": [2]}), "a": pa.table({"id": [2]})}
    others["s"] = session.spark.range(2, 3)
    query = "SELECT id FROM df JOIN p USING (id) JOIN a USING (id) JOIN s USING (id)"
    assert rows(session, query, frames={"df": frame, **others}) == [(2,)]
    assert rows(
        session, "SELECT max(x.id) FROM df x JOIN df y ON x.id = y.id", frames={"df": frame}
    ) == [(1233,)]
    outcome = session.run(
        "CREATE TABLE of_query AS SELECT id FROM df LIMIT 3", frames={"df": frame}
    )
    assert outcome.rows_written == 3 and "pandas frame" in str(outcome)
    session.run("INSERT INTO of_query SELECT 100 + id FROM p", frames=others)
    assert rows(session, "SELECT max(id) FROM of_query") == [(102,)]
    plan = str(session.explain("SELECT * FROM df", frames={"df": frame}))
    assert "df: Python's variable, a pandas frame of 1,234 rows" in plan


def test_a_frame_never_hides_a_table_view_or_common_table(session: Session) -> None:
    frame = pd.DataFrame({"id": [9]})
    actual = session.run("SELECT id FROM taken", frames={"taken": frame})
    assert actual.to_arrow()["id"].to_pylist() == [1]
    assert actual.notes == (
        "`taken` is Paimon's table; Python's variable of that name, a pandas frame of 1 row, is "
        "not read.",
    )
    session.run("CREATE OR REPLACE TEMPORARY VIEW shown AS SELECT 5 AS id")
    assert rows(session, "SELECT id FROM shown", frames={"shown": frame}) == [(5,)]
    session.spark.catalog.dropTempView("shown")
    assert rows(session, "WITH f AS (SELECT 6 AS id) SELECT id FROM f", frames={"f": frame}) == [
        (6,)
    ]
    with pytest.raises(UnknownNameError):
        session.run("SELECT id FROM shop.taken", frames={"taken": frame})


def test_unknown_or_invalid_frame_names_are_refused(session: Session) -> None:
    with pytest.raises(UnknownNameError, match="numbers"):
        session.run("SELECT * FROM numbers", frames={"numbers": [1, 2]})
    with pytest.raises(UnknownNameError) as raised:
        session.run("SELECT * FROM df")
    assert "frames={'df': …}" in raised.value.hint
    with pytest.raises(UnknownNameError) as raised:
        session.run("SELECT * FROM prizes", frames={"prices": PANDAS})
    assert raised.value.hint.startswith("Did you mean `prices`?")
    with pytest.raises(UnsupportedStatementError, match="no snapshots"):
        session.run("SELECT * FROM df VERSION AS OF 1", frames={"df": PANDAS})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not the one that Spark was started in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my sales.csv").write_text("id,price,day\n1,9.5,2026-11-20\n2,,2026-11-21\n")
    (tmp_path / "list.json").write_text('[\n {"id": 1},\n {"id": 2}\n]\n')
    (tmp_path / "lines.json").write_text('{"id": 1}\n{"id": 3}\n')
    pd.DataFrame({"id": [4]}).to_parquet(tmp_path / "part[1].parquet")
    return tmp_path


def test_csv_file_gets_names_and_types_from_its_content(session: Session, folder: Path) -> None:
    actual = session.run("SELECT * FROM csv.`my sales.csv` WHERE price IS NOT NULL")
    assert actual.dataframe is not None
    assert dict(actual.dataframe.dtypes) == {"id": "int", "price": "double", "day": "date"}
    assert rows(session, "SELECT id FROM csv.`my*.csv` ORDER BY id") == [(1,), (2,)]
    (note,) = actual.notes
    assert note.startswith("`my sales.csv` was read with names from its first line and types")
    plain = session.run(
        "SELECT * FROM csv.`my sales.csv` WITH ('header' = 'false', 'inferSchema' = 'false') AS s"
    )
    assert plain.to_arrow().num_rows == 3 and plain.notes == ()
    (folder / "quotes.csv").write_text('id,text\n1,"one\n""two"", three"\n2,"x"\n')
    quoted = session.run("SELECT id, text FROM csv.`quotes.csv`")
    assert quoted.to_arrow()["text"].to_pylist() == ['one\n"two", three', "x"]
    assert "line breaks" in quoted.notes[1]
    (folder / "odd[1].csv").write_text('id,text\n1,"one\ntwo"\n')
    (folder / "odd1.csv").write_text("other,names\n1,2\n")  # what a pattern would match
    with pytest.raises(InvalidValueError, match="Spark can't read such a file") as refusal:
        session.run("SELECT * FROM csv.`odd[1].csv`")
    assert "odd[1].csv" in refusal.value.message and "Rename" in refusal.value.hint
    for name in ("of{a,b}.csv", "back\\slash.csv", "one[1]*.csv"):
        (folder / name).write_text("id\n7\n")
        assert rows(session, f"SELECT id FROM csv.`{name}`") == [(7,)]
    with pytest.raises(UnknownNameError) as raised:
        session.run("SELECT * FROM `quotes.csv`")
    assert "csv.`quotes.csv`" in raised.value.hint
    (folder / "semicolons.csv").write_text("a;b\n1;2\n")
    assert "('sep' = ';')" in session.run("SELECT * FROM csv.`semicolons.csv`").notes[1]
    session.run(f"CREATE TABLE sales AS SELECT * FROM csv.`{folder}/my sales.csv`")
    assert rows(session, "SELECT sum(id) FROM sales") == [(3,)]


def test_json_and_parquet_files_are_read_from_current_folder(
    session: Session, folder: Path
) -> None:
    assert rows(session, "SELECT id FROM json.`list.json` ORDER BY id") == [(1,), (2,)]
    assert rows(session, "SELECT id FROM json.`lines.json` ORDER BY id") == [(1,), (3,)]
    (folder / "pretty.json").write_text('{\n  "id": 5,\n  "v": {"x": 1}\n}\n')
    assert rows(session, "SELECT count(*) FROM json.`pretty.json`") == [(1,)]
    assert rows(session, "SELECT id, v.x FROM json.`pretty.json`") == [(5, 1)]
    (folder / "two.json").write_text('{\n  "id": 5\n}\n{\n  "id": 6\n}\n')
    with pytest.raises(InvalidValueError, match="several JSON values"):
        session.run("SELECT count(*) FROM json.`two.json`")
    assert rows(session, "SELECT id FROM parquet.`part[1].parquet`") == [(4,)]
    assert rows(session, f"SELECT p.id FROM parquet.`file://{folder}/part*.parquet` p") == [(4,)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "orc", "text"])
def test_missing_file_error_suggests_the_nearest_name(
    session: Session, folder: Path, kind: str
) -> None:
    with pytest.raises(UnknownNameError, match=r"no file or folder `my sale\.csv`") as raised:
        session.run(f"SELECT * FROM {kind}.`my sale.csv`")
    assert f"begin at {folder}" in raised.value.hint and "my sales.csv" in raised.value.hint
    with pytest.raises(UnknownNameError, match="/nothere"):
        session.run(f"SELECT * FROM {kind}.`file:///nothere/at/all`")


def test_file_of_another_format_is_not_reported_as_damaged_table(
    session: Session, folder: Path
) -> None:
    with pytest.raises(InvalidValueError, match=r"`my sales\.csv` can't be read as parquet"):
        session.run("SELECT * FROM parquet.`my sales.csv`")


def test_missing_path_of_spark_statement_is_not_reported_as_damage(session: Session) -> None:
    with pytest.raises(UnknownNameError, match="no file or folder"):
        session.run("CREATE TEMPORARY VIEW v USING parquet OPTIONS (path '/nothere/at/all')")


def test_outcome_names_the_statement_run_by_spark(session: Session) -> None:
    ran = session.run("-- all of it\nclear CACHE")
    assert ran.message == "Spark ran CLEAR CACHE; it returns no rows."


@pytest.mark.parametrize("dtype", ["object", "str"])
def test_half_of_a_character_in_a_frame_is_refused_by_row_and_column(
    session: Session, dtype: str
) -> None:
    frame = pd.DataFrame({"id": [1, 2], "x": pd.Series(["a", "b\ud800"], dtype=dtype)})
    said = r"Column `x` can't store 'b\\ud800' of row 2: it has half of a character"
    with pytest.raises(InvalidValueError, match=said):
        session.write(frame, "halves", create=True)
    with pytest.raises(InvalidValueError, match=said):
        session.run("SELECT * FROM halves", frames={"halves": frame})
    with pytest.raises(StatementSyntaxError, match=r"half of a character \(U\+D800\)"):
        session.run("SELECT '\ud800'")
    assert rows(session, "SELECT 1 AS one") == [(1,)]


TIMES = {
    "day": pa.array([datetime.time(1, 2)], pa.time64("us")),
    "inner": pa.array([{"at": datetime.time(1)}], pa.struct({"at": pa.time32("ms")})),
}


@pytest.mark.parametrize(("column", "named"), [("day", "day"), ("inner", "inner.at")])
@pytest.mark.parametrize("place", ["times.parquet", "", "*.parquet"])
def test_parquet_file_with_times_is_refused_by_column_with_a_way_to_read_it(
    session: Session, tmp_path: Path, column: str, named: str, place: str
) -> None:
    file = tmp_path / "times.parquet"
    pq.write_table(pa.table({"id": [7], column: TIMES[column]}), file)
    with pytest.raises(InvalidValueError) as refused:
        session.run(f"SELECT id FROM parquet.`{tmp_path}/{place}`")
    assert f"Column `{named}` of `{tmp_path}/{place}` has Parquet's type TIME" in str(refused.value)
    assert "pyarrow.parquet.read_table" in str(refused.value.hint)
    frame = pq.read_table(file, columns=["id"])
    assert rows(session, "SELECT id FROM frame", frames={"frame": frame}) == [(7,)]
