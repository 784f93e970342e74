"""The files that take longest start first, and the fast tests start no process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def test_what_is_recorded_and_printed_begins_with_the_dearest() -> None:
    seconds = {"a": 3.4, "b": 0.6, "c": 12.0}
    assert list(json.loads(as_json(seconds)).items()) == [("c", 12), ("a", 3)]
    assert slowest(seconds, 2) == ["   12.0s c", "    3.4s a"]


def test_a_test_that_starts_a_process_is_none_of_the_fast_ones() -> None:
    wheel = "tests/repository/test_wheel.py"
    command = [sys.executable, "-m", "pytest", "--fast", "-q", "-p", "no:cacheprovider", wheel]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "starts a process" in done.stdout
    assert "passed" not in done.stdout and " failed" not in done.stdout
