"""What may come at a place of an unfinished cell; `|` is the cursor."""

from __future__ import annotations

import pytest

from paimon_magics.statements.completion.completing import expected_at
from paimon_magics.statements.completion.scopes import Seen
from paimon_magics.statements.completion.wants import (
    ArgumentValues,
    BindNames,
    Columns,
    Databases,
    Expected,
    Fields,
    Keywords,
    Options,
    OptionValues,
    PartitionColumns,
    PartitionValues,
    ProcedureParameters,
    Procedures,
    SystemTables,
    Tables,
    Times,
    Versions,
    Want,
)
from paimon_magics.statements.completion.words import OPERATORS
from paimon_magics.statements.statement import TableName

T = TableName("t")
ORDERS = TableName("orders", "shop")
A_TABLE = (Tables(None), Databases())
MERGE = "MERGE INTO t USING s ON t.id = s.id"
WHENS = ("WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE")


def at(text: str) -> Expected:
    return expected_at(text.replace("|", ""), text.index("|"))


def wanted(text: str, kind: type) -> list[Want]:
    return [want for want in at(text).wants if isinstance(want, kind)]


@pytest.mark.parametrize(
    ("text", "typed", "wants"),
    [
        ("SELECT * FROM shop.or|", "or", (Tables("shop"),)),
        ("SELECT * FROM `shop`.`or|", "or", (Tables("shop"),)),
        ("SELECT * FROM paimon.shop.|", "", (Tables("shop"),)),
        ("INSERT INTO |", "", (Tables(None), Databases())),
        ("SELECT 1; TRUNCATE TABLE t|", "t", (Tables(None), Databases())),
        ("DROP TABLE IF EXISTS |", "", (Tables(None), Databases())),
        ("SHOW PARTITIONS |", "", (Tables(None), Databases())),
        ("SHOW COLUMNS IN |", "", (Tables(None), Databases())),
        ("USE sh|", "sh", (Databases(),)),
        ("SHOW TABLES IN |", "", (Databases(),)),
        ("SELECT * FROM shop.orders$au|", "au", (SystemTables(),)),
        ("SELECT * FROM t WHERE id = :da|", "da", (BindNames(),)),
        ("CALL |", "", (Procedures(is_qualified=False),)),
        ("CALL sys.cr|", "cr", (Procedures(is_qualified=True),)),
        ("CALL sys.create_tag(|", "", (ProcedureParameters("create_tag"),)),
        ("CALL sys.compact((|", "", (ProcedureParameters(""),)),
        ("CALL sys.create_tag('|", "", (ArgumentValues("create_tag", 0, None),)),
        ("CALL sys.create_tag('t', |", "", (ArgumentValues("create_tag", 1, T),)),
        ("CALL sys.create_tag(tag => 'a', |", "", (ProcedureParameters("create_tag"),)),
        (
            "CALL sys.rollback(table => 't', version => '|')",
            "",
            (ArgumentValues("rollback", "version", T),),
        ),
        (
            "CALL sys.rename_tag(tag => 'a', table => 't', target_tag => '|')",
            "",
            (ArgumentValues("rename_tag", "target_tag", T),),
        ),
        ("SELECT * FROM t VERSION AS OF |", "", (Versions(T),)),
        ("SELECT * FROM paimon_incremental_query('|", "", (Tables(None), Databases())),
        ("SELECT * FROM paimon_incremental_query('t', |", "", (Versions(T),)),
        ("SELECT * FROM paimon_incremental_between_timestamp('t', '|", "", (Times(T),)),
        ("SELECT * FROM paimon_incremental_between_timestamp('t', 1, |", "", (Times(T),)),
        ("SELECT * FROM paimon_incremental_between_timestamp('|", "", (Tables(None), Databases())),
        ("SELECT o.a.b| FROM shop.orders o", "b", (Fields((Seen("o", ORDERS),), ("a",)),)),
        ("SELECT a.| FROM t", "", (Fields((Seen("t", T),), ("a",)),)),
        ("SELECT * FROM t WHERE `a|", "a", (Columns((Seen("t", T),)),)),
        ("SELECT `a b| FROM `t`", "a b", (Columns((Seen("t", T),)),)),
        (
            "CREATE TABLE t (a INT, `b c` INT) PARTITIONED BY (|",
            "",
            (Columns((Seen("", None, ("a", "b c")),)),),
        ),
        ("INSERT |", "", ()),
        ("MERGE INTO |", "", (Tables(None), Databases())),
        (f"{MERGE} WHEN NOT MATCHED THEN INSERT (id, |", "", (Columns((Seen("t", T),)),)),
        (f"{MERGE} WHEN MATCHED THEN UPDATE SET |", "", (Columns((Seen("t", T),)),)),
        (f"{MERGE} WHEN MATCHED THEN UPDATE SET v = s.v, |", "", (Columns((Seen("t", T),)),)),
        ("COPY INTO |", "", (Tables(None), Databases())),
        ("COPY INTO shop.orders (id, |", "", (Columns((Seen("", ORDERS),)),)),
        ("COPY INTO t FROM |", "", ()),
        ("COPY INTO '/x' FROM |", "", (Tables(None), Databases())),
        ("DELETE FROM |", "", (Tables(None), Databases())),
        ("DELETE FROM shop.or|", "or", (Tables("shop"),)),
        ("DELETE FROM shop.orders o WHERE o.|", "", (Columns((Seen("o", ORDERS),)),)),
        ("DELETE FROM t WHERE id IN (SELECT 1 FROM |", "", A_TABLE),
        ("UPDATE |", "", (Tables(None), Databases())),
        ("UPDATE shop.or|", "or", (Tables("shop"),)),
        ("UPDATE t SET |", "", (Columns((Seen("t", T),)),)),
        ("UPDATE t SET a = greatest(b, 1), c| WHERE d", "c", (Columns((Seen("t", T),)),)),
        ("UPDATE t SET s.|", "", (Fields((Seen("t", T),), ("s",)),)),
        ("MERGE INTO t USING sh|", "sh", (Tables(None), Databases())),
        ("SELECT * FROM a JOIN t VERSION AS OF '|", "", (Versions(T),)),
        ("ALTER TABLE t DELETE TAG |", "", (Versions(T, snapshots=False),)),
        ("ALTER TABLE shop.orders DROP COLUMN |", "", (Columns((Seen("", ORDERS),)),)),
        ("DESCRIBE EXTENDED t |", "", (Columns((Seen("", T),)),)),
        ("ALTER TABLE t CREATE OR REPLACE TAG |", "", (Versions(T, snapshots=False),)),
        ("INSERT INTO t (|", "", (Columns((Seen("", T),)),)),
        ("INSERT OVERWRITE t PARTITION (|) SELECT 1", "", (PartitionColumns(T),)),
        ("INSERT OVERWRITE t PARTITION (dt = '|", "", (PartitionValues((Seen("", T),), "dt"),)),
        ("CREATE TABLE t (a INT) TBLPROPERTIES ('buc|", "buc", (Options(),)),
        ("CREATE TABLE t (a INT) TBLPROPERTIES ('a' = 'b', '|", "", (Options(),)),
        ("ALTER TABLE t SET TBLPROPERTIES ('bucket' = '|", "", (OptionValues("bucket"),)),
        ("SELECT * FROM t WITH ('|", "", (Options(of_reads=True),)),
        ("INSERT INTO t VALUES (|", "", ()),
        ("SELECT 'a |", "a ", ()),
        ("SELECT 1 -- a remark |", "", ()),
        ("SELECT 1 /* a remark |", "", ()),
    ],
)
def test_completion_offers_the_kinds_of_names_for_the_cursor(
    text: str, typed: str, wants: tuple[Want, ...]
) -> None:
    actual = at(text)
    named = tuple(want for want in actual.wants if not isinstance(want, Keywords))
    assert (actual.typed, named) == (typed, wants)
    assert actual.start == text.index("|") - len(typed)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT | FROM shop.orders o", (Seen("o", ORDERS),)),
        ("SELECT o.| FROM t, shop.orders AS o", (Seen("o", ORDERS),)),
        ("SELECT * FROM t JOIN shop.orders ON |", (Seen("t", T), Seen("orders", ORDERS))),
        ("SELECT * FROM t WHERE a = 1 AND |", (Seen("t", T),)),
        ("SELECT a FROM t GROUP BY |", (Seen("t", T),)),
        ("INSERT INTO t SELECT | FROM shop.orders", (Seen("orders", ORDERS),)),
        ("SELECT 1 FROM t UNION SELECT | FROM shop.orders", (Seen("orders", ORDERS),)),
        ("FROM t SELECT |", (Seen("t", T),)),
        ("DELETE FROM t WHERE |", (Seen("t", T),)),
        ("UPDATE shop.orders SET a = 1, b = |", (Seen("orders", ORDERS),)),
        ("UPDATE t SET a = 1 WHERE b = 2 AND |", (Seen("t", T),)),
        ("DELETE FROM t WHERE EXISTS (SELECT 1 FROM shop.orders o WHERE o.|", (Seen("o", ORDERS),)),
        (f"{MERGE} WHEN MATCHED AND |", (Seen("t", T), Seen("s", TableName("s")))),
        ("MERGE INTO t USING shop.orders o ON |", (Seen("t", T), Seen("o", ORDERS))),
        (
            "MERGE INTO t USING (SELECT 1 AS a) o ON t.a = o.a WHEN MATCHED THEN UPDATE SET v = |",
            (Seen("t", T), Seen("o", None, ("a",))),
        ),
        ("SELECT (SELECT max(a) FROM t WHERE t.k = o.|) FROM shop.orders o", (Seen("o", ORDERS),)),
        (
            "WITH a AS (SELECT id, x + 1 AS y FROM t) SELECT | FROM a",
            (Seen("a", None, ("id", "y")),),
        ),
        ("WITH a (n) AS (SELECT id FROM t) SELECT a.| FROM a", (Seen("a", None, ("n",)),)),
        (
            "SELECT s.| FROM (SELECT id, * FROM t) s",
            (Seen("s", None, ("id",), (Seen("t", T),)),),
        ),
        ("SELECT | FROM t VERSION AS OF 3 old WHERE old.id = 1", (Seen("old", T),)),
        ("SELECT | FROM (t JOIN shop.orders", (Seen("t", T),)),
        ("EXPLAIN SELECT | FROM t", (Seen("t", T),)),
    ],
)
def test_completion_offers_columns_of_the_relations_in_scope(
    text: str, columns: tuple[Seen, ...]
) -> None:
    (actual,) = wanted(text, Columns)
    assert isinstance(actual, Columns)
    assert actual.relations == columns


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE dt = '|'",
        "SELECT * FROM t WHERE dt >= |",
        "SELECT * FROM t WHERE id = 1 AND dt IN ('a', '|",
        "SELECT * FROM t WHERE dt NOT IN (|",
        "SELECT * FROM t WHERE dt BETWEEN '|",
    ],
)
def test_completion_offers_values_of_the_compared_column(text: str) -> None:
    assert wanted(text, PartitionValues) == [PartitionValues((Seen("t", T),), "dt")]


