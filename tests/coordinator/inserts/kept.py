"""A coordinator's group commit in this process, which can end as if killed, and start again."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit, GroupCommitSettings
from paimon_magics.coordinator.inserts.log.log import Log
from paimon_magics.coordinator.inserts.log.registry import LogRegistry, RegisteredLog
from paimon_magics.coordinator.inserts.queue.values import (
    Answer,
    Mode,
)
from paimon_magics.coordinator.routes.insert_requests import named_by
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.errors import SetupError
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.inserts.serving import SLOW, TABLE, table_sql
from tests.coordinator.process import create_table, read, wait_until


def group_commit(
    catalog: Catalog, coordinator: Coordinator, log: Log, registry: LogRegistry
) -> GroupCommit:
    """Group commit in a warehouse without another owner."""
    settings = GroupCommitSettings(label_retention_ms=3_600_000)
    return GroupCommit(catalog, coordinator, RegisteredLog(log, registry), settings)


class Kept:
    """A warehouse whose log can be opened again and again, and set back to an earlier state."""

    def __init__(self, folder: Path, open_log: Callable[[], Log]) -> None:
        self.folder = folder
        self.open_log = open_log
        self.catalog = create_table(folder / "warehouse", table_sql(options=SLOW))
        self.now_ms = 1_800_000_000_000
        self.starts = 0
        self.running = False

    def start(self) -> None:
        state = self.folder / f"state{self.starts}"
        state.mkdir()
        self.starts += 1
        limits = Limits(receipt_retention_ms=1_000)
        clock = Clock(steady_ms=lambda: self.now_ms)
        runtime = Runtime(clock)
        self.coordinator = Coordinator(
            self.catalog, open_store(state), Settings(), limits, runtime=runtime
        )
        self.coordinator.start()
        log = self.open_log()
        self.registry = LogRegistry(
            LocalStore(), self.catalog.warehouse, log.id, log.name, "a test"
        )
        self.group = group_commit(self.catalog, self.coordinator, log, self.registry)
        self.group.start()
        self.running = True

    def end(self) -> None:
        """End as if killed: waiting inserts are not loaded, and the log registry is not updated."""
        if self.running:
            self.running = False
            self.group._refusing = True
            for timer in self.group._timers:
                timer.stop()
            self.group.holds.stop()
            self.group.known_tables.end()
            self.group.flusher.close()
            self.group._loading.end([])
            self.group.owner.end()
            self.group._log.close()
            self.coordinator.stop()

    def insert(self, id: int, label: str = "") -> Answer:
        table_info = self.group.known_tables.load("default", "t")
        body = json.dumps({"rows": [[id, "a"]]}).encode()
        validated = table_info.validator.json(body)
        answer: Future[Answer] = Future()
        key, offset, _, digest = named_by(label or None, None, None).of(body)
        self.group.submit(Insert(table_info, validated, Mode.ASYNC, answer, key, offset, digest))
        return answer.result(30)

    def flush(self) -> Answer:
        table_info = self.group.known_tables.load("default", "t")
        return self.group.flush(table_info.identity).result(30)

    def note(self) -> None:
        """Wait until the log registry has what was acknowledged."""
        table_info = self.group.known_tables.load("default", "t")
        self.group._note_ends()
        table = self.group.tables[table_info.identity]
        wait_until(lambda: table.noted == table.queue.acknowledged + table.queue.published)

    def reopen(self, *, accept_loss: bool) -> None:
        table_info = self.group.known_tables.load("default", "t")
        while True:
            try:
                self.group.reopen(table_info, accept_loss=accept_loss).result(30)
            except SetupError as error:  # what was to be loaded is looked at before
                if "are being loaded" not in error.message:
                    raise
            else:
                return

    def ids(self) -> list[object]:
        return [row["id"] for row in read(self.catalog, TABLE)]
