"""Values of bind names: given to Spark as they are, or refused."""

from __future__ import annotations

import datetime

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError
from paimon_magics.session.parameters import bind

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
    assert "CAST(:day AS" in str(error.value.hint)


@pytest.mark.parametrize("value", [DAY(1000, 1, 1), AT(1582, 10, 15), DAY(9999, 12, 31)])
def test_later_days_are_bound(value: datetime.date) -> None:
    meant = value.replace(tzinfo=UTC) if isinstance(value, AT) else value
    assert bind(["day"], {"day": value}, "SELECT :day", "UTC") == {"day": meant}


@pytest.mark.spark
@pytest.mark.parametrize("value", [DAY(1000, 2, 28), DAY(1582, 10, 15)])
def test_early_days_that_are_bound_are_the_same_days(session: Session, value: DAY) -> None:
    found = session.run("SELECT :day AS day", {"day": value}).to_arrow()
    assert found["day"].to_pylist() == [value]


@pytest.mark.spark
def test_early_moments_that_are_bound_are_the_same_moments(session: Session) -> None:
    value = AT(1582, 10, 15, 12, 30, tzinfo=UTC)
    found = session.run("SELECT :at AS at", {"at": value}).to_arrow()
    assert found["at"].to_pylist() == [value]


@pytest.mark.spark
def test_a_negative_value_behind_a_minus_is_no_comment(session: Session) -> None:
    values = {"n": -1, "d": -2.5, "day": "x"}
    found = session.run("SELECT 1-:n AS a, -:d AS b, ':n-:n' AS c -- -:n\n, 1 AS e", values)
    assert found.to_arrow().to_pylist() == [{"a": 2, "b": 2.5, "c": ":n-:n", "e": 1}]
    session.run("CREATE TABLE t (k INT, p INT) PARTITIONED BY (p)")
    session.run("INSERT INTO t PARTITION (p = 1-:n) VALUES (1-:n), (2)", values)
    found = session.run("SELECT k, p FROM t WHERE k=1-:n", values)
    assert found.to_arrow().to_pylist() == [{"k": 2, "p": 2}] * 2