@pytest.mark.parametrize(
    ("text", "offered", "not_offered"),
    [
        ("|", "INSERT INTO", "WHERE"),
        ("SELECT 1;\n|", "SELECT", "FROM t"),
        ("SELECT a |", "FROM", "INSERT INTO"),
        ("SELECT * FROM t |", "WHERE", "AND"),
        ("SELECT * FROM t WHERE a = 1 |", "GROUP BY", "FROM"),
        ("SELECT * FROM t GROUP |", "BY", "HAVING"),
        ("SELECT * FROM t WHERE a IS |", "NOT NULL", "AND"),
        ("ALTER TABLE shop.orders |", "ADD COLUMNS (", "SELECT"),
        ("ALTER TABLE t ALTER COLUMN c |", "SET NOT NULL", "ADD COLUMNS ("),
        ("INSERT INTO t |", "PARTITION (", "WHERE"),
        ("CREATE TABLE t (a |", "BIGINT", "SELECT"),
        ("CREATE TABLE t (a INT) |", "PARTITIONED BY (", "BIGINT"),
        ("SHOW |", "TABLES", "WHERE"),
        ("COPY INTO t |", "FROM", "WHERE"),
        ("COPY INTO t FROM '/x' |", "FILE_FORMAT = (TYPE = CSV)", "OVERWRITE = TRUE"),
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = CSV, |", "SKIP_HEADER = 1", "FROM"),
        ("COPY INTO t FROM '/x' ON_ERROR = |", "SKIP_FILE", "FORCE = TRUE"),
        ("COPY INTO '/x' FROM t |", "OVERWRITE = TRUE", "FORCE = TRUE"),
    ],
)
def test_completion_offers_keywords_valid_at_the_cursor(
    text: str, offered: str, not_offered: str
) -> None:
    actual = {word for want in at(text).wants if isinstance(want, Keywords) for word in want.words}
    assert offered in actual
    assert not_offered not in actual


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DELETE |", ("FROM",)),
        ("DELETE FROM shop.orders |", ("AS", "WHERE")),
        ("DELETE FROM t WHERE id |", OPERATORS),
        ("UPDATE shop.orders |", ("AS", "SET")),
        ("UPDATE t SET a = 1 |", (*OPERATORS, "WHERE")),
        ("MERGE INTO t |", ("AS", "USING")),
        ("MERGE INTO t USING s AS x |", ("AS", "ON")),
        (f"{MERGE} |", (*OPERATORS, *WHENS)),
        (f"{MERGE} WHEN |", tuple(each.removeprefix("WHEN ") for each in WHENS)),
        (f"{MERGE} WHEN MATCHED |", ("AND", "THEN")),
        (f"{MERGE} WHEN NOT MATCHED |", ("AND", "THEN", "BY SOURCE")),
        (f"{MERGE} WHEN NOT MATCHED AND s.id > 3 |", (*OPERATORS, "THEN")),
        (f"{MERGE} WHEN NOT MATCHED THEN |", ("INSERT *", "INSERT (")),
        (f"{MERGE} WHEN NOT MATCHED THEN INSERT (id) |", ("VALUES (",)),
        (f"{MERGE} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) |", WHENS),
        (
            f"{MERGE} WHEN NOT MATCHED BY SOURCE AND CASE WHEN t.a THEN 1 END = 1 THEN |",
            ("UPDATE SET", "UPDATE SET *", "DELETE"),
        ),
        (f"{MERGE} WHEN MATCHED THEN UPDATE SET * |", WHENS),
        (f"{MERGE} WHEN MATCHED THEN DELETE |", WHENS),
    ],
)
def test_completion_offers_keywords_of_row_changes(text: str, words: tuple[str, ...]) -> None:
    (keywords,) = wanted(text, Keywords)
    assert keywords == Keywords(words)


