"""Names as they are written in SQL, and the names of system tables beside them."""

from __future__ import annotations

import pytest

from paimon_magics.statements.names import spelled, system_table_text
from paimon_magics.statements.parsing import parse_cell
from paimon_magics.statements.statement import Query


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("orders", "orders$files"),
        ("shop.orders", "shop.orders$files"),
        ("`shop`.`orders`", "`shop`.`orders$files`"),
        ("my-shop.two-words", "`my-shop`.`two-words$files`"),
        ("`Größe ☃`", "`Größe ☃$files`"),
        ("shop.`a``b`", "shop.`a``b$files`"),
        ("t$branch_b", "t$branch_b$files"),
    ],
)
def test_a_system_table_is_named_beside_its_table(table: str, text: str) -> None:
    assert system_table_text(table, "files") == text
    (statement,) = parse_cell(f"SELECT * FROM {text}")
    assert isinstance(statement, Query)
    (reference,) = statement.query.references
    assert reference.name.system_table == "files"


def test_only_names_that_need_them_get_back_quotes() -> None:
    assert [spelled(one) for one in ("a_1", "1a", "größe", "a`b")] == [
        "a_1",
        "`1a`",
        "`größe`",
        "`a``b`",
    ]
