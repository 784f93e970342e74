"""Runs units of a compaction in threads of this process, for work too small for a Spark job.

Reading and writing release Python's lock, so that two threads keep two cores busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

__all__ = ["run_here"]


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


_U = TypeVar("_U", bound=_Sized)
_R = TypeVar("_R")


def run_here(work: Callable[[_U], _R], units: Sequence[_U], *, threads: int) -> list[_R]:
    """The results of all units, the largest of which is begun first; at most `threads` at a time.

    Raises what the first failing unit raises, once those that run have ended; no other is begun.
    """
    ordered = sorted(units, key=lambda unit: unit.size_bytes, reverse=True)
    if threads <= 1 or len(ordered) <= 1:
        return [work(unit) for unit in ordered]
    with ThreadPoolExecutor(threads, thread_name_prefix="compaction") as pool:
        running = [pool.submit(work, unit) for unit in ordered]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
            for one in running:
                if one.done():
                    one.result()
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
