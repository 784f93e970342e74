"""Errors that only a mistake in the code can be: nothing in the world raises them.

Our runtime catches what nobody expected, and goes on; here it is a broken promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paimon_magics.coordinator.runtime import threads, work
from tests.simulation.faults import SIMULATED

__all__ = ["is_mistake", "watch"]

_KINDS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)


def is_mistake(error: BaseException) -> bool:
    """Whether nothing in the world can be the reason of an error."""
    return isinstance(error, _KINDS) and error.args != (SIMULATED,)


def watch(note: Callable[[BaseException], object]) -> None:
    """Have each mistake noted that our runtime catches."""
    for module in (threads, work):
        setattr(module, "as_exception", _noting(module.as_exception, note))  # noqa: B010


def _noting(method: Callable[..., Any], note: Callable[[BaseException], object]) -> Any:
    def as_exception(raised: BaseException) -> Any:
        if is_mistake(raised):
            note(raised)
        return method(raised)

    return as_exception
