"""How much of a coordinator one client may have: requests in flight, requests a second, streams.

A client is a verified name, and an address where there is none. What is over the limit is answered
429 before anything of it is looked at, with the time after which it may be sent again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["REQUEST_BYTES_MAX", "ClientLimits", "Turnstile"]

REQUEST_BYTES_MAX = 16 * 2**20
"""The largest request that is taken, unless the coordinator is started with another limit."""

_CLIENTS_MAX = 10_000  # that are remembered
_BURST_SECONDS = 2.0
_WAIT_SECONDS = 1.0  # for a client whose requests in flight are too many


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of each client; 0 is no limit. `rate_max` is in requests a second, of which those
    of two seconds may come at once."""

    in_flight_max: int = 0
    rate_max: int = 0
    streams_max: int = 0

    @property
    def are_any(self) -> bool:
        """Whether anything is limited."""
        return bool(self.in_flight_max or self.rate_max or self.streams_max)


@dataclass(slots=True)
class _Client:
    requests: int = 0
    streams: int = 0
    budget: float = 0.0
    counted_at: float = 0.0


class Turnstile:
    """Counts what clients do. For one thread, the server's. `clock` is in seconds."""

    def __init__(self, limits: ClientLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    def enter(self, name: str, *, is_stream: bool = False) -> float:
        """Let a request in, which `leave` ends: return 0. Or return how many seconds the client has
        to wait, of which nothing is counted."""
        limits, now = self._limits, self._clock()
        client = self._of(name, now)
        if is_stream:
            if 0 < limits.streams_max <= client.streams:
                return _WAIT_SECONDS
            client.streams += 1
            return 0.0
        if 0 < limits.in_flight_max <= client.requests:
            return _WAIT_SECONDS
        if limits.rate_max:
            earned = (now - client.counted_at) * limits.rate_max
            client.budget = min(client.budget + earned, limits.rate_max * _BURST_SECONDS)
            client.counted_at = now
            if client.budget < 1:
                return (1 - client.budget) / limits.rate_max
            client.budget -= 1
        client.requests += 1
        return 0.0

    def leave(self, name: str, *, is_stream: bool = False) -> None:
        """End a request that was let in."""
        client = self._clients[name]
        if is_stream:
            client.streams -= 1
        else:
            client.requests -= 1

    def _of(self, name: str, now: float) -> _Client:
        client = self._clients.get(name)
        if client is None:
            client = _Client(budget=self._limits.rate_max * _BURST_SECONDS, counted_at=now)
            self._clients[name] = client
            self._forget_idle()
        else:
            self._clients.move_to_end(name)
        return client

    def _forget_idle(self) -> None:
        """Forget the client that was away longest, if there are many; one at a time, so that a
        request costs the same however many there are."""
        if len(self._clients) <= _CLIENTS_MAX:
            return
        name, client = next(iter(self._clients.items()))
        if client.requests or client.streams:
            self._clients.move_to_end(name)
        else:
            del self._clients[name]
