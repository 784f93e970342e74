"""Who waits in this process for a table that takes one transaction at a time: as they came.

The process alone is kept in order. Others that write the table are told from what they commit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paimon_magics.planning.commits.requests import Waiting
from paimon_magics.planning.formatting import count_text

__all__ = ["Lines"]

_TOLD_SECONDS = 0.2


class Lines:
    """Transactions by the location of their table; the first of each line has its turn.

    Safe for several threads. A transaction that is never left keeps those behind it waiting as
    long as they wait at most.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, list[str]] = {}

    def wait(
        self, location: str, id: str, wait_ms_max: int, waits: Callable[[Waiting], None]
    ) -> None:
        """Join the line, and return when it is this one's turn, or when it has waited long enough:
        others may then write at the same time, which their commits find out. `waits` is told again
        and again what is in front. Whoever is interrupted has left the line."""
        deadline = time.monotonic() + wait_ms_max / 1000
        with self._changed:
            line = self._lines.setdefault(location, [])
            line.append(id)
        try:
            while (in_front := self._in_front(location, id)) and time.monotonic() < deadline:
                waits(_waiting(in_front))
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._in_front(location, id) != in_front, _TOLD_SECONDS
                    )
        except BaseException:
            self.leave(id)
            raise

    def leave(self, id: str) -> None:
        """The transaction has ended, or never came to its turn; nothing where it is in no line."""
        with self._changed:
            for location, line in list(self._lines.items()):
                if id in line:
                    line.remove(id)
                    if not line:
                        del self._lines[location]
            self._changed.notify_all()

    def _in_front(self, location: str, id: str) -> int:
        with self._changed:
            return self._lines[location].index(id)


def _waiting(in_front: int) -> Waiting:
    return Waiting(
        "The table has dynamic buckets, so that one statement at a time may write it, and "
        f"{count_text(in_front, 'statement')} of this process came before this one.",
        in_front,
    )
