"""What goes wrong beside the audit log and the compactions ends neither of their threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id, entry_of
from paimon_magics.coordinator.audit.trail import AuditTable, Trail
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.compaction_scheduler import (
    Budget,
    CompactionRules,
    CompactionScheduler,
    Endpoint,
)
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import StateStore, open_store
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, create_table, wait_until

AUDIT = TableName("audit", "ops")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return open_store(tmp_path / "state")


@pytest.fixture
def coordinator(catalog: Catalog, store: StateStore) -> Iterator[Coordinator]:
    opened = Coordinator(catalog, store, Settings())
    opened.start()
    yield opened
    opened.stop()


def publication(catalog: Catalog, name: TableName = TABLE) -> Publication:
    location = f"{catalog.warehouse}/{name.database}.db/{name.table}"
    return Publication("p1", name, location, 1, "list", "user", 1, "APPEND", 1_700_000_000_000)


def test_foreign_exception_ends_no_audit_thread_and_loses_no_entry(
    catalog: Catalog, store: StateStore, coordinator: Coordinator
) -> None:
    broken = [KeyError("foreign"), RuntimeError("foreign")]

    def properties_of(_: Publication) -> tuple[tuple[str, str], ...]:
        if broken:
            raise broken.pop(0)
        noted = {"engine": "auto_batch_load", "user": "ada", "rows": "3"}
        return tuple((f"paimon-magics.{key}", value) for key, value in noted.items())

    store.audit.save([("0000000000001-poison", "no JSON", True), ("0000000000002-x", "{}", False)])
    runtime = Runtime()
    table = AuditTable(catalog, coordinator.transactions, Settings(), AUDIT)
    trail = Trail(runtime, store.audit, table, properties_of, 100)
    trail.start([])
    trail.published(publication(catalog))
    begun: Future[None] = trail.begin(Entry(entry_id(5), 5, "commit"))
    begun.result(10)
    wait_until(lambda: not broken, 10)
    trail.end(Entry(entry_id(5), 5, "commit", outcome=Outcome.DONE)).result(10)
    wait_until(lambda: trail.waiting <= 1, 20)  # only what has begun waits
    assert not any(work.ended for work in runtime.progress())
    assert all(not fact.problem for fact in trail.facts())
    trail.stop()


def test_unreadable_entry_is_marked_as_unreadable() -> None:
    for body in ("", "[]", "{}", '{"outcome": "strange"}', '{"outcome": "done"}', "\udc80"):
        entry = entry_of("0000000000005-x", body)
        assert (entry.id, entry.action, entry.outcome) == (
            "0000000000005-x",
            "unreadable",
            Outcome.UNKNOWN,
        )
    later = '{"at_ms": 5, "action": "commit", "outcome": "done", "made_later": 1}'
    assert entry_of("0000000000005-x", later) == Entry(
        "0000000000005-x", 5, "commit", outcome=Outcome.DONE
    )


def test_unreadable_table_does_not_stop_compaction_of_others(
    catalog: Catalog, store: StateStore, tmp_path: Path, coordinator: Coordinator
) -> None:
    poison = create_table(tmp_path / "warehouse", "CREATE TABLE poison (k INT)")
    (tmp_path / "warehouse/default.db/poison/schema/schema-0").write_bytes(b"\x00")
    runtime = Runtime()
    compactions = CompactionScheduler(
        runtime,
        catalog,
        Budget(workers=0),
        Endpoint("http://127.0.0.1:1", "its own", "nobody"),
        store.halts,
        CompactionRules(is_auto=True, settle_ms=1),
        lambda: False,
    )
    compactions.start([publication(poison, TableName("poison", "default"))])
    compactions.committed(publication(catalog))
    wait_until(lambda: [str(each.table) for _, each in compactions.tables()] == ["default.t"], 10)
    assert not any(work.ended for work in runtime.progress())
    compactions.stop()
