"""What newcomers write: each answer names the thing, and the next step."""

from __future__ import annotations

import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.statements.dialects.misreadings import IDIOMS, misread
from paimon_magics.statements.grammar.parsing import parse_cell

# Where Spark stopped to read is marked with `|`.
STOPPED = [
    ("SELECT * FORM |orders", "can't be read at `orders`", "`FROM` instead of `FORM`"),
    ("SELECT id, FROM |orders", "can't be read at `orders`", "Leave out the comma before `FROM`."),
    ("SELECT id, a FROM t GRUOP |BY id", "can't be read at `BY`", "`GROUP` instead of `GRUOP`"),
    ("SELECT * FROM t WHERE a = |", "The statement ends too early.", "Complete it."),
    ("SELECT * FROM t |) x", "The statement can't be read at `)`.", "just before it"),
    ("SELECT 'open |", "The statement ends too early.", "Complete it."),
    ("SELECT * FROM orders |ORDER id", "BY is missing.", "ORDER BY id"),
    ("SELECT CASE WHEN |1 THEN 2 FROM t", "CASE has no END.", "END"),
    ("SELECT a FROM t WHERE a = 1 |LIMIT", "a number belongs behind LIMIT.", "Write LIMIT 10."),
    ("SELECT a FROM t LIMIT 1 |OFFSET", "a number belongs behind OFFSET.", "Write OFFSET 10."),
    ("SELECT a FROM t LIMIT 1 |LIMIT 2", "can't be read at `LIMIT`", "just before it"),
    ("SELECT a FROM t WHERE t.a |IN :ids", "a list in brackets", "array_contains(:ids, a)."),
    ("SELECT a FROM t WHERE a |NOT IN :ids", "in brackets", "NOT array_contains(:ids, a)."),
    # other databases
    ("SELECT * FROM t LIMIT 5|, 10", "`LIMIT 5, 10` is MySQL's.", "LIMIT 10 OFFSET 5"),
    ("SELECT TOP |10 * FROM t", "TOP is SQL Server's.", "LIMIT 10"),
    ("SELECT * FROM t FETCH |FIRST 5 ROWS ONLY", "FETCH", "LIMIT 5"),
    ("SELECT DISTINCT ON (a) * FROM |t", "DISTINCT ON", "row_number()"),
    ("SELECT SAFE_CAST(a |AS INT) FROM t", "SAFE_CAST", "try_cast"),
    ("SELECT a FROM t WHERE a |=> 1", "`=>`", "`>=`"),
    ("SELECT a FROM t WHERE a =|< 1", "`=<`", "`<=`"),
    ("SELECT a FROM t WHERE a = 1 &|& b = 2", "`&&`", "AND"),
    ("SELECT a FROM t WHERE a |IN 'tea'", "IN needs a list.", "IN ('tea')"),
    ("SELECT * FROM t AT |(TIMESTAMP => '2020-01-01')", "Snowflake", "t TIMESTAMP AS OF"),
    ("SELECT * FROM t|@v1", "`t@v1`", "t VERSION AS OF 3"),
    ("SELECT * FROM t TABLESAMPLE |10", "brackets", "(10 PERCENT)"),
    ("INSERT INTO t VALUES (1) |ON CONFLICT DO NOTHING", "PostgreSQL", "primary key"),
    ("INSERT INTO t VALUES (1) |ON DUPLICATE KEY UPDATE a = 1", "MySQL", "primary key"),
    ("INSERT INTO t VALUES (1) RETURNING |a", "RETURNING", "Leave it out"),
    ("UPDATE t SET a = 1 |LIMIT", "LIMIT can't be", "LIMIT 10)"),
    ("DELETE FROM t WHERE a = 1 |LIMIT 3", "LIMIT can't be", "LIMIT 10)"),
    ("BEGIN TRANSACTION|", "no transactions", "BEGIN"),
    ("COMMIT|", "no transactions", "COMMIT"),
    ("SET |@x = 1", "no variables", "`:x`"),
    ("SELECT * FROM my|-orders", "A name with `-`", "`my-orders`"),
    ("INSERT INTO t (a) |VALUE (1)", "VALUES is misspelled.", "VALUES (…)"),
    ("INSERT OVERWRITE INTO |t SELECT 1", "takes the place of INTO", "INSERT OVERWRITE t,"),
    ("INSERT ALL| INTO t SELECT 1", "One INSERT", "`;`"),
    ("BULK| INSERT t FROM 'x.csv'", "SQL Server", "INSERT INTO t SELECT * FROM csv.`path`"),
    ("IF| EXISTS (SELECT 1) SELECT 2", "no control-flow statements", "session.run"),
    ("DROP TABLE IF |EXIST t", "EXISTS is misspelled.", "IF EXISTS"),
    ("DROP TABLE a|, b", "takes one table", "`;`"),
    ("DROP TABLE a |CASCADE", "no other objects depend on a table", "Leave CASCADE out."),
    ("ALTER TABLE a RENAME |b", "TO is missing.", "ALTER TABLE a RENAME TO b"),
    ("CREATE TABLE a |id INT", "brackets", "CREATE TABLE a (id INT)"),
    ("CREATE TABLE IF NOT EXISTS a |id INT", "brackets", "CREATE TABLE a (id INT)"),
    ("DROP TABLE IF EXISTS a|, b", "takes one table", "`;`"),
    ("DROP TABLE IF EXISTS a |CASCADE", "no other objects depend on a table", "CASCADE out."),
    ("CREATE TABLE a |CLONE b", "CLONE is not offered", "CREATE TABLE a AS SELECT * FROM b"),
    ("CREATE TRANSIENT |TABLE a (b INT)", "no TRANSIENT tables", "Leave TRANSIENT out."),
    ("SHOW COLUMNS |t", "FROM is missing.", "SHOW COLUMNS FROM t"),
    ("USE CATALOG |paimon", "one catalog", "%paimon connect"),
    ("SELECT * FROM t VERSION |OF 1", "AS is missing.", "VERSION AS OF"),
    ("SELECT * FROM t TIMESTAMP |OF '2026-01-31'", "AS is missing.", "TIMESTAMP AS OF"),
    ("SELECT * FROM t AS OF |VERSION 1", "`AS OF VERSION` are in", "VERSION AS OF 3"),
    ("SELECT * FROM t VERSION |1", "AS OF is missing.", "VERSION AS OF 1"),
    ("SELECT * FROM t SNAPSHOT |1", "AS OF is missing.", "VERSION AS OF 1"),
    ("SELECT * FROM t o |VERSION AS OF 1", "after a table's name", "FROM t VERSION AS OF"),
    ("SELECT * FROM t WHERE a = 1 |VERSION AS OF 1", "after a table's name", "FROM t VERSION"),
    ("SELECT id item |amount FROM t", "can't be read at `amount`", "id, item, amount"),
    ("SELECT a FROM t WHERE a ~ |'x'", "PostgreSQL", "RLIKE 'x'"),
    ("SELECT a->|>'x' FROM t", "PostgreSQL", "get_json_object"),
    ("SELECT a FROM t WHERE a |IS 5", "IS takes NULL", "`= 5`"),
    ("SELECT a FROM t WHERE a |LIKE %x%", "must be in quotes", "LIKE '%…%'"),
    ("SELECT a FROM t WHERE a BETWEEN 1 |TO 2", "needs AND", "BETWEEN 1 AND"),
    ("SELECT * EXCLUDE |(a) FROM t", "Snowflake", "* EXCEPT (column)"),
    ("SELECT * REPLACE |(1 AS a) FROM t", "BigQuery", "* EXCEPT (column)"),
    ("SELECT ARRAY[1|, 2]", "ARRAY[…] is", "array(1, 2)"),
    ("SELECT * FROM t SAMPLE |10", "Snowflake", "TABLESAMPLE (10 PERCENT)"),
    ("SELECT sum(a) OVER PARTITION BY |b FROM t", "in brackets", "OVER (PARTITION BY"),
    ("SELECT day - 7 |DAYS FROM t", "INTERVAL is missing.", "- INTERVAL 7 DAYS"),
    ("SELECT * FROM `t`|$snapshots", "one pair of back-quotes", "`t$snapshots`"),
    ("SET |'a.b' = 'c'", "not be in quotes", "SET key = value"),
    # variables of other tools
    ("SELECT * FROM t WHERE a = |{x}", "`{x}`", "`:x`"),
    ("SELECT * FROM t WHERE a = |{{ x }}", "`{{x}}`", "`:x`"),
    ("SELECT * FROM t WHERE a = |$x", "`$x`", "`:x`"),
    ("SELECT * FROM t WHERE a = |${x}", "`${x}`", "`:x`"),
    ("SELECT * FROM t WHERE a = |%x", "`%x`", "`:x`"),
    ("SELECT * FROM t WHERE a = |%s", "`%s`", "`:name`"),
    ("SELECT * FROM t WHERE a = |%(x)s", "`%(x)s`", "`:x`"),
    ("SELECT * FROM t WHERE a = |@x", "`@x`", "`:x`"),
    ("SELECT * FROM |{t}", "`{t}`", "session.table(name)"),
    ("SELECT * FROM |$t", "`$t`", "session.table(name)"),
    ("SELECT * FROM |:t", "`:t` can't be a table.", "session.table(name)"),
    # a `;` that is missing
    ("SELECT * FROM orders\n|SELECT 1", "`SELECT` begins another statement.", "`;`"),
    ("SELECT * FROM orders\nSHOW |TABLES", "`SHOW` begins another statement.", "`;`"),
    ("INSERT INTO t VALUES (1)\n|INSERT INTO t VALUES (2)", "`INSERT` begins another", "`;`"),
    # characters
    ("SELECT |‘tea’", "typographic quote", "'tea'"),
    ("SELECT |“tea”", "typographic quote", "'tea'"),
    ("SELECT 1 |– 2", "typographic dash", "`-`"),
    ("SELECT a FROM t WHERE a |≥ 1", "not a comparison", "`>=`"),
    ("SELECT a|， b FROM t", "wide comma", "`,`"),
    ("SELECT|\u200b 1", "U+200B", "Retype the line."),
    ("from a import |b", "This is Python", "a cell of its own"),
    ("SELECT 1 |# one", "not a comment", "`--`"),
]  # fmt: skip

