"""The runtime of threads: what an item, effect, timer or loop raises ends nothing else."""

import threading
import time

import pytest

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Clock
from tests.coordinator.process import wait_until


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Doubt(Exception):
    """What may end an owner."""


@pytest.fixture
def runtime():
    return Runtime()


class Taking:
    """An owner's take, which raises what it is given."""

    def __init__(self, runtime, **more):
        self.done, self.crashes, self.ends = [], [], []
        self.owner = runtime.owner(
            "some",
            self.take,
            crashed=lambda items, error: self.crashes.append((list(items), error)),
            fatal=(Doubt,),
            ended=self.ends.append,
            **more,
        )

    def take(self, items):
        for item in items:
            if isinstance(item, BaseException):
                raise item
            self.done.append(item)


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("y"), MemoryError(), Panic("z")])
def test_owner_goes_on_after_any_exception(runtime, error):
    taking = Taking(runtime)
    taking.owner.start()
    for item in (1, error, 2):
        taking.owner.put(item)
    taking.owner.end()
    assert taking.done == [1, 2]
    assert [items for items, _ in taking.crashes] == [[error]]
    assert not taking.ends
    (report,) = [each for each in runtime.progress() if each.name == "some"]
    assert report.failures == 1


def test_fatal_exception_ends_owner_and_is_reported_once(runtime):
    taking = Taking(runtime)
    taking.owner.start()
    doubt = Doubt()
    taking.owner.put(doubt)
    wait_until(lambda: taking.ends)
    taking.owner.put(2)
    assert taking.ends == [doubt]
    wait_until(lambda: taking.crashes == [([doubt], doubt)])
    assert taking.owner.failure is doubt
    assert taking.done == []
    (report,) = [each for each in runtime.progress() if each.name == "some"]
    assert report.ended


def test_ending_owner_hands_back_waiting_items(runtime):
    taking = Taking(runtime, items_max=2)
    doubt = Doubt()
    for item in (1, doubt, 2, 3):
        taking.owner.put(item)
    taking.owner.start()
    wait_until(lambda: taking.crashes == [([1, doubt, 2, 3], doubt)])


def test_exception_in_begin_ends_owner(runtime):
    taking = Taking(runtime)

    def begin():
        raise KeyError("begin")

    taking.owner.start(begin)
    wait_until(lambda: taking.ends)
    assert isinstance(taking.owner.failure, KeyError)


def test_owner_takes_waiting_items_together(runtime):
    groups = []
    begun = threading.Event()
    owner = runtime.owner(
        "groups",
        lambda items: groups.append(list(items)),
        crashed=lambda items, error: None,
        fatal=(),
        ended=lambda error: None,
        items_max=3,
    )
    for number in range(5):
        owner.put(number)
    owner.start(begun.set)
    owner.end()
    assert groups == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), Panic("z")])
def test_effect_ends_in_a_single_event(runtime, error):
    pool = runtime.pool("work", 2)
    events = []

    def fails():
        raise error

    pool.effect("a", fails, lambda crash: ("crashed", str(crash)), events.append)
    pool.effect("b", lambda: "done", lambda crash: "crashed", events.append)
    wait_until(lambda: len(events) == 2)
    pool.end()
    assert sorted(map(str, events)) == sorted(["done", str(("crashed", str(_shown(error))))])
    (report,) = [each for each in runtime.progress() if each.name == "work"]
    assert report.failures == 1


def test_late_effects_occupy_no_thread(runtime):
    pool = runtime.pool("work", 1)
    events = []
    for number in range(20):
        pool.effect("late", lambda number=number: number, None, events.append, after_ms=100)
    pool.run("now", lambda: events.append("now"))
    wait_until(lambda: len(events) == 21)
    assert events[0] == "now"
    pool.end()


def test_pool_limits_its_workers_and_starts_nothing_after_its_end(runtime):
    pool = runtime.pool("work", 3)
    turn, running, peak, done = threading.Lock(), 0, 0, []

    def work():
        nonlocal running, peak
        with turn:
            running += 1
            peak = max(peak, running)
        time.sleep(0.01)
        with turn:
            running -= 1
        done.append(1)

    for _ in range(12):
        pool.run("some", work)
    pool.end()
    assert len(done) == 12
    assert peak == 3
    pool.run("late", work)
    time.sleep(0.05)
    assert len(done) == 12


class Scarce:
    """A system that starts no thread while `is_short`, and then as before."""

    def __init__(self, monkeypatch):
        self.is_short = False
        start = threading.Thread.start

        def limited(thread):
            if self.is_short:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)


