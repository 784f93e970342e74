"""Which databases and tables a user may see, as the coordinator says.

It is asked when a name is first looked at, and again after some seconds, so that a right that is
taken away or given holds soon. While it does not answer the last answer counts; without one names
can't be looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from paimon_magics.coordinator.client.administration import Ask
from paimon_magics.coordinator.protocol.principals import Principal, principal_of_document
from paimon_magics.errors import SetupError
from paimon_magics.forks import renew_after_fork

__all__ = ["SeenNames"]

_AGAIN_SECONDS = 10.0


class SeenNames:
    """A `Visibility`. `ask` sends one request to the coordinator. For any thread."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._principal: Principal | None = None
        self._asked_at = float("-inf")
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`."""
        self._lock = threading.Lock()

    def sees_database(self, database: str) -> bool:
        """See `Visibility.sees_database`."""
        return self._known().sees_database(database)

    def sees_table(self, database: str, table: str) -> bool:
        """See `Visibility.sees_table`."""
        return self._known().sees_table(database, table)

    def __reduce__(self) -> tuple[Callable[[Principal], Principal], tuple[Principal]]:
        """For another process, what the user may see now."""
        return replace, (self._known(),)

    def _known(self) -> Principal:
        with self._lock:
            if time.monotonic() - self._asked_at > _AGAIN_SECONDS or self._principal is None:
                try:
                    self._principal = principal_of_document(self._ask("GET", "/v1/principal")[1])
                except SetupError:
                    if self._principal is None:
                        raise
                self._asked_at = time.monotonic()
            return self._principal
