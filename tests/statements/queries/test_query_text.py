"""Queries: which tables they read, where, under which name, and which parameters they bind."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.query_text import read_query
from paimon_magics.statements.queries.scanning import scan_relations
from paimon_magics.statements.statement import (
    Insert,
    Query,
    QueryText,
    Refused,
    TableName,
    TextRange,
    TimeTravel,
)


def query_of(text: str) -> QueryText:
    statement = parse_statement(text)
    assert isinstance(statement, Query), statement
    return statement.query


def texts(text: str, ranges: tuple[TextRange, ...]) -> list[str]:
    return [text[r.start : r.end] for r in ranges]


def read(text: str) -> list[str]:
    """The text of every reference's range."""
    return texts(text, tuple(r.range for r in query_of(text).references))


# (query, the table names that it reads, in the order written)
READS = [
    ("SELECT 1", []),
    ("SELECT * FROM orders", ["orders"]),
    ("SELECT * FROM shop.orders", ["shop.orders"]),
    ("SELECT * FROM paimon.shop.orders AS o", ["paimon.shop.orders"]),
    ("SELECT * FROM `a b`.`c``d`", ["`a b`.`c``d`"]),
    ("SELECT * FROM shop /* x */ . -- y\n orders", ["shop /* x */ . -- y\n orders"]),
    ("SELECT * FROM a, b c, (SELECT * FROM d) e", ["a", "b", "d"]),
    ("SELECT * FROM a JOIN b USING (x) LEFT JOIN c ON a.x = c.x", ["a", "b", "c"]),
    ("SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x", ["a", "b"]),
    ("SELECT * FROM a NATURAL JOIN b CROSS JOIN c", ["a", "b", "c"]),
    ("SELECT * FROM (a JOIN b ON a.x = b.x) JOIN (c) ON true", ["a", "b", "c"]),
    ("SELECT * FROM ((SELECT * FROM a) UNION ALL (SELECT * FROM b)) u", ["a", "b"]),
    ("SELECT * FROM a WHERE x IN (SELECT y FROM b)", ["a", "b"]),
    ("SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x)", ["a", "b"]),
    ("SELECT (SELECT max(x) FROM b) FROM a", ["b", "a"]),
    ("SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x) l", ["a", "b"]),
    ("SELECT * FROM a JOIN LATERAL (SELECT * FROM b) l ON true", ["a", "b"]),
    ("SELECT * FROM a LATERAL VIEW explode(xs) t AS x, y", ["a"]),
    ("SELECT * FROM a, LATERAL explode(xs) t, b", ["a", "b"]),
    ("SELECT * FROM range(10), explode(array(1)), a", ["a"]),
    ("SELECT * FROM a UNION SELECT * FROM b EXCEPT SELECT * FROM c", ["a", "b", "c"]),
    ("SELECT * FROM a PIVOT (sum(x) FOR y IN (1, 2))", ["a"]),
    ("SELECT * FROM (SELECT x, y FROM a) PIVOT (sum(x) AS s FOR y IN (1 AS one, 2))", ["a"]),
    ("SELECT * FROM a UNPIVOT (v FOR n IN (x, y))", ["a"]),
    ("SELECT * FROM a TABLESAMPLE (10 PERCENT) REPEATABLE (3) JOIN b", ["a", "b"]),
    ("SELECT * FROM VALUES (1, 2), (3, 4) AS v(x, y) JOIN a ON a.x = v.x", ["a"]),
    ("SELECT * FROM (VALUES (1), (2)) v, a", ["a"]),
    ("VALUES (1, 2)", []),
    ("VALUES ((SELECT max(x) FROM a), 2)", ["a"]),
    ("TABLE orders", ["orders"]),
    ("TABLE a UNION ALL TABLE b.c", ["a", "b.c"]),
    ("SELECT * FROM (TABLE a) x", ["a"]),
    ("SELECT * FROM f(TABLE(a), TABLE(SELECT * FROM b))", ["a", "b"]),
    ("FROM a SELECT x WHERE y", ["a"]),
    ("FROM a", ["a"]),
    ("FROM a |> WHERE x IN (FROM b) |> JOIN c USING (x) |> SELECT x", ["a", "b", "c"]),
    ("(SELECT * FROM a) UNION (SELECT * FROM b) ORDER BY 1", ["a", "b"]),
    ("SELECT extract(DAY FROM x), trim(BOTH ' ' FROM y), substring(z FROM 2) FROM a", ["a"]),
    ("SELECT x IS DISTINCT FROM y, x IS NOT DISTINCT FROM z FROM a", ["a"]),
    ("SELECT 'FROM b', \"FROM c\", `FROM d` FROM a -- FROM e\n /* FROM f */", ["a"]),
    ("SELECT cast(x AS STRUCT<a: INT, b: ARRAY<INT>>) FROM a", ["a"]),
    ("SELECT transform(xs, x -> x + 1), m['k'], s.f[0].g FROM a", ["a"]),
    ("SELECT count(*) FILTER (WHERE x > 1) OVER (PARTITION BY y ORDER BY z) FROM a", ["a"]),
    ("SELECT x, row_number() OVER w FROM a WINDOW w AS (PARTITION BY x) LIMIT 3", ["a"]),
    ("SELECT * FROM a GROUP BY GROUPING SETS ((x), (y)) HAVING count(*) > 1", ["a"]),
    ("SELECT /*+ BROADCAST(a) */ * FROM a", ["a"]),
    ("SELECT * EXCEPT (x) FROM a", ["a"]),
    ("SELECT CASE WHEN x THEN 1 ELSE 2 END, x::INT, 3L, 1e5, .5 FROM a", ["a"]),
    ("SELECT * FROM a QUALIFY row_number() OVER (ORDER BY x) = 1", ["a"]),
    ("SELECT * FROM parquet.`/data/x` JOIN a", ["parquet.`/data/x`", "a"]),
    ("SELECT * FROM a ORDER BY x NULLS LAST CLUSTER BY y", ["a"]),
    ("SELECT '😀', x FROM `größe`.tëst AS t\r\n\tWHERE '😀' = x", ["`größe`.tëst"]),
    ("SELECT * FROM 2024_orders", ["2024_orders"]),
    # common table expressions
    ("WITH c AS (SELECT * FROM a) SELECT * FROM c JOIN b", ["a", "b"]),
    ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", ["orders"]),
    ("WITH c AS (SELECT * FROM a), d AS (SELECT * FROM c) SELECT * FROM d, C", ["a"]),
    ("WITH d AS (SELECT * FROM c), c AS (SELECT * FROM a) SELECT * FROM d, c", ["c", "a"]),
    ("WITH c(x, y) AS (SELECT * FROM a) SELECT * FROM c, shop.c", ["a", "shop.c"]),
    (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r JOIN a) SELECT * FROM r",
        ["a"],
    ),
    ("SELECT * FROM (WITH c AS (SELECT * FROM a) SELECT * FROM c) x, c", ["a", "c"]),
    ("WITH c AS (SELECT * FROM a) SELECT * FROM b WHERE x IN (SELECT x FROM c)", ["a", "b"]),
    ("WITH c AS (WITH d AS (SELECT * FROM a) SELECT * FROM d) SELECT * FROM c, d", ["a", "d"]),
    ("WITH `c` AS (SELECT 1) SELECT * FROM c, `C`, a", ["a"]),
    ("WITH orders_files AS (SELECT 1) SELECT * FROM orders$files", ["orders$files"]),
    # system tables
    ("SELECT * FROM orders$snapshots", ["orders$snapshots"]),
    ("SELECT * FROM db.orders$files f", ["db.orders$files"]),
    ("SELECT * FROM `db.orders$files` AS f", ["`db.orders$files`"]),
    ("SELECT * FROM db.`orders$branch_b$audit_log`, x", ["db.`orders$branch_b$audit_log`", "x"]),
    ("SELECT a$b.x FROM a$b WHERE EXISTS (SELECT * FROM c$d)", ["a$b", "c$d"]),
]


