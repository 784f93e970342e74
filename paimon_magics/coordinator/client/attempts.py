"""How often a statement ran, what it waited for, and the notes on that for the user.

With a coordinator, two statements that write a table with dynamic buckets take turns. Other writers
(another engine, a session without a coordinator) may still commit in between.
"""

from __future__ import annotations

import random
import time

from paimon_magics.errors import OutdatedPlanError
from paimon_magics.planning.commits.requests import Waiting
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName

__all__ = ["Attempts"]

_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0


class Attempts:
    """The runs of one statement: one run and up to `reruns_max` reruns."""

    def __init__(self, reruns_max: int) -> None:
        self._reruns_max = reruns_max
        self._reruns = 0
        self._last = ""
        self._since: float | None = None
        self._seconds = 0.0
        self._first: Waiting | None = None
        self._now: Waiting | None = None

    def waits(self, waiting: Waiting) -> None:
        """Note that the statement waits for its turn. Called whenever the wait changes."""
        self._since = self._since or time.monotonic()
        self._first = self._first or waiting
        self._now = waiting

    def doing(self, table: TableName) -> str:
        """What the statement does before its transaction begins, as progress text."""
        if self._now is None:
            return "opening the transaction"
        return f"waiting for `{table}` ({self._now.in_front:,} in front)"

    def opened(self) -> None:
        """Note that the statement's turn has come."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = self._now = None

    def next(self, error: OutdatedPlanError, *, may_run_again: bool) -> None:
        """Sleep before the next run; raise `error` if the statement may not run again.

        The pause is random and grows, so that some of many competing statements succeed.
        """
        if not may_run_again or self._reruns >= self._reruns_max:
            raise error
        pause = min(_PAUSE_SECONDS * 2**self._reruns, _PAUSE_SECONDS_MAX)
        self._reruns += 1
        # A coordinator's refusal has the next step in its message, which is done by then.
        self._last = error.message.partition(" Nothing was written.")[0]
        time.sleep(random.uniform(0, pause))

    def notes(self) -> tuple[str, ...]:
        """Notes for the Outcome on waiting and reruns; none if the statement ran at once."""
        notes = []
        if self._first is not None:
            seconds, in_front = f"{self._seconds:.1f} s", f"{self._first.in_front:,} in front"
            notes.append(f"Waited {seconds} for its turn ({in_front}): {self._first.message}")
        if self._reruns:
            times = count_text(self._reruns, "time")
            notes.append(
                f"Planned and run again {times}, before anything was written: {self._last}"
            )
        return tuple(notes)
