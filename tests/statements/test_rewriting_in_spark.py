"""What Spark returns for a rewritten query is what it returns for the query as written.

The queries run first against Spark's own tables `shop.orders`, `shop.lines`, `depot.orders` and
the temporary views `people` and `` `people$files` ``. Then those are dropped, and the rewritten
queries run against views of other names: a reference that was missed can't be read any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import replacements_for, rewrite
from paimon_magics.statements.statement import Query
from tests.sampling import sampled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

QUERIES = [
    "SELECT * FROM shop.orders",
    "SELECT orders.* FROM shop.orders",
    "SELECT shop.orders.* FROM shop.orders",
    "SELECT shop.orders.id, orders.amount, id FROM shop.orders",
    "SELECT spark_catalog.shop.orders.id FROM spark_catalog.shop.orders",
    "SELECT shop.orders.id, orders.id FROM spark_catalog.shop.orders",
    "SELECT SHOP.Orders.ID FROM Shop.ORDERS",
    "SELECT `shop`.`orders`.`id` FROM `shop`.`orders`",
    "SELECT shop /* a */ . /* b */ orders.id FROM shop /* c */ . -- d\n orders",
    "SELECT '😀', '🚀' AS `ü😀`,\t shop.orders.id\r\nFROM\tshop.orders\r\nWHERE '😀' <> 'x'",
    "SELECT o.id FROM shop.orders o",
    "SELECT o.id FROM shop.orders AS o WHERE o.amount > 15",
    "SELECT `o p`.id FROM shop.orders AS `o p`",
    "SELECT x.a FROM shop.orders AS x(a, b, c, d)",
    "SELECT address.zip, orders.address.zip, shop.orders.address.zip FROM shop.orders",
    "SELECT shop.orders.address.* FROM shop.orders",
    "SELECT max(shop.orders.amount) FROM shop.orders GROUP BY shop.orders.person HAVING "
    "max(shop.orders.amount) > 10",
    "SELECT shop.orders.id FROM shop.orders ORDER BY shop.orders.amount DESC LIMIT 2",
    "SELECT orders.id, lines.item FROM shop.orders JOIN shop.lines ON orders.id = lines.order_id",
    "SELECT shop.orders.id, shop.lines.item FROM shop.orders LEFT JOIN shop.lines "
    "ON shop.orders.id = shop.lines.order_id AND shop.lines.item <> 'nut'",
    "SELECT * FROM shop.orders NATURAL JOIN people",
    "SELECT * FROM shop.orders JOIN people USING (person)",
    "SELECT person FROM shop.orders LEFT ANTI JOIN people USING (person)",
    "SELECT a.id, b.id FROM shop.orders a, shop.orders b WHERE a.id < b.id",
    "SELECT shop.orders.id, depot.orders.place FROM shop.orders JOIN depot.orders "
    "ON shop.orders.id = depot.orders.id",
    "SELECT shop.orders.id FROM shop.orders WHERE EXISTS "
    "(SELECT 1 FROM depot.orders WHERE depot.orders.id = shop.orders.id)",
    "SELECT shop.orders.id FROM shop.orders WHERE EXISTS "
    "(SELECT 1 FROM shop.lines WHERE shop.lines.order_id = shop.orders.id)",
    "SELECT id FROM shop.orders WHERE id NOT IN (SELECT order_id FROM shop.lines)",
    "SELECT id, (SELECT count(*) FROM shop.lines WHERE lines.order_id = orders.id) AS n "
    "FROM shop.orders",
    "SELECT orders.id, l.item FROM shop.orders, LATERAL "
    "(SELECT item FROM shop.lines WHERE order_id = orders.id) l",
    "SELECT orders.id, l.item FROM shop.orders LEFT JOIN LATERAL "
    "(SELECT item FROM shop.lines WHERE order_id = shop.orders.id) l ON true",
    "SELECT id, part FROM shop.orders LATERAL VIEW explode(split(person, 'n')) p AS part",
    "SELECT orders.id, p.col FROM shop.orders, LATERAL explode(array(1, 2)) p",
    "SELECT * FROM (SELECT id FROM shop.orders UNION ALL SELECT order_id FROM shop.lines) u",
    "SELECT id FROM shop.orders EXCEPT SELECT order_id FROM shop.lines",
    "(SELECT id FROM shop.orders) INTERSECT (SELECT order_id FROM shop.lines)",
    "SELECT * FROM (shop.orders JOIN shop.lines ON orders.id = lines.order_id)",
    "SELECT * FROM shop.orders PIVOT (sum(amount) FOR person IN ('ann', 'bob'))",
    "SELECT * FROM (SELECT id, person, amount FROM shop.orders) "
    "PIVOT (max(amount) FOR person IN ('ann' AS a))",
    "SELECT * FROM depot.orders UNPIVOT (v FOR n IN (id, weight))",
    "SELECT count(*) FROM shop.orders TABLESAMPLE (100 PERCENT)",
    "SELECT orders.id FROM shop.orders TABLESAMPLE (100 PERCENT) WHERE orders.id > 1",
    "SELECT o.id FROM shop.orders TABLESAMPLE (2 ROWS) AS o",
    "SELECT id, row_number() OVER (PARTITION BY shop.orders.person ORDER BY id) FROM shop.orders",
    "SELECT id, sum(amount) OVER w FROM shop.orders WINDOW w AS (ORDER BY id)",
    "SELECT count(*) FILTER (WHERE shop.orders.amount > 10) FROM shop.orders",
    "SELECT extract(YEAR FROM DATE '2024-01-01'), trim(BOTH 'a' FROM person) FROM shop.orders",
    "SELECT id FROM shop.orders WHERE person IS DISTINCT FROM 'ann'",
    "SELECT CASE WHEN shop.orders.amount > 10 THEN 'shop.orders.id' END AS c FROM shop.orders",
    "SELECT /*+ BROADCAST(lines) */ orders.id FROM shop.orders JOIN shop.lines ON id = order_id",
    "SELECT transform(array(1, 2), x -> x + shop.orders.id) AS t FROM shop.orders",
    "SELECT id::STRING, amount::DOUBLE FROM shop.orders",
    "SELECT * EXCEPT (address) FROM shop.orders",
    "TABLE shop.lines",
    "TABLE shop.lines UNION TABLE shop.lines",
    "FROM shop.orders SELECT id WHERE amount > 10",
    "FROM shop.orders |> WHERE amount > 10 |> SELECT id, person",
    "FROM shop.orders |> JOIN shop.lines ON orders.id = lines.order_id |> SELECT item",
    "WITH orders AS (SELECT id FROM shop.orders) SELECT orders.id FROM orders",
    "WITH people AS (SELECT * FROM people WHERE age > 30) SELECT * FROM people",
    "WITH a AS (SELECT * FROM people), b AS (SELECT * FROM a) SELECT b.person FROM b JOIN a "
    "USING (person)",
    "WITH c(x) AS (SELECT id FROM shop.orders) SELECT c.x, shop.lines.item FROM c "
    "JOIN shop.lines ON c.x = shop.lines.order_id",
    "SELECT * FROM (WITH people AS (SELECT 1 AS one) SELECT * FROM people) x, people",
    "WITH RECURSIVE r(n) AS (SELECT min(id) FROM shop.orders UNION ALL "
    "SELECT n + 1 FROM r WHERE n < (SELECT max(id) FROM shop.orders)) SELECT n FROM r",
    "WITH c AS (WITH d AS (SELECT * FROM people) SELECT * FROM d) SELECT * FROM c",
    "SELECT * FROM people, range(2)",
    "SELECT people.person, v.x FROM people JOIN VALUES ('ann', 1), ('bob', 2) AS v(p, x) "
    "ON people.person = v.p",
    "SELECT * FROM `people$files`",
    "SELECT `people$files`.level FROM `people$files` JOIN people ON level < age",
    "SELECT (SELECT max(`people$files`.level) FROM `people$files`) AS m FROM people",
    "SELECT people.age FROM people GROUP BY people.age ORDER BY people.age",
    "SELECT age, count(*) FROM people GROUP BY GROUPING SETS ((age), ())",
    "SELECT shop.orders.id FROM shop.orders UNION SELECT depot.orders.id FROM depot.orders",
    "SELECT s.orders.id FROM (SELECT struct(id) AS orders FROM shop.orders) s",
    "SELECT people.shop.orders FROM (SELECT struct(1 AS orders) AS shop) people, shop.orders",
]

TABLES = {
    "shop.orders": "SELECT id, person, amount, struct('z' || id AS zip) AS address FROM VALUES "
    "(1, 'ann', 10), (2, 'bob', 20), (3, 'ann', 30), (4, 'cid', NULL) AS t(id, person, amount)",
    "shop.lines": "SELECT * FROM VALUES (1, 'nut'), (1, 'bolt'), (3, 'nut') AS t(order_id, item)",
    "depot.orders": "SELECT * FROM VALUES (1, 7, 'a'), (4, 8, 'b') AS t(id, weight, place)",
}
VIEWS = {
    "people": "SELECT * FROM VALUES ('ann', 31), ('bob', 28) AS t(person, age)",
    "people$files": "SELECT * FROM VALUES (0), (5), (29) AS t(level)",
}


def rows(spark: SparkSession, text: str) -> tuple[list[str], list[str]]:
    """Column names, and rows as sorted texts."""
    frame = spark.sql(text)
    return frame.columns, sorted(str(tuple(row)) for row in frame.collect())


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> Iterator[dict[str, tuple[list[str], list[str]]]]:
    """Each query's columns and rows as written; afterwards only views of other names are left.

    How a query is run is of no interest here: with as few tasks and jobs as can be.
    """
    settings = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    for database in ("shop", "depot"):
        spark.sql(f"CREATE DATABASE {database}")
    for name, query in TABLES.items():
        spark.sql(f"CREATE VIEW {name} AS {query}")
    for name, query in VIEWS.items():
        spark.sql(f"CREATE TEMPORARY VIEW `{name}` AS {query}")
    written = {text: rows(spark, text) for text in QUERIES}
    for database in ("shop", "depot"):
        spark.sql(f"DROP DATABASE {database} CASCADE")
    for name in VIEWS:
        spark.sql(f"DROP VIEW `{name}`")
    for name, query in (TABLES | VIEWS).items():
        spark.sql(f"CREATE TEMPORARY VIEW `{view_name(name)}` AS {query}")
    yield written
    for name in TABLES | VIEWS:
        spark.sql(f"DROP VIEW `{view_name(name)}`")
    for name, value in before.items():
        spark.conf.set(name, str(value))


def view_name(table: str) -> str:
    return "read of " + table


def rewritten(text: str) -> str:
    statement = parse_statement(text)
    assert isinstance(statement, Query), statement
    replacements = []
    for reference in statement.query.references:
        parts = (reference.name.database, reference.name.object_name)
        name = ".".join(p.lower() for p in parts if p is not None)
        replacements += replacements_for(reference, view_name(name))
    return rewrite(text, statement.query.range, replacements).text


@pytest.mark.parametrize("text", sampled(QUERIES))
def test_rewritten_query_returns_the_same_rows(spark, results, text):
    assert rows(spark, rewritten(text)) == results[text]


@pytest.mark.parametrize("text", [q for q in QUERIES if "WITH " not in q])
def test_references_match_sparks_parser(spark, text):
    statement = parse_statement(text)
    assert isinstance(statement, Query)
    actual = sorted(str(r.name).lower() for r in statement.query.references)
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text).toString()
    names = re.findall(r"UnresolvedRelation \[([^\]]*)\]", plan)
    assert actual == sorted(n.replace(", ", ".").lower() for n in names)
