"""A cache of values from files that never change, limited by bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["ReadCache"]


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


_V = TypeVar("_V", bound=_Sized)


class ReadCache(Generic[_V]):
    """Keeps the last used values up to `bytes_max` together, and the newest one whatever its size.
    A value counts `each_bytes` beside its own: what its objects take in memory.

    Safe for several threads. Two threads that ask for a new value at once both read it.
    """

    def __init__(self, bytes_max: int, each_bytes: int = 0) -> None:
        self._bytes_max = bytes_max
        self._each_bytes = each_bytes
        self._values: OrderedDict[str, _V] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: str, read: Callable[[], _V]) -> _V:
        """The value of this name; `read` is called if it is not in the cache."""
        with self._lock:
            if name in self._values:
                self._values.move_to_end(name)
                return self._values[name]
        value = read()
        with self._lock:
            if name not in self._values:
                self._values[name] = value
                self._bytes += value.nbytes + self._each_bytes
            while self._bytes > self._bytes_max and len(self._values) > 1:
                dropped = self._values.popitem(last=False)[1]
                self._bytes -= dropped.nbytes + self._each_bytes
        return value
