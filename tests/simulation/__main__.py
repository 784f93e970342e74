"""`python -m tests.simulation SEED [--trace]`, or `--seeds A..B [--processes N]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext


def main() -> None:
    """Run what the command line names. Exits with 1 if a run was not clean."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--seeds", help="A..B, without B")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="end after that time")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--gentle", action="store_true", help="only crashes and a bad network")
    parser.add_argument("--plant", help="a fault of tests.simulation.planted")
    parser.add_argument("--stop", type=int, default=20, help="end after that many failures")
    options = parser.parse_args()
    sys.unraisablehook = _ignored
    if options.seed is not None:
        sys.exit(_one(options.seed, options))
    first, _, end = (options.seeds or "0..1000").partition("..")
    if options.processes > 1:
        sys.exit(_several(int(first), int(end), options))
    sys.exit(_range(range(int(first), int(end)), options))


def _one(seed: int, options: argparse.Namespace) -> int:
    from tests.simulation.runs import run

    with _planted(options):
        result = run(seed, traced=options.trace, gentle=options.gentle)
    for line in result.trace:
        print(line)
    print(f"seed {seed}: {result.steps} steps, {result.seconds:.1f} s")
    for problem in result.problems:
        print(f"  {problem}")
    return bool(result.problems)


def _ignored(what: sys.UnraisableHookArgs) -> None:
    """A generator that a crashed task has left can't clean up: its process is gone."""
    from tests.simulation.scheduler import Crashed

    if not isinstance(what.exc_value, Crashed):
        sys.__unraisablehook__(what)


def _planted(options: argparse.Namespace) -> AbstractContextManager[None]:
    from tests.simulation.planted import planted

    return planted(options.plant) if options.plant else nullcontext()


def _range(seeds: range, options: argparse.Namespace) -> int:
    from tests.simulation.runs import run

    began = time.monotonic()
    failures, done, seen = 0, 0, Counter[str]()
    for seed in seeds:
        with _planted(options):
            result = run(seed, gentle=options.gentle)
        done += 1
        seen.update(result.seen or ("none",))
        if result.problems:
            failures += 1
            gentle = " --gentle" if options.gentle else ""
            print(f"seed {seed}: python -m tests.simulation {seed}{gentle} --trace", flush=True)
            for problem in result.problems[:6]:
                print(f"  {problem}", flush=True)
            if failures >= options.stop:
                break
        if options.seconds and time.monotonic() - began > options.seconds:
            break
    took = time.monotonic() - began
    print(
        f"{done} runs, {failures} not clean, {took:.1f} s, "
        f"{took / max(done, 1) * 1000:.0f} ms each; faults seen: {dict(seen.most_common())}"
    )
    return bool(failures)


def _several(first: int, end: int, options: argparse.Namespace) -> int:
    share = -(-(end - first) // options.processes)
    command = [sys.executable, "-m", "tests.simulation", "--stop", str(options.stop)]
    if options.gentle:
        command += ["--gentle"]
    if options.seconds:
        command += ["--seconds", str(options.seconds)]
    running = [
        subprocess.Popen([*command, "--seeds", f"{at}..{min(at + share, end)}"])
        for at in range(first, end, share)
    ]
    return max(process.wait() for process in running)


main()
