"""Rows page by page: here and in Spark the same rows for the same look."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import StatementError
from paimon_magics.planning.reads.row_filters import Condition, Order, RowFilter
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reports.paging import ArrowRows, QueryRows, Rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERY = (
    "SELECT id, CAST(id % 7 AS DECIMAL(5, 2)) / 2 AS part, "
    "CASE WHEN id % 5 = 0 THEN NULL ELSE concat('t', id % 3) END AS tag, "
    "DATE'2026-01-01' + CAST(id % 40 AS INT) AS day, "
    "timestamp_seconds(id * 3600) AS at, id % 2 = 0 AS even FROM range(3000)"
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, module_session: Session) -> Iterator[Session]:
    module_session.run("SET spark.sql.session.timeZone = UTC")
    yield module_session
    spark.conf.unset("spark.sql.session.timeZone")


@pytest.fixture(scope="module")
def outcome(lake: Session) -> Outcome:
    return lake.run(QUERY)


@pytest.fixture(scope="module")
def sources(outcome: Outcome) -> tuple[Rows, Rows]:
    """The same rows, here and in Spark."""
    return ArrowRows(outcome.to_arrow(), QUERY), QueryRows(outcome)


LOOKS = [
    RowFilter((Order("id"),)),
    RowFilter((Order("tag"), Order("id", descending=True))),
    RowFilter((Order("tag", descending=True), Order("id"))),
    RowFilter((Order("id"),), (Condition("part", ">", "1.25"), Condition("tag", "=", "t1"))),
    RowFilter((Order("id"),), (Condition("tag", "is null"), Condition("even", "=", "false"))),
    RowFilter((Order("id"),), (Condition("day", "<=", "2026-01-03"), Condition("id", "<>", "1.5"))),
    RowFilter((Order("id"),), (Condition("at", "<", "1970-01-02 03:00:00"),)),
    RowFilter((Order("id"),), (Condition("tag", "contains", "2"),)),
    RowFilter((Order("id"),), (Condition("id", "<", "0"),)),
]


@pytest.mark.parametrize("row_filter", LOOKS)
@pytest.mark.parametrize("offset", [0, 20, 1_015])
def test_pages_are_equal_locally_and_in_spark(
    sources: tuple[Rows, Rows], row_filter: RowFilter, offset: int
) -> None:
    here, there = (each.page(row_filter, offset, 20) for each in sources)
    assert there.rows.to_pylist() == here.rows.to_pylist()
    assert there.follow == here.follow
    assert there.total in (None, here.total)
    assert sources[0].sql(row_filter) == sources[1].sql(row_filter)


def test_query_pages_keep_at_most_a_window_of_rows(outcome: Outcome) -> None:
    rows = QueryRows(outcome)
    for offset in range(0, 3000, 20):
        page = rows.page(RowFilter(), offset, 20)
        assert page.rows.column("id")[0].as_py() == offset
        assert page.follow == (offset + 20 < 3000)
        assert rows._window[2].num_rows <= 1_001


def test_a_grid_does_not_keep_a_result_alive(lake: Session) -> None:
    outcome = lake.run("SELECT * FROM range(100)")
    rows = rows_of(outcome)
    assert isinstance(rows, QueryRows)
    assert rows.page(RowFilter(), 0, 20).rows.num_rows == 20
    del outcome
    gc.collect()
    with pytest.raises(StatementError, match="no longer keeps this result"):
        rows.page(RowFilter(), 40, 20)


def test_local_result_is_sorted_and_paged_in_process(lake: Session) -> None:
    rows = rows_of(lake.run("SELECT * FROM range(20)"))
    assert isinstance(rows, ArrowRows)
    page = rows.page(RowFilter((Order("id", descending=True),)), 0, 5)
    assert page.rows == pa.table({"id": [19, 18, 17, 16, 15]}, page.rows.schema)
    assert (page.total, page.follow) == (20, True)
