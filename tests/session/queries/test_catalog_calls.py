"""sys.max_pt: the newest partition of a table, in any statement."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(session: Session) -> Session:
    session.run(
        "CREATE TABLE orders (k INT, day STRING, hour INT) PARTITIONED BY (day, hour);"
        "INSERT INTO orders VALUES (1, '2026-01-30', 1), (2, '2026-01-31', 1), "
        "(3, '2026-01-31', 2), (4, '2026-02-01', 1); DELETE FROM orders WHERE day = '2026-02-01'"
    )
    return session


def test_newest_partition_with_rows_is_chosen(orders: Session) -> None:
    assert rows(orders, "SELECT sys.max_pt('orders') AS day") == [("2026-01-31",)]
    newest = "SELECT k FROM orders WHERE day = {}max_pt('default.orders') ORDER BY k"
    for prefix in ("", "sys.", "paimon.sys."):
        assert rows(orders, newest.format(prefix)) == [(2,), (3,)]
    plan = orders.run(f"EXPLAIN {newest.format('sys.')}").message
    assert "partitions: 2 files of 2 buckets" in plan


def test_statements_that_write_take_the_newest_partition(orders: Session) -> None:
    orders.run("CREATE TABLE copy AS SELECT * FROM orders WHERE day = sys.max_pt('orders')")
    assert rows(orders, "SELECT count(*) FROM copy") == [(2,)]
    orders.run("DELETE FROM orders WHERE day = sys.max_pt('orders')", confirm=True)
    assert rows(orders, "SELECT k FROM orders") == [(1,)]


def test_newest_partition_of_numbers_and_days_is_the_greatest(session: Session) -> None:
    session.run(
        "CREATE TABLE n (k INT, p INT) PARTITIONED BY (p); INSERT INTO n VALUES (1, 9), (2, 10);"
        "CREATE TABLE d (k INT, p DATE) PARTITIONED BY (p);"
        "INSERT INTO d VALUES (1, DATE '2026-01-31'), (2, NULL)"
    )
    assert rows(session, "SELECT k FROM n WHERE p = sys.max_pt('n')") == [(2,)]
    assert rows(session, "SELECT sys.max_pt('d') AS p, k FROM d WHERE p = sys.max_pt('d')") == [
        ("2026-01-31", 1)
    ]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("'order'", UnknownNameError, "no table `order`"),
        ("'plain'", InvalidValueError, "not partitioned"),
        ("'empty'", InvalidValueError, "no partition with rows"),
        ("day", UnsupportedStatementError, "text in quotes"),
        ("'orders', 'day'", UnsupportedStatementError, "text in quotes"),
    ],
)
def test_mistaken_call_points_at_itself(
    orders: Session, argument: str, error: type[PaimonMagicsError], message: str
) -> None:
    orders.run("CREATE TABLE plain (k INT); CREATE TABLE empty (k INT, p INT) PARTITIONED BY (p)")
    text = f"SELECT * FROM orders WHERE day = sys.max_pt({argument})"
    with pytest.raises(error, match=message) as caught:
        orders.run(text)
    assert (caught.value.position, bool(caught.value.hint)) == (text.index("sys."), True)
