"""STRUCTs that are NULL in some rows, of fields that never are."""

from __future__ import annotations

import pytest

from paimon_magics import Session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "value",
    [
        "named_struct('a', id)",
        "named_struct('a', named_struct('b', id))",
        "array(named_struct('a', id), NULL)",
        "map('x', named_struct('a', id), 'y', NULL)",
    ],
)
def test_null_structs_of_not_null_fields_are_fetched(session: Session, value: str) -> None:
    query = f"SELECT IF(id = 1, {value}, NULL) AS v, id AS n, id AS n FROM range(3)"
    outcome = session.run(query)
    assert [row is None for row in outcome.to_arrow().column(0).to_pylist()] == [True, False, True]
    assert outcome.to_arrow().column_names == ["v", "n", "n"]
    assert "1" in str(outcome)
