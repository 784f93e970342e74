"""Lines of waiting transactions in this process, for tables that take one transaction at a time.

Lines order the transactions of this process only. Conflicts with other processes are found by the
commits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paimon_magics.forks import renew_after_fork
from paimon_magics.planning.commits.requests import Waiting
from paimon_magics.planning.formatting import count_text

__all__ = ["Lines"]

_TOLD_SECONDS = 0.2


class Lines:
    """Lines of transactions by their table's location; the first in each line has its turn.

    Safe for several threads. A transaction that never leaves keeps those behind it waiting until
    their wait is over.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, list[str]] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the parent's transactions never leave the lines of this process."""
        self._changed = threading.Condition()
        self._lines = {}

    def wait(
        self, location: str, id: str, wait_ms_max: int, waits: Callable[[Waiting], None]
    ) -> None:
        """Join the line, and return when it is this transaction's turn, or after `wait_ms_max`:
        others may then write at the same time, and the commits find conflicts. `waits` is called
        again and again with what is in front. An interrupted transaction leaves the line."""
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
        """Remove a transaction from its line, if it is in one."""
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
