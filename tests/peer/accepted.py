"""What may differ between the connector and us, from `accepted.toml`, each with a reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peer.comparison import Difference

__all__ = ["FILE", "Accepted", "accepted", "reason"]

FILE = Path(__file__).with_name("accepted.toml")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A difference that is meant, or waits for a feature: its reason, and patterns that what it is
    about must have; an empty pattern has everything."""

    why: str
    test: str = ""
    statement: str = ""
    how: str = ""
    project: str = ""
    connector: str = ""

    def covers(self, difference: Difference) -> bool:
        """Whether each pattern is in the difference's text of that name."""
        return all(
            re.search(getattr(self, name), getattr(difference, name), re.IGNORECASE | re.DOTALL)
            for name in ("test", "statement", "how", "project", "connector")
        )


def accepted() -> list[Accepted]:
    """The list of the file, in its order."""
    return [Accepted(**each) for each in tomllib.loads(FILE.read_text())["accepted"]]


def reason(difference: Difference, entries: Sequence[Accepted]) -> str | None:
    """Why a difference is accepted; None where it isn't."""
    if why := next((entry.why for entry in entries if entry.covers(difference)), None):
        return why
    return "follows from an earlier step" if difference.follows else None
