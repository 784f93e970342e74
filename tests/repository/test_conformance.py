"""The page about the protocol has the table of Paimon's tests that fail against a coordinator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.conformance.outcomes import Outcome, differences, expected_failures, number_of_tests

PAGE = Path(__file__).parents[2] / "docs" / "coordinator-protocol.md"


SECTION = PAGE.read_text().partition("### Paimon's own tests")[2].partition("\n#")[0]


def test_page_lists_every_expected_failure_with_its_reason() -> None:
    rows = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        f"| {each.what} | {len(each.java) or '–'} | {len(each.python) or '–'} | {each.why} |"
        for each in expected_failures()
    ]


def test_the_page_says_how_many_tests_pass() -> None:
    for suite, number in number_of_tests().items():
        failed = sum(len(getattr(each, suite)) for each in expected_failures())
        assert f" {number - failed} of {number} pass" in " ".join(SECTION.split())


def test_no_test_is_expected_to_fail_twice() -> None:
    for suite in ("java", "python"):
        names = Counter(name for each in expected_failures() for name in getattr(each, suite))
        assert [name for name, count in names.items() if count > 1] == []


def test_unexpected_outcomes_are_reported() -> None:
    outcomes = [Outcome("T.a", None), Outcome("T.b", "why\n not"), Outcome("T.c", None)]
    assert [line.split(":")[0] for line in differences(outcomes, ["T.c", "T.d"])] == [
        "FAILED T.b",
        "PASSES T.c",
        "ABSENT T.d",
    ]
    assert list(differences(outcomes[:1], [])) == []
