"""Statements about tables and databases are read into values, or refused by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from paimon_magics.errors import InvalidTableError, StatementSyntaxError
from paimon_magics.statements.data_types import ArrayType, AtomicType, RowField, RowType
from paimon_magics.statements.grammar.parsing import parse_cell, parse_statement
from paimon_magics.statements.statement import (
    AlterDatabase,
    ColumnDefinition,
    CreateDatabase,
    CreateTable,
    CreateTemporaryView,
    Describe,
    DescribeDatabase,
    DropDatabase,
    DropTable,
    Insert,
    PartitionItem,
    PassThrough,
    Query,
    Refused,
    ShowColumns,
    ShowCreateTable,
    ShowDatabases,
    ShowOptions,
    ShowPartitions,
    ShowTables,
    TableName,
    TruncateTable,
    UseDatabase,
)
from paimon_magics.statements.subjects import Explain
from paimon_magics.statements.table_changes import (
    AddColumn,
    AlterTable,
    DropColumn,
    DropPartitions,
    RenameColumn,
    RenameTable,
    ReorderColumn,
    RetypeColumn,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullability,
    SetOptions,
    UnsetOptions,
)

T = TableName("t")
DB_T = TableName("t", "db")
INT = AtomicType("INT")
BIGINT = AtomicType("BIGINT")
STRING = AtomicType("STRING")


def without_place(statement):
    """The statement's own fields, as a tuple behind its class."""
    values = [getattr(statement, f.name) for f in fields(statement)]
    return (type(statement), *values[2:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP TABLE t", DropTable("", 0, T)),
        ("drop table if exists db.t purge", DropTable("", 0, DB_T, True)),
        ("TRUNCATE TABLE db.t", TruncateTable("", 0, DB_T)),
        (
            "TRUNCATE TABLE t PARTITION (dt = 'x')",
            TruncateTable("", 0, T, (PartitionItem("dt", "'x'", 28),)),
        ),
        ("CREATE DATABASE shop", CreateDatabase("", 0, "shop")),
        ("COMMENT ON DATABASE shop IS 'x'", AlterDatabase("", 0, "shop", (("comment", "x"),))),
        (
            "comment on schema paimon.shop is NULL",
            AlterDatabase("", 0, "shop", removals=("comment",)),
        ),
        (
            "ALTER NAMESPACE shop SET PROPERTIES ('a' = 'b', 'c' = 1)",
            AlterDatabase("", 0, "shop", (("a", "b"), ("c", "1"))),
        ),
        (
            "ALTER DATABASE shop UNSET DBPROPERTIES ('a', b.c)",
            AlterDatabase("", 0, "shop", removals=("a", "b.c")),
        ),
        (
            "CREATE SCHEMA IF NOT EXISTS paimon.shop COMMENT 'c' LOCATION '/x' "
            "WITH DBPROPERTIES ('a' = 'b')",
            CreateDatabase("", 0, "shop", True, "c", "/x", (("a", "b"),)),
        ),
        ("DROP DATABASE shop", DropDatabase("", 0, "shop")),
        ("DROP NAMESPACE IF EXISTS shop CASCADE", DropDatabase("", 0, "shop", True, True)),
        ("DROP SCHEMA shop RESTRICT", DropDatabase("", 0, "shop")),
        ("USE shop", UseDatabase("", 0, "shop")),
        ("USE `my shop`", UseDatabase("", 0, "my shop")),
        ("USE paimon.shop", UseDatabase("", 0, "shop", "paimon")),
        ("USE DATABASE shop", UseDatabase("", 0, "shop")),
        ("USE database", UseDatabase("", 0, "database")),
        ("SHOW DATABASES", ShowDatabases("", 0)),
        ("SHOW SCHEMAS LIKE 's*'", ShowDatabases("", 0, "s*")),
        ("SHOW NAMESPACES IN paimon", ShowDatabases("", 0)),
        ("SHOW TABLES", ShowTables("", 0)),
        ("SHOW TABLES FROM shop 'o*'", ShowTables("", 0, "shop", "o*")),
        ("SHOW TABLES IN paimon.shop LIKE 'o*'", ShowTables("", 0, "shop", "o*")),
        ("SHOW PARTITIONS db.t", ShowPartitions("", 0, DB_T)),
        (
            "SHOW PARTITIONS t PARTITION (dt = 'x', hh = 1)",
            ShowPartitions(
                "", 0, T, (PartitionItem("dt", "'x'", 29), PartitionItem("hh", "1", 39))
            ),
        ),
        ("SHOW CREATE TABLE db.t", ShowCreateTable("", 0, DB_T)),
        ("SHOW TBLPROPERTIES t", ShowOptions("", 0, T)),
        ("SHOW TBLPROPERTIES t ('bucket')", ShowOptions("", 0, T, "bucket")),
        ("SHOW TBLPROPERTIES t (merge.engine)", ShowOptions("", 0, T, "merge.engine")),
        ("SHOW COLUMNS FROM t", ShowColumns("", 0, T)),
        ("SHOW COLUMNS IN t FROM db", ShowColumns("", 0, DB_T)),
        ("DESCRIBE t", Describe("", 0, T)),
        ("DESC TABLE EXTENDED db.t", Describe("", 0, DB_T, True)),
        ("DESCRIBE FORMATTED t", Describe("", 0, T, True)),
        ("DESCRIBE t c", Describe("", 0, T, False, "c")),
        ("DESCRIBE t address.zip", Describe("", 0, T, False, "address.zip")),
        ("DESC table", Describe("", 0, TableName("table"))),
        ("DESCRIBE t$files", Describe("", 0, TableName("t", system_table="files"))),
        ("DESC `db.t$files`", Describe("", 0, TableName("t", "db", system_table="files"))),
        ("SHOW CREATE TABLE t$branch_b", ShowCreateTable("", 0, TableName("t", branch="b"))),
        ("DESCRIBE DATABASE shop", DescribeDatabase("", 0, "shop")),
        ("DESC SCHEMA EXTENDED shop", DescribeDatabase("", 0, "shop", True)),
    ],
)
def test_statements_about_tables_and_databases_are_parsed(text, expected):
    statement = parse_statement(text, 7)
    assert without_place(statement) == without_place(expected)
    assert (statement.text, statement.offset) == (text, 7)


