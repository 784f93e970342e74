"""Work in steps, with waits in between that occupy no thread.

Steps are a generator: it yields futures, gets their results, and returns the result of the whole.
A future's error is raised where it was yielded. The steps themselves run in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from paimon_magics.coordinator.runtime.interface import Pool

__all__ = ["Steps", "advanced", "run_steps", "waited"]

T = TypeVar("T")
E = TypeVar("E")

Steps = Generator[Future[Any], Any, T]


def advanced(steps: Steps[T], settled: Future[Any] | None) -> Future[Any] | tuple[T]:
    """Run the next step, with the outcome of the future that was yielded, None for the first step.
    Return the next future to wait for, or the result of the whole in a tuple. Raises its errors."""
    try:
        if settled is None:
            return next(steps)
        error = settled.exception()
        return steps.send(settled.result()) if error is None else steps.throw(error)
    except StopIteration as end:
        return (end.value,)


def waited(steps: Steps[T]) -> T:
    """Run steps in this thread, and wait in it."""
    outcome = advanced(steps, None)
    while not isinstance(outcome, tuple):
        outcome.exception()  # waits
        outcome = advanced(steps, outcome)
    return outcome[0]


def run_steps(
    pool: Pool,
    label: str,
    steps: Steps[E],
    crashed: Callable[[Exception], E],
    deliver: Callable[[E], object],
) -> None:
    """Run steps in a pool, and deliver the event that they return, or `crashed` makes of their
    error: exactly one."""

    def advance(settled: Future[Any] | None) -> None:
        def deliver_or_wait(outcome: Future[Any] | tuple[E]) -> None:
            if isinstance(outcome, tuple):
                deliver(outcome[0])
            else:
                outcome.add_done_callback(advance)

        def step() -> Future[Any] | tuple[E]:
            return advanced(steps, settled)

        def failed(error: Exception) -> Future[Any] | tuple[E]:
            return (crashed(error),)

        pool.effect(label, step, failed, deliver_or_wait)

    advance(None)
