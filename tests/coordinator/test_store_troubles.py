"""A coordinator whose store does not work: nothing is lost, everybody is told, and it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from paimon_magics.coordinator.core import Committed, Limits, Opened, Phase
from paimon_magics.coordinator.database import StoreUnavailableError
from paimon_magics.coordinator.service import Coordinator
from paimon_magics.coordinator.sqlite_database import SqliteDatabase
from paimon_magics.coordinator.store import Store
from paimon_magics.planning.commits import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog import Catalog
from tests.coordinator.process import TABLE, create_table, read, write


class SmallDisk:
    """A store in a file with a quota, SQLite's own; it fails as on a disk without space."""

    def __init__(self, path: Path) -> None:
        self.database = SqliteDatabase(path)
        self.store = Store(self.database)

    def fill(self) -> None:
        free = self.database._connection.pragma("freelist_count")
        pages = self.database._connection.pragma("page_count")
        assert isinstance(pages, int) and free == 0
        self.database._connection.pragma("max_page_count", pages)

    def empty(self) -> None:
        self.database._connection.pragma("max_page_count", 1_000_000)


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path / "state" / "coordinator.sqlite")


@pytest.fixture
def catalog(warehouse: Path) -> Catalog:
    return create_table(warehouse, "CREATE TABLE t (k INT)")


@pytest.fixture
def coordinator(catalog: Catalog, disk: SmallDisk) -> Iterator[Coordinator]:
    started = Coordinator(catalog, disk.store, Settings(), Limits(cleanup_grace_ms=100))
    started.start()
    yield started
    disk.empty()
    started.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begin_until_full(coordinator: Coordinator) -> None:
    with pytest.raises(StoreUnavailableError, match="full"):
        for _ in range(1_000):
            coordinator.begin(TABLE, None, "x" * 50_000)


def test_a_full_disk_is_told_and_it_goes_on_when_there_is_space(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog, warehouse: Path
) -> None:
    id, transaction, _ = coordinator.begin(TABLE, None, "ada")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    disk.fill()
    begin_until_full(coordinator)
    assert "full" in str(coordinator.problem)
    with pytest.raises(StoreUnavailableError):
        coordinator.commit(id, request)
    assert coordinator.state.held[id].phase is Phase.ACTIVE
    assert isinstance(coordinator.heartbeat(id), Opened), "nothing of it is stored"
    folders = {path.name for path in warehouse.rglob(".pm-*-attempts")}
    assert len(folders) == len(coordinator.state.held), "what could not begin leaves nothing"
    disk.empty()
    wait_for(lambda: coordinator.problem is None)
    assert isinstance(coordinator.commit(id, request), Committed)
    assert read(catalog) == [{"k": 1}]


def test_a_commit_that_happened_while_the_disk_was_full_is_stored_later(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog
) -> None:
    id, transaction, _ = coordinator.begin(TABLE, None, "ada")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    with coordinator.turns(catalog.load(TABLE).location):
        # It waits for this turn, with its request stored.
        answers: list[object] = []
        asking = Thread(target=lambda: answers.append(coordinator.commit(id, request)))
        asking.start()
        wait_for(lambda: coordinator.state.held[id].phase is Phase.COMMITTING)
        disk.fill()
        begin_until_full(coordinator)
    wait_for(lambda: read(catalog) == [{"k": 1}])
    time.sleep(0.2)
    assert answers == [], "not acknowledged before it is stored"
    disk.empty()
    asking.join(30)
    assert isinstance(answers[0], Committed)
    assert answers == [coordinator.commit(id, request)]
