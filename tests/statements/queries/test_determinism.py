"""Which statements give the same rows in each run."""

from __future__ import annotations

import pytest

from paimon_magics.statements.queries.query_traits import random_part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("UPDATE t SET v = rand() WHERE k = 1", "rand"),
        ("DELETE FROM t WHERE v < RANDN (3)", "randn"),
        ("UPDATE t SET v = `uuid`()", "uuid"),
        ("DELETE FROM t WHERE k IN (SELECT k FROM s TABLESAMPLE (10 PERCENT))", "TABLESAMPLE"),
        ("DELETE FROM t WHERE k IN (SELECT k FROM s TABLESAMPLE (10 ROWS) REPEATABLE (1))", None),
        ("UPDATE t SET uuid = 'rand()' WHERE `rand` = 1 -- uuid()", None),
        ("UPDATE t SET at = current_timestamp(), n = n + 1", None),
        ("DELETE FROM t", None),
    ],
)
def test_nondeterministic_parts_are_detected(text: str, part: str | None) -> None:
    assert random_part(text) == part
