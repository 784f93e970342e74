"""Runs pypaimon's tests of a REST catalog, in a checkout, as clients of coordinators.

They run in an environment of their own, with the pypaimon of that checkout and what it asks for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conformance.outcomes import Outcome

__all__ = ["python_outcomes"]

_TESTS = "pypaimon/tests/rest"
_PACKAGES = ("pytest~=7.0", "parameterized", "duckdb~=1.3", "pylance>=0.20,<1", "ray~=2.50.0")
_LEFT_OUT = f"{_TESTS}/test_exponential_retry_strategy.py::TestExponentialRetryStrategy"
"""Its second test needs a network in which no other machine answers for one that isn't there."""
_MINUTES_MAX = 40


def python_outcomes(
    source: Path, build: Path, host: str, only: Sequence[str], *, on_s3: bool
) -> list[Outcome]:
    """What each test did. `source` is a checkout of Paimon, `host` starts the coordinators; `only`
    are files or ids of tests in the folder of the tests, none for all. pypaimon has all it
    needs where the warehouses are `on_s3`."""
    del on_s3
    folder = source / "paimon-python"
    python = _environment(folder, build / "venv")
    report = build / "pypaimon.xml"
    with (build / "pypaimon.txt").open("w") as output:
        subprocess.run(
            [
                *(str(python), "-m", "pytest", "-p", "pypaimon_adapter", "-p", "no:cacheprovider"),
                *(
                    "-q",
                    "--rootdir",
                    str(folder),
                    "--override-ini",
                    "python_files=*_test.py test_*.py",
                ),
                f"--junitxml={report}",
                f"--deselect={_LEFT_OUT}::test_retry_on_connect_error",
                *(str(folder / _TESTS / name) for name in only or ("",)),
            ],
            check=False,  # tests that fail are in the report
            cwd=build,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "CONFORMANCE_HOST": host,
                "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parent)]),
                "PYTHONDONTWRITEBYTECODE": "1",  # a checkout that was given stays as it is
            },
            timeout=60 * _MINUTES_MAX,
        )
    return list(_reported(report))


def _environment(folder: Path, place: Path) -> Path:
    """The interpreter of an environment for pypaimon, which is made unless it is there."""
    python = place / "bin" / "python"
    made = place / "made"
    if not made.exists():
        uv = str(Path(sys.executable).parent / "uv")
        subprocess.run(
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, place], check=True
        )
        wanted = ["-r", str(folder / "dev" / "requirements.txt"), *_PACKAGES]
        install = [uv, "pip", "install", "--quiet", "--native-tls", "--python", str(python)]
        subprocess.run([*install, *wanted], check=True)
        made.touch()
    return python


def _reported(report: Path) -> Iterator[Outcome]:
    """The outcomes in pytest's report."""
    for case in xml.parse(report).getroot().iter("testcase"):
        problem = next((found for kind in ("failure", "error") for found in case.iter(kind)), None)
        if case.find("skipped") is None:
            said = None if problem is None else problem.text or problem.get("message") or "failed"
            classname = str(case.get("classname")).rpartition("rest.")[2]
            yield Outcome(f"{classname}.{case.get('name')}", said)
