"""Commits of compactions in which some buckets may conflict with other commits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Compact

__all__ = ["CompactionCommit", "CompactionReceipt", "commit_compaction"]


@dataclass(frozen=True, slots=True)
class CompactionReceipt:
    """What became of a compaction. `receipt` is None if all of its messages conflicted; then its
    transaction has ended and its files are removed. `request` is the last one that was asked for,
    for `CoordinatorClient.sweep`. `conflicting` are the positions of messages
    that others' commits conflict with: their buckets have to be planned anew. `reason` says of one
    of them why, "" without any."""

    receipt: CommitReceipt | None
    request: CommitRequest
    conflicting: tuple[int, ...] = ()
    reason: str = ""


class CompactionCommit:
    """Commits the messages of a compaction that do not conflict with other commits. `request` has
    the change `Compact()`."""

    def __init__(self, client: CoordinatorClient, request: CommitRequest) -> None:
        assert isinstance(request.change, Compact)
        self._client = client
        self._request = request
        self._left = list(range(len(request.messages)))
        self._reason = ""

    def run(self) -> CompactionReceipt:
        """Commit. A call that was interrupted may be repeated: the same messages are asked for
        again.

        Raises what `CoordinatorClient.commit` raises for other reasons; a CommitConflictError among
        them says that nothing of it can be committed.
        """
        while True:
            asked = self._asked()
            try:
                receipt = self._client.commit(asked)
                return CompactionReceipt(receipt, asked, self._conflicting(), self._reason)
            except CompactionConflictError as error:
                if not error.conflicting:
                    raise
                self._reason = self._reason or error.message
                gone = {self._left[place] for place in error.conflicting}
                self._left = [at for at in self._left if at not in gone]
            if not self._left:
                self._client.abort(self._request.transaction)
                return CompactionReceipt(None, asked, self._conflicting(), self._reason)

    def _asked(self) -> CommitRequest:
        messages = self._request.messages
        return replace(
            self._request,
            change=Compact(tuple(messages[at] for at in self._conflicting())),
            messages=tuple(messages[at] for at in self._left),
        )

    def _conflicting(self) -> tuple[int, ...]:
        return tuple(sorted(set(range(len(self._request.messages))).difference(self._left)))


def commit_compaction(client: CoordinatorClient, request: CommitRequest) -> CompactionReceipt:
    """Run a CompactionCommit once."""
    return CompactionCommit(client, request).run()