def alter(text):
    statement = parse_statement(f"ALTER TABLE db.t {text}")
    assert isinstance(statement, AlterTable), statement
    assert (statement.name, statement.name_position) == (DB_T, 12)
    return statement.changes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ADD COLUMN c INT", [AddColumn(("c",), INT)]),
        (
            "ADD COLUMNS (a.b INT, c STRING)",
            [AddColumn(("a", "b"), INT), AddColumn(("c",), STRING)],
        ),
        (
            "ADD COLUMNS c INT NOT NULL COMMENT 'x' DEFAULT 1 + 2 FIRST",
            [AddColumn(("c",), AtomicType("INT", (), False), "x", "1 + 2", True)],
        ),
        ("ADD COLUMN c INT AFTER `b c`", [AddColumn(("c",), INT, after="b c")]),
        ("DROP COLUMN c", [DropColumn(("c",))]),
        ("DROP COLUMNS (a, b.c)", [DropColumn(("a",)), DropColumn(("b", "c"))]),
        ("DROP COLUMN IF EXISTS a, b", [DropColumn(("a",), True), DropColumn(("b",), True)]),
        ("RENAME COLUMN a.b TO c", [RenameColumn(("a", "b"), "c")]),
        ("RENAME TO u", [RenameTable(TableName("u"))]),
        ("RENAME TO db.u", [RenameTable(TableName("u", "db"))]),
        ("ALTER COLUMN c TYPE BIGINT", [RetypeColumn(("c",), BIGINT)]),
        ("CHANGE COLUMN c TYPE BIGINT", [RetypeColumn(("c",), BIGINT)]),
        ("ALTER a.b SET DATA TYPE BIGINT", [RetypeColumn(("a", "b"), BIGINT)]),
        ("ALTER COLUMN c COMMENT 'x' 'y'", [SetColumnComment(("c",), "xy")]),
        ("ALTER COLUMN c FIRST", [ReorderColumn(("c",), True)]),
        ("ALTER COLUMN c AFTER d", [ReorderColumn(("c",), after="d")]),
        ("ALTER COLUMN c SET NOT NULL", [SetColumnNullability(("c",), False)]),
        ("ALTER COLUMN c DROP NOT NULL", [SetColumnNullability(("c",), True)]),
        ("ALTER COLUMN c SET DEFAULT f(1, 2)", [SetColumnDefault(("c",), "f(1, 2)")]),
        ("ALTER COLUMN c DROP DEFAULT", [SetColumnDefault(("c",), None)]),
        (
            "ALTER COLUMN a TYPE BIGINT, b COMMENT 'x'",
            [RetypeColumn(("a",), BIGINT), SetColumnComment(("b",), "x")],
        ),
        (
            "CHANGE COLUMN a b BIGINT COMMENT 'x' AFTER c",
            [
                RenameColumn(("a",), "b"),
                RetypeColumn(("b",), BIGINT),
                SetColumnComment(("b",), "x"),
                ReorderColumn(("b",), after="c"),
            ],
        ),
        ("CHANGE a a BIGINT", [RetypeColumn(("a",), BIGINT)]),
        (
            "SET TBLPROPERTIES ('a' = 'b', c.d-e = 1)",
            [SetOptions((("a", "b"), ("c.d-e", "1")))],
        ),
        ("UNSET TBLPROPERTIES ('a', b.c)", [UnsetOptions(("a", "b.c"))]),
        ("UNSET TBLPROPERTIES IF EXISTS ('a')", [UnsetOptions(("a",), True)]),
        (
            "DROP PARTITION (dt = 'x', hh = DATE '2024-01-01')",
            [
                DropPartitions(
                    (
                        (
                            PartitionItem("dt", "'x'", 33),
                            PartitionItem("hh", "DATE '2024-01-01'", 43),
                        ),
                    )
                )
            ],
        ),
        (
            "DROP IF EXISTS PARTITION (a = -1), PARTITION (a = :x) PURGE",
            [
                DropPartitions(
                    ((PartitionItem("a", "-1", 43),), (PartitionItem("a", ":x", 63),)), True
                )
            ],
        ),
    ],
)
def test_alter_table_changes_keep_their_order(text, expected):
    assert list(alter(text)) == expected