# Read by no parser: what a cell says.
UNREAD = [
    ("SELCT 1", "No statement begins with `SELCT`.", "`SELECT`"),
    ("orders", "No statement begins with `orders`.", "%paimon help lists the statements."),
    ("UPSERT INTO t VALUES (1)", "no UPSERT", "INSERT INTO t"),
    ("EXEC load_all", "own procedures", "CALL sys"),
    ("GO", "`GO` is not a statement.", "Leave it out"),
    ("\\dt", "psql", "SHOW TABLES"),
    ("\\d orders", "psql", "DESCRIBE orders"),
    (".tables", "SQLite", "SHOW TABLES"),
    ("PRAGMA table_info(t)", "PRAGMA", "DESCRIBE t"),
    ("SHOW INDEX FROM t", "no indexes", "SHOW CREATE TABLE"),
    ("SHOW TABELS", "There is no SHOW TABELS.", "`TABLES`"),
    ("RENAME TABLE a TO b", "MySQL", "ALTER TABLE a RENAME TO b"),
    ("TRUNCATE t", "TABLE is missing.", "TRUNCATE TABLE t"),
    ("DROP t", "DROP needs the kind of object before `t`.", "DROP TABLE t"),
    ("INSERT t VALUES (1)", "INTO is missing.", "INSERT INTO t"),
    ("INSERT IGNORE INTO t VALUES (1)", "MySQL", "INSERT INTO"),
    ("INSERT INTO t SET a = 1", "MySQL", "VALUES"),
    ("DELETE t WHERE a = 1", "FROM is missing.", "DELETE FROM t"),
    ("DELETE FROM t USING s WHERE s.a = t.a", "PostgreSQL", "MERGE INTO"),
    ("DELETE FROM t AS x USING s WHERE s.a = x.a", "PostgreSQL", "MERGE INTO"),
    ("DELETE t FROM t JOIN s ON s.a = t.a", "changes the table after FROM", "MERGE INTO"),
    ("UPDATE t JOIN s ON s.a = t.a SET a = 1", "MySQL", "MERGE INTO"),
    ("INSERT INTO t ('a') VALUES (1)", "'a' is a string", "without quotes"),
    ("INSERT INTO t PARTITION dt='x' SELECT 1", "brackets", "PARTITION (dt"),
    ("INSERT INTO t", "the statement ends", "%paimon help insert"),
    ('SELECT * FROM "orders"', "is a string, not a table", "back-quotes"),
    ("SELECT * FROM '/tmp/x.csv'", "is a string, not a table", "csv.`path`"),
    ("SELECT [a] FROM [t]", "SQL Server", "back-quotes"),
    ("SELECT * FROM t WHERE a = ?", "`?`", "`:name`"),
    ("SELECT 'it's'", "never closed", "it''s"),
    ("CREATE TABEL t (a INT)", "There is no CREATE TABEL.", "`TABLE`"),
    ("CREATE TABLE t (a INT AUTO_INCREMENT)", "not number rows", "uuid()"),
    ("CREATE TABLE t (a INT IDENTITY(1,1))", "not number rows", "uuid()"),
    ("CREATE TABLE t (a INT) ENGINE=InnoDB", "MySQL", "Leave it out"),
    ("CREATE TABLE t (a INT) WITH ('bucket' = '1')", "Flink", "TBLPROPERTIES ('bucket'"),
    ("CREATE TABLE t (a INT) PARTITION BY (a)", "window functions", "PARTITIONED BY"),
    ("CREATE TABLE t (a INT b INT)", "Expected `)`", "comma before `b`"),
    ("CREATE TABLE t (a INT)\nINSERT INTO t VALUES (1)", "`INSERT` begins another", "`;`"),
    ("USE shop\nSELECT 1", "`SELECT` begins another", "`;`"),
    ("DESCRIBE t\nSELECT 1", "`SELECT` begins another", "`;`"),
    ("ALTER TABLE t MODIFY COLUMN a BIGINT", "MySQL", "ALTER COLUMN a TYPE BIGINT"),
    ("ALTER TABLE t ALTER COLUMN a BIGINT", "TYPE is missing.", "ALTER COLUMN a TYPE BIGINT"),
    ("ALTER TABLE t ADD a INT", "COLUMN is missing.", "ADD COLUMN a INT"),
    ("ALTER TABLE t DROP a", "COLUMN is missing.", "DROP COLUMN a"),
    ("ALTER TABLE t RENAME a TO b", "COLUMN is missing.", "RENAME COLUMN a TO b"),
    ("# all\nSELECT 1", "not a comment", "`--`"),
    ("// all\nSELECT 1", "not a comment", "`--`"),
    ("x = 1", "This is Python", "a cell of its own"),
    ("print('hi')", "This is Python", "a cell of its own"),
    ("session.run('SELECT 1')", "This is Python", "a cell of its own"),
    ("for i in range(3): pass", "This is Python", "a cell of its own"),
    ("!ls", "command of the notebook", "a cell of its own"),
    ("%paimon tables", "command of the notebook", "a cell of its own"),
    ("%%sql\nSELECT 1", "one cell magic", "Remove one"),
    ("pip install pandas", "shell", "a cell of its own"),
    ("help", "`help` is not a statement.", "`%paimon help`"),
]  # fmt: skip