@pytest.mark.parametrize(("text", "expected"), READS)
def test_all_tables_of_a_query_are_collected(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(("text", "expected"), READS)
def test_scan_without_sqlglot_finds_the_same_tables(text, expected):
    tokens = tokenize(text)
    actual = scan_relations(Cursor(text, tokens))
    assert [tokens[i].start for i in actual] == [r.range.start for r in query_of(text).references]
    assert len(actual) == len(expected)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x:a.b::INT FROM orders",
        "SELECT * FROM orders TABLESAMPLE (BUCKET 1 OUT OF 4 ON x) WHERE x ~~ y",
        "SELECT TRANSFORM (x) USING 'cat' AS (y STRING) FROM orders",
        "SELECT x FROM orders WITHIN SOMETHING NEW (a, b) UNHEARD OF",
    ],
)
def test_unknown_syntax_is_left_to_spark(text):
    assert read(text) == ["orders"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", TableName("orders")),
        ("shop.orders", TableName("orders", "shop")),
        ("paimon.shop.Orders", TableName("Orders", "shop", "paimon")),
        ("orders$snapshots", TableName("orders", system_table="snapshots")),
        ("orders$SNAPSHOTS", TableName("orders", system_table="snapshots")),
        ("db.orders$files", TableName("orders", "db", system_table="files")),
        ("`orders$files`", TableName("orders", system_table="files")),
        ("db.`orders$files`", TableName("orders", "db", system_table="files")),
        ("`db.orders$files`", TableName("orders", "db", system_table="files")),
        ("`c.db.orders$files`", TableName("orders", "db", "c", system_table="files")),
        ("`db`.`orders`", TableName("orders", "db")),
        ("`db.orders`", TableName("db.orders")),
        ("orders$branch_b", TableName("orders", branch="b")),
        ("db.orders$branch_b$audit_log", TableName("orders", "db", None, "b", "audit_log")),
        ("db.`orders$branch_b$audit_log`", TableName("orders", "db", None, "b", "audit_log")),
        ("parquet.`/data/x`", TableName("/data/x", "parquet")),
        ("`a``b`.2024_x", TableName("2024_x", "a`b")),
        ("db.2024", TableName("2024", "db")),
    ],
)
def test_table_name_is_parsed_into_its_parts(name, expected):
    (reference,) = query_of(f"SELECT * FROM {name} WHERE true").references
    assert reference.name == expected
    assert not reference.has_alias


