"""Values of bind names: given to Spark as they are, or refused."""

from __future__ import annotations

import datetime
import time

import pandas as pd
import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, StatementError
from paimon_magics.session.parameters import bind, literal

DAY, AT, UTC = datetime.date, datetime.datetime, datetime.UTC


@pytest.mark.parametrize(
    "value",
    [
        DAY(999, 12, 31),
        DAY(1, 1, 1),
        DAY(1582, 10, 5),
        AT(1, 1, 1),
        AT(1582, 10, 14, 23, tzinfo=UTC),
    ],
)
def test_days_that_pyspark_would_shift_are_refused(value: datetime.date) -> None:
    with pytest.raises(InvalidValueError, match="uses another calendar") as error:
        bind(["day"], {"day": value}, "SELECT :day", "UTC")
    assert error.value.position == 7
    kind = "TIMESTAMP" if isinstance(value, datetime.datetime) else "DATE"
    assert f"CAST(:name AS {kind})" in str(error.value.hint).replace(":day", ":name")


@pytest.mark.parametrize("value", ["a\ud800", ["a", "\ud800"]])
def test_text_with_half_of_a_character_is_refused(value: object) -> None:
    with pytest.raises(
        InvalidValueError, match=r"`:a` is .*half of a character \(U\+D800\)"
    ) as error:
        bind(["a"], {"a": value}, "SELECT :a", "UTC")
    assert error.value.position == 7 and "'replace'" in str(error.value.hint)


@pytest.mark.parametrize("value", [DAY(1000, 1, 1), AT(1900, 1, 1), DAY(9999, 12, 31)])
def test_later_days_are_bound(value: datetime.date) -> None:
    meant = value.replace(tzinfo=UTC) if isinstance(value, AT) else value
    assert bind(["day"], {"day": value}, "SELECT :day", "UTC") == {"day": meant}


@pytest.mark.spark
@pytest.mark.parametrize("value", [DAY(1000, 2, 28), DAY(1582, 10, 15)])
def test_early_days_are_bound_unchanged(session: Session, value: DAY) -> None:
    rows = session.run("SELECT :day AS day", {"day": value}).to_arrow()
    assert rows["day"].to_pylist() == [value]


@pytest.mark.spark
@pytest.mark.parametrize("year", [1582, 1750, 1899, 1900, 1901])
def test_early_timestamps_are_bound_unchanged_or_refused(session: Session, year: int) -> None:
    """In UTC they are bound; where a zone had another offset then, PySpark would shift them."""
    value = AT(year, 11, 15, 12, 30, tzinfo=UTC)
    try:
        rows = session.run("SELECT :at AS at", {"at": value}).to_arrow()
    except InvalidValueError as error:
        assert year < 1900 and value.astimezone().utcoffset() != value.utcoffset()
        assert "before 1900" in str(error) and "CAST(:at AS" in str(error.hint)
        text = {"at": "1899-11-15 12:30:00Z"}
        rows = session.run("SELECT CAST(:at AS TIMESTAMP) AS at", text).to_arrow()
        value = AT(1899, 11, 15, 12, 30, tzinfo=UTC)
    # Local mean times have seconds, which offsets in Python may lack.
    assert rows["at"].cast(pa.timestamp("us", "UTC")).to_pylist() == [value]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no tzset")
@pytest.mark.parametrize(
    ("zone", "year", "is_bound"),
    [
        ("America/St_Johns", 1899, False),
        ("America/St_Johns", 1901, True),
        ("Asia/Tokyo", 1850, False),
        ("Asia/Tokyo", 1899, True),
        ("UTC", 1600, True),
    ],
)
def test_timestamps_before_1900_are_refused_if_machine_offset_differed(
    monkeypatch: pytest.MonkeyPatch, zone: str, year: int, is_bound: bool
) -> None:
    values = {"at": AT(year, 11, 15, 12, 30, tzinfo=UTC)}
    try:
        with monkeypatch.context() as there:
            there.setenv("TZ", zone)
            time.tzset()
            if is_bound:
                assert bind(["at"], values, "SELECT :at", "UTC") == values
            else:
                with pytest.raises(InvalidValueError, match="before 1900"):
                    bind(["at"], values, "SELECT :at", "UTC")
    finally:
        time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no tzset")
@pytest.mark.parametrize(
    "value", [pd.Timestamp("1850-01-01"), pd.Timestamp("1850-01-01", tz="UTC")]
)
def test_old_pandas_timestamps_are_refused_like_other_datetimes(
    monkeypatch: pytest.MonkeyPatch, value: pd.Timestamp
) -> None:
    try:
        with monkeypatch.context() as there:
            there.setenv("TZ", "Asia/Tokyo")
            time.tzset()
            assert literal(value) == literal(value.to_pydatetime())
            with pytest.raises(InvalidValueError, match="before 1900") as raised:
                bind(["at"], {"at": value}, "SELECT :at", "UTC")
            assert "CAST(:at AS TIMESTAMP)" in raised.value.hint
    finally:
        time.tzset()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        ("t.k IN (:ks)", "array_contains(:ks, t.k)"),
        ("k NOT IN (:ks)", "NOT array_contains(:ks, k)"),
        ("k = :ks", "array_contains(:ks, k)"),
        ("k IN :ks", "array_contains(:ks, k)"),
    ],
)
def test_list_compared_with_single_values_is_answered_with_array_contains(
    session: Session, condition: str, instead: str
) -> None:
    session.run("CREATE TABLE t (k INT); INSERT INTO t VALUES (1), (2), (3)")
    for statement in ("SELECT k FROM t WHERE {} ORDER BY k", "DELETE FROM t WHERE {}"):
        with pytest.raises(StatementError) as refused:
            session.run(statement.format(condition), {"ks": [1, 2]})
        assert f"write {instead}." in refused.value.hint
    rows = session.run(f"SELECT k FROM t WHERE {instead} ORDER BY k", {"ks": [1, 2]})
    assert [row["k"] for row in rows.to_pylist()] == ([3] if "NOT" in instead else [1, 2])


@pytest.mark.spark
def test_negative_value_after_a_minus_makes_no_comment(session: Session) -> None:
    values = {"n": -1, "d": -2.5, "day": "x"}
    rows = session.run("SELECT 1-:n AS a, -:d AS b, ':n-:n' AS c -- -:n\n, 1 AS e", values)
    assert rows.to_arrow().to_pylist() == [{"a": 2, "b": 2.5, "c": ":n-:n", "e": 1}]
    session.run("CREATE TABLE t (k INT, p INT) PARTITIONED BY (p)")
    session.run("INSERT INTO t PARTITION (p = 1-:n) VALUES (1-:n), (2)", values)
    rows = session.run("SELECT k, p FROM t WHERE k=1-:n", values)
    assert rows.to_arrow().to_pylist() == [{"k": 2, "p": 2}] * 2
