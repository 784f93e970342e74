"""CREATE, ALTER and DROP VIEW: what is read, and what likely mistakes are answered with."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.definitions import (
    AlterView,
    CreateView,
    DropView,
    RenameView,
    ReplaceViewQuery,
    SetViewOptions,
    UnsetViewOptions,
    ViewColumn,
)
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Refused, TableName


def test_all_clauses_of_create_view() -> None:
    view = parse_statement(
        "CREATE VIEW IF NOT EXISTS db.v (a COMMENT 'x', `b c`) TBLPROPERTIES ('k' = 'v') "
        "COMMENT 'y' AS WITH c AS (SELECT 1) SELECT * FROM c, t"
    )
    assert isinstance(view, CreateView)
    assert (view.name, view.if_not_exists, view.or_replace) == (TableName("v", "db"), True, False)
    assert view.columns == (ViewColumn("a", "x", 32), ViewColumn("b c", None, 47))
    assert (view.comment, view.options) == ("y", (("k", "v"),))
    assert [reference.name for reference in view.query.references] == [TableName("t")]


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("SET TBLPROPERTIES ('a' = 'b')", SetViewOptions((("a", "b"),))),
        ("UNSET TBLPROPERTIES IF EXISTS ('a')", UnsetViewOptions(("a",), True)),
        ("RENAME TO other.w", RenameView(TableName("w", "other"))),
    ],
)
def test_changes_of_alter_view(text: str, change: object) -> None:
    statement = parse_statement(f"ALTER VIEW db.v {text}")
    assert isinstance(statement, AlterView)
    assert (statement.name, statement.change) == (TableName("v", "db"), change)


def test_another_query_and_drop() -> None:
    statement = parse_statement("ALTER VIEW v AS SELECT * FROM t")
    assert isinstance(statement, AlterView) and isinstance(statement.change, ReplaceViewQuery)
    assert parse_statement("DROP VIEW IF EXISTS v") == DropView(
        "DROP VIEW IF EXISTS v", 0, TableName("v"), 20, True
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("CREATE VIEW v SELECT 1", "AS before the query", "CREATE VIEW v AS SELECT"),
        ("CREATE VIEW v", "AS and a query", "AS SELECT"),
        ("CREATE VIEW v AS", "Expected a query", "AS SELECT"),
        ("CREATE VIEW v AS INSERT INTO t VALUES (1)", "found `INSERT`", "AS SELECT"),
        ("CREATE VIEW v (a INT) AS SELECT 1", "found `INT`", "types of its query"),
        ("CREATE VIEW v (a, A) AS SELECT 1, 2", "`A` occurs twice", "name of its own"),
        ("CREATE VIEW v () AS SELECT 1", "a column's name", "help"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "not both", "Leave IF NOT EXISTS"),
        ("CREATE VIEW v COMMENT x AS SELECT 1", "the comment in quotes", "help"),
        ("CREATE VIEW v OPTIONS ('a' = 'b') AS SELECT 1", "found `OPTIONS`", "CREATE VIEW v"),
        ("CREATE VIEWS v AS SELECT 1", "no CREATE VIEWS", "`VIEW`"),
        ("ALTER VIEW v", "SET TBLPROPERTIES", "For example"),
        ("ALTER VIEW v SELECT 1", "AS before the query", "For example"),
        ("ALTER VIEW v SET ('a' = 'b')", "found `SET`", "For example"),
        ("ALTER VIEW v RENAME w", "found `RENAME`", "RENAME TO w"),
        ("ALTER VIEW v RENAME TO", "the view's new name", "help"),
        ("ALTER VIEW v AS", "a query", "AS SELECT"),
        ("ALTER VIEW v UNSET TBLPROPERTIES ()", "a key in quotes", "help"),
        ("ALTER VIEW v ADD COLUMN x INT", "found `ADD`", "For example"),
        ("ALTER VIEW", "a view's name", "help"),
        ("DROP VIEW", "a view's name", "help"),
        ("DROP VIEW a, b", "found `,`", "a DROP VIEW for each"),
        ("DROP VIEW IF EXIST v", "EXISTS is misspelled", "EXISTS"),
        ("SHOW CREATE VIEW v", "Expected TABLE", "SHOW CREATE TABLE v"),
    ],
)
def test_mistakes_are_answered_with_the_next_step(text: str, message: str, hint: str) -> None:
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)
    assert message in caught.value.message, caught.value
    assert hint in caught.value.hint, caught.value
    assert caught.value.position is not None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CREATE VIEW v WITH SCHEMA BINDING AS SELECT 1", "CREATE VIEW … WITH SCHEMA"),
        ("CREATE VIEW v PARTITIONED ON (a) AS SELECT 1", "CREATE VIEW … PARTITIONED"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW"),
        ("ALTER VIEW v ADD DIALECT flink AS 'SELECT 1'", "ALTER VIEW … DIALECT"),
        ("ALTER VIEW v WITH SCHEMA BINDING", "ALTER VIEW … WITH SCHEMA"),
        ("DROP VIEW v CASCADE", "DROP VIEW … CASCADE"),
    ],
)
def test_forms_that_are_not_offered(text: str, kind: str) -> None:
    statement = parse_statement(text)
    assert isinstance(statement, Refused) and statement.kind == kind
