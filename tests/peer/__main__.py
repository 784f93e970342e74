"""Runs the SQL of the connector's own tests on Paimon's connector and on us: `make peer-tests`.

Nothing of Paimon's is kept here: the tests are read from a clone. Ends with 1 where a step differs
that `accepted.toml` does not cover, or an entry of it covers none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.peer.accepted import FILE, accepted, reason
from tests.peer.comparison import Difference, differences
from tests.peer.source_sql import scenarios_of

RELEASE = "release-2.0.0"
_REPOSITORY = "https://github.com/apache/paimon"
_TESTS = "paimon-spark/paimon-spark-ut/src/test/scala"
_SIDE = Path(__file__).with_name("side.py")


def main() -> int:
    """Fetch, run and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--repository", default=_REPOSITORY, help="a URL or a path for git clone")
    parser.add_argument("--build", type=Path, required=True, help="a folder for what is made")
    parser.add_argument("--connector", required=True, help="the connector's jar")
    parser.add_argument("--connector-python", default="python3", help="has its PySpark")
    parser.add_argument("--only", default="", help="tests whose names have this text")
    arguments = parser.parse_args()
    arguments.build.mkdir(parents=True, exist_ok=True)
    tests = _cloned(arguments.repository, arguments.build / "source") / _TESTS
    scenarios = [each for each in _scenarios(tests) if arguments.only in each["name"]]
    listed = arguments.build / "scenarios.json"
    listed.write_text(json.dumps(scenarios))
    # The connector's outcomes stay as they are; ours change with the code.
    (arguments.build / "project.jsonl").unlink(missing_ok=True)
    outcomes = {}
    for side, command in {
        "connector": [arguments.connector_python, str(_SIDE), "--connector", arguments.connector],
        "project": [sys.executable, str(_SIDE)],
    }.items():
        path = arguments.build / f"{side}.jsonl"
        subprocess.run([*command, str(listed), str(path)], check=True)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        outcomes[side] = {line["name"]: line["steps"] for line in lines}
    differing = [
        each
        for scenario in scenarios
        for each in differences(
            scenario, *(outcomes[side][scenario["name"]] for side in ("project", "connector"))
        )
    ]
    return _reported(differing, sum(len(each["steps"]) for each in scenarios), not arguments.only)


def _cloned(repository: str, folder: Path) -> Path:
    """The clone of Paimon's source. Ends the program where git can't make it."""
    if not folder.exists():
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1"]
        process = subprocess.run(
            [*clone, "--branch", RELEASE, repository, str(folder)], capture_output=True, text=True
        )
        if process.returncode:
            raise SystemExit(
                f"git can't clone {RELEASE} of {repository}: {process.stderr.strip()}\n"
                "Where that host can't be reached, name a mirror or a checkout that has the tag: "
                "make peer-tests PAIMON_REPOSITORY=…"
            )
    return folder


def _scenarios(folder: Path) -> list[dict[str, Any]]:
    scenarios, reasons = [], Counter[str]()
    for path in sorted(folder.rglob("*.scala")):
        taken, skipped = scenarios_of(path.read_text(encoding="utf-8"), path.stem)
        scenarios += [asdict(each) for each in taken]
        reasons.update(why for _, why in skipped)
    print(f"{len(scenarios)} tests are run, {reasons.total()} are not: {dict(reasons)}")
    return list({each["name"]: each for each in scenarios}.values())


def _reported(differing: Sequence[Difference], steps: int, is_whole: bool) -> int:
    """Print what differs, and return the exit code."""
    entries = accepted()
    reasons = [reason(each, entries) for each in differing]
    unexpected = [each for each, why in zip(differing, reasons, strict=True) if why is None]
    print("\n".join(line for each in unexpected for line in _lines(each)))
    for why, count in Counter(filter(None, reasons)).most_common():
        print(f"{count:6} {why}")
    idle = [entry.why for entry in entries if not any(map(entry.covers, differing))]
    for why in idle if is_whole else ():
        print(f"{FILE.name}: no step differs any more: {why}")
    agreeing = steps - len(differing)
    print(f"{agreeing} of {steps} steps agree, {len(unexpected)} differ without a reason")
    return int(bool(unexpected) or (is_whole and bool(idle)))


def _lines(each: Difference) -> Iterator[str]:
    yield f"{each.test}, step {each.number}: {each.how}"
    yield f"    {' '.join(each.statement.split())[:300]}"
    yield f"    project:   {each.project}"
    yield f"    connector: {each.connector}"


if __name__ == "__main__":
    sys.exit(main())