def create(text):
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable), statement
    return statement


def test_table_definition_is_parsed_in_full():
    text = """CREATE TABLE IF NOT EXISTS paimon.shop.orders (
      id BIGINT NOT NULL COMMENT 'the id',
      `a b` STRUCT<x: INT NOT NULL COMMENT 'x', y: ARRAY<STRING>>,
      n INT DEFAULT (1 + 2) NOT NULL,
      CONSTRAINT pk PRIMARY KEY (id, dt) NOT ENFORCED
    ) USING Paimon
    PARTITIONED BY (dt STRING COMMENT 'day')
    COMMENT 'it''s' LOCATION '/x'
    OPTIONS (k.v = TRUE)
    TBLPROPERTIES ('bucket' = 4, write-only = 'false')"""
    table = create(text)
    assert table.name == TableName("orders", "shop", "paimon")
    assert text[table.name_position :].startswith("paimon.shop.orders")
    assert (table.if_not_exists, table.or_replace, table.must_exist) == (True, False, False)
    struct = RowType(
        (RowField("x", AtomicType("INT", (), False), "x"), RowField("y", ArrayType(STRING)))
    )
    assert [(c.name, c.type, c.comment, c.default) for c in table.columns] == [
        ("id", AtomicType("BIGINT", (), False), "the id", None),
        ("a b", struct, None, None),
        ("n", AtomicType("INT", (), False), None, "(1 + 2)"),
        ("dt", STRING, "day", None),
    ]
    assert [text[c.position :].split()[0] for c in table.columns] == ["id", "`a", "n", "dt"]
    assert table.primary_key == ("id", "dt")
    assert table.partitioned_by == ("dt",)
    assert table.options == (("k.v", "true"), ("bucket", "4"), ("write-only", "false"))
    assert (table.comment, table.using, table.location) == ("it's", "paimon", "/x")
    assert table.query is None


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("CREATE TABLE t (a INT)", "columns", (ColumnDefinition("a", INT, position=16),)),
        ("CREATE TABLE t", "columns", ()),
        ("CREATE OR REPLACE TABLE t (a INT)", "or_replace", True),
        ("REPLACE TABLE t (a INT)", "must_exist", True),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a)", "partitioned_by", ("a",)),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "primary_key", ("a",)),
        ("CREATE TABLE t (a INT) USING parquet", "using", "parquet"),
        ("CREATE TABLE t (a INT) USING org.x.Y", "using", "org.x.y"),
        ("CREATE TABLE t (a INT) TBLPROPERTIES ('a' 'b')", "options", (("a", "b"),)),
        ("CREATE TABLE t (a INT) TBLPROPERTIES (k = -1)", "options", (("k", "-1"),)),
        ("CREATE TABLE t (a TIMESTAMP)", "columns",
         (ColumnDefinition("a", AtomicType("TIMESTAMP_LTZ", (6,)), position=16),)),
    ],
)  # fmt: skip
def test_single_clause_of_a_table_definition_is_parsed(text, field, expected):
    assert getattr(create(text), field) == expected


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t AS SELECT * FROM orders",
        "CREATE TABLE t USING paimon TBLPROPERTIES ('a' = 'b') AS SELECT * FROM orders",
        "CREATE OR REPLACE TABLE t PARTITIONED BY (x) AS (SELECT * FROM orders)",
        "CREATE TABLE t WITH c AS (SELECT * FROM orders) SELECT * FROM c",
        "CREATE TABLE t AS TABLE orders",
        "REPLACE TABLE t AS FROM orders",
    ],
)
def test_create_table_as_select_holds_its_query(text):
    query = create(text).query
    assert [text[r.range.start : r.range.end] for r in query.references] == ["orders"]
    assert query.range.end == len(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO db.t VALUES (1, :a)", {"source": "VALUES (1, :a)"}),
        ("INSERT INTO TABLE db.t SELECT * FROM o", {"source": "SELECT * FROM o"}),
        ("INSERT INTO db.t TABLE o", {"source": "TABLE o"}),
        ("INSERT INTO db.t FROM o SELECT x", {"source": "FROM o SELECT x"}),
        ("INSERT INTO db.t (SELECT * FROM o)", {"source": "(SELECT * FROM o)"}),
        (
            "INSERT INTO db.t (a, `b c`) VALUES (1, 2)",
            {"source": "VALUES (1, 2)", "columns": ("a", "b c")},
        ),
        ("INSERT INTO db.t (values, b) (SELECT 1, 2)", {"source": "(SELECT 1, 2)",
                                                        "columns": ("values", "b")}),
        ("INSERT INTO db.t BY NAME SELECT 1 a", {"source": "SELECT 1 a", "by_name": True}),
        (
            "INSERT INTO db.t WITH c AS (SELECT 1) SELECT * FROM c",
            {"source": "WITH c AS (SELECT 1) SELECT * FROM c"},
        ),
        ("INSERT OVERWRITE db.t SELECT 1", {"source": "SELECT 1", "overwrite": True}),
        (
            "INSERT OVERWRITE TABLE db.t PARTITION (dt = :day, hh) (a) SELECT 1",
            {
                "source": "SELECT 1",
                "overwrite": True,
                "columns": ("a",),
                "partition": (("dt", ":day"), ("hh", None)),
            },
        ),
        (
            "INSERT INTO db.t (a) PARTITION (dt = DATE '2024-01-01') SELECT 1",
            {
                "source": "SELECT 1",
                "columns": ("a",),
                "partition": (("dt", "DATE '2024-01-01'"),),
            },
        ),
        (
            "INSERT OVERWRITE db.t PARTITION (dt = 'a' || 'b') BY NAME SELECT 1",
            {
                "source": "SELECT 1",
                "overwrite": True,
                "by_name": True,
                "partition": (("dt", "'a' || 'b'"),),
            },
        ),
    ],
)  # fmt: skip
def test_insert_is_parsed_in_full(text, expected):
    insert = parse_statement(text)
    assert isinstance(insert, Insert), insert
    assert insert.target == DB_T
    assert text[insert.target_position :].startswith("db.t")
    partition = insert.partition and tuple((i.column, i.value) for i in insert.partition)
    found = {
        "source": text[insert.source.range.start : insert.source.range.end],
        "overwrite": insert.overwrite,
        "columns": insert.columns,
        "by_name": insert.by_name,
        "partition": partition,
    }
    empty = {"overwrite": False, "columns": None, "by_name": False, "partition": None}
    assert found == empty | expected