@pytest.mark.parametrize("name", ["a.b.c.d", "orders$a$b", "`$files`", "`orders$`"])
def test_impossible_table_names_are_left_to_spark(name):
    assert query_of(f"SELECT * FROM {name}").references == ()


@pytest.mark.parametrize(
    ("clause", "kind", "value"),
    [
        ("VERSION AS OF 3", "version", "3"),
        ("FOR VERSION AS OF 'tag'", "version", "'tag'"),
        ("FOR SYSTEM_VERSION AS OF 3", "version", "3"),
        ("system_version as of 3", "version", "3"),
        ("VERSION AS OF :v", "version", ":v"),
        ("TIMESTAMP AS OF '2024-01-01 00:00:00'", "timestamp", "'2024-01-01 00:00:00'"),
        ("FOR SYSTEM_TIME AS OF DATE '2024-01-01'", "timestamp", "DATE '2024-01-01'"),
        ("TIMESTAMP AS OF 1700000000", "timestamp", "1700000000"),
        (
            "TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY",
            "timestamp",
            "current_timestamp() - INTERVAL 1 DAY",
        ),
        ("TIMESTAMP AS OF (now())", "timestamp", "(now())"),
    ],
)
@pytest.mark.parametrize("behind", ["", " AS o", " o", " WHERE true", " JOIN b ON true"])
def test_time_travel_belongs_to_the_reference(clause, kind, value, behind):
    text = f"SELECT * FROM shop.orders {clause}{behind}"
    reference = query_of(text).references[0]
    assert reference.time_travel == TimeTravel(kind, value)
    assert texts(text, (reference.range,)) == [f"shop.orders {clause}"]
    assert reference.has_alias == (behind in (" AS o", " o"))


