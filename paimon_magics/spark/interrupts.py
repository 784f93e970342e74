"""Interrupts (SIGINT) of a thread that talks to Spark Connect by grpc.

An interrupt raises where the main thread is. Just after the thread acquired a lock of grpc's
channel, in `threading.Condition.__enter__`, or just before it releases the lock, the lock would be
held forever. Every later call of another thread would wait for it, and no more responses would
arrive.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

from paimon_magics.spark.jvm import is_connect

_AGAIN_SECONDS = 0.01
_AT_A_LOCK = frozenset(
    {threading.Condition.__enter__.__code__, threading.Condition.__exit__.__code__}
)

_Handler = Callable[[int, FrameType | None], object]


@contextmanager
def between_locks(spark: SparkSession) -> Iterator[None]:
    """Let an interrupt in the body, which only the main thread gets, raise where no lock is lost:
    an interrupt at a lock is repeated a moment later."""
    if not is_connect(spark):
        yield
        return

    def handle(number: int, frame: FrameType | None, before: _Handler) -> None:
        if _is_at_a_lock(frame):
            threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            before(number, frame)

    with _handled_by(handle):
        yield


@contextmanager
def at_interrupt(
    begin: Callable[[], object], stopped: threading.Event, connect: bool
) -> Iterator[None]:
    """Call `begin`, which sets `stopped`, on the first interrupt in the body, which only the main
    thread gets.

    On Spark Connect an interrupt within grpc does not raise there: the cancelled call ends with an
    error instead. A second interrupt raises immediately.
    """

    def handle(number: int, frame: FrameType | None, before: _Handler) -> None:
        if not stopped.is_set():
            begin()
            if connect and _is_within_grpc(frame):
                return
        before(number, frame)

    with _handled_by(handle):
        yield


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None, _Handler], None]) -> Iterator[None]:
    """Handle interrupts in the body, if it is the main thread's and anything handles them."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: handle(number, frame, before))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_at_a_lock(frame: FrameType | None) -> bool:
    """Whether a grpc frame is acquiring or releasing a lock."""
    while frame is not None:
        if frame.f_code in _AT_A_LOCK and _is_within_grpc(frame):
            return True
        frame = frame.f_back
    return False


def _is_within_grpc(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("grpc."):
            return True
        frame = frame.f_back
    return False
