"""Commits of compactions in which some buckets may conflict with other commits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Compact

__all__ = ["CompactionReceipt", "commit_compaction"]


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


def commit_compaction(client: CoordinatorClient, request: CommitRequest) -> CompactionReceipt:
    """Commit the messages of a compaction that do not conflict with other commits.

    `request` has the change `Compact()`. Raises what `CoordinatorClient.commit` raises for other
    reasons; a CommitConflictError among them says that nothing of it can be committed.
    """
    assert isinstance(request.change, Compact)
    left = list(range(len(request.messages)))
    reason = ""
    while True:
        conflicting = sorted(set(range(len(request.messages))).difference(left))
        asked = replace(
            request,
            change=Compact(tuple(request.messages[at] for at in conflicting)),
            messages=tuple(request.messages[at] for at in left),
        )
        try:
            return CompactionReceipt(client.commit(asked), asked, tuple(conflicting), reason)
        except CompactionConflictError as error:
            if not error.conflicting:
                raise
            reason = reason or error.message
            left = [at for place, at in enumerate(left) if place not in error.conflicting]
        if not left:
            client.abort(request.transaction)
            return CompactionReceipt(None, asked, tuple(range(len(request.messages))), reason)
