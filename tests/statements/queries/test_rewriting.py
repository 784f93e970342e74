"""Texts are rewritten by replacing ranges, and positions find their way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import (
    called_names,
    cuts_of,
    replacements_for,
    rewrite,
)
from paimon_magics.statements.statement import Insert, Query, TextRange


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT f(1), db.g (2), c . db . h(3)", [("f",), ("db", "g"), ("c", "db", "h")]),
        ("SELECT x, -- the cube\nf(x)", [("f",)]),
        ("SELECT /* a */ f /* b */ (x)", [("f",)]),
        ("SELECT `a b`(1), `db.f`(2)", [("a b",), ("db", "f")]),
        ("SELECT db .values(1), db. values(2)", [("db", "values"), ("db", "values")]),
        ("SELECT upper(f(1)), 'g(2)'", [("f",)]),
        ("INSERT INTO t (a, b) VALUES (1, 'some (text)'), (2, 'x')", []),
        ("INSERT INTO t (a) SELECT f(1)", [("f",)]),
        ("WITH f (x) AS (SELECT 1) SELECT x FROM f", []),
        ("SELECT CAST(x AS DECIMAL(10, 2)) FROM t AS f (x)", []),
        ("SELECT count(*) FROM t WHERE id IN (1, 2) AND upper(n) = 'a'", []),
    ],
)
def test_names_of_functions_that_the_catalog_may_keep(
    text: str, expected: list[tuple[str, ...]]
) -> None:
    calls = called_names(text, frozenset({"UPPER", "COUNT", "CAST"}))
    assert [parts for parts, _ in calls] == expected
    for parts, place in calls:
        assert parts[-1] in text[place.start : place.end]


def rewritten(text: str) -> str:
    """The query of `text` with every reference replaced by a view `v0`, `v1`, …"""
    statement = parse_statement(text)
    assert isinstance(statement, Query | Insert), statement
    query = statement.query if isinstance(statement, Query) else statement.source
    replacements = [
        replacement
        for index, reference in enumerate(query.references)
        for replacement in replacements_for(reference, f"v{index}")
    ]
    return rewrite(text, query.range, [*replacements, *cuts_of(query)]).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT id FROM orders", "SELECT id FROM `v0` AS `orders`"),
        ("SELECT id FROM shop.orders o", "SELECT id FROM `v0` o"),
        ("SELECT id FROM shop.orders AS o", "SELECT id FROM `v0` AS o"),
        (
            "SELECT shop.orders.id, orders.x, shop.orders.* FROM shop.orders",
            "SELECT `orders`.id, orders.x, `orders`.* FROM `v0` AS `orders`",
        ),
        (
            "SELECT a.orders.x FROM a.orders JOIN b.orders",
            "SELECT `a_orders`.x FROM `v0` AS `a_orders` JOIN `v1` AS `orders`",
        ),
        (
            "SELECT * FROM orders VERSION AS OF 3 WHERE x",
            "SELECT * FROM `v0` AS `orders` WHERE x",
        ),
        (
            "SELECT * FROM orders FOR SYSTEM_TIME AS OF '2024' o",
            "SELECT * FROM `v0` o",
        ),
        (
            "SELECT * FROM orders TABLESAMPLE (5 ROWS) WHERE x",
            "SELECT * FROM `v0` TABLESAMPLE (5 ROWS) AS `orders` WHERE x",
        ),
        ("TABLE shop.orders", "TABLE `v0`"),
        ("SELECT * FROM f(TABLE(orders))", "SELECT * FROM f(TABLE(`v0`))"),
        ("FROM orders SELECT x", "FROM `v0` AS `orders` SELECT x"),
        ("SELECT x FROM db.orders$files", "SELECT x FROM `v0` AS `orders$files`"),
        (
            "SELECT orders$files.level FROM orders$files",
            "SELECT `orders$files`.level FROM `v0` AS `orders$files`",
        ),
        ("SELECT '😀', x FROM t, `ü`.u", "SELECT '😀', x FROM `v0` AS `t`, `v1` AS `u`"),
        (
            "SELECT\t'😀'\r\nFROM shop /* x */ . orders -- y\r\nWHERE shop . orders . id > 1",
            "SELECT\t'😀'\r\nFROM `v0` AS `orders` -- y\r\nWHERE `orders` . id > 1",
        ),
        (
            "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders",
            "WITH orders AS (SELECT * FROM `v0` AS `orders`) SELECT * FROM orders",
        ),
        ("INSERT INTO t (a) SELECT x FROM s", "SELECT x FROM `v0` AS `s`"),
        (
            "WITH c AS (SELECT * FROM s) INSERT INTO t SELECT * FROM c",
            "WITH c AS (SELECT * FROM `v0` AS `s`) SELECT * FROM c",
        ),
    ],
)
def test_only_table_names_are_replaced(text, expected):
    assert rewritten(text) == expected


def test_a_view_name_with_a_back_quote_is_quoted():
    (reference,) = parse_statement("SELECT * FROM t x").query.references
    assert replacements_for(reference, "a`b") == ((reference.range, "`a``b`"),)


def test_rewritten_positions_map_back_to_the_users_text():
    text = "SELECT '😀', shop.orders.idd FROM shop.orders WHERE nope = 1"
    query = parse_statement(text).query
    result = rewrite(text, query.range, replacements_for(query.references[0], "some_view"))
    for word in ("idd", "nope", "'😀'", "WHERE", "SELECT"):
        assert result.original_position(result.text.index(word)) == text.index(word)
    inside = result.text.index("some_view")
    assert result.original_position(inside) == text.index("shop.orders WHERE")
    assert result.original_position(len(result.text)) == len(text)


def test_positions_of_a_rewritten_range_map_back_to_the_statement():
    text = "INSERT INTO t SELECT x FROM s"
    source = parse_statement(text).source
    result = rewrite(text, source.range, replacements_for(source.references[0], "v"))
    assert result.text == "SELECT x FROM `v` AS `s`"
    assert result.original_position(0) == 14
    assert result.original_position(7) == text.index("x FROM")


@pytest.mark.parametrize(
    "ranges",
    [[(1, 3), (2, 4)], [(0, 2)], [(4, 9)], [(3, 2)]],
)
def test_overlapping_or_outside_replacements_are_refused(ranges):
    replacements = [(TextRange(start, end), "x") for start, end in ranges]
    with pytest.raises(ValueError, match="overlaps another replacement or lies outside"):
        rewrite("0123456789", TextRange(1, 8), replacements)


@st.composite
def _rewrites(draw):
    text = draw(st.text(st.sampled_from("ab😀\t\r\n`'.é𝒳"), max_size=40))
    edges = sorted(draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=8)))
    start, end = edges[0], edges[-1]
    inner = edges[1:-1]
    pairs = zip(inner[::2], inner[1::2], strict=False)
    replacements = [(TextRange(a, b), draw(st.text("xyz😀", max_size=5))) for a, b in pairs]
    return text, TextRange(start, end), draw(st.permutations(replacements))


@given(_rewrites())
def test_every_kept_character_maps_back_to_itself(case):
    text, whole, replacements = case
    result = rewrite(text, whole, replacements)
    kept = [
        i
        for i in range(whole.start, whole.end)
        if not any(r.start <= i < r.end for r, _ in replacements)
    ]
    assert len(result.text) == len(kept) + sum(len(new) for _, new in replacements)
    back = [result.original_position(i) for i in range(len(result.text))]
    assert back == sorted(back)
    assert all(whole.start <= i <= whole.end for i in back)
    for original in kept:
        assert any(
            text[original] == result.text[i] for i, place in enumerate(back) if place == original
        )
    assert result.original_position(len(result.text)) == whole.end