TYPES = [
    ("DATETIME", "TIMESTAMP"), ("DATETIME2", "TIMESTAMP"), ("TIMESTAMPTZ", "TIMESTAMP"),
    ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"), ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP_NTZ"),
    ("TIMESTAMP(3)", "TIMESTAMP_NTZ(p)"), ("VARCHAR2(10)", "STRING"), ("NVARCHAR(10)", "STRING"),
    ("TEXT", "STRING"), ("LONGTEXT", "STRING"), ("CLOB", "STRING"), ("UUID", "STRING"),
    ("JSON", "STRING"), ("JSONB", "VARIANT"), ("ENUM('a')", "STRING"), ("VARCHAR", "STRING"),
    ("NUMBER(10, 2)", "DECIMAL"), ("MONEY", "DECIMAL"), ("SERIAL", "BIGINT"),
    ("INT64", "BIGINT"), ("int8", "BIGINT"), ("INT4", "INT"), ("MEDIUMINT", "INT"),
    ("UINT64", "DECIMAL(20, 0)"), ("INT UNSIGNED", "BIGINT"), ("INT(11)", "INT"),
    ("FLOAT64", "DOUBLE"), ("DOUBLE PRECISION", "DOUBLE"), ("BOOL", "BOOLEAN"),
    ("BIT", "BOOLEAN"), ("BYTEA", "BINARY"), ("BLOB", "BINARY"), ("INT[]", "ARRAY<INT>"),
    ("ARRAY", "ARRAY<INT>"), ("LIST<INT>", "ARRAY"), ("OBJECT", "VARIANT"), ("STIRNG", "STRING"),
    ("VECTOR(3)", "ARRAY<FLOAT>"), ("DECIMAL(40, 2)", "1 to 38"), ("whatever", "Types are"),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "message", "hint"), STOPPED)
