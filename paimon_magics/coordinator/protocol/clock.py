"""The time that queues go by: this machine's, or one that a test moves on."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock", "now_ms"]

Clock = Callable[[], int]
"""Milliseconds of the epoch."""


def now_ms() -> int:
    """By the machine's clock."""
    return int(time.time() * 1000)
