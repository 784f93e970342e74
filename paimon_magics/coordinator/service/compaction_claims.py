"""The buckets that open transactions compact. A claim lasts as long as its transaction is open: it
is renewed by the transaction's heartbeats, and given back when the transaction ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from paimon_magics.coordinator.core import Phase, State
from paimon_magics.coordinator.core.compactions import (
    CompactedBucket,
    claimed,
    still_claimed,
)
from paimon_magics.errors import InvalidValueError

__all__ = ["CompactionClaims"]

_BUCKETS_MAX = 100_000  # of one transaction: some 20 MB of memory
_OPEN = (Phase.ACTIVE, Phase.COMMITTING, Phase.UNCLEAR)


class CompactionClaims:
    """The claims of one coordinator's transactions, in memory only. For any thread."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._claims: dict[CompactedBucket, str] = {}
        self._guard = threading.Lock()

    def claim(self, id: str, wanted: Sequence[CompactedBucket]) -> tuple[int, ...]:
        """Let an open transaction compact the buckets that no other one compacts. Return their
        positions in `wanted`; () for a transaction that has ended. Raises InvalidValueError for too
        many buckets."""
        if len(wanted) > _BUCKETS_MAX:
            raise InvalidValueError(
                f"{len(wanted):,} buckets are too many for one compaction.",
                hint=f"Compact at most {_BUCKETS_MAX:,} buckets at once, by partition.",
            )
        with self._guard:
            open_ids = self._open_ids()
            if id not in open_ids:
                return ()
            kept = still_claimed(self._claims, open_ids)
            self._claims, granted = claimed(kept, wanted, id)
        return granted

    def counts(self) -> Counter[str]:
        """The number of buckets that each open transaction compacts."""
        with self._guard:
            return Counter(still_claimed(self._claims, self._open_ids()).values())

    def _open_ids(self) -> frozenset[str]:
        held = self._state().held
        return frozenset(id for id, one in held.items() if one.phase in _OPEN)
