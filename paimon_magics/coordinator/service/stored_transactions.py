"""Looking transactions up: in the state while they are unfinished, in the store after that."""

from __future__ import annotations

import json

from paimon_magics.coordinator.core import TransactionState
from paimon_magics.coordinator.protocol.documents import request_of, transaction_of
from paimon_magics.coordinator.service.state_thread import StateThread
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.planning.commits.expiry import NO_FLOOR
from paimon_magics.planning.commits.requests import CommitRequest, Transaction

__all__ = ["StoredTransactions"]


class StoredTransactions:
    """Looks transactions up. For any thread."""

    def __init__(self, store: StateStore, state_thread: StateThread) -> None:
        self._store = store
        self._state_thread = state_thread

    def state(self, id: str) -> TransactionState | None:
        """A transaction, finished or not; None when it is unknown or no longer kept."""
        return self._state_thread.state.held.get(id) or self._store.transactions.finished(id)

    def recently_finished(self, count: int) -> list[TransactionState]:
        """The last finished transactions, the newest first."""
        return self._store.transactions.recently_finished(count)

    def opened(self, id: str) -> Transaction | None:
        """A transaction as it was opened; None for an unknown one."""
        opened = self._state_thread.opened.get(id)
        if opened is not None:
            return opened
        stored = self._store.transactions.opened(id)
        return None if stored is None else transaction_of(stored)

    def request(self, id: str) -> CommitRequest | None:
        """A transaction's commit request; None for an unknown one, or one without a request."""
        request = self._state_thread.requests.get(id)
        if request is not None:
            return request
        body, transaction = self._store.transactions.request(id), self.opened(id)
        if body is None or transaction is None:
            return None
        return request_of(transaction, json.loads(body))

    def first_needed(self, location: str, branch: str | None) -> int:
        """The first snapshot of a table's branch that an open transaction or the watch over
        publications may still read; NO_FLOOR without any."""
        state = self._state_thread.state
        opened = [
            self._state_thread.opened.get(id)
            for id, one in state.held.items()
            if one.location == location
        ]
        needed = [one.base_snapshot_id for one in opened if one and one.table.branch == branch]
        needed += [
            publication.snapshot_id
            for publication in state.watched.get(location, ())
            if publication.table.branch == branch
        ]
        return min(needed, default=NO_FLOOR)
