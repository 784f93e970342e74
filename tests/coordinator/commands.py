"""Runs commands of `paimon-coordinator` in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tests.coordinator.forking import Forked

__all__ = ["done", "run"]


def run(
    *arguments: object, faults: str = "", environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command; return its exit code and output. Its errors come to this process's stream."""
    given = {**os.environ, **(environment or {}), "PAIMON_MAGICS_FAULTS": faults}
    process = Forked("paimon_magics.coordinator", list(map(str, arguments)), given)
    output, _ = process.communicate(timeout=120)
    assert process.returncode is not None
    return process.returncode, output


def done(*arguments: object, environment: Mapping[str, str] | None = None) -> str:
    """Run a command that succeeds; return its output."""
    code, output = run(*arguments, environment=environment)
    assert code == 0, output
    return output
