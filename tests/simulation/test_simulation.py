"""Runs of the simulation are repeatable, and find faults that are planted into our code.

Each seed runs in a process with a fixed hash seed; a failure names the command that repeats it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lots import last_commit
from tests.simulation.planted import PLANTED

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 400
RUNS_MIN = 100


def simulate(*words: str, seconds: float | None = 500) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'widgets'}", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def runs_of(ran: subprocess.CompletedProcess[str]) -> int:
    """How many runs there were, as the last line says."""
    match = re.search(r"^(\d+) runs, ", ran.stdout, re.MULTILINE)
    return 0 if match is None else int(match[1])


@pytest.mark.parametrize("seed", [2, 52])
def test_a_run_is_repeated_by_its_seed(seed: int) -> None:
    first, second = (simulate(str(seed), "--trace") for _ in range(2))
    assert "ready" in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize(("kinds", "seconds"), [((), "240"), (("--gentle",), "120")])
def test_seeds_are_clean(kinds: tuple[str, ...], seconds: str) -> None:
    """As many as there is time for, which is a thousand or two, and others with each commit: what
    was clean here is clean wherever the commit is tested. A failing one prints the command that
    replays it."""
    first = last_commit(ROOT) % 10**9
    seeds = f"{first}..{first + 5000}"
    ran = simulate("--seeds", seeds, "--seconds", seconds, "--stop", "3", *kinds)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert runs_of(ran) >= RUNS_MIN, ran.stdout


@pytest.mark.soak
def test_a_hundred_thousand_seeds_from_a_random_base_are_clean() -> None:
    first = random.randrange(10**9)
    seeds = f"{first}..{first + 100_000}"
    ran = simulate("--seeds", seeds, "--processes", "2", seconds=None)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(PLANTED))
def test_planted_fault_is_detected(name: str) -> None:
    """In runs without any other fault but crashes and lost answers of the network, in which our
    code as it is breaks no promise."""
    ran = simulate("--seeds", f"0..{SEEDS_MAX}", "--gentle", "--stop", "1", "--plant", name)
    assert ran.returncode == 1, ran.stdout
    assert PLANTED[name].found_as in ran.stdout
