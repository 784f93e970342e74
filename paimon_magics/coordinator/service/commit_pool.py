"""The threads that carry out the core's decisions: commits, look-ups, removals, checks of tables.

Each effect ends in one event. What `commit_worker` and `publication_watch` did not expect becomes
the event that says so: the outcome of a commit is unknown then, and is looked up. The core sees to
it that a table has one commit at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from paimon_magics.coordinator.core import (
    CheckFailed,
    CheckTable,
    CommitUnclear,
    Effect,
    Event,
    LookUpCommit,
    RemoveFiles,
    Republish,
    RepublishUnclear,
    RunCommit,
    Ticked,
)
from paimon_magics.coordinator.runtime import Runtime
from paimon_magics.coordinator.service.commit_worker import Worker
from paimon_magics.coordinator.service.publication_watch import Watching
from paimon_magics.coordinator.service.state_thread import Asked, StateThread
from paimon_magics.coordinator.service.stored_transactions import StoredTransactions
from paimon_magics.coordinator.store.database import StoreLostError
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["CommitPool"]

_WORKERS = 8
_PAUSE_MS = 2_000


class CommitPool:
    """Carries out effects, and hands the events that follow to `state_thread`.

    `retries` counts, by transaction or location, the tries since the last clear outcome.
    """

    def __init__(
        self,
        runtime: Runtime,
        state_thread: StateThread,
        transactions: StoredTransactions,
        worker: Worker,
        watching: Watching,
    ) -> None:
        self._now_ms = runtime.clock.now_ms
        self._state_thread = state_thread
        self._transactions = transactions
        self._worker = worker
        self._watching = watching
        self._pool = runtime.pool("commits", _WORKERS)
        self.retries: Counter[str] = Counter()

    def carry_out(self, effect: Effect) -> None:
        """Start the work of an effect, if it is one for the pool."""
        match effect:
            case RunCommit(id=id):
                self._begin(id, lambda: self._commit(id), lambda why: CommitUnclear(id))
            case LookUpCommit(id=id):
                self._begin(id, lambda: self._look_up(id), lambda why: CommitUnclear(id))
            case RemoveFiles(id=id):  # tried again after the grace period
                self._begin(id, lambda: self._remove(id), lambda why: Ticked(self._now_ms()))
            case CheckTable(location=location):
                self._begin(
                    location,
                    lambda: self._watching.check(location),
                    lambda why: CheckFailed(location, _unread(why), self._now_ms()),
                )
            case Republish(publication=publication):
                self._begin(
                    publication.location,
                    lambda: self._watching.republish(publication),
                    lambda why: RepublishUnclear(publication.location),
                )
            case _:
                pass

    def end(self) -> None:
        """Stop after the work that was started."""
        self._pool.end()

    def _begin(
        self, key: str, work: Callable[[], Event], otherwise: Callable[[Exception], Event]
    ) -> None:
        def crashed(error: Exception) -> Event:
            if isinstance(error, DeposedError | StoreLostError):
                self._state_thread.depose(error)
                return Ticked(self._now_ms())
            return otherwise(error)

        def deliver(event: Event) -> None:
            if isinstance(event, CommitUnclear | RepublishUnclear):
                self.retries[key] += 1
            else:
                self.retries.pop(key, None)
            self._state_thread.put(Asked(event))

        # The first look-up follows at once, later ones wait for what is in the way to change.
        pause_ms = _PAUSE_MS if self.retries[key] > 1 else 0
        self._pool.effect(key, work, crashed, deliver, after_ms=pause_ms)

    def _commit(self, id: str) -> Event:
        request = self._transactions.request(id)
        assert request is not None
        return self._worker.commit(id, request)

    def _look_up(self, id: str) -> Event:
        request = self._transactions.request(id)
        assert request is not None
        return self._worker.look_up(id, request, self._state_thread.state.held[id].adopted)

    def _remove(self, id: str) -> Event:
        held, opened = self._state_thread.state.held.get(id), self._state_thread.opened.get(id)
        if opened is None:  # an earlier try has removed them since
            return Ticked(self._now_ms())
        return self._worker.remove(id, opened, 0 if held is None else held.adopted)


def _unread(why: Exception) -> str:
    return f"The table's snapshots can't be read: {why}"
