"""The transactions that a client has opened: their ids at the coordinator, and their leases.

A thread renews the lease of each open transaction, until it ends here or the coordinator says that
it has ended. The ids of the last ended ones are kept, since a commit may be repeated, its left-out
files swept, or a refused transaction aborted.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.errors import UnknownNameError
from paimon_magics.forks import renew_after_fork
from paimon_magics.planning.commits.requests import Transaction

__all__ = ["ENDED_MAX", "OpenTransactions"]

ENDED_MAX = 1_000
"""How many ended transactions are kept: far more than end at the same time. The requests that
follow the end of a transaction come at once."""

_HEARTBEATS_PER_LEASE = 4


@dataclass(frozen=True, slots=True)
class _Open:
    id: str
    ended: threading.Event


class OpenTransactions:
    """A client's transactions, by commit user. Safe for several threads.

    `renew` renews the lease of the transaction with an id, and returns whether it is still open.
    When `renew` raises, it is called again later.
    """

    def __init__(self, renew: Callable[[str], bool]) -> None:
        self._renew = renew
        self._turn = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, str] = {}
        self._of_parent: set[str] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the parent's transactions are the parent's alone."""
        self._turn = threading.Lock()
        self._of_parent |= self._open.keys() | self._ended.keys()
        self._open, self._ended = {}, {}

    def __len__(self) -> int:
        """The number of known transactions, open and ended."""
        with self._turn:
            return len(self._open) + len(self._ended)

    def opened(self, commit_user: str, id: str, lease_seconds: float) -> None:
        """Renew the lease of a transaction until it ends."""
        transaction = _Open(id, threading.Event())
        with self._turn:
            self._open[commit_user] = transaction

        def renew() -> None:
            while not transaction.ended.wait(lease_seconds / _HEARTBEATS_PER_LEASE):
                with contextlib.suppress(Exception):
                    if not self._renew(id):
                        self.ended(commit_user, id)

        threading.Thread(target=renew, name=f"lease-{id[:8]}", daemon=True).start()

    def ended(self, commit_user: str, id: str) -> None:
        """Stop renewing a transaction's lease, and keep its id among the ended ones."""
        with self._turn:
            transaction = self._open.pop(commit_user, None)
            if transaction is not None:
                transaction.ended.set()
            self._ended.pop(commit_user, None)
            self._ended[commit_user] = id
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def id_of(self, transaction: Transaction) -> str:
        """The coordinator's id of a transaction. Raises UnknownNameError for one that this client
        has not opened, or that ended long ago."""
        user = transaction.commit_user
        with self._turn:
            known = self._open.get(user)
            id = self._ended.get(user) if known is None else known.id
        if id is None and user in self._of_parent:
            raise UnknownNameError(
                f"The transaction of the commit user {user} on `{transaction.table}` belongs to "
                "the process that this one was forked from.",
                hint="Commit or abort it there, or begin another one here.",
            )
        if id is None:
            raise UnknownNameError(
                f"This session has no transaction of the commit user {user}, or it ended long ago.",
                hint=f"Look at `{transaction.table}$snapshots` for its snapshot.",
            )
        return id

    def close(self) -> None:
        """Stop renewing all leases."""
        with self._turn:
            for transaction in self._open.values():
                transaction.ended.set()
