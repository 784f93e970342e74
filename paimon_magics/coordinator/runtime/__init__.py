"""Threads, pools, timers, clocks and child processes: everything of the coordinator that runs.

`interface` says what the rest may use, `threads` does it with threads of this process. No other
room starts a thread. A test gives the same code a runtime whose time and order come from a seed.
"""

from __future__ import annotations

from paimon_magics.coordinator.runtime.interface import (
    Clock,
    Event,
    Future,
    Lock,
    Loop,
    Owner,
    Pool,
    Progress,
    Runtime,
    Steps,
    Timer,
    as_exception,
    run_steps,
    waited,
)
from paimon_magics.coordinator.runtime.threads import ThreadRuntime

__all__ = [
    "Clock",
    "Event",
    "Future",
    "Lock",
    "Loop",
    "Owner",
    "Pool",
    "Progress",
    "Runtime",
    "Steps",
    "ThreadRuntime",
    "Timer",
    "as_exception",
    "run_steps",
    "waited",
]