def test_insert_has_parameters_of_its_partition_and_source():
    insert = parse_statement("INSERT INTO t PARTITION (a = :x) SELECT :y, :x")
    assert insert.source.parameters == ("x", "y")


def test_with_before_an_insert_belongs_to_its_source():
    text = "WITH c AS (SELECT * FROM orders) INSERT INTO t (a) SELECT * FROM c JOIN d ON c.x = :y"
    insert = parse_statement(text)
    assert insert.target == T
    assert insert.columns == ("a",)
    source = insert.source
    assert text[source.range.start : source.range.end] == text
    assert [text[c.start : c.end] for c in source.cuts] == ["INSERT INTO t (a) "]
    assert [text[r.range.start : r.range.end] for r in source.references] == ["orders", "d"]
    assert source.parameters == ("y",)


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("DELETE FROM t WITH ('a' = 'b') WHERE x = 1", "DELETE … WITH options", T),
        ("ANALYZE TABLE db.t PARTITION (a = 1) COMPUTE STATISTICS",
          "ANALYZE TABLE … PARTITION", DB_T),
        ("EXECUTE IMMEDIATE 'SELECT a FROM t'", "EXECUTE IMMEDIATE", None),
        ("execute immediate :text USING 1", "EXECUTE IMMEDIATE", None),
        ("SHOW BRANCHES t", "SHOW BRANCHES", T),
        ("CREATE TABLE t LIKE s STORED AS ORC", "CREATE TABLE … STORED AS", T),
        ("CREATE EXTERNAL TABLE t (a INT)", "CREATE EXTERNAL TABLE", T),
        ("EXPLAIN ANALYZE SELECT * FROM t", "EXPLAIN ANALYZE", T),
        ("CREATE TABLE t (a DATE) PARTITIONED BY (days(a))",
         "CREATE TABLE … PARTITIONED BY days(…)", T),
        ("CREATE TABLE t (a INT) CLUSTERED BY (a) INTO 4 BUCKETS",
         "CREATE TABLE … CLUSTERED BY", T),
        ("CREATE TABLE t (a INT) STORED AS ORC", "CREATE TABLE … STORED AS", T),
        ("CREATE TABLE t (a INT, CHECK (a > 1))", "CREATE TABLE … CHECK constraint", T),
        ("CREATE TABLE t (a INT GENERATED ALWAYS AS (1))", "CREATE TABLE … GENERATED", T),
        ("INSERT OVERWRITE t PARTITION (a = 1) IF NOT EXISTS SELECT 1",
         "INSERT … IF NOT EXISTS", T),
        ("ALTER TABLE t PARTITION (a = 1) RENAME TO PARTITION (a = 2)",
         "ALTER TABLE … PARTITION", T),
        ("ALTER TABLE t SET LOCATION '/x'", "ALTER TABLE … SET LOCATION", T),
        ("ALTER TABLE t REPLACE COLUMNS (a INT)", "ALTER TABLE … REPLACE COLUMNS", T),
        ("ALTER TABLE t CREATE BRANCH x", "ALTER TABLE … CREATE BRANCH", T),
        ("ALTER TABLE t DROP CONSTRAINT x", "ALTER TABLE … DROP CONSTRAINT", T),
        ("ALTER DATABASE db SET LOCATION '/x'", "ALTER DATABASE … SET LOCATION", None),
        ("SHOW CREATE TABLE t AS SERDE", "SHOW CREATE TABLE … AS SERDE", T),
        ("DROP TABLE IDENTIFIER(:t)", "IDENTIFIER(…) as a name", None),
        ("USE IDENTIFIER(:d)", "IDENTIFIER(…) as a name", None),
        ("DESCRIBE TABLE t AS JSON", "DESCRIBE … AS JSON", T),
    ],
)  # fmt: skip
def test_unsupported_statements_are_refused_by_name(text, kind, name):
    statement = parse_statement(text)
    assert isinstance(statement, Refused), statement
    assert (statement.kind, statement.name) == (kind, name)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SET spark.sql.shuffle.partitions = 3", []),
        ("RESET", []),
        ("ADD JAR '/x.jar'", []),
        ("LIST JAR", []),
        ("DECLARE VARIABLE x INT DEFAULT 5", []),
        ("CACHE TABLE orders", ["orders"]),
        ("CACHE LAZY TABLE c AS SELECT * FROM shop.orders", ["c", "shop.orders"]),
        ("UNCACHE TABLE IF EXISTS orders", ["orders"]),
        ("MSCK REPAIR TABLE orders", ["orders"]),
        ("SHOW FUNCTIONS upper", ["upper"]),
        ("SHOW CATALOGS", []),
        ("SHOW VIEWS IN global_temp", ["global_temp"]),
        ("SHOW PROCEDURES IN other", ["PROCEDURES", "other"]),
        ("CREATE GLOBAL TEMPORARY VIEW v AS SELECT f(x) FROM o$files", ["v", "x", "o$files"]),
        ("SHOW TABLES IN other.x", ["other.x"]),
        ("CREATE DATABASE other.x", ["other.x"]),
        ("INSERT OVERWRITE DIRECTORY '/x' USING csv SELECT * FROM orders", ["csv", "orders"]),
        ("CREATE TABLE t USING csv PARTITIONED BY (days(x)) AS SELECT * FROM orders",
         ["t", "csv", "x", "orders"]),
        ("DESCRIBE QUERY SELECT * FROM orders", ["orders"]),
        ("DESCRIBE SELECT * FROM orders", ["orders"]),
    ],
)  # fmt: skip
def test_spark_statements_are_passed_on_with_their_names(text, names):
    statement = parse_statement(text)
    assert isinstance(statement, PassThrough), statement
    assert [str(n) for n, _ in statement.names] == names
    for name, position in statement.names:
        assert text[position:].startswith(str(name).split(".")[0])


