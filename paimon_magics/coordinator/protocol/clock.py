"""The coordinator's clock: this machine's, or one that a test moves."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "now_ms"]

Clock = Callable[[], int]
"""Returns the milliseconds since 1970."""


def now_ms() -> int:
    """Return the milliseconds since 1970 by the machine's clock."""
    return int(time.time() * 1000)
