"""Statements that change names: one at a time has a name, in order, and none waits for ever."""

import random

import pytest

from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.served import NameLocks
from paimon_magics.errors import CommitConflictError


@pytest.fixture
def locks():
    return NameLocks(Runtime(), wait_ms=200)


def test_locks_of_a_name_queue_in_order_and_other_names_do_not_wait(locks):
    first, second, third = (locks.lock(names) for names in ("a", "ab", "b"))
    other = locks.lock("c")
    assert [lock.granted.done() for lock in (first, second, third, other)] == [1, 0, 0, 1]
    locks.release(first)
    assert (second.granted.done(), third.granted.done()) == (True, False)
    locks.release(second)
    assert third.granted.done()


def test_released_waiter_is_passed_over(locks):
    first, second, third = (locks.lock("a") for _ in range(3))
    locks.release(second)
    locks.release(first)
    assert third.granted.done()


def test_overlong_wait_fails_and_leaves_no_lock(locks):
    first, second = locks.lock(["\0db\0t"]), locks.lock(["\0db\0t"])
    with pytest.raises(CommitConflictError, match=r"changing db\.t"):
        second.granted.result(5)
    locks.release(second)
    locks.release(first)
    assert locks.count() == 0
    assert locks.lock(["\0db\0t"]).granted.done()


@pytest.mark.parametrize("seed", range(20))
def test_names_are_never_shared_and_all_get_their_turn(seed):
    locks = NameLocks(Runtime())
    chance = random.Random(seed)
    waiting, running = [], []
    for _ in range(300):
        if chance.random() < 0.5:
            waiting.append(locks.lock(chance.sample("abcd", chance.randint(1, 3))))
        elif running:
            locks.release(running.pop(chance.randrange(len(running))))
        running += [lock for lock in waiting if lock.granted.done()]
        waiting = [lock for lock in waiting if not lock.granted.done()]
        names = [name for lock in running for name in lock.names]
        assert len(names) == len(set(names))
    while running:
        locks.release(running.pop())
        running += [lock for lock in waiting if lock.granted.done()]
        waiting = [lock for lock in waiting if not lock.granted.done()]
    assert not waiting
    assert locks.count() == 0
