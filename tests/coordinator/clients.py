"""The two ways to commit, for tests that must hold for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import Process
from tests.faults.appending import committer_of

__all__ = ["CLIENTS", "opened_client"]

CLIENTS = ["in process", "remote"]


@contextmanager
def opened_client(kind: str, catalog: Catalog, folder: Path) -> Iterator[CoordinatorClient]:
    """A client of a kind in CLIENTS, for the warehouse of `catalog`; a coordinator has its state in
    `folder`."""
    if kind == "in process":
        yield committer_of(catalog)
        return
    process = Process(Path(catalog.warehouse), folder / "state")
    process.start()
    yield process.client()
    process.close()
