"""Which cases of dear files a run of `make test` has, and the zone that its machine is in.

One lot in ten, another with each commit.

All tests take an hour and a half on two cores, and nearly all of it for a tenth of the cases: those
that start Spark, coordinators and kernels. A file that took more than some seconds when it was last
recorded runs a tenth of its cases, and those that are marked `always`. Other files run whole, and
so do checks of the repository's texts. A notebook is drawn as a whole, since its cells build on
each other, and so is a file whose cases share one dear run. `make test-all` runs everything.

Nothing may rest on a machine whose zone is UTC. So each commit has its tests in one of some zones;
the variable TZ names another one.
"""

from __future__ import annotations

import os
import subprocess
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.order import file_of

__all__ = ["LOTS", "Lot", "dear_files", "enter_zone", "last_commit", "lot_of"]

ZONES = ("UTC", "America/St_Johns")
"""The second one is behind UTC by three hours and a half, and has summer time; days of 1582 and
1900 have seconds."""
LOTS = 10
_WHOLE = ("notebooks/", "tests/deploy/test_alerts.py", "tests/hub/test_isolation.py")
"""Notebooks, and files whose cases look at one run of their fixture."""
_SECONDS_MAX = 10
"""What a file may take and still run whole. There are hundreds of these files."""

_VARIABLE = "PAIMON_MAGICS_TEST_LOT"


def lot_of(node_id: str) -> int:
    """The lot of a case, 0 to `LOTS` - 1. It follows from the name alone."""
    name = file_of(node_id) if node_id.startswith(_WHOLE) else node_id
    return zlib.crc32(name.encode()) % LOTS


def _drawn(root: Path) -> int:
    """The lot that the environment names, or that of the last commit. The first one where there is
    no repository."""
    if named := os.environ.get(_VARIABLE):
        if not named.isdecimal() or int(named) >= LOTS:
            raise pytest.UsageError(
                f"{_VARIABLE} is {named!r}. Set it to a number from 0 to {LOTS - 1}."
            )
        return int(named)
    return last_commit(root) % LOTS


def enter_zone(root: Path) -> str:
    """Let this process and those that it starts be in the zone that the environment names, or that
    of the last commit; return its name."""
    zone = os.environ.setdefault("TZ", ZONES[last_commit(root) // LOTS % len(ZONES)])
    time.tzset()
    return zone


def last_commit(root: Path) -> int:
    """The last commit as a number; 0 where there is no repository."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return int(head.stdout, 16) if head.returncode == 0 else 0


def dear_files(seconds: Mapping[str, float]) -> dict[str, float]:
    """The files of which a lot has only some cases, with what they take."""
    return {name: took for name, took in seconds.items() if took > _SECONDS_MAX}


class Lot:
    """A plugin that leaves out the cases of other lots."""

    def __init__(self, root: Path, seconds: Mapping[str, float]) -> None:
        self._number = _drawn(root)
        self._dear = dear_files(seconds)

    def pytest_report_header(self) -> str:
        return f"lot {self._number} of {LOTS} of the dear files: {_VARIABLE}={self._number}"

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        chosen: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            (chosen if self._runs(item) else left_out).append(item)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = chosen

    def _runs(self, item: pytest.Item) -> bool:
        is_cheap = file_of(item.nodeid) not in self._dear
        return is_cheap or lot_of(item.nodeid) == self._number or _is_always_run(item)


def _is_always_run(item: pytest.Item) -> bool:
    if item.nodeid.startswith("tests/repository/"):
        return item.get_closest_marker("spark") is None
    return item.get_closest_marker("always") is not None
