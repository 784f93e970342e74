"""Fixtures: a session that writes through a coordinator in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics import Session
    from tests.coordinator.process import Process


@pytest.fixture
def coordinated(
    spark: SparkSession, process: Process, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Session]:
    """A session that is connected to the coordinator."""
    import paimon_magics

    monkeypatch.setenv("PAIMON_COORDINATOR_TOKEN", process.token())
    with paimon_magics.connect(coordinator=process.address, spark=spark) as session:
        yield session
