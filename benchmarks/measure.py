"""What the benchmarks share: repeated runs, medians, memory, and lines that can be compared."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = [
    "cpu_ms",
    "family",
    "family_cpu_ms",
    "family_mb",
    "file_sync_ms",
    "in_turns",
    "machine_cpu_ms",
    "median_ms",
    "peak_mb",
    "report",
    "resident_mb",
    "timed",
]


def median_ms(action: Callable[[], object], *, runs: int, warm_up: int = 1) -> float:
    """The median time of `action` in milliseconds, after `warm_up` runs that do not count."""
    for _ in range(warm_up):
        action()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def in_turns(
    *actions: Callable[[], object], runs: int, warm_up: int
) -> tuple[tuple[float, Any], ...]:
    """For each action its median time in milliseconds and what it returned last. The actions are
    run in turn, `warm_up` times without being counted."""
    times: list[list[float]] = [[] for _ in actions]
    found: list[Any] = [None for _ in actions]
    for run in range(warm_up + runs):
        for number, action in enumerate(actions):
            started = time.perf_counter()
            found[number] = action()
            if run >= warm_up:
                times[number].append((time.perf_counter() - started) * 1000)
    return tuple(zip(map(statistics.median, times), found, strict=True))


def file_sync_ms(folder: Path) -> float:
    """The median time in milliseconds that a new file of 2 kB in `folder` takes to be durable."""
    file = folder / "sync"

    def make() -> None:
        with file.open("wb") as opened:
            opened.write(b"x" * 2000)
            opened.flush()
            os.fsync(opened.fileno())
        file.unlink()

    return median_ms(make, runs=100, warm_up=5)


def cpu_ms(pid: int) -> float:
    """The CPU time that a process has used since its start, in milliseconds. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def family_cpu_ms(pid: int) -> float:
    """The CPU time of a process and of its descendants that are there, in milliseconds. Linux
    only."""
    return sum(map(cpu_ms, family(pid)))


def family(pid: int) -> list[int]:
    """A process and its descendants that are there. Linux only."""
    members = [pid]
    for member in members:
        for thread in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):
                members += map(int, thread.read_text().split())
    return members


def family_mb(pid: int) -> tuple[float, float]:
    """The memory of a process and of its descendants in MB: the sum of their shares (PSS: a page
    that n processes map counts for a n-th in each), and of their resident pages (RSS), in which
    pages of several of them count several times. Linux only."""
    share_kb = resident_kb = 0
    for member in family(pid):
        with suppress(OSError):  # it has ended
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {name: int(rest.split()[0]) for name, rest in (x.split(":") for x in lines)}
            share_kb, resident_kb = share_kb + sizes["Pss"], resident_kb + sizes["Rss"]
    return share_kb / 1000, resident_kb / 1000


def machine_cpu_ms() -> float:
    """The CPU time that all processes of the machine have used, in milliseconds. Linux only."""
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * 1000 / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """The resident memory of a process, in MB. Linux only."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb() -> float:
    """The peak of this program's resident memory, in MB. Linux only. (`getrusage` also counts the
    memory that the process had before it became this program.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """The time that `action` takes, and the CPU time that this process uses for it, in ms."""
    began, began_cpu = time.perf_counter(), time.process_time()
    action()
    ended_cpu = time.process_time()
    return (time.perf_counter() - began) * 1000, (ended_cpu - began_cpu) * 1000


def report(what: str, ours_ms: float, peer: str = "", peer_ms: float | None = None) -> None:
    """Print one result; with a peer, also its time and how many times as fast ours is."""
    line = f"{what:<58} {ours_ms:>10.1f} ms"
    if peer_ms is not None:
        line += f"   {peer} {peer_ms:>10.1f} ms   {peer_ms / ours_ms:>6.2f} x"
    print(line, flush=True)
