"""Owning the warehouse before anything in it is changed."""

from __future__ import annotations

from collections.abc import Callable

from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.service.commit_worker import Worker

__all__ = ["Owning"]


class Owning:
    """Takes the warehouse when that is needed. Without `ownership` nobody owns it.

    Once in each epoch it drops the claims that are older than `claims_kept_ms`: no client can ask
    about them any more. For any thread.
    """

    def __init__(
        self,
        ownership: Ownership | None,
        worker: Worker,
        claims_kept_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._ownership = ownership
        self._worker = worker
        self._claims_kept_ms = claims_kept_ms
        self._now_ms = now_ms
        self._epoch = 0

    @property
    def epoch(self) -> int | None:
        """The epoch in which the warehouse is owned, 0 before; None without ownership."""
        return None if self._ownership is None else self._ownership.epoch

    def own(self) -> None:
        """Own the warehouse from now on. Raises what `Ownership.acquire` raises."""
        if self._ownership is not None and self._ownership.acquire() != self._epoch:
            self._epoch = self._ownership.epoch
            self._worker.drop_claims(self._now_ms() - self._claims_kept_ms)
