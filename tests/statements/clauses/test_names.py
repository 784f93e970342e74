"""Names as they are written in SQL, and the names of system tables beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paimon_magics.statements.clauses.names import spelled, table_text
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import Query, TableName


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (TableName("orders", "shop"), "shop.orders$files"),
        (TableName("two-words", "my-shop"), "`my-shop`.`two-words$files`"),
        (TableName("Größe ☃", "default"), "default.`Größe ☃$files`"),
        (TableName("a.b", "default"), "default.`a.b$files`"),
        (TableName("a`b", "shop"), "shop.`a``b$files`"),
        (TableName("t", "d.e", branch="b"), "`d.e`.t$branch_b$files"),
    ],
)
def test_system_table_name_is_written_and_read_back(table: TableName, text: str) -> None:
    assert table_text(table, "files") == text
    (statement,) = parse_cell(f"SELECT * FROM {text}")
    assert isinstance(statement, Query)
    (reference,) = statement.query.references
    assert reference.name == replace(table, system_table="files")


def test_back_quotes_are_added_only_where_needed() -> None:
    assert [spelled(each) for each in ("a_1", "1a", "größe", "a`b")] == [
        "a_1",
        "`1a`",
        "`größe`",
        "`a``b`",
    ]
