"""Timing in one place: repeated runs, medians, and a line a reader can compare."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

__all__ = ["median_ms", "report"]


def median_ms(action: Callable[[], object], *, runs: int, warm_up: int = 1) -> float:
    """The median time of `action` in milliseconds, after `warm_up` runs that do not count."""
    for _ in range(warm_up):
        action()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def report(what: str, ours_ms: float, peer: str = "", peer_ms: float | None = None) -> None:
    """Print one result; with a peer, how many times faster ours is."""
    line = f"{what:<58} {ours_ms:>10.1f} ms"
    if peer_ms is not None:
        line += f"   {peer} {peer_ms:>10.1f} ms   {peer_ms / ours_ms:>6.2f} x"
    print(line, flush=True)
