"""The last errors of this process, for its status page.

Warnings and errors that the package logs are kept in memory, each message once; they go to the
process's log as well. After a restart there are none.
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
    """A message, how often it was logged, and when last, in milliseconds of the epoch."""

    message: str
    count: int
    at_ms: int


class RecentErrors(logging.Handler):
    """Keeps the last messages between `begin` and `end`. For any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: OrderedDict[str, RecentError] = OrderedDict()
        self.total = 0
        """How many messages were logged since `begin`, repeated ones included."""

    def begin(self) -> None:
        """Keep messages from now on."""
        logging.getLogger(_LOGGER).addHandler(self)

    def end(self) -> None:
        """Keep no more messages."""
        logging.getLogger(_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's message; logging calls this under the handler's lock."""
        message = redacted(record.getMessage())[:_CHARACTERS_MAX]
        before = self._kept.pop(message, None)
        count = 1 if before is None else before.count + 1
        self._kept[message] = RecentError(message, count, int(record.created * 1000))
        self.total += 1
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def list(self) -> list[RecentError]:
        """Return the kept messages, the newest first."""
        self.acquire()
        try:
            return list(reversed(self._kept.values()))
        finally:
            self.release()
