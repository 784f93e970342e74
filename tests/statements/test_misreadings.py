from __future__ import annotations

import pytest

from paimon_magics.statements.misreadings import misreading


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        (
            "SELECT * FORM |orders",
            "The statement can't be read at `orders`.",
            "Did you mean `FROM` instead of `FORM`?",
        ),
        (
            "SELECT id, FROM |orders",
            "The statement can't be read at `orders`.",
            "Leave out the comma before `FROM`.",
        ),
        (
            "SELECT id, a FROM t GRUOP |BY id",
            "The statement can't be read at `BY`.",
            "Did you mean `GROUP` instead of `GRUOP`?",
        ),
        ("SELECT * FROM t WHERE a = |", "The statement ends too early.", "Complete it."),
        ("SELECT * FROM t |) x", "The statement can't be read at `)`.", "Correct the statement."),
        ("SELECT 'open |", "The statement ends too early.", "Complete it."),
    ],
)
def test_what_may_have_been_meant_is_said(statement: str, message: str, hint: str) -> None:
    assert misreading(statement.replace("|", ""), statement.index("|")) == (message, hint)
