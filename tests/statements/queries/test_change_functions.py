"""Paimon's table functions for changes, as references with read options."""

from __future__ import annotations

import pytest

from paimon_magics.errors import StatementSyntaxError
from paimon_magics.statements.grammar.parsing import parse_cell
from paimon_magics.statements.statement import Query, TableReference


def reference(query: str) -> TableReference:
    (statement,) = parse_cell(query)
    assert isinstance(statement, Query)
    (result,) = statement.query.references
    return result


@pytest.mark.parametrize(
    ("call", "name", "options"),
    [
        ("paimon_incremental_query('t', 2, 5)", "t", {"incremental-between": "2,5"}),
        ("paimon_incremental_query('t', 'a', 'b')", "t", {"incremental-between": "a,b"}),
        ("PAIMON_INCREMENTAL_QUERY('t', '2,5')", "t", {"incremental-between": "2,5"}),
        (
            "paimon_incremental_query('d.t$audit_log', 2, 5)",
            "d.t$audit_log",
            {"incremental-between": "2,5"},
        ),
        (
            "paimon_incremental_query('`t$audit_log`', 2, 5)",
            "t$audit_log",
            {"incremental-between": "2,5"},
        ),
        (
            "paimon_incremental_between_timestamp('t', '2026-01-31', '2026-02-01')",
            "t",
            {"incremental-between-timestamp": "2026-01-31,2026-02-01"},
        ),
        (
            "paimon_incremental_to_auto_tag('t', '2026-01-31')",
            "t",
            {"incremental-to-auto-tag": "2026-01-31"},
        ),
    ],
)
def test_change_function_becomes_a_table_with_read_options(
    call: str, name: str, options: dict[str, str]
) -> None:
    query = f"SELECT count(*) FROM {call} AS c WHERE k > 1"
    actual = reference(query)
    assert str(actual.name).replace("`", "") == name
    assert dict(actual.options) == options
    assert query[actual.range.start : actual.range.end] == call
    assert (actual.has_alias, actual.alias) == (True, "c")


def test_change_function_without_alias_takes_its_table_name() -> None:
    actual = reference("SELECT * FROM paimon_incremental_query('d.t$audit_log', 0, 2) WHERE k > 1")
    assert (actual.has_alias, actual.alias) == (False, "t")


def test_change_functions_can_be_joined_with_tables() -> None:
    (statement,) = parse_cell(
        "SELECT * FROM paimon_incremental_query('t', 0, 2) a JOIN other b ON a.k = b.k"
    )
    assert isinstance(statement, Query)
    assert [str(each.name) for each in statement.query.references] == ["t", "other"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("paimon_incremental_query('t')", "the start (not included) and the end"),
        ("paimon_incremental_query('t', 1, 2, 3)", "the start (not included) and the end"),
        ("paimon_incremental_to_auto_tag('t', 'a', 'b')", "a tag"),
        ("paimon_incremental_query(t, 1, 2)", "a table's name in quotes"),
        ("paimon_incremental_query('a.b.c.d', 1, 2)", "can't name a Paimon table"),
        ("paimon_incremental_query('', 1, 2)", "can't name a Paimon table"),
    ],
)
def test_invalid_change_function_is_refused_with_its_position(call: str, told: str) -> None:
    with pytest.raises(StatementSyntaxError) as error:
        parse_cell(f"SELECT * FROM {call}")
    assert told in error.value.message
    assert error.value.position is not None