def test_error_suggests_the_likely_meaning(marked: str, message: str, hint: str) -> None:
    position = marked.index("|")
    statement = marked[:position] + marked[position + 1 :]
    error = misread(statement, position)
    assert message in error.message and hint in error.hint, error.text()
    assert error.position is not None and len(error.text().splitlines()) <= 4


@pytest.mark.parametrize(("cell", "message", "hint"), UNREAD)
def test_error_for_other_dialects_suggests_spark_sql(cell: str, message: str, hint: str) -> None:
    with pytest.raises(PaimonMagicsError) as caught:
        parse_cell(cell)
    error = caught.value
    assert message in error.message and hint in error.hint, error.text()
    assert error.position is not None


@pytest.mark.parametrize(("written", "write"), TYPES)
def test_error_for_a_foreign_type_suggests_the_type_to_write(written: str, write: str) -> None:
    with pytest.raises(PaimonMagicsError) as caught:
        parse_cell(f"CREATE TABLE t (id INT, v {written})")
    assert write in caught.value.hint, caught.value.text()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a % b FROM t",
        "SELECT v:field FROM t",
        "SELECT a[1], m['k'] FROM t",
        "SELECT f(x => 1) FROM t",
        "SELECT * FROM t WHERE a IN ('x') AND b <= 1 AND c = -1",
        "INSERT INTO t (a, b) VALUES (1, 'x')",
        "CREATE TABLE t (a INT, b ARRAY<MAP<STRING, STRUCT<x: DECIMAL(10, 2)>>>, c CHAR(3))",
        "SELECT 1\nUNION ALL\nSELECT 2",
        "WITH a AS (SELECT 1)\nSELECT * FROM a",
    ],
)
def test_valid_statements_are_accepted(query: str) -> None:
    assert parse_cell(query)


def test_every_idiom_formats_its_message() -> None:
    for idiom in IDIOMS:
        texts = [part for part in idiom.pattern.split(" ") if part not in ("^", "!")]
        said = idiom.message.format(*texts), idiom.hint.format(*texts, name="x")
        assert all(each.endswith((".", "?", "`)", '")')) for each in said), said
