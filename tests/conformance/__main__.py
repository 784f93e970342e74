"""Runs Paimon's own tests of a REST catalog against coordinators: `make conformance`.

Ends with 1 where a test fails that `expected.toml` does not list, or one passes that it lists.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.backends.minio import minio_program
from tests.conformance.host import hosting
from tests.conformance.java_tests import java_outcomes
from tests.conformance.outcomes import differences, expected_failures, number_of_tests
from tests.conformance.python_tests import python_outcomes

_REPOSITORY = "https://github.com/apache/paimon.git"
_SUITES = {"java": java_outcomes, "python": python_outcomes}


def main() -> int:
    """Run the suites that the command line chooses; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--source", type=Path, help="a checkout of Paimon 2.0.0; else it is fetched"
    )
    parser.add_argument("--build", type=Path, required=True, help="a folder for what is made")
    parser.add_argument("--suite", choices=_SUITES, help="both where none is said")
    parser.add_argument("--minio", action="store_true", help="warehouses on MinIO: none is local")
    parser.add_argument(
        "--data-tokens",
        action="store_true",
        help="on MinIO, too; the coordinators hand out its keys, and their clients have no others",
    )
    parser.add_argument("tests", nargs="*", help="Class.method, or a file of pypaimon's; else all")
    given = parser.parse_args()
    where = "data tokens" if given.data_tokens else "MinIO" if given.minio else "local"
    if where != "local" and minio_program() is None:
        parser.error("there is no MinIO on PATH: `make soak RUNS=minio` builds it")
    given.build.mkdir(parents=True, exist_ok=True)
    suites = [given.suite] if given.suite else list(_SUITES)
    build = given.build.resolve()
    source = given.source.resolve() if given.source else _fetched(build / "paimon")
    return int(any([_is_wrong(suite, source, build, given.tests, where) for suite in suites]))


def _fetched(folder: Path) -> Path:
    if not folder.exists():
        release = ["--depth", "1", "--branch", "release-2.0.0", _REPOSITORY]
        subprocess.run(["git", "clone", "--quiet", *release, str(folder)], check=True)
    return folder


def _is_wrong(suite: str, source: Path, build: Path, only: Sequence[str], where: str) -> bool:
    """Run a suite, and tell whether anything in it is not as expected there."""
    is_local = where == "local"
    with hosting(on_minio=not is_local, data_tokens=where == "data tokens") as host:
        outcomes = _SUITES[suite](source, build, host, only, on_s3=not is_local)
    ran = {outcome.test for outcome in outcomes}
    expected = [test for one in expected_failures(where) for test in getattr(one, suite)]
    lines = list(differences(outcomes, [test for test in expected if not only or test in ran]))
    if not only and is_local and len(ran) != (number := number_of_tests()[suite]):
        lines.append(f"{len(ran)} tests ran, not {number}")
    print(f"{suite}: {sum(outcome.problem is None for outcome in outcomes)} of {len(ran)} pass")
    print("".join(f"  {line}\n" for line in lines), end="", flush=True)
    return bool(lines) or not outcomes


if __name__ == "__main__":
    sys.exit(main())
