"""What Paimon's tests did, and which of them are expected to fail, each for a reason.

`expected.toml` lists those: the page about the protocol has its table, and a test compares the two.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Expected", "Outcome", "differences", "expected_failures", "number_of_tests"]

_FILE = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A test's name, and what it said when it failed: None where it passed."""

    test: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Expected:
    """Tests that fail for one reason: `what` they ask for, and why it is so."""

    what: str
    why: str
    java: tuple[str, ...]
    python: tuple[str, ...]


def expected_failures(where: str = "local") -> list[Expected]:
    """What `expected.toml` lists for warehouses that are `local`, on `MinIO`, or there with `data
    tokens`, in its order."""
    document = tomllib.loads(_FILE.read_text())
    return [
        Expected(one["what"], one["why"], tuple(one["java"]), tuple(one["python"]))
        for one in document["failures"]
        if where in one.get("where", [where])
    ]


def number_of_tests() -> dict[str, int]:
    """How many tests each suite has."""
    numbers: dict[str, int] = tomllib.loads(_FILE.read_text())["tests"]
    return numbers


def differences(outcomes: Sequence[Outcome], expected: Sequence[str]) -> Iterator[str]:
    """A line for each test that did not do what is expected of it, or did not run."""
    known = set(expected)
    for outcome in outcomes:
        if outcome.problem is not None and outcome.test not in known:
            yield f"FAILED {outcome.test}: {' '.join(outcome.problem.split())[:300]}"
        if outcome.problem is None and outcome.test in known:
            yield f"PASSES {outcome.test}: take it out of {_FILE.name}"
    for test in sorted(known - {outcome.test for outcome in outcomes}):
        yield f"ABSENT {test}: take it out of {_FILE.name}"
