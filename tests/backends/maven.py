"""Fetches jars from Maven without their dependencies, once, into Ivy's cache, by a Spark session in
a process of its own."""

from __future__ import annotations

import fcntl
import glob
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["IVY_SETTINGS", "fetched_jar", "fetched_jars"]

IVY_SETTINGS = Path(__file__).parents[1] / "oracle" / "ivysettings.xml"
"""Ivy's settings for Maven's repository, without dependencies."""

_FETCH_SECONDS = 500  # less than a test may take: it is told which jars were waited for
_FETCH = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars.packages", sys.argv[1])
builder.config("spark.jars.ivySettings", sys.argv[2]).getOrCreate().stop()
"""


def fetched_jar(package: str) -> str:
    """The path of the jar of `group:artifact:version`."""
    return fetched_jars([package])[0]


def fetched_jars(packages: Sequence[str]) -> list[str]:
    """The paths of the jars of `packages`, each `group:artifact:version`."""
    # Two processes must not fill Ivy's cache at once.
    turn = Path(tempfile.gettempdir()) / f"paimon-magics-tests-ivy-{os.getuid()}.lock"
    with turn.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [package for package in packages if not _jars(package)]
        if missing:
            command = [sys.executable, "-c", _FETCH, ",".join(missing), str(IVY_SETTINGS)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_FETCH_SECONDS)
    return [_jars(package)[0] for package in packages]


def _jars(package: str) -> list[str]:
    group, artifact, version = package.split(":")
    return glob.glob(os.path.expanduser(f"~/.ivy2*/jars/{group}_{artifact}-{version}.jar"))
