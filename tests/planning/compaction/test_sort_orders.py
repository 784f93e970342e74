"""By which columns a call sorts a table, and what it refuses."""

from __future__ import annotations

import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.compaction.sort_orders import SortOrder, sort_order
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable

STATEMENT = parse_statement(
    "CREATE TABLE t (a INT, b STRING, l ARRAY<INT>, p STRING) PARTITIONED BY (p) "
    "TBLPROPERTIES ('zorder.var-length-contribution' = '3')"
)
assert isinstance(STATEMENT, CreateTable)
SCHEMA = plan_create_table(STATEMENT)


def test_sort_order_reads_strategy_and_columns() -> None:
    assert sort_order(SCHEMA, "ZOrder", "b, a") == SortOrder("zorder", ("b", "a"), 3)
    assert sort_order(SCHEMA, "order", "a") == SortOrder("order", ("a",), 3)
    assert sort_order(SCHEMA, None, None) is None
    assert sort_order(SCHEMA, "none", "a") is None  # as Paimon's


@pytest.mark.parametrize(
    ("strategy", "order_by", "message"),
    [
        (None, "a", "cannot work with order_by"),
        ("NONE", "a", "cannot work with order_by"),
        ("bogus", "a", "no order_strategy 'bogus'"),
        ("order", None, "needs columns"),
        ("order", " , ", "needs columns"),
        ("order", "nope", "`nope`"),
        ("order", "a,p", "partition column `p`"),
        ("order", "l", "can't be sorted by `l`"),
        ("hilbert", "a", "two columns or more"),
    ],
)
def test_invalid_sort_orders_are_refused(
    strategy: str | None, order_by: str | None, message: str
) -> None:
    with pytest.raises(PaimonMagicsError, match=message):
        sort_order(SCHEMA, strategy, order_by)
