"""Mistakes in calls of the Python API: each is told in words of ours, with the next step."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import PaimonMagicsError

pytestmark = pytest.mark.spark

IDS = pd.DataFrame({"id": [1, 2]})
FOREIGN = ("pyarrow", "py4j", "Decimal128", "C long", "<class", "NoneType", " a object")


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    """One for all cases: nothing may happen in it."""
    module_session.run(
        "CREATE TABLE items (id BIGINT, item STRING, price DECIMAL(10, 2), tiny TINYINT, "
        "day DATE, ok BOOLEAN, list ARRAY<INT>, map MAP<STRING, INT>, "
        "place STRUCT<first: STRING, last: STRING, zip: STRUCT<code: INT, land: STRING>>)"
    )
    return module_session


# What is called, what the message says, what it says to do next.
Mistake = tuple[Callable[[Any], object], str, str]
MISTAKES: list[Mistake] = [
    # ---- names that other libraries have
    (lambda s: s.sql("SELECT 1"), "A Session has no `sql`", "run(text)"),
    (lambda s: s.read("items"), "A Session has no `read`", "table(name)"),
    (lambda s: s.tabel("items"), "A Session has no `tabel`", "Did you mean `table`?"),
    (lambda s: s.run("SELECT 1").toPandas(), "An Outcome has no `toPandas`", "to_pandas()"),
    (lambda s: s.run("SELECT 1").frobnicate, "no `frobnicate`", "dir(Outcome)"),
    (lambda s: s.run("SELECT 1", params={}), "argument 'params'", "Did you mean `parameters`?"),
    (lambda s: s.insert("items", [], lable="x"), "argument 'lable'", "Did you mean `label`?"),
    (lambda s: s.write(IDS), "missing 1 required", "It takes frame, name, mode"),
    (lambda s: s.layout("items", 1, 2), "2 positional arguments but 4", "It takes name."),
    # ---- arguments
    (lambda s: s.write(pa.table({}), "items", mode="append"), "has no columns", "DESCRIBE default"),
    (lambda s: s.delete("items", None), "`where` of delete() is None", 'write "true"'),
    (lambda s: s.delete("items", " "), "`where` of delete() is ", 'write "true"'),
    (lambda s: s.delete("items"), "missing 1 required", "It takes name, where"),
    (lambda s: s.delete("items", "idd = 1"), "`idd`", "Did you mean"),
    (lambda s: s.update("items", {}, "id = 1"), "No column gets a value", "Give a dictionary"),
    (lambda s: s.update("items", {"id": "2"}, None), "`where` of update() is None", '"true"'),
    (lambda s: s.update("items", {"id": 2}, "id = 1"), "value of `id` is 2", "as in a statement"),
    (lambda s: s.update("items", {"idd": "2"}, "id = 1"), "`idd`", "Did you mean"),
    (lambda s: s.update("items", {"id": "2), item = ('x'"}, "true"), "ends its statement", "SET"),
    (lambda s: s.run(None), "`text` of run() is None", "help(Session.run)"),
    (lambda s: s.run("SELECT 1", limit=-1), "`limit` of run() is -1", "0 or more"),
    (
        lambda s: s.run("SELECT * FROM df", frames={"df": 5}),
        "no table `df`",
        "`df` is 5, not a DataFrame",
    ),
    (
        lambda s: s.run("SELECT * FROM items WHERE id = :id", {"id": object()}),
        "`:id` is an object",
        "Bind numbers",
    ),
    (lambda s: s.table("SELECT * FROM items"), "A table's name is expected", "session.run(text)"),
    (lambda s: s.table("items", **{"scan.snapshot-id": 99}), "no snapshots", "items$snapshots"),
    (lambda s: s.write(IDS, "items", mode="upsert"), "no mode 'upsert'", "`append`"),
    (lambda s: s.write(None, "items"), "None can't be written", "pandas or polars"),
    (lambda s: s.write("my.csv", "items"), "'my.csv' can't be written", "csv.`my.csv`"),
    (lambda s: s.write(IDS, "new", create=True, primary_key="ids"), "`ids`", "`id`"),
    (
        lambda s: s.write(IDS, "new", create=True, options=5),
        "`options` of write() is 5",
        "dictionary",
    ),
    # ---- rows of insert
    (lambda s: s.insert("items", None), "None can't be inserted", "list of rows"),
    (lambda s: s.insert("items", (1, "tea")), "Row 1 is not a tuple of 9", "Give a list of tuples"),
    (lambda s: s.insert("items", [{"id": 2**64}]), "18446744073709551616 of row 1", "807"),
    (lambda s: s.insert("items", [{"id": "one"}]), "'one' of row 1", "a whole number"),
    (lambda s: s.insert("items", [{"tiny": 300}]), "300 of row 1", "from -128 to 127"),
    (
        lambda s: s.insert("items", [{"price": Decimal("5.999")}]),
        "`price` takes DECIMAL(10, 2); Decimal('5.999') of row 1 does not fit.",
        "at most 8 digits before the decimal point and 2 after it",
    ),
    (lambda s: s.insert("items", [{"price": 5.99}]), "5.99 of row 1", "a Decimal of at most"),
    (lambda s: s.insert("items", [{"item": 5}]), "takes STRING; 5 of row 1", "Give a string"),
    (lambda s: s.insert("items", [{"day": "2026-13-01"}]), "'2026-13-01'", "a datetime.date"),
    (lambda s: s.insert("items", [{"ok": "yes"}]), "'yes' of row 1", "True or False"),
    (lambda s: s.insert("items", [{"list": ["x"]}]), "['x'] of row 1", "a list of INT"),
    (lambda s: s.insert("items", [{"map": {"a": "x"}}]), "of row 1", "from STRING to INT"),
    (
        lambda s: s.insert("items", [{"place": {"first": "a", "middle": "b"}}]),
        "something in it would be cut off",
        "'first' (STRING), 'last' (STRING)",
    ),
    (lambda s: s.insert("items", [{"id": datetime.timedelta(1)}]), "timedelta", "whole number"),
    # ---- values of frames
    (lambda s: s.write(pa.table({"tiny": [300]}), "items"), "The value 300 can't", "TINYINT"),
    (lambda s: s.write(pd.DataFrame({"id": [2**64 - 1]}), "items"), "18446744073709551615 ", ""),
    (
        lambda s: s.write([{"place": {"first": "a", "middle": "b"}}], "items"),
        "no field `middle`",
        "`first`",
    ),
    (lambda s: s.write(pa.table({"list": [["x"]]}), "items"), "'x' can't be cast", "Correct"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each[1])
def test_wrong_python_call_error_names_the_next_step(shop: Session, mistake: Mistake) -> None:
    call, said, hint = mistake
    with pytest.raises((PaimonMagicsError, AttributeError, TypeError)) as caught:
        call(shop)
    text = str(caught.value)
    assert said in text and hint in text, text
    assert [word for word in FOREIGN if word in text] == []
    frame = caught.traceback[-1]
    assert str(frame.path) == __file__, frame  # nothing of ours, of PySpark or py4j


def test_wrong_calls_leave_tables_unchanged(shop: Session) -> None:
    assert shop.catalog.list_tables("default") == ["items"]
    assert shop.history("items").to_arrow().num_rows == 0


def test_unknown_members_are_missing_attributes(shop: Session) -> None:
    assert not hasattr(shop, "sql") and hasattr(shop, "run")
    assert not hasattr(shop, "_ipython_display_")


def test_fields_of_structs_are_matched_by_name(shop: Session) -> None:
    shop.run(
        "CREATE TABLE places (place STRUCT<first: STRING, last: STRING, "
        "zip: STRUCT<code: INT, land: STRING>>, more ARRAY<STRUCT<a: INT, b: INT>>)"
    )
    given = {"place": {"last": "Lee", "first": "Ann"}, "more": [{"b": 2, "a": 1}, None]}
    shop.write([given], "places")
    shop.run(
        "INSERT INTO places BY NAME SELECT named_struct('zip', named_struct('land', 'de', 'code', "
        "7), 'LAST', 'Poe') AS place"
    )
    actual = shop.run("SELECT place.*, more FROM places ORDER BY last").to_arrow().to_pylist()
    assert actual == [
        {"first": "Ann", "last": "Lee", "zip": None, "more": [{"a": 1, "b": 2}, None]},
        {"first": None, "last": "Poe", "zip": {"code": 7, "land": "de"}, "more": None},
    ]
    shop.run("DROP TABLE places")


def test_threads_of_a_session_read_their_own_frames(shop: Session) -> None:
    wrong: list[object] = []

    def work(thread: int) -> None:
        try:
            for _ in range(3):
                frame = pd.DataFrame({"thread": [thread]})
                read = shop.run("SELECT thread FROM df", frames={"df": frame}).to_arrow()
                if read["thread"].to_pylist() != [thread]:
                    wrong.append(read)
            shop.run("SELECT * FROM items").to_arrow()
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
