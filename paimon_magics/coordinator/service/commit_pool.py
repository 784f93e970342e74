"""The threads that carry out the core's decisions: commits, look-ups, removals, checks of tables.

Each result is an event. The core sees to it that a table has one commit at a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paimon_magics.coordinator.core import (
    CheckTable,
    CommitUnclear,
    Effect,
    Event,
    LookUpCommit,
    RemoveFiles,
    Republish,
    RunCommit,
)
from paimon_magics.coordinator.service.commit_worker import Worker
from paimon_magics.coordinator.service.publication_watch import Watching
from paimon_magics.coordinator.service.state_thread import Asked, StateThread
from paimon_magics.coordinator.service.stored_transactions import StoredTransactions
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["CommitPool"]

_WORKERS = 8
_RETRY_SECONDS = 2.0
_T = TypeVar("_T")


class CommitPool:
    """Carries out effects, and hands the events that follow to `state_thread`."""

    def __init__(
        self,
        state_thread: StateThread,
        transactions: StoredTransactions,
        worker: Worker,
        watching: Watching,
    ) -> None:
        self._state_thread = state_thread
        self._transactions = transactions
        self._worker = worker
        self._watching = watching
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="commit")

    def carry_out(self, effect: Effect) -> None:
        """Start the work of an effect, if it is one for the pool."""
        match effect:
            case RunCommit(id=id):
                self._run(self._commit, id)
            case LookUpCommit(id=id):
                self._run(self._look_up, id)
            case RemoveFiles(id=id):
                self._run(self._remove, id)
            case CheckTable(location=location):
                self._run(self._watching.check, location)
            case Republish(publication=publication):
                self._run(self._watching.republish, publication)
            case _:
                pass

    def end(self) -> None:
        """Stop after the work that was started."""
        self._pool.shutdown(wait=True)

    def _run(self, action: Callable[[_T], Event], argument: _T) -> None:
        def work() -> None:
            try:
                self._state_thread.put(Asked(action(argument)))
            except DeposedError as error:
                self._state_thread.depose(error)

        with contextlib.suppress(RuntimeError):  # stopping: the next start finds the work
            self._pool.submit(work)

    def _commit(self, id: str) -> Event:
        try:
            request = self._transactions.request(id)
            assert request is not None
        except Exception:
            return CommitUnclear(id)
        return self._worker.commit(id, request)

    def _look_up(self, id: str) -> Event:
        try:
            request = self._transactions.request(id)
            adopted = self._state_thread.state.held[id].adopted
            assert request is not None
        except Exception:
            time.sleep(_RETRY_SECONDS)
            return CommitUnclear(id)
        return self._worker.look_up(id, request, adopted)

    def _remove(self, id: str) -> Event:
        state = self._state_thread.state.held.get(id)
        adopted = 0 if state is None else state.adopted
        return self._worker.remove(id, self._state_thread.opened[id], adopted)