@pytest.mark.parametrize("word", ["version", "timestamp", "system_time"])
def test_time_travel_keyword_may_be_an_alias(word):
    (reference,) = query_of(f"SELECT {word}.x FROM orders {word}").references
    assert reference.time_travel is None
    assert reference.alias == word


@pytest.mark.parametrize(
    ("text", "alias", "has_alias"),
    [
        ("SELECT * FROM shop.orders", "orders", False),
        ("SELECT * FROM shop.orders o", "o", True),
        ("SELECT * FROM shop.orders AS `o p`(x, y)", "o p", True),
        ("SELECT * FROM orders WHERE x", "orders", False),
        ("SELECT * FROM orders$files", "orders$files", False),
        ("SELECT * FROM orders VERSION AS OF 1 o", "o", True),
        ("SELECT * FROM orders LEFT JOIN b", "orders", False),
        ("FROM orders SELECT 1", "orders", False),
    ],
)
def test_alias_defaults_to_the_last_part_of_the_name(text, alias, has_alias):
    reference = query_of(text).references[0]
    assert (reference.alias, reference.has_alias) == (alias, has_alias)


def test_alias_position_is_behind_a_sample():
    text = "SELECT * FROM orders TABLESAMPLE (5 ROWS) JOIN b"
    reference = query_of(text).references[0]
    assert text[: reference.alias_position].endswith("(5 ROWS)")


def test_options_of_a_relation_are_parsed():
    text = "SELECT * FROM orders WITH ('scan.snapshot-id' = 3, write-only = true) o JOIN b"
    reference, _ = query_of(text).references
    assert reference.options == (("scan.snapshot-id", "3"), ("write-only", "true"))
    assert texts(text, (reference.range,)) == [
        "orders WITH ('scan.snapshot-id' = 3, write-only = true)"
    ]
    assert reference.alias == "o"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT shop.orders.id FROM shop.orders", [["shop.orders"]]),
        ("SELECT SHOP.Orders.id, shop.orders.* FROM shop.orders", [["SHOP.Orders", "shop.orders"]]),
        (
            "SELECT paimon.shop.orders.id, shop.orders.x FROM paimon.shop.orders",
            [["paimon.shop.orders", "shop.orders"]],
        ),
        ("SELECT paimon.shop.orders.id FROM shop.orders", [["paimon.shop.orders"]]),
        ("SELECT `shop`.`orders`.`id`.f FROM shop.orders", [["`shop`.`orders`"]]),
        ("SELECT shop /**/ . orders.id FROM shop.orders", [["shop /**/ . orders"]]),
        ("SELECT orders.id, id FROM shop.orders", [[]]),
        ("SELECT shop.orders.id FROM shop.orders AS o", [[]]),
        ("SELECT shop.orders.id FROM orders", [[]]),
        ("SELECT a.shop.orders.id FROM shop.orders, a", [[], []]),
        ("SELECT shop.orders.id FROM shop.orders, other AS shop", [[], []]),
        ("SELECT shop.orders.id FROM shop.orders, (SELECT 1) shop", [[]]),
        ("SELECT shop.orders.id FROM shop.orders, shop", [[], []]),
        (
            "SELECT 1 FROM shop.orders WHERE EXISTS (SELECT 1 FROM b WHERE b.x = shop.orders.x)",
            [["shop.orders"], []],
        ),
        (
            "SELECT shop.orders.x FROM shop.orders UNION SELECT shop.lines.x FROM shop.lines",
            [["shop.orders"], ["shop.lines"]],
        ),
        ("SELECT orders$files.level FROM orders$files", [["orders$files"]]),
        ("SELECT db.orders$files.level FROM db.orders$files", [["db.orders$files"]]),
        ("SELECT shop.orders(1) FROM shop.orders", [[]]),
        ("SELECT 'shop.orders.id' FROM shop.orders", [[]]),
    ],
)
def test_columns_qualified_by_a_database_are_located(text, expected):
    assert [texts(text, r.qualifiers) for r in query_of(text).references] == expected


