"""INSERT … PARTITION into tables whose partition columns are not the last: as in Hive the query's
last columns are the partitions, unless its names say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from paimon_magics.errors import InvalidValueError
from paimon_magics.session.session import Session

pytestmark = pytest.mark.spark


@pytest.fixture
def table(session: Session) -> str:
    session.run(
        "CREATE TABLE events (dt STRING, id STRING, hr STRING, v STRING) PARTITIONED BY (dt, hr)"
    )
    return "events"


def rows(session: Session) -> list[tuple[Any, ...]]:
    frame = session.run("SELECT dt, hr, id, v FROM events ORDER BY id").to_pandas()
    return [tuple(row) for row in frame.itertuples(index=False)]


@pytest.mark.parametrize("verb", ["INTO", "OVERWRITE"])
@pytest.mark.parametrize(
    ("partition", "query", "expected"),
    [
        ("dt, hr", "VALUES ('i', 'x', 'd', 'h')", ("d", "h", "i", "x")),
        ("hr, dt", "VALUES ('i', 'x', 'h', 'd')", ("d", "h", "i", "x")),
        ("dt = 'd', hr", "VALUES ('i', 'x', 'h')", ("d", "h", "i", "x")),
        ("hr = 'h', dt", "SELECT 'i', 'x', 'd'", ("d", "h", "i", "x")),
        ("dt, hr", "SELECT 'd' AS dt, 'i' AS id, 'h' AS HR, 'x' AS v", ("d", "h", "i", "x")),
        ("dt, hr", "SELECT 'x' AS v, 'i' AS id, 'h' AS hr, 'd' AS dt", ("d", "h", "i", "x")),
        ("dt, hr", "SELECT 'i' AS id, 'x' AS other, 'd' AS a, 'h' AS b", ("d", "h", "i", "x")),
        ("dt", "VALUES ('i', 'h', 'x', 'd')", ("d", "h", "i", "x")),
    ],
)
def test_last_query_columns_become_partition_values(
    session: Session, table: str, verb: str, partition: str, query: str, expected: tuple[str, ...]
) -> None:
    session.run(f"INSERT {verb} {table} PARTITION ({partition}) {query}")
    assert rows(session) == [expected]


def test_wrong_column_count_error_lists_columns_in_order(session: Session, table: str) -> None:
    with pytest.raises(InvalidValueError, match="takes 4 columns") as raised:
        session.run(f"INSERT INTO {table} PARTITION (hr, dt) VALUES ('i', 'x', 'h')")
    assert "`id`, `v`, `hr`, `dt`" in raised.value.hint
    assert rows(session) == []
