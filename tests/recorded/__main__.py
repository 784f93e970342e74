"""Runs recorded scenarios and tells which steps differ: `python -m tests.recorded [SCENARIO …]`.

A name may be the beginning of several (`b` for the area, `b1`). Without names, all are run. Ends
with 1 where a step differs that `expected.toml` does not list, or one agrees that it lists.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.backends.jvm import prepare_jvms
from tests.recorded.expected import FILE, expected_text, unexpected
from tests.recorded.runner import Difference, Replay, replayed
from tests.recorded.scenarios import Scenario, recorded_scenarios

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    """Run the scenarios that the command line chooses; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios, or how their names begin; else all")
    parser.add_argument("--all", action="store_true", help="also show steps that may differ")
    parser.add_argument("--list", action="store_true", help="show the steps, and run nothing")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} anew")
    arguments = parser.parse_args()
    scenarios = _chosen(arguments.names)
    if arguments.list:
        for scenario in scenarios:
            print("\n".join(_listed(scenario)))
        return 0
    replays = []
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder, _spark(Path(folder)) as spark:
        for scenario in scenarios:
            replays.append(_shown(spark, scenario, Path(folder), arguments.all))
    print(_summary(replays))
    if arguments.write:
        FILE.write_text(expected_text(replays), encoding="utf-8")
    return int(any(list(unexpected(replay)) for replay in replays))


def _chosen(names: Sequence[str]) -> list[Scenario]:
    known = recorded_scenarios()
    if not names:
        return list(known.values())
    chosen: dict[str, Scenario] = {}
    for name in names:
        found = [name] if name in known else [each for each in known if each.startswith(name)]
        if not found:
            raise SystemExit(f"No scenario is called {name!r}. There are {', '.join(known)}.")
        chosen |= {each: known[each] for each in found}
    return list(chosen.values())


def _listed(scenario: Scenario) -> Iterator[str]:
    yield f"{scenario.name}: {scenario.title} ({', '.join(scenario.needs)})"
    for number, step in enumerate(scenario.steps):
        result = "" if step.rows is None else f" => {step.rows}"
        error = "" if step.error is None else f" => {step.error}"
        yield f"  {number} {step.text}{result}{error}"


def _shown(spark: SparkSession, scenario: Scenario, folder: Path, shows_free: bool) -> Replay:
    """Run it, and print what differs."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        replay = replayed(spark, scenario, Path(own))
    agree = len(scenario.steps) - len(replay.differing)
    seconds = time.monotonic() - started
    agreement = f"{agree} of {len(scenario.steps)} steps agree"
    print(f"{scenario.name}: {agreement}, {seconds:.1f} s ({scenario.title})")
    wrong = {line.number: line.text for line in unexpected(replay)}
    for each in replay.differing:
        print(_line(each, "NOT LISTED: " if each.number in wrong else ""))
    for each in replay.free if shows_free else ():
        print(_line(each, "may differ: "))
    for number in sorted(set(wrong) - set(replay.numbers)):
        print(f"  {wrong[number]}")
    sys.stdout.flush()
    return replay


def _line(each: Difference, mark: str = "") -> str:
    return f"  {each.number} {mark}{' '.join(each.step.text.split())[:160]}\n      {each.how}"


def _summary(replays: Sequence[Replay]) -> str:
    whole = [replay for replay in replays if not replay.differing]
    steps = sum(len(replay.scenario.steps) for replay in replays)
    agree = steps - sum(len(replay.differing) for replay in replays)
    return (
        f"{len(whole)} of {len(replays)} scenarios are whole, {agree} of {steps} steps agree "
        f"({sum(len(replay.free) for replay in replays)} more may differ, and do)."
    )


@contextmanager
def _spark(folder: Path) -> Iterator[SparkSession]:
    prepare_jvms()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PAIMON_COORDINATOR"] = "in-process"
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("recorded scenarios")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.retainedJobs", "100")
        .config("spark.ui.retainedStages", "100")
        .config("spark.ui.retainedTasks", "1000")
        .config("spark.sql.ui.retainedExecutions", "50")
        .config("spark.sql.warehouse.dir", str(folder / "spark-warehouse"))
        .config("spark.local.dir", str(folder))
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main())
