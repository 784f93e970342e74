"""A coordinator in the test's own process, with the actions of its clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paimon_magics.coordinator.core.values import Committed, Limits
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.planning.commits.read_sets import ReadSet
from paimon_magics.planning.commits.requests import Append, Change, CommitReceipt, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, read, write

Rows = Sequence[Mapping[str, object]]


class Owner:
    """A coordinator in this process, with methods that act as its client."""

    def __init__(
        self,
        folder: Path,
        watch_every_ms: int = 600_000,
        grace_ms: int = 600_000,
        store: str | None = None,
    ) -> None:
        self.address = store
        self.warehouse = folder / "warehouse"
        self.state = folder / "state"
        self.limits = Limits(
            watch_every_ms=watch_every_ms, cleanup_grace_ms=grace_ms, expire_every_ms=20
        )
        self.catalog = Catalog.open({"warehouse": str(self.warehouse)})
        self.start()

    def start(self) -> None:
        self.store = open_store(self.state, self.address)
        self.coordinator = Coordinator(self.catalog, self.store, Settings(), self.limits)
        self.coordinator.start()

    def commit(
        self, rows: Rows, change: Change | None = None, read_set: ReadSet | None = None
    ) -> tuple[str, CommitReceipt]:
        id, request = self.begin(rows, change, read_set)
        answer = self.coordinator.transactions.commit(id, request)
        assert isinstance(answer, Committed), answer
        return id, answer.receipt

    def begin(
        self, rows: Rows, change: Change | None = None, read_set: ReadSet | None = None
    ) -> tuple[str, CommitRequest]:
        id, transaction, _ = self.coordinator.transactions.begin(TABLE, None, "me")
        messages = write(self.catalog, transaction, rows, overwrite=change is not None)
        return id, CommitRequest(transaction, change or Append(), messages, read_set=read_set)

    def look(self) -> object:
        return self.coordinator.watching.before_change(self.location)

    @property
    def location(self) -> str:
        return self.catalog.load(TABLE).location

    def rows(self) -> list[tuple[Any, ...]]:
        return of(*read(self.catalog))

    def receipt(self, id: str) -> CommitReceipt:
        held = self.coordinator.stored.state(id)
        assert held is not None and held.receipt is not None
        return held.receipt

    def snapshot(self, number: int) -> Any:
        return self.catalog.load(TABLE).paimon.snapshot_manager().get_snapshot_by_id(number)

    def latest(self) -> int:
        return int(self.catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot().id)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until `condition` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def row(k: int, v: str) -> dict[str, object]:
    return {"k": k, "v": v}


def of(*rows: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted."""
    return sorted(tuple(row.values()) for row in rows)


APPEND = "CREATE TABLE t (k INT, v STRING)"
KEYED = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1')"
)
OLD, OURS, THEIRS, LATER = row(1, "old"), row(2, "ours"), row(3, "theirs"), row(4, "later")
Start = Callable[..., Owner]
