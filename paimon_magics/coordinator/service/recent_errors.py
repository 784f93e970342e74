"""The last things that went wrong in this process, for who looks at its page.

What the coordinator's modules log as a warning or worse is kept in memory, each message once; it
goes to the process's log as well. After a restart there are none.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

from paimon_magics.redaction import redacted

__all__ = ["RecentError", "RecentErrors"]

_KEPT = 50
_CHARACTERS_MAX = 2_000
_LOGGER = "paimon_magics"


@dataclass(frozen=True, slots=True)
class RecentError:
    """A message, how often it came, and when last, in milliseconds of the epoch."""

    message: str
    count: int
    at_ms: int


class RecentErrors(logging.Handler):
    """Keeps the last messages between `begin` and `end`. For any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: OrderedDict[str, RecentError] = OrderedDict()
        self.total = 0
        """How many there were since the beginning, repeated ones included."""

    def begin(self) -> None:
        """Keep from now on what is logged."""
        logging.getLogger(_LOGGER).addHandler(self)

    def end(self) -> None:
        """Keep nothing more."""
        logging.getLogger(_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """For the logging module, which calls it under this handler's lock."""
        message = redacted(record.getMessage())[:_CHARACTERS_MAX]
        before = self._kept.pop(message, None)
        count = 1 if before is None else before.count + 1
        self._kept[message] = RecentError(message, count, int(record.created * 1000))
        self.total += 1
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def list(self) -> list[RecentError]:
        """What was kept, the newest first."""
        self.acquire()
        try:
            return list(reversed(self._kept.values()))
        finally:
            self.release()
