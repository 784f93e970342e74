"""The simulator itself: its order comes from the seed, and what has crashed does nothing more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.primitives import Primitives
from tests.simulation.scheduler import START_US, Crashed, Process, Scheduler, StuckError


def carried_out(scheduler: Scheduler, process: Process, *tasks: Callable[[], object]) -> None:
    started = [scheduler.spawn(process, str(number), task) for number, task in enumerate(tasks)]
    scheduler.run(lambda: all(task.is_done for task in started))
    assert not scheduler.errors


def order(seed: int) -> list[str]:
    scheduler, process = Scheduler(seed), Process("p")
    seen: list[str] = []

    def work(name: str) -> None:
        for _ in range(5):
            seen.append(name)
            scheduler.pause()

    carried_out(scheduler, process, lambda: work("a"), lambda: work("b"))
    return seen


def test_a_seed_decides_the_order() -> None:
    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(20)}) > 5


def test_time_passes_only_when_nothing_can_run() -> None:
    scheduler, process = Scheduler(0), Process("p")
    simulated = Primitives(scheduler, 0)
    seen: list[float] = []

    def sleep(seconds: float) -> None:
        simulated.time.sleep(seconds)
        seen.append(simulated.time.monotonic() - START_US / 1e6)

    carried_out(scheduler, process, lambda: sleep(3_600), lambda: sleep(1), lambda: sleep(1))
    assert seen == [1, 1, 3_600]


def test_locks_queues_and_futures_wait() -> None:
    scheduler, process = Scheduler(3), Process("p")
    simulated = Primitives(scheduler, 3, lock_pauses=0.5)
    lock, items = simulated.threading.Lock(), simulated.queue.SimpleQueue()
    future = simulated.future()
    inside: list[int] = []
    overlaps: list[int] = []

    def locked() -> None:
        for _ in range(20):
            with lock:
                inside.append(1)
                scheduler.pause()
                overlaps.append(len(inside))
                inside.pop()

    def put() -> None:
        for number in range(10):
            items.put(number)
            scheduler.pause()

    def take() -> None:
        future.set_result([items.get() for _ in range(10)])

    actual: list[object] = []
    carried_out(
        scheduler, process, locked, locked, take, put, lambda: actual.append(future.result(5))
    )
    assert set(overlaps) == {1}
    assert actual == [list(range(10))]


def test_a_future_without_an_answer_times_out_in_simulated_time() -> None:
    scheduler, process = Scheduler(0), Process("p")
    simulated = Primitives(scheduler, 0)

    def ask() -> None:
        with pytest.raises(TimeoutError):
            simulated.future().result(45)

    carried_out(scheduler, process, ask)
    assert scheduler.now_us - START_US == 45_000_000


def test_a_crashed_process_does_nothing_more() -> None:
    scheduler, one, other = Scheduler(0), Process("one"), Process("other")
    simulated = Primitives(scheduler, 0)
    seen: list[str] = []

    def work() -> None:
        try:
            simulated.time.sleep(10)
            seen.append("went on")
        finally:
            with pytest.raises(Crashed):
                simulated.time.sleep(1)
            seen.append("ended")

    def crash() -> None:
        simulated.time.sleep(1)
        scheduler.crash(one)
        simulated.time.sleep(30)

    scheduler.spawn(one, "work", work)
    carried_out(scheduler, other, crash)
    assert seen == ["ended"]


def test_stuck_run_ends_with_an_error() -> None:
    scheduler, process = Scheduler(0), Process("p")
    simulated = Primitives(scheduler, 0)
    with pytest.raises(StuckError, match="Nothing can run"):
        carried_out(scheduler, process, lambda: simulated.threading.Event().wait())
