"""Fixtures: a coordinator in a process of its own, and a session that writes through it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.coordinator.process import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics import Session


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A coordinator for the tests of a module, on a warehouse of its own."""
    folder = tmp_path_factory.mktemp("coordinated")
    (folder / "warehouse").mkdir()
    process = Process(folder / "warehouse", folder / "state")
    process.start()
    yield process
    process.close()


@pytest.fixture
def coordinated(
    spark: SparkSession, process: Process, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """A session that is connected to the coordinator."""
    import paimon_magics

    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
    with paimon_magics.connect(coordinator=process.address, spark=spark) as session:
        yield session