def test_same_table_names_of_two_databases_get_their_own_aliases():
    text = "SELECT a.orders.x, b.orders.y FROM a.orders JOIN b.orders ON a.orders.x = b.orders.x"
    first, second = query_of(text).references
    assert (first.alias, second.alias) == ("a_orders", "b_orders")
    assert texts(text, first.qualifiers) == ["a.orders", "a.orders"]
    assert texts(text, second.qualifiers) == ["b.orders", "b.orders"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT :a, :b, :a FROM t", ("a", "b")),
        ("SELECT ':a', \":b\", `:c` /* :d */ -- :e\n FROM t", ()),
        ("SELECT x::INT, y :: STRING FROM t", ()),
        ("SELECT v:field, v:a.b, f(x):c, (x):d, `v`:e, m[1]:f FROM t", ()),
        ("SELECT x FROM t WHERE y=:day AND z IN(:p, :q) LIMIT :n", ("day", "p", "q", "n")),
        ("SELECT x FROM t WHERE y BETWEEN:lo AND:hi", ("lo", "hi")),
        ("SELECT CAST(x AS STRUCT<a: INT, b : STRING>) = :s FROM t", ("s",)),
        ("SELECT x[:i], map('k', :v) FROM t", ("i", "v")),
        ("SELECT * FROM t VERSION AS OF :v", ("v",)),
        ("SELECT * FROM a WHERE x = :1_day OR x=-:n", ("1_day", "n")),
    ],
)
def test_bind_parameters_are_distinguished_from_casts_and_paths(text, expected):
    assert query_of(text).parameters == expected


@pytest.mark.parametrize(
    ("text", "is_values"),
    [
        ("VALUES (1, 2), (3, 4)", True),
        ("VALUES 1, 2", True),
        ("VALUES (1) AS t(x)", True),
        ("VALUES (:a, f(1))", True),
        ("VALUES (1) UNION SELECT 2", False),
        ("VALUES (1) ORDER BY 1", False),
        ("VALUES ((SELECT max(x) FROM t))", False),
        ("SELECT * FROM VALUES (1)", False),
    ],
)
def test_bare_values_list_is_recognised(text, is_values):
    assert query_of(text).is_values == is_values


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("SELEC 1", "SELEC", "`SELECT`"),
        ("INSRET INTO t SELECT 1", "INSRET", "`INSERT`"),
        ("SELECT (1", "(1", "never closed"),
        ("SELECT 1)", ")", "has no opening bracket"),
        ("SELECT f(1]", "]", "has no opening bracket"),
        ("SELECT FROM WHERE", "WHERE", "Expected a table's name"),
        ("SELECT * FROM", None, "the statement ends"),
        ("SELECT * FROM a JOIN", None, "the statement ends"),
        ("SELECT * FROM a JOIN WHERE x", "WHERE", "Expected a table's name"),
        ("SELECT * FROM a.(x)", "(x)", "after the dot"),
        ("SELECT * FROM a VERSION AS OF WHERE x", "WHERE", "a snapshot's number"),
        ("SELECT * FROM a TIMESTAMP AS OF", None, "a time in quotes"),
        ("SELECT ? FROM t", "?", ":name"),
        ("SELECT 1 FROM (SELECT * FROM ) x", ") x", "Expected a table's name"),
        ("WITH c (SELECT 1), SELECT * FROM c", ",", "`(`"),
        ("'SELECT 1'", "'SELECT", "No statement begins"),
        ("1 + 1", "1", "No statement begins"),
    ],
)
def test_invalid_sql_is_an_error_at_its_position(text, at, words):
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)
    assert caught.value.position == (len(text) if at is None else text.index(at))
    assert words in str(caught.value)
    assert "^" in caught.value.text()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * FROM vector_search('t', 'c', array(1f), 5)", "vector_search"),
        ("INSERT INTO t SELECT sys.path_to_descriptor('/a.jpg')", "path_to_descriptor"),
        ("SELECT sys.descriptor_to_string(c) FROM t", "descriptor_to_string"),
        ("SELECT * FROM IDENTIFIER(:t)", "IDENTIFIER(…) as a name"),
        ("SELECT * FROM t /*+ OPTIONS('scan.snapshot-id' = '1') */", "/*+ OPTIONS(…) */"),
        ("SELECT /* all */ /*+ options(1) */ * FROM t", "/*+ OPTIONS(…) */"),
        ("INSERT INTO t /*+ OPTIONS('a' = '1') */ SELECT 1", "/*+ OPTIONS(…) */"),
        ("FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *", "FROM … INSERT"),
    ],
)
def test_unsupported_reads_are_refused_by_name(text, kind):
    statement = parse_statement(text)
    assert isinstance(statement, Refused)
    assert statement.kind == kind


