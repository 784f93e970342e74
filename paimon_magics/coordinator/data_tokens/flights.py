"""Requests for keys: one at a time for each key, in threads of their own, and fewer after failures.

STS may be slow, or away. Nobody who waits for a key has a thread or a lock meanwhile: those who ask
for the same key wait for the same future, which ends after `ANSWER_SECONDS` at the latest. After a
failure the next requests are refused at once, until a trial is due; only one trial is under way.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError

ANSWER_SECONDS = 12.0
"""How long a request may take. A session's own request for a key lasts 30 s."""

_WORKERS = 8
_LOOK_MS = 250.0
_PAUSE_MS = 1_000.0
_PAUSE_MS_MAX = 30_000.0
_REFUSED_MS = 5_000.0
_REFUSED_MAX = 1_000

T = TypeVar("T")
Key = tuple[str, ...]


@dataclass(slots=True)
class _Flight(Generic[T]):
    until_ms: float
    future: Future[T] = field(default_factory=Future)


class Flights(Generic[T]):
    """The requests under way to one service, which errors call `service`. For any thread."""

    def __init__(
        self, runtime: Runtime, service: str, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._service = service
        self._seconds = answer_seconds
        self._steady_ms = runtime.clock.steady_ms
        self._pool = runtime.pool("store keys", _WORKERS)
        self._timer = runtime.every("store keys late", _LOOK_MS, self._end_late)
        self._turn = threading.Lock()
        self._flying: dict[Key, _Flight[T]] = {}
        self._refused: OrderedDict[Key, tuple[float, Exception]] = OrderedDict()
        self._failures = 0
        self._next_ms = 0.0
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the service gives no keys now; "" while it does."""
        return self._trouble

    def ask(self, key: Key, ask: Callable[[], T]) -> Future[T]:
        """The future of a request for a key: one that is under way, or a new one by `ask`. Raises
        UnreachableError or StoreRefusedError at once, soon after such a failure."""
        with self._turn:
            now = self._steady_ms()
            flight = self._flying.get(key)
            if flight is not None:
                return flight.future
            until, refusal = self._refused.get(key, (0.0, None))
            if refusal is not None and now < until:
                raise refusal
            if self._failures and (now < self._next_ms or self._flying):
                raise self._absent(max(self._next_ms - now, 0) / 1000)
            flight = self._flying[key] = _Flight(now + self._seconds * 1000)

        def fly() -> list[T] | Exception:
            return [] if flight.future.done() else [ask()]  # it may have waited for a thread

        self._pool.effect(
            "a request for a key",
            fly,
            lambda error: error,
            lambda landed: self._land(key, flight, landed),
        )
        return flight.future

    def end(self) -> None:
        """Ask no more. Requests under way are left."""
        self._timer.stop()

    def _land(self, key: Key, flight: _Flight[T], landed: list[T] | Exception) -> None:
        """End a request with its answer in a list, or its error."""
        error = landed if isinstance(landed, Exception) else None
        with self._turn:
            if self._flying.get(key) is not flight:  # it was late
                return
            del self._flying[key]
            now = self._steady_ms()
            if isinstance(error, UnreachableError):
                if now >= self._next_ms:  # else it is one of those that failed together
                    self._failures += 1
                    pause_ms = min(_PAUSE_MS * 2 ** (self._failures - 1), _PAUSE_MS_MAX)
                    self._next_ms = now + pause_ms
                self._trouble = error.message
            else:
                self._failures, self._trouble = 0, ""
            if isinstance(error, StoreRefusedError):
                self._trouble = error.message
                self._refused[key] = now + _REFUSED_MS, error
                while len(self._refused) > _REFUSED_MAX:
                    self._refused.popitem(last=False)
        if isinstance(landed, Exception):
            flight.future.set_exception(landed)
        else:
            flight.future.set_result(landed[0])

    def _end_late(self) -> None:
        now = self._steady_ms()
        with self._turn:
            late = [(key, f) for key, f in self._flying.items() if now > f.until_ms]
        for key, flight in late:
            self._land(key, flight, self._late())

    def _late(self) -> UnreachableError:
        return UnreachableError(
            f"{self._service} gave no answer within {self._seconds:.0f} s.", hint=_HINT
        )

    def _absent(self, seconds: float) -> UnreachableError:
        return UnreachableError(
            f"{self._service} gives no keys now: {self._trouble} It is asked again in "
            f"{seconds:.0f} s.",
            hint=_HINT,
        )


_HINT = (
    "Try again soon. An administrator of the coordinator checks --sts-endpoint and the network; "
    "until then, sessions with keys of their own still work."
)
