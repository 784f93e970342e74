"""Work of views in threads of their own, and its stop."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Any

from paimon_widgets.running import Running


def test_stop_before_thread_starts_cancels_its_work() -> None:
    running = Running(lambda message: None)
    answers: Queue[dict[str, Any]] = Queue()
    ran: list[int] = []

    def work() -> dict[str, Any]:
        ran.append(1)
        return {}

    first_may_end, first_runs = threading.Event(), threading.Event()

    def first() -> dict[str, Any]:
        first_runs.set()
        first_may_end.wait(30)
        return {}

    running.start(lambda: answers.put(running.run(first, {}, "stopped")))
    first_runs.wait(30)
    running.start(lambda: answers.put(running.run(work, {}, "stopped")))  # it waits for its turn
    running.stop()
    first_may_end.set()
    assert [answers.get(timeout=30), answers.get(timeout=30)] == [{}, {"problem": "stopped"}]
    assert not ran
    running.start(lambda: answers.put(running.run(work, {}, "stopped")))
    assert answers.get(timeout=30) == {}