@pytest.mark.parametrize(
    ("text", "name", "or_replace", "columns"),
    [
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM orders", "v", False, None),
        ("CREATE OR REPLACE TEMP VIEW `a b` AS TABLE orders", "a b", True, None),
        ("CREATE TEMP VIEW v (a, `b c`) AS SELECT * FROM orders", "v", False, ("a", "b c")),
    ],
)
def test_temporary_view_holds_its_query(text, name, or_replace, columns):
    view = parse_statement(text)
    assert isinstance(view, CreateTemporaryView)
    assert (view.name, view.or_replace, view.columns) == (name, or_replace, columns)
    assert [str(r.name) for r in view.query.references] == ["orders"]


@pytest.mark.parametrize("mode", ["", "EXTENDED", "FORMATTED", "COST", "CODEGEN"])
def test_explain_holds_its_statement(mode):
    text = f"EXPLAIN {mode} SELECT * FROM orders"
    explain = parse_statement(text, 10)
    assert isinstance(explain, Explain)
    assert explain.mode == mode
    assert isinstance(explain.inner, Query)
    assert explain.inner.text == "SELECT * FROM orders"
    assert explain.inner.offset == 10 + text.index("SELECT")


def test_statements_of_a_cell_know_their_offsets():
    cell = "USE shop;\n\n-- first\nSELECT * FROM orders;"
    use, query = parse_cell(cell)
    assert isinstance(use, UseDatabase)
    assert query.text == "-- first\nSELECT * FROM orders"
    start = query.offset + query.query.references[0].range.start
    assert cell[start:].startswith("orders")


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("CREATE TABL t (a INT)", "TABL", "`TABLE`"),
        ("SHOW TABELS", "TABELS", "`TABLES`"),
        ("DROP TABEL t", "TABEL", "`TABLE`"),
        ("ALTER TABEL t", "TABEL", "`TABLE`"),
        ("ALTER TABLE t DORP COLUMN a", "DORP", "`DROP`"),
        ("ALTER TABLE t", None, "a change of the table"),
        ("ALTER TABLE t ADD a INT", "a INT", "COLUMN is missing"),
        ("ALTER TABLE t RENAME COLUMN a b", "b", "`TO`"),
        ("ALTER TABLE t ALTER COLUMN a", None, "TYPE, COMMENT"),
        ("ALTER TABLE t DROP PARTITION (dt)", ")", "`=`"),
        ("ALTER TABLE t DROP PARTITION (dt 'x')", "'x'", "`=`"),
        ("ALTER TABLE t SET TBLPROPERTIES ('a' = b)", "b)", "a value in quotes"),
        ("ALTER TABLE t SET TBLPROPERTIES ('a' = '1', 'a' = '2')", "'a' = '2'", "twice"),
        ("CREATE TABLE t (a INT, )x", "x", "the end of the statement"),
        ("CREATE TABLE t (a INT b INT)", "b INT", "`)`"),
        ("CREATE TABLE t (a)", ")", "a type"),
        ("CREATE TABLE t (a INT) AS SELECT 1", "SELECT", "takes its columns from the query"),
        ("CREATE TABLE t (a INT) COMMENT 'a' COMMENT 'b'", "COMMENT 'b'", "COMMENT occurs twice"),
        ("CREATE TABLE t (a STRUCT<b: INT>) PARTITIONED BY (a.b)", ".b)", "whole columns only"),
        ("CREATE TABLE a.b.c.d (x INT)", "a.b", "can't name a Paimon table"),
        ("CREATE TABLE t$x$y (x INT)", "t$x", "can't name a Paimon table"),
        ("CREATE TABLE t AS", None, "a query"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t", "t", "exclude each other"),
        ("DROP TABLE", None, "a table's name"),
        ("DROP TABLE a b", "b", "the end of the statement"),
        ("INSERT t VALUES (1)", "t VALUES", "INTO is missing"),
        ("INSERT INTO t (a, b)", None, "VALUES, SELECT"),
        ("INSERT INTO t (a, 1) VALUES (1)", "1) V", "a column's name"),
        ("INSERT INTO t PARTITION dt SELECT 1", "dt", "`(`"),
        ("INSERT INTO t PARTITION (a = 1, a = 2) SELECT 1", "a = 2", "occurs twice"),
        ("SHOW COLUMNS t", "t", "FROM is missing"),
        ("SHOW COLUMNS FROM db.t FROM other", "other", "`db`"),
        ("EXPLAIN", None, "a statement to explain"),
        ("EXPLAIN SELECT FROM WHERE", "WHERE", "a table's name"),
        ("USE", None, "a database's name"),
        ("CREATE", None, "the rest of the statement"),
        ("CREATE TABLE t (a INT, b STRING", "(a", "never closed"),
    ],
)
def test_syntax_error_has_its_position_and_the_expected_words(text, at, words):
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)
    assert caught.value.position == (len(text) if at is None else text.index(at))
    assert caught.value.statement == text
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("CREATE TABLE t (a INTT)", "INTT"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (b STRNG)", "STRNG"),
        ("ALTER TABLE t ADD COLUMN a STRUCT<b: INTERVAL>", "INTERVAL"),
        ("ALTER TABLE t ALTER COLUMN a TYPE VOID", "VOID"),
    ],
)
def test_unsupported_type_is_an_error_at_its_position(text, at):
    with pytest.raises(InvalidTableError) as caught:
        parse_statement(text)
    assert caught.value.position == text.index(at)
    assert at in caught.value.message
