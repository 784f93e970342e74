"""CALL, and the clauses about tags: what they are read into, and where they are wrong."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import PassThrough, TableName
from paimon_magics.statements.version_changes import (
    AlterTags,
    Call,
    CreateTag,
    DeleteTags,
    Parameter,
    RenameTag,
    ReplaceTag,
    ShowTags,
    TagChange,
)


@pytest.mark.parametrize(
    ("clause", "change"),
    [
        ("CREATE TAG a", CreateTag("a")),
        ("CREATE TAG `2026-11-20`", CreateTag("2026-11-20")),
        ("create tag a as of version 3", CreateTag("a", 3)),
        ("CREATE TAG a AS OF VERSION 3L RETAIN 3 DAYS", CreateTag("a", 3, "3 d")),
        ("CREATE TAG a RETAIN 30 MINUTES", CreateTag("a", None, "30 min")),
        ("CREATE TAG IF NOT EXISTS a RETAIN 2 HOURS", CreateTag("a", None, "2 h", True)),
        ("CREATE OR REPLACE TAG a AS OF VERSION 1", CreateTag("a", 1, or_replace=True)),
        ("REPLACE TAG a AS OF VERSION 1 RETAIN 1 DAYS", ReplaceTag("a", 1, "1 d")),
        ("DELETE TAG a", DeleteTags(("a",))),
        ("DELETE TAG IF EXISTS `a, b`", DeleteTags(("a", "b"))),
        ("RENAME TAG a TO b", RenameTag("a", "b")),
    ],
)
def test_tag_clauses_are_parsed(clause: str, change: TagChange) -> None:
    text = f"ALTER TABLE shop.orders {clause}"
    actual = parse_statement(text)
    assert actual == AlterTags(text, 0, TableName("orders", "shop"), 12, change)


def test_show_tags_is_parsed() -> None:
    assert parse_statement("SHOW TAGS orders$branch_b") == ShowTags(
        "SHOW TAGS orders$branch_b", 0, TableName("orders", branch="b"), 10
    )


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("", []),
        ("'t'", [(None, "t")]),
        ("'db' '.t', 3, -4L", [(None, "db.t"), (None, 3), (None, -4)]),
        ("table => 't', TRUE, null", [("table", "t"), (None, True), (None, None)]),
        ("`table` => :name, x => 1.5", [("table", Parameter("name")), ("x", 1.5)]),
    ],
)
def test_call_arguments_are_parsed(arguments: str, values: list[tuple[str | None, object]]) -> None:
    actual = parse_statement(f"CALL paimon.sys.create_tag({arguments})")
    assert isinstance(actual, Call)
    assert actual.procedure == ("paimon", "sys", "create_tag")
    assert [(argument.name, argument.value) for argument in actual.arguments] == values


def test_call_of_another_namespace_is_passed_to_spark() -> None:
    actual = parse_statement("CALL other.system.work(older_than => TIMESTAMP '2026-01-01')")
    assert isinstance(actual, PassThrough)


def test_longer_units_of_a_tag_are_answered_in_days() -> None:
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement("ALTER TABLE t CREATE TAG a RETAIN 2 MONTHS")
    assert caught.value.hint == "Write it in days: RETAIN 60 DAYS."


@pytest.mark.parametrize(
    ("text", "expected", "at"),
    [
        ("ALTER TABLE t CREATE TAG", "Expected the tag's name", None),
        ("ALTER TABLE t CREATE TAG a AS OF VERSION x", "a snapshot's number, found `x`", "x"),
        ("ALTER TABLE t CREATE TAG a RETAIN 3 DAYZ", "DAYS, HOURS or MINUTES", "DAYZ"),
        (f"ALTER TABLE t CREATE TAG a RETAIN {'9' * 5_000} DAYS", "Expected a number", "9"),
        ("ALTER TABLE t RENAME TAG a", "Expected `TO`", None),
        ("ALTER TABLE t CREATE OR REPLACE TAG IF NOT EXISTS a", "the end of the statement", "NOT"),
        ("SHOW TAGS", "a table's name", None),
        ("CALL sys.create_tag", "Expected `(`", None),
        ("CALL sys.create_tag('t'", "never closed", "("),
        ("CALL sys.create_tag('t' 3)", "Expected `,`", "3"),
        ("CALL sys.create_tag(1 + 1)", "Expected `,`", "+"),
        ("CALL sys.create_tag(current_date)", "a value", "current_date"),
    ],
)
def test_syntax_error_has_its_position(text: str, expected: str, at: str | None) -> None:
    with pytest.raises(StatementSyntaxError, match=r"Expected|closed") as caught:
        parse_statement(text)
    assert expected in caught.value.message
    assert caught.value.position == (len(text) if at is None else text.index(at))
