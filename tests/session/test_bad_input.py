"""Bad input: an error of ours names the thing and the next step, and nothing has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.evidence import files, nothing_happens

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(module_warehouse: Path) -> Path:
    """One for all cases: nothing may happen in it."""
    return module_warehouse


@pytest.fixture(scope="module")
def shop(module_session: Session) -> Session:
    module_session.run(
        "CREATE TABLE orders (id BIGINT NOT NULL, item STRING, amount DECIMAL(5, 2), tiny TINYINT, "
        "day DATE, dt STRING) PARTITIONED BY (dt); "
        "CREATE TABLE users (name VARCHAR(5) NOT NULL, age INT) "
        "TBLPROPERTIES ('primary-key' = 'name', 'bucket' = '2'); "
        "INSERT INTO orders VALUES (1, 'tea', 1, 1, DATE'2026-01-01', 'x'); "
        "INSERT INTO users VALUES ('ann', 1)"
    )
    return module_session


ROW = "'tea', 1.5, 1, DATE'2026-01-01', 'x'"

# (id, statement, class, what the message names, what the hint says, the text at the position)
Case = tuple[str, str, type[PaimonMagicsError], tuple[str, ...], str, str | None]
CASES: list[Case] = [
    # ---- unknown names
    ("table", "SELECT * FROM ordrs", UnknownNameError, ("ordrs",), "`orders`", "ordrs"),
    (
        "table of another database",
        "SELECT * FROM shop.orders",
        UnknownNameError,
        ("shop",),
        "default",
        "shop.orders",
    ),
    (
        "table in a join",
        "SELECT *\nFROM orders o\nJOIN user u ON o.id = u.age",
        UnknownNameError,
        ("user",),
        "`users`",
        "user u",
    ),
    (
        "table to write",
        "INSERT INTO oders VALUES (1)",
        UnknownNameError,
        ("oders",),
        "orders",
        "oders",
    ),
    ("table to drop", "DROP TABLE oders", UnknownNameError, ("oders",), "orders", "oders"),
    (
        "table to alter",
        "ALTER TABLE oders ADD COLUMN a INT",
        UnknownNameError,
        ("oders",),
        "orders",
        None,
    ),
    ("table to describe", "DESCRIBE oders", UnknownNameError, ("oders",), "orders", "oders"),
    ("table to truncate", "TRUNCATE TABLE oders", UnknownNameError, ("oders",), "orders", None),
    (
        "system table",
        "SELECT * FROM orders$filez",
        UnknownNameError,
        ("filez",),
        "files",
        "orders$filez",
    ),
    ("database", "USE shp", UnknownNameError, ("shp",), "default", "shp"),
    ("column", "SELECT itme FROM orders", UnknownNameError, ("itme",), "item", "itme"),
    (
        "qualified column",
        "SELECT o.id, o.itme FROM orders AS o WHERE o.id > 0",
        UnknownNameError,
        ("itme",),
        "item",
        "o.itme",
    ),
    (
        "column to write",
        "INSERT INTO orders (id, itme) VALUES (1, 'x')",
        UnknownNameError,
        ("itme", "orders"),
        "`item`",
        "itme",
    ),
    (
        "column by name",
        "INSERT INTO users BY NAME SELECT 'bob' AS name, 1 AS aeg",
        UnknownNameError,
        ("aeg", "users"),
        "`age`",
        "aeg",
    ),
    (
        "partition column",
        "INSERT OVERWRITE orders PARTITION (d = 'x') SELECT 1",
        UnknownNameError,
        ("`d`", "orders"),
        "dt",
        "d = 'x'",
    ),
    (
        "partition column to drop",
        "ALTER TABLE orders DROP PARTITION (day = '2026-01-01')",
        UnknownNameError,
        ("`day`", "orders"),
        "dt",
        None,
    ),
    (
        "column to rename",
        "ALTER TABLE orders RENAME COLUMN itme TO thing",
        UnknownNameError,
        ("itme",),
        "`item`",
        None,
    ),
    (
        "option of a new table",
        "CREATE TABLE t (a INT) TBLPROPERTIES ('bukcet' = '1')",
        UnknownNameError,
        ("bukcet",),
        "`bucket`",
        None,
    ),
    (
        "option of a table",
        "ALTER TABLE orders SET TBLPROPERTIES ('target-file-sise' = '1 mb')",
        UnknownNameError,
        ("target-file-sise",),
        "`target-file-size`",
        None,
    ),
    ("function", "SELECT uper(item) FROM orders", UnknownNameError, ("uper",), "", "uper"),
    (
        "bind name",
        "SELECT * FROM orders WHERE dt = :dya",
        UnknownNameError,
        (":dya",),
        "`day`",
        ":dya",
    ),
    # ---- numbers of columns
    (
        "too few values",
        "INSERT INTO users VALUES ('a')",
        InvalidValueError,
        ("users", "2", "1"),
        "name",
        "VALUES",
    ),
    (
        "too many values",
        f"INSERT INTO orders VALUES (1, {ROW}, 7)",
        InvalidValueError,
        ("6", "7"),
        "`item`",
        "VALUES",
    ),
    (
        "too few columns of a query",
        "INSERT INTO users SELECT name FROM users",
        InvalidValueError,
        ("users", "2 columns", "1"),
        "BY NAME",
        "SELECT",
    ),
    (
        "column list and values",
        "INSERT INTO users (name) VALUES ('a', 1)",
        InvalidValueError,
        ("1 column", "2"),
        "`name`",
        "VALUES",
    ),
    (
        "besides the partition",
        "INSERT INTO orders PARTITION (dt = 'x') VALUES (1, 'tea')",
        InvalidValueError,
        ("5 columns", "`dt`", "2"),
        "`item`",
        "VALUES",
    ),
    # ---- values that do not fit
    (
        "text for a number",
        "INSERT INTO users VALUES ('a', 'old')",
        InvalidValueError,
        ("age", "INT", "old"),
        "Nothing was written",
        None,
    ),
    (
        "number out of range",
        "INSERT INTO orders (id, tiny) VALUES (1, 300)",
        InvalidValueError,
        ("`tiny`", "TINYINT", "300"),
        "Nothing was written",
        None,
    ),
    (
        "decimal out of range",
        "INSERT INTO orders (id, amount) VALUES (1, 12345.6)",
        InvalidValueError,
        ("amount", "DECIMAL(5, 2)", "12345.6"),
        "Nothing was written",
        None,
    ),
    (
        "no date",
        "INSERT INTO orders (id, day) VALUES (1, '2026-02-30')",
        InvalidValueError,
        ("day", "DATE", "2026-02-30"),
        "Nothing was written",
        None,
    ),
    (
        "too long a text",
        "INSERT INTO users VALUES ('abcdef', 1)",
        InvalidValueError,
        ("name", "VARCHAR(5)", "6 characters"),
        "Nothing was written",
        None,
    ),
    (
        "a type that can't be cast",
        "INSERT INTO orders (id, day) SELECT id, array(id) FROM orders",
        InvalidValueError,
        ("day", "DATE", "ARRAY<BIGINT>"),
        "Cast",
        "SELECT",
    ),
    (
        "partition value",
        "INSERT INTO orders PARTITION (dt = nope) SELECT 1, 'a', 1, 1, NULL",
        UnknownNameError,
        ("nope",),
        "",
        None,
    ),
    (
        "option value",
        "CREATE TABLE t (a INT) TBLPROPERTIES ('bucket' = 'many')",
        InvalidTableError,
        ("bucket", "many"),
        "",
        None,
    ),
    (
        "bind value",
        "SELECT * FROM orders WHERE dt = :len",
        InvalidValueError,
        (":len",),
        "Bind",
        ":len",
    ),
    # ---- NULLs
    (
        "NULL for NOT NULL",
        f"INSERT INTO orders VALUES (NULL, {ROW})",
        InvalidValueError,
        ("`id`", "NOT NULL"),
        "Nothing was written",
        None,
    ),
    (
        "NULL for a key",
        "INSERT INTO users VALUES ('bob', 1), (NULL, 2)",
        InvalidValueError,
        ("`name`", "NOT NULL"),
        "Nothing was written",
        None,
    ),
    (
        "no value for NOT NULL",
        "INSERT INTO orders (item) VALUES ('tea')",
        InvalidValueError,
        ("`id`", "NOT NULL"),
        "`id`",
        "orders",
    ),
    # ---- duplicate columns
    (
        "column twice in a list",
        "INSERT INTO users (age, age) VALUES (1, 2)",
        InvalidValueError,
        ("`age`",),
        "once",
        "age",
    ),
    (
        "column twice by name",
        "INSERT INTO users BY NAME SELECT 'a' AS name, 1 AS age, 2 AS AGE",
        InvalidValueError,
        ("`age`",),
        "once",
        "age",
    ),
    (
        "column twice in a table",
        "CREATE TABLE t (a INT, b INT, a STRING)",
        InvalidTableError,
        ("`a`",),
        "",
        None,
    ),
    (
        "partition column twice",
        "INSERT INTO orders PARTITION (dt = 'x', dt = 'y') SELECT 1",
        StatementSyntaxError,
        ("`dt`",),
        "Leave one of them out",
        "dt = 'y'",
    ),
    # ---- text that is no SQL
    ("unterminated text", "SELECT 'abc FROM orders", StatementSyntaxError, (), "", "'abc"),
    ("unterminated name", "SELECT `id FROM orders", StatementSyntaxError, (), "", "`id"),
    ("unterminated comment", "SELECT 1 /* FROM orders", StatementSyntaxError, (), "", "/*"),
    ("open parenthesis", "SELECT (1 + 2 FROM orders", StatementSyntaxError, (), "", ""),
    ("open VALUES", "INSERT INTO users VALUES ('a', 1", StatementSyntaxError, (), "", ""),
    ("missing list", "SELECT id, FROM orders WHERE", StatementSyntaxError, (), "", ""),
    ("misspelled verb", "SELCT * FROM orders", StatementSyntaxError, (), "", "SELCT"),
    # ---- recognized, and not offered
    (
        "CALL",
        "CALL sys.repair(table => 'orders')",
        UnsupportedStatementError,
        ("sys.repair",),
        "SHOW TABLES lists",
        "sys",
    ),
    (
        "COPY INTO",
        "COPY INTO orders FROM '/x'",
        StatementSyntaxError,
        ("FILE_FORMAT",),
        "TYPE = CSV",
        None,
    ),
    (
        "ANALYZE",
        "ANALYZE TABLE orders COMPUTE STATISTICS FOR COLUMNS itme",
        UnknownNameError,
        ("itme", "orders"),
        "`item`",
        "itme",
    ),
    (
        "tag",
        "ALTER TABLE orders CREATE TAG monday AS OF VERSION 99",
        UnknownNameError,
        ("99", "orders"),
        "orders$snapshots",
        "orders",
    ),
    (
        "branch",
        "ALTER TABLE orders CREATE BRANCH b",
        UnsupportedStatementError,
        ("BRANCH", "orders"),
        "",
        "",
    ),
    ("word", "SELECT * FORM orders", StatementSyntaxError, ("orders",), "`FROM`", "orders"),
    ("comma", "SELECT id, FROM orders", StatementSyntaxError, ("orders",), "comma", "orders"),
    ("end", "SELECT * FROM orders WHERE id =", StatementSyntaxError, ("too early",), "", ""),
    (
        "function",
        "SELECT cnt(*) FROM orders",
        UnknownNameError,
        ("function `cnt`",),
        "Write count(*).",
        "cnt",
    ),
    (
        "configured value",
        "SET spark.sql.ansi.enabled = maybe",
        InvalidValueError,
        ("maybe", "spark.sql.ansi.enabled"),
        "value",
        None,
    ),
    (
        "writing a system table",
        "INSERT INTO orders$files SELECT 1",
        UnsupportedStatementError,
        ("orders$files",),
        "orders",
        "orders$files",
    ),
]


@pytest.mark.parametrize(
    ("statement", "kind", "named", "hint", "place"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_bad_input_is_named_before_anything_starts(
    shop: Session,
    warehouse: Path,
    statement: str,
    kind: type[PaimonMagicsError],
    named: tuple[str, ...],
    hint: str,
    place: str | None,
) -> None:
    with nothing_happens(shop.spark, warehouse), pytest.raises(PaimonMagicsError) as caught:
        shop.run(statement, {"day": "x", "len": len})
    error = caught.value
    assert type(error) is kind, error.text()
    for name in named:
        assert name in error.message, error.text()
    assert hint in error.hint and error.hint, error.text()
    if place is not None:
        assert error.position is not None and error.statement is not None, error.text()
        assert error.statement[error.position :].startswith(place), error.text()
        assert "^" in error.text()


# A query's values are looked at when its rows are fetched.
FAILING_QUERIES = [
    ("SELECT 1/0", ("Division by zero", "1/0"), "try_divide", "1/0"),
    ("SELECT id % 0 FROM orders", ("Remainder by zero", "id % 0"), "try_mod", "id % 0"),
    ("SELECT CAST('x' AS INT)", ("'x'", "INT"), "try_cast", "CAST('x' AS INT)"),
    ("SELECT array(1, 2)[5]", ("index 5",), "get()", "array(1, 2)[5]"),
    ("SELECT 2147483647 + 1", ("verflow", "2147483647 + 1"), "try_add", "2147483647 + 1"),
    ("SELECT element_at(array(1), 0)", ("index 0",), "", "element_at"),
    ("SELECT to_date('x', 'yyyy')", ("'x'",), "try_to_date", None),
    ("SELECT from_utc_timestamp(TIMESTAMP '2026-01-01 00:00:00', 'Mars')", ("Mars",), "", None),
]


@pytest.mark.parametrize(("query", "named", "hint", "place"), FAILING_QUERIES)
def test_failed_query_error_names_the_expression(
    shop: Session, query: str, named: tuple[str, ...], hint: str, place: str | None
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        shop.run(query).to_arrow()
    error = caught.value
    assert all(name in error.message for name in named), error.text()
    assert hint in error.hint and error.hint, error.text()
    assert "written" not in error.text() and "ansi.enabled" not in error.text()
    if place is not None:
        assert error.statement == query and query[error.position :].startswith(place), error.text()


def test_subquery_with_several_rows_gets_a_readable_error(shop: Session, warehouse: Path) -> None:
    before = files(warehouse)
    for sql in (
        "SELECT (SELECT id FROM range(2))",
        "UPDATE orders SET id = (SELECT id FROM range(2))",
    ):
        with pytest.raises(JobError) as caught:
            shop.run(sql).to_arrow()
        message = caught.value.message
        assert message.startswith("The Spark job failed: More than one row returned by a subquery")
        assert "max(column)" in caught.value.hint
    assert files(warehouse) == before


# What newcomers write that is right SQL and nothing of this table's, or of this engine's.
NEWCOMERS: list[tuple[str, str, str]] = [
    ("SELECT item, count(*) FROM orders", "GROUP BY", "GROUP BY"),
    ("SELECT GETDATE()", "`GETDATE`", "current_timestamp()"),
    ("SELECT GROUP_CONCAT(item) FROM orders", "`GROUP_CONCAT`", "string_agg"),
    ("SELECT * FROM read_csv('x')", "`read_csv`", "csv.`path`"),
    ("SELECT lower() FROM orders", "`lower`", "DESCRIBE FUNCTION"),
    ("SELECT CAST(id AS DATETIME) FROM orders", "`DATETIME`", "TIMESTAMP"),
    ("SELECT CAST(id AS TEXT) FROM orders", "`TEXT`", "STRING"),
    ("SELECT id::varchar FROM orders", "length", "STRING"),
    ("SELECT * FROM orders LIMIT 5, 10", "`LIMIT 5, 10`", "LIMIT 10 OFFSET 5"),
    ("SELECT * FROM orders WHERE id = {day}", "`{day}`", "`:day`"),
    ("SELECT * FROM orders WHERE id = $day", "`$day`", "`:day`"),
    ("SELECT * FROM orders WHERE id = %s", "`%s`", "`:name`"),
    ("SELECT * FROM orders WHERE item = ‘tea’", "typographic", "'tea'"),
    ("SELECT id FROM orders WHERE day = 2026-01-01", "DATE", "DATE '2026-01-31'"),
    ("SELECT * FROM orders UNION SELECT * FROM users", "number of columns", "Name the columns"),
    ("SELECT * FROM orders LIMIT -1", "limit", "whole number"),
    ("SELECT * FROM orders\nSELECT * FROM users", "begins another statement", "`;`"),
    ("SELECT date'2026-02-30'", "2026-02-30", "DATE '2026-01-31'"),
    ("COMMIT", "no transactions", "COMMIT"),
    ("SET @x = 1", "no variables", "`:x`"),
    ("VACUUM orders", "VACUUM", "snapshot.time-retained"),
    ("VACUUM orders", "VACUUM", "CALL sys.expire_snapshots(table => 'orders'"),
    ("VACUUM orders", "VACUUM", "CALL sys.remove_orphan_files(table => 'orders')"),
    ("CALL paimon.system.expire_snapshots('orders')", "paimon.system", "sys.expire_snapshots(…)"),
    ("CALL system.expire_snapshots('orders')", "`system.expire_snapshots`", "CALL sys.expire_s"),
    ("CREATE TABLE u (id INT) USING delta", "delta", "leave USING out"),
    ("SELECT * FROM delta.`/tmp/x`", "delta", "spark.read.format('delta').load('/tmp/x')"),
    ("DESCRIBE HISTORY orders LIMIT 2", "LIMIT", "%%paimon --limit 2"),
    ("CALL system.rewrite_data_files('orders')", "rewrite_data_files`", "CALL sys.compact(table"),
    ("SUMMARIZE orders", "SUMMARIZE", "%paimon profile orders"),
    ("REPLACE INTO users VALUES ('a', 1)", "REPLACE", "primary key"),
    ("CREATE VIEW v AS SELECT * FROM orders", "coordinator's store", "TEMPORARY VIEW"),
    ("CREATE TABLE copy DEEP CLONE orders", "CLONE", "CREATE TABLE copy LIKE orders"),
    ("CREATE TABLE u (id BIGINT GENERATED ALWAYS AS IDENTITY)", "IDENTITY", "FROM u)"),
    ("CREATE TABLE u (id INT) CLUSTER BY (id)", "CLUSTER BY", "table => 'u'"),
    ("CREATE EXTERNAL TABLE u (id INT)", "EXTERNAL", "CREATE TABLE u AS SELECT"),
    ("RESTORE TABLE orders TO TIMESTAMP AS OF '2026-01-01'", "TIMESTAMP", "HISTORY orders"),
    ("CREATE TABLE u (id INT DEFAULT 1 + 1)", "`id`", "literal"),
    ("CREATE TABLE u (a ARRAY<STRING> DEFAULT array('x'))", "`a`", "quotes"),
    ("CREATE TABLE u (id INT UNIQUE)", "UNIQUE", "PRIMARY KEY"),
    ("CREATE TABLE u (id INT, ts DATE) PARTITIONED BY (days(ts))", "days", "PARTITIONED BY (day)"),
    ("ALTER TABLE users ADD PRIMARY KEY (age)", "ADD PRIMARY", "new table"),
    ("ALTER TABLE users ADD CONSTRAINT pk PRIMARY KEY (age)", "ADD PRIMARY", "new table"),
    ("ALTER TABLE users ADD CONSTRAINT c CHECK (age > 0)", "ADD CHECK", "INSERT INTO users"),
    ("ALTER TABLE users ADD FOREIGN KEY (age) REFERENCES u (a)", "ADD FOREIGN", "not checked"),
    ("CREATE TABLE u", "no columns", "CREATE TABLE t (id INT"),
    (
        "CREATE TABLE u (id INT) TBLPROPERTIES ('primary_key' = 'id')",
        "primary_key",
        "`primary-key`",
    ),
    ("CREATE TABLE u (id INT) TBLPROPERTIES ('merge-engine' = 'upsert')", "upsert", "deduplicate"),
    ("SELECT * FROM orders$snapshot", "$snapshot", "snapshots"),
    ("DROP TABLE nope", "`nope`", "orders"),
    ("SET TIME ZONE 'Europe/Atlantis'", "Europe/Atlantis", "Correct the value"),
]


@pytest.mark.parametrize(("statement", "named", "hint"), NEWCOMERS)
def test_beginner_mistakes_are_answered_with_the_next_step(
    shop: Session, warehouse: Path, statement: str, named: str, hint: str
) -> None:
    with nothing_happens(shop.spark, warehouse), pytest.raises(StatementError) as caught:
        shop.run(statement, {"day": "x"})
    error = caught.value
    assert named in error.message and hint in error.hint, error.text()
    assert len(error.text()) < 600, error.text()


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '0')",
        "CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('primary-key' = 'x')",
        "CREATE TABLE t (k INT, v INT) TBLPROPERTIES ('bucket' = '4')",
        "CREATE TABLE t (k INT) PARTITIONED BY (nope)",
        "CREATE TABLE t (v INT) TBLPROPERTIES ('merge-engine' = 'bogus')",
        "CREATE TABLE t (k INT NOT NULL, v INT) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1', 'sequence.field' = 'nope')",
    ],
)
def test_definition_refused_by_other_engines_creates_no_table(
    shop: Session, warehouse: Path, schema: str
) -> None:
    with nothing_happens(shop.spark, warehouse), pytest.raises(StatementError) as caught:
        shop.run(schema)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("statement", "column", "types"),
    [
        (
            "INSERT INTO users VALUES ('a', 1), ('b', DATE '2026-11-01')",
            "age",
            "INT (1) and DATE (DATE '2026-11-01')",
        ),
        (
            "INSERT INTO users (age, name) VALUES (:age, 'a'), (DATE '2026-11-01', 'b')",
            "age",
            "INT (:age) and DATE (DATE '2026-11-01')",
        ),
        (
            "SELECT * FROM VALUES (array(1, 2), true), (array(3), 1.5) AS t(a, b)",
            "b",
            "BOOLEAN (true) and DECIMAL(2,1) (1.5)",
        ),
        ("SELECT * FROM VALUES (NULL), (true), (1)", "col1", "BOOLEAN (true) and INT (1)"),
    ],
)
def test_values_of_different_types_are_named_with_column_and_types(
    shop: Session, statement: str, column: str, types: str
) -> None:
    with pytest.raises(StatementError) as refused:
        shop.run(statement, {"age": 1})
    assert f"Column `{column}` has values of different types" in refused.value.message
    assert types in refused.value.message and "CAST(value AS" in refused.value.hint


def test_session_continues_after_an_error(shop: Session) -> None:
    for _ in range(2):
        with pytest.raises(UnknownNameError):
            shop.run("SELECT itme FROM orders")
        rows = shop.run("SELECT count(*) AS n FROM orders").to_arrow().to_pylist()
        assert rows == [{"n": 1}]


def test_a_cell_stops_at_its_first_error(shop: Session) -> None:
    shop.run("CREATE TABLE stopped (id INT)")
    with pytest.raises(UnknownNameError):
        shop.run(
            "INSERT INTO stopped VALUES (2); SELECT * FROM nowhere; INSERT INTO stopped VALUES (3)"
        )
    rows = shop.run("SELECT id FROM stopped").to_arrow().to_pylist()
    assert [row["id"] for row in rows] == [2]


def test_syntax_error_prevents_whole_cell_from_running(shop: Session, warehouse: Path) -> None:
    with nothing_happens(shop.spark, warehouse), pytest.raises(StatementSyntaxError):
        shop.run("INSERT INTO users VALUES ('bob', 2); SELECT 'open")


def test_unread_column_is_suggested_for_misspelled_name(shop: Session) -> None:
    # Keys that overlap are read by tasks, which leave out columns that no query names.
    shop.run(
        "CREATE TABLE merged (id BIGINT NOT NULL, item STRING, amount INT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1'); "
        "INSERT INTO merged VALUES (1, 'tea', 1); INSERT INTO merged VALUES (1, 'tea', 2)"
    )
    for statement in (
        "SELECT amuont FROM merged",
        "CREATE TEMP VIEW v AS SELECT amuont FROM merged",
    ):
        with pytest.raises(UnknownNameError, match="amuont") as caught:
            shop.run(statement)
        assert "`amount`" in caught.value.hint
