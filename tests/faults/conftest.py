"""Fixtures: a writer outside the coordinator, and coordinators in the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinator.process import create_table
from tests.faults.outside_writer import OutsideWriter
from tests.faults.owner import OLD, Owner, Start


@pytest.fixture(scope="session")
def outside() -> Iterator[OutsideWriter]:
    """Plain pypaimon in a process of its own."""
    writer = OutsideWriter()
    yield writer
    writer.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a coordinator, with a table of one commit of one row. The coordinators
    are stopped after the test."""
    owners: list[Owner] = []

    def make(
        sql: str,
        watch_every_ms: int = 600_000,
        grace_ms: int = 600_000,
        store: str | None = None,
    ) -> Owner:
        owner = Owner(tmp_path, watch_every_ms, grace_ms, store)
        owners.append(owner)
        create_table(owner.warehouse, sql)
        owner.commit([OLD])
        return owner

    yield make
    for owner in owners:
        owner.coordinator.stop()
