"""The read leases of one client of a coordinator.

Several queries may read one snapshot at once: its lease lasts until the last query is done. A
thread renews all leases together. If the process dies, they expire. A lease that is never released
(a notebook keeps the outcome of every cell) expires some time after it was last taken.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from paimon_magics.coordinator.protocol.clock import renewal_seconds
from paimon_magics.coordinator.protocol.documents import table_document, table_of
from paimon_magics.errors import SetupError
from paimon_magics.forks import renew_after_fork
from paimon_magics.statements.statement import TableName

_log = logging.getLogger(__name__)

Post = Callable[[Any], Any]
"""Sends a document to the coordinator's `/v1/leases` once, and returns the answer. Raises
SetupError if no answer comes.
"""


class ReadLeases:
    """The leases of one holder. Each ends `longest_ms` after it was last taken. Safe for several
    threads."""

    def __init__(self, post: Post, longest_ms: int) -> None:
        self._post = post
        self._longest_seconds = longest_ms / 1000
        self._counts: Counter[tuple[TableName, int]] = Counter()
        # Filled while Python collects garbage, maybe in a thread that has the guard.
        self._released: deque[tuple[TableName, int]] = deque()
        self._pause_seconds = 1.0
        self._closed = False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: another holder, without leases. The counts stay, since copies of the
        parent's readers may release their leases here. That must not end a lease of this process.
        """
        self._holder = uuid.uuid4().hex
        self._taken: dict[tuple[TableName, int], float] = {}  # when last, in monotonic seconds
        self._guard, self._sending = threading.Lock(), threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, table: TableName, snapshot_id: int) -> bool:
        """Lease a snapshot. Return False if it has expired."""
        lease = table, snapshot_id
        with self._guard:
            is_leased = lease in self._wanted()
            self._counts[lease] += 1
            self._taken[lease] = time.monotonic()
            if is_leased:
                return True
        try:
            is_gone = lease in self._send()
        except SetupError:
            # An unreachable coordinator expires nothing; a restarted one first awaits renewals.
            is_gone = False
            self._keep_renewing()
        except BaseException:
            self.give_up(table, snapshot_id)
            raise
        if is_gone:
            self.give_up(table, snapshot_id)
        return not is_gone

    def give_up(self, table: TableName, snapshot_id: int) -> None:
        """Release one lease of a snapshot. The coordinator learns of it with the next renewal.
        Takes no lock, since finalizers call it.
        """
        self._released.append((table, snapshot_id))

    def close(self) -> None:
        """Release all leases."""
        with self._guard:
            self._closed = True
            had_any = self._thread is not None
            self._counts.clear()
            self._taken.clear()
        self._wake.set()
        if had_any:
            try:
                self._send()
            except Exception as error:  # the leases expire by themselves
                _log.info("Read leases could not be released: %r", error)

    def _send(self) -> set[tuple[TableName, int]]:
        # One at a time: an older list that arrives later would remove leases.
        with self._sending:
            with self._guard:
                wanted = self._wanted()
            leases = [
                {"table": table_document(table), "snapshot_id": snapshot_id}
                for table, snapshot_id in wanted
            ]
            answer = self._post({"holder": self._holder, "leases": leases})
            self._pause_seconds = renewal_seconds(answer)
        self._keep_renewing()
        gone = answer["gone"]
        return {(table_of(lease["table"]), int(lease["snapshot_id"])) for lease in gone}

    def _wanted(self) -> list[tuple[TableName, int]]:
        while self._released:
            lease = self._released.popleft()
            self._counts[lease] -= 1
            if self._counts[lease] <= 0:
                del self._counts[lease]
                self._taken.pop(lease, None)
        since = time.monotonic() - self._longest_seconds
        return [lease for lease, taken in self._taken.items() if taken > since]

    def _keep_renewing(self) -> None:
        with self._guard:
            if self._thread is None and self._wanted() and not self._closed:
                self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._thread.start()

    def _renew(self) -> None:
        while not self._wake.wait(self._pause_seconds):
            try:
                self._send()
            except Exception as error:  # the next renewal comes before the lease ends
                _log.info("Read leases could not be renewed: %r", error)
            with self._guard:
                if not self._wanted():
                    self._thread = None
                    return