def test_pool_carries_out_all_work_after_a_moment_without_threads(runtime, monkeypatch):
    scarce, done = Scarce(monkeypatch), []
    runtime.every("ticks", 10, lambda: None)  # as each coordinator has them
    pool = runtime.pool("work", 1)
    scarce.is_short = True
    for number in range(3):
        pool.run("some", lambda number=number: done.append(number))
    assert "can't start new thread" in pool.progress().trouble
    assert pool.progress().waiting == 3
    scarce.is_short = False
    wait_until(lambda: done == [0, 1, 2])
    assert pool.progress().trouble == ""
    pool.end()


def test_pool_ends_though_no_thread_could_be_started(runtime, monkeypatch):
    scarce = Scarce(monkeypatch)
    scarce.is_short = True
    pool = runtime.pool("work", 2)
    pool.run("some", lambda: None)
    pool.end()


def test_idle_pool_needs_no_new_thread(runtime, monkeypatch):
    monkeypatch.setattr("paimon_magics.coordinator.runtime.threads._IDLE_THREAD_SECONDS", 0.05)
    done = []
    pool = runtime.pool("work", 3)
    pool.run("some", lambda: done.append(1))
    time.sleep(0.3)
    Scarce(monkeypatch).is_short = True
    pool.run("some", lambda: done.append(2))
    wait_until(lambda: done == [1, 2])
    pool.end()


def test_workers_loops_and_timers_outlast_exceptions_of_their_waits(runtime, monkeypatch):
    failing = {"queue": 1, "event": 1, "condition": 1}

    def once(kind, wait):
        def waiting(*arguments, **options):
            if failing[kind]:
                failing[kind] -= 1
                raise MemoryError(kind)
            return wait(*arguments, **options)

        return waiting

    done, rounds, rings = [], [], []
    pool = runtime.pool("work", 1)
    monkeypatch.setattr(pool, "_inbox", Failing(pool._inbox, once("queue", pool._inbox.get)))
    loop = runtime.loop("round", lambda: 10, lambda: rounds.append(1))
    monkeypatch.setattr(loop._wakes, "wait", once("event", loop._wakes.wait))
    alarms = runtime._alarms
    monkeypatch.setattr(alarms._changed, "wait", once("condition", alarms._changed.wait))
    runtime.every("ticks", 10, lambda: rings.append(1))
    pool.run("some", lambda: done.append(1))
    wait_until(lambda: done and len(rounds) > 2 and len(rings) > 2)
    assert failing == {"queue": 0, "event": 0, "condition": 0}
    loop.end()
    pool.end()


class Failing:
    """A queue with another `get`."""

    def __init__(self, inbox, get):
        self.put, self.empty, self.qsize, self.get = inbox.put, inbox.empty, inbox.qsize, get


def test_timer_goes_on_after_an_exception_until_it_is_stopped(runtime):
    calls = []

    def call():
        calls.append(1)
        raise RuntimeError("x")

    timer = runtime.every("tick", 5, call)
    wait_until(lambda: len(calls) > 2)
    timer.stop()
    time.sleep(0.05)
    count = len(calls)
    time.sleep(0.05)
    assert len(calls) == count


def test_loop_goes_on_after_an_exception_and_can_be_woken(runtime):
    rounds = []

    def work():
        rounds.append(1)
        raise Panic("x")

    loop = runtime.loop("upkeep", lambda: None, work)
    wait_until(lambda: len(rounds) == 1)
    loop.wake()
    wait_until(lambda: len(rounds) == 2)
    loop.end()
    (report,) = [each for each in runtime.progress() if each.name == "upkeep"]
    assert report.ended
    assert report.failures == 2
    assert "Panic" in report.trouble


def test_progress_reports_busy_time_and_waiting_items(runtime):
    goes_on = threading.Event()
    taking = Taking(runtime)
    taking.owner = runtime.owner(
        "slow",
        lambda items: goes_on.wait(10),
        crashed=lambda items, error: None,
        fatal=(),
        ended=lambda error: None,
    )
    taking.owner.start()
    taking.owner.put(1)
    taking.owner.put(2)

    def report():
        (actual,) = [each for each in runtime.progress() if each.name == "slow"]
        return actual

    wait_until(lambda: report().busy_ms > 20)
    assert report().waiting == 1
    goes_on.set()
    taking.owner.end()
    assert report().busy_ms == 0


def test_clock_does_not_jump_with_the_time_of_day():
    wall, steady = [1_000_000.0], [50.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    assert clock.now_ms() == 1_000_000
    wall[0] -= 3_600_000
    steady[0] += 10
    assert clock.now_ms() == 1_000_010
    assert clock.steady_ms() == 60


def _shown(error):
    return error if isinstance(error, Exception) else f"{type(error).__name__}: {error}"
