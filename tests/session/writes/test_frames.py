"""Frames of Spark, Arrow, pandas and polars, written by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidTableError, InvalidValueError, UnknownNameError
from tests.session.rows import rows

pytestmark = pytest.mark.spark

DAY = datetime.date(2026, 11, 20)
DATA = pa.table(
    {
        "v": pa.array(["b", None]).dictionary_encode(),
        "k": pa.array([2, 1], pa.int16()),
        "p": pa.array([DAY, DAY]),
    }
)
EXPECTED = [(1, None, DAY, 7), (2, "b", DAY, 7)]


def polars(table: pa.Table) -> Any:
    import polars as pl

    return pl.from_arrow(table)


MAKERS: dict[str, Callable[[Session], Any]] = {
    "spark": lambda session: session.spark.createDataFrame(
        [("b", 2, DAY), (None, 1, DAY)], "v STRING, k INT, p DATE"
    ),
    "pandas": lambda _: DATA.to_pandas(),
    "polars": lambda _: polars(DATA),
    "lazy polars": lambda _: polars(DATA).lazy(),
    "arrow table": lambda _: DATA,
    "arrow batch": lambda _: DATA.to_batches()[0],
    "arrow reader": lambda _: DATA.to_reader(),
}


@pytest.fixture
def table(session: Session) -> str:
    session.run(
        "CREATE TABLE `odd name` (k INT, v STRING, p DATE, n INT DEFAULT 7) PARTITIONED BY (p)"
    )
    return "odd name"


def stored(session: Session) -> list[tuple[Any, ...]]:
    return rows(session, "SELECT * FROM `odd name` ORDER BY k, v")


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_every_kind_of_frame_is_written_by_name(
    session: Session, table: str, make: Callable[[Session], Any]
) -> None:
    outcome = session.write(make(session), f"default.{table}")
    assert (outcome.rows_written, outcome.snapshot_id) == (2, 1)
    assert stored(session) == EXPECTED


def test_rows_after_an_empty_chunk_are_written(session: Session, table: str) -> None:
    chunks = pa.concat_tables(pa.table({"k": range(n, n + 3)}) for n in (0, 3, 6))
    filtered = chunks.filter((pc.field("k") < 2) | (pc.field("k") > 6))
    assert [len(chunk) for chunk in filtered["k"].chunks] == [2, 0, 2]
    assert session.write(filtered, table).rows_written == 4
    assert rows(session, "SELECT k FROM `odd name` ORDER BY k") == [(0,), (1,), (7,), (8,)]


def test_overwrite_replaces_all_and_dynamic_mode_only_given_partitions(
    session: Session, table: str
) -> None:
    other = datetime.date(2026, 11, 21)
    session.write(DATA, table)
    session.write(pa.table({"k": [9], "p": [other]}), table, mode="dynamic")
    assert stored(session) == [*EXPECTED, (9, None, other, 7)]
    session.write(pa.table({"k": [8], "p": [other]}), table, mode="dynamic")
    assert stored(session) == [*EXPECTED, (8, None, other, 7)]
    session.write(pa.table({"k": [7], "p": [other]}), table, mode="overwrite")
    assert stored(session) == [(7, None, other, 7)]


def test_write_refuses_unknown_mode_column_and_frame_type(session: Session, table: str) -> None:
    with pytest.raises(InvalidValueError, match="no mode 'overwrte'") as caught:
        session.write(DATA, table, mode="overwrte")  # type: ignore[arg-type]
    assert "overwrite" in caught.value.hint
    with pytest.raises(UnknownNameError, match="no column `kk`") as unknown:
        session.write(pd.DataFrame({"kk": [1]}), table)
    assert unknown.value.statement is None
    with pytest.raises(InvalidValueError, match="A list can't be written"):
        session.write([1, 2], table)
    assert stored(session) == []


@pytest.fixture
def merging(session: Session) -> Iterator[Callable[..., None]]:
    """Sets `write.merge-schema` and what may stand behind it."""
    key = "spark.paimon.write.merge-schema"
    keys = [key, f"{key}.type-widening", f"{key}.explicit-cast"]

    def set_to(*behind: str) -> None:
        for each in (key, *(f"{key}.{name}" for name in behind)):
            session.run(f"SET `{each}` = true")

    yield set_to
    for each in keys:
        session.spark.conf.unset(each)


def test_write_by_name_merges_new_columns_into_schema(
    session: Session, merging: Callable[..., None]
) -> None:
    session.run("CREATE TABLE grown (k INT, s STRUCT<x: INT>)")
    text = "INSERT INTO grown BY NAME SELECT 1 AS k, DATE '2026-01-01' AS day"
    with pytest.raises(UnknownNameError, match="day"):
        session.run(text)
    merging()
    assert "Columns added: day DATE" in str(session.explain(text))
    assert session.table("grown").columns == ["k", "s"]
    assert session.run(text).notes[0] == "Columns added: day DATE."
    day = datetime.date(2026, 1, 1)
    frame = session.spark.sql("SELECT named_struct('y', 'b', 'x', 2) AS S, 5000000000 AS k")
    with pytest.raises(InvalidValueError, match="can't be cast to INT"):  # its type stays
        session.write(frame, "grown")
    # As in Paimon, the schema was changed first, and stays.
    assert rows(session, "SELECT * FROM grown") == [(1, None, day)]
    merging("type-widening")
    outcome = session.write(frame, "grown")
    assert outcome.notes[0] == "Types changed: k BIGINT."
    assert rows(session, "SELECT k, s.x, s.y, day FROM grown ORDER BY k") == [
        (1, None, None, day),
        (5_000_000_000, 2, "b", None),
    ]
    with pytest.raises(InvalidTableError, match="`day` is DATE in the table and STRING"):
        session.run("INSERT INTO grown BY NAME SELECT 'x' AS day, 1 AS more")
    assert session.table("grown").columns == ["k", "s", "day"]
    session.run("INSERT INTO grown VALUES (3, NULL, NULL)")  # by position: nothing is merged
    session.run("SET `spark.paimon.write.merge-schema` = maybe")
    with pytest.raises(InvalidValueError, match="'maybe', but it must be true or false"):
        session.run(text)