@pytest.mark.parametrize("text", ["SELECT * FROM t WHERE dt = |", "SELECT o.| FROM orders o"])
def test_completion_offers_no_keywords_for_a_value_or_column(text: str) -> None:
    assert wanted(text, Keywords) == []


def test_completion_accepts_every_prefix_of_a_statement() -> None:
    text = (
        "EXPLAIN WITH a AS (SELECT `x`, 'y' FROM s.t VERSION AS OF 'v') INSERT OVERWRITE u "
        "PARTITION (d = :d) SELECT a.*, [1], {f(x)} FROM a LEFT JOIN (b) ON a.x = b.x -- no\n"
        "WHERE x IN (SELECT 1) AND y = \"z\" /* c */ ORDER BY 1; ALTER TABLE t SET ('a' = 'b')); "
        "MERGE INTO a.t t USING (SELECT 1) s ON t.x = s.x WHEN NOT MATCHED BY SOURCE AND y THEN "
        "UPDATE SET x.y = CASE WHEN z THEN 1 END, b = 2 WHEN NOT MATCHED THEN INSERT (a) VALUES "
        "(s.a); UPDATE t SET `a` = (b), c = 'd' WHERE NOT e; DELETE FROM `s`.t AS u WHERE u.a = 1"
    )
    for cursor in range(len(text) + 1):
        for rest in (text[cursor:], "", ")", "'"):
            actual = expected_at(text[:cursor] + rest, cursor)
            assert text[:cursor].endswith(actual.typed)
