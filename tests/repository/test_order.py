"""The files that take longest start first, take turns, and the fast tests start no process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.lots import LOTS, lot_of
from tests.order import as_json, recorded_seconds, slowest

ROOT = Path(__file__).resolve().parents[2]


def collected(*arguments: str) -> list[str]:
    """The files of the tests, in the order in which they would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    return list(dict.fromkeys(line.partition("::")[0] for line in lines))


def test_the_dearest_files_start_first() -> None:
    cheap, dear = (f"tests/repository/test_{name}.py" for name in ("wheel", "documentation"))
    seconds = recorded_seconds()
    assert seconds[dear] > seconds.get(cheap, 0)
    assert collected(cheap, dear) == [dear, cheap]


def test_recorded_and_printed_times_begin_with_the_dearest() -> None:
    seconds = {"a": 3.4, "b": 0.6, "c": 12.0}
    assert list(json.loads(as_json(seconds)).items()) == [("c", 12), ("a", 3)]
    assert slowest(seconds, 2) == ["   12.0s c", "    3.4s a"]


def cases(lot: str, *files: str) -> subprocess.CompletedProcess[str]:
    """The collection of these files in a lot."""
    command = [sys.executable, "-m", "pytest", "--lot", "--collect-only", "-q"]
    environment = {**os.environ, "PAIMON_MAGICS_TEST_LOT": lot}
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_cases_of_a_dear_file_take_turns_and_cheap_files_run_whole() -> None:
    dear, cheap = "tests/simulation/test_simulation.py", "tests/test_errors.py"
    assert recorded_seconds()[dear] > 10 > recorded_seconds().get(cheap, 0)
    lots = [
        {line for line in cases(str(number), dear, cheap).stdout.splitlines() if "::" in line}
        for number in range(2)
    ]
    drawn = [
        {line for line in lot if line.startswith(dear) and "seeds_are_clean" not in line}
        for lot in lots
    ]
    assert all(lot_of(line) == number for number, lot in enumerate(drawn) for line in lot)
    in_both = lots[0] & lots[1]
    assert len([line for line in in_both if line.startswith(dear)]) == 2, "those always run"
    assert in_both | drawn[0] == lots[0] and in_both | drawn[1] == lots[1]
    assert any(line.startswith(cheap) for line in in_both)


def test_cells_of_a_notebook_are_in_the_same_lot() -> None:
    assert lot_of("notebooks/a.ipynb::Cell 1") == lot_of("notebooks/a.ipynb::Cell 2")


def test_nonexistent_lot_is_refused() -> None:
    refused = cases(str(LOTS), "tests/repository/test_words.py")
    assert refused.returncode and f"Set it to a number from 0 to {LOTS - 1}." in refused.stderr


def test_fast_run_leaves_out_tests_that_start_a_process() -> None:
    wheel = "tests/repository/test_wheel.py"
    command = [sys.executable, "-m", "pytest", "--fast", "-q", "-p", "no:cacheprovider", wheel]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "starts a process" in done.stdout
    assert "passed" not in done.stdout and " failed" not in done.stdout