def test_deeply_nested_query_is_a_syntax_error():
    text = "SELECT * FROM a WHERE " + "(" * 5000 + "x" + ")" * 5000
    with pytest.raises(StatementSyntaxError, match="nested too deeply"):
        parse_statement(text)


def test_query_is_parsed_within_a_longer_statement():
    text = "CACHE TABLE c AS SELECT * FROM orders WHERE x = :a"
    query = read_query(Cursor(text, tokenize(text), index=4))
    assert text[query.range.start : query.range.end] == "SELECT * FROM orders WHERE x = :a"
    assert texts(text, tuple(r.range for r in query.references)) == ["orders"]


@pytest.mark.parametrize(
    ("rows", "decimals"),
    [
        ("(1, 1D), (2, 9007199254740993)", {"1D": "1BD"}),
        ("(1, -2.5e1), (2, 123456789012345678.12)", {"2.5e1": "2.5e1BD"}),
        ("(1, 1F), (2, 16777217)", {"1F": "1BD"}),
        ("(1e1), (9007199254740993)", {"1e1": "1e1BD"}),
        ("(1, 1D), (2, 900719925474099)", {}),  # a DOUBLE holds it
        ("(1D, 1), (2, 9007199254740993)", {}),  # in another column
        ("(sqrt(2D)), (9007199254740993)", {}),  # a value that is computed
        ("(1BD), (9007199254740993)", {}),
        ("(1e1), (1.5)", {}),
    ],
)
def test_double_beside_a_longer_number_is_read_as_a_decimal(
    rows: str, decimals: dict[str, str]
) -> None:
    text = f"INSERT INTO t VALUES {rows}"
    insert = parse_statement(text)
    assert isinstance(insert, Insert)
    places = insert.source.decimals
    assert {text[place.start : place.end]: decimal for place, decimal in places} == decimals


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '/*+ OPTIONS(1) */' FROM t",
        "SELECT 1 FROM t -- /*+ OPTIONS(1) */\n",
        "SELECT 1 /* was: /*+ OPTIONS(1) */ */ FROM t",
        "SELECT /*+ BROADCAST(t) */ 1 FROM t",
    ],
)
def test_a_hint_with_options_is_refused_only_where_it_is_a_hint(text: str) -> None:
    assert isinstance(parse_statement(text), Query)
