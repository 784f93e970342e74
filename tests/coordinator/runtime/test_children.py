"""Child processes: one that dies or stands still ends its job, and the next job has a new one."""

import os
import signal
import threading
import time

import pytest

from paimon_magics.coordinator.runtime import children
from paimon_magics.coordinator.runtime.children import ChildDiedError, ChildProcess, do_jobs
from tests.coordinator.process import wait_until


def main():
    do_jobs(_do)


def _do(job):
    what, value = job
    if what == "sleep":
        time.sleep(value)
    elif what == "exit":
        os._exit(value)
    return what, value


@pytest.fixture
def child():
    child = ChildProcess(__name__, "tests")
    yield child
    child.kill()


def test_jobs_of_any_size_are_answered(child):
    for size in (0, 1, 10_000_000):
        assert child.ask(("echo", b"x" * size)) == ("echo", b"x" * size)


def test_long_job_is_not_taken_for_silence(child, monkeypatch):
    monkeypatch.setattr(children, "SILENCE_SECONDS", 3.0)
    calls = []
    assert child.ask(("sleep", 6), lambda: calls.append(1)) == ("sleep", 6)
    assert len(calls) > 5


def test_dead_process_fails_only_its_job(child):
    with pytest.raises(ChildDiedError) as failed:
        child.ask(("exit", 7))
    assert failed.value.code == 7
    assert child.ask(("echo", 1)) == ("echo", 1)


@pytest.mark.parametrize("size", [1, 10_000_000])
def test_frozen_process_is_ended(child, monkeypatch, size):
    monkeypatch.setattr(children, "SILENCE_SECONDS", 1.0)
    child.ask(("echo", 1))
    frozen = child.pid
    os.kill(frozen, signal.SIGSTOP)
    with pytest.raises(ChildDiedError, match="did not respond"):
        child.ask(("echo", b"x" * size))
    assert child.ask(("echo", 2)) == ("echo", 2)
    assert child.pid != frozen


def test_process_that_freezes_in_its_job_is_ended(child, monkeypatch):
    monkeypatch.setattr(children, "SILENCE_SECONDS", 3.0)
    child.ask(("echo", 1))
    threading.Timer(0.5, lambda: os.kill(child.pid, signal.SIGSTOP)).start()
    with pytest.raises(ChildDiedError, match="did not respond"):
        child.ask(("sleep", 60))
    wait_until(lambda: child.busy_seconds == 0)
