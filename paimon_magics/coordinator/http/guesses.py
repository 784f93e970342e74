"""A limit on guessing tokens: an address whose tokens were wrong too often is not looked at.

Tokens that were right before from there are still looked at: one guest of a network address must
not lock out the others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["Guesses"]

_WRONG_MAX = 20
_FORGIVEN_SECONDS = 60.0
_KEPT_MAX = 10_000


class Guesses:
    """Counts wrong tokens by address. For one thread, the server's. `wrong_max` are taken in a
    minute. `clock` is in seconds."""

    def __init__(
        self, wrong_max: int = _WRONG_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wrong_max = wrong_max
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()

    def wait_seconds(self, address: str, token: str) -> float:
        """How long no token from an address is looked at; 0 if this one is."""
        wrong = self._wrong.get(address)
        if wrong is None or wrong[0] < self._wrong_max or (address, token) in self._right:
            return 0.0
        left = wrong[1] + _FORGIVEN_SECONDS - self._clock()
        if left <= 0:
            del self._wrong[address]
        return max(left, 0.0)

    def was_wrong(self, address: str, token: str) -> None:
        """Note a wrong token."""
        self._right.pop((address, token), None)  # it has ended
        count, since = self._wrong.pop(address, (0, self._clock()))
        if self._clock() - since > _FORGIVEN_SECONDS:
            count, since = 0, self._clock()
        self._wrong[address] = count + 1, since if count + 1 < self._wrong_max else self._clock()
        _cut(self._wrong)

    def was_right(self, address: str, token: str) -> None:
        """Note a token that was right."""
        if (address, token) not in self._right:
            self._right[address, token] = None
            _cut(self._right)


def _cut(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _KEPT_MAX:
        kept.popitem(last=False)
