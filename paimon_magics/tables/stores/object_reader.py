"""A file-like reader of an object, by ranges.

A large range is one request for just that range. Small ones are served from a window, so that a
parser that reads some bytes at a time sends few requests.
"""

from __future__ import annotations

import io
from collections.abc import Callable

__all__ = ["ObjectReader"]

_WINDOW_BYTES = 256 << 10


class ObjectReader(io.RawIOBase):
    """Reads `size` bytes by `fetch`, which gets a range's start and end. For one thread."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0
        self._window_start = 0
        self._window = memoryview(b"")

    def readable(self) -> bool:
        """Whether it reads: yes."""
        return True

    def seekable(self) -> bool:
        """Whether the position can be set: yes."""
        return True

    def tell(self) -> int:
        """The position, in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes; all that are left for a negative size."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        found = self._range(self._position, end)
        self._position = end
        return found

    def readinto(self, buffer: object) -> int:
        """Read as many bytes as fit; return how many these are."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        found = self.read(len(view))
        view[: len(found)] = found
        return len(found)

    def _range(self, start: int, end: int) -> bytes:
        inside = start - self._window_start
        if inside >= 0 and end - self._window_start <= len(self._window):
            return bytes(self._window[inside : inside + end - start])
        if end - start >= _WINDOW_BYTES:
            return self._fetch(start, end)
        self._window = memoryview(self._fetch(start, min(start + _WINDOW_BYTES, self._size)))
        self._window_start = start
        return bytes(self._window[: end - start])
