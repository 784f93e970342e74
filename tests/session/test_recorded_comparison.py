"""Recorded scenarios are compared with what happens here, as far as the recording says anything."""

from __future__ import annotations

import pytest

from tests.recorded.comparison import Found, difference
from tests.recorded.expected import as_numbers, as_ranges
from tests.recorded.scenarios import Step


def test_step_ranges_round_trip_as_text() -> None:
    for text in ("", "3", "3-5", "0, 2-4, 9"):
        assert as_ranges(as_numbers(text)) == text


UPDATES = [["-U", 1, "a"], ["+U", 1, "b"], ["+I", 2, "c"]]


@pytest.mark.parametrize(
    ("step", "found", "told"),
    [
        (Step("q", rows=[[1], [2]]), Found([[2], [1]]), None),
        (Step("q", rows=[[1], [1]]), Found([[1]]), "only here"),
        (Step("q", rows=[[1]]), Found(), "no rows"),
        (Step("q", rows=[[1]]), Found(error="no"), "failed"),
        (Step("q", error="no"), Found([[1]]), "did not fail"),
        (Step("q", error="no"), Found(error="not so"), None),
        (Step("q", error="no"), Found(error="KeyError", is_crash=True), "crashed"),
        (Step("q", rows=UPDATES), Found([UPDATES[2], *UPDATES[:2]]), None),
        (Step("q", rows=UPDATES), Found(UPDATES[::-1]), "-U and +U apart"),
        (Step("`t$table_indexes`", rows=[["x", 3]]), Found([["x", 1], ["x", 2]]), None),
        (Step("`t$table_indexes`", rows=[["x", 3]]), Found([["x", 1]]), "only here"),
        (Step("count(*) `t$files`", rows=[[5, 1]]), Found([[5, 2]]), None),
        (Step("count(*) `u$files`", rows=[[5, 1]]), Found([[5, 2]]), "only here"),
    ],
)
def test_comparison_reports_only_real_differences(
    step: Step, found: Found, told: str | None
) -> None:
    how = difference(step, found, frozenset({"t"}))
    assert how is None if told is None else how is not None and how.startswith(told)
