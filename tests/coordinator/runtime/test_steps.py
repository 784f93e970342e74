"""Work in steps: waits occupy no thread, and each piece ends in one event."""

import threading
from concurrent.futures import Future

import pytest

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import waited
from tests.coordinator.process import wait_until


def later(value, seconds=0.02):
    future = Future()
    if isinstance(value, Exception):
        threading.Timer(seconds, lambda: future.set_exception(value)).start()
    else:
        threading.Timer(seconds, lambda: future.set_result(value)).start()
    return future


def both(first, second):
    a = yield first
    try:
        b = yield second
    except KeyError as error:
        b = f"no {error}"
    return a, b


def test_steps_get_results_and_errors_where_they_wait():
    assert waited(both(later(1), later(2))) == (1, 2)
    assert waited(both(later(1), later(KeyError("x")))) == (1, "no 'x'")
    with pytest.raises(OSError, match="gone"):
        waited(both(later(OSError("gone")), later(2)))


def test_waiting_steps_occupy_no_pool_thread():
    pool = Runtime().pool("some", 1)
    first, events = Future(), []
    for _ in range(20):
        pool.run_steps("waits", both(first, later(2)), repr, events.append)
    pool.run("now", lambda: events.append("now"))
    wait_until(lambda: events == ["now"])
    first.set_result(1)
    wait_until(lambda: len(events) == 21)
    assert events[1:] == [(1, 2)] * 20
    pool.end()


def test_error_in_any_step_becomes_a_single_event():
    pool = Runtime().pool("some", 2)
    events = []

    def fails_late():
        yield later(1)
        raise MemoryError

    pool.run_steps("late", fails_late(), lambda error: type(error).__name__, events.append)
    pool.run_steps("early", both(later(OSError("gone")), later(1)), lambda e: str(e), events.append)
    wait_until(lambda: len(events) == 2)
    assert sorted(events) == ["MemoryError", "gone"]
    pool.end()
