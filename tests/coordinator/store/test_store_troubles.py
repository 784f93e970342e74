"""A coordinator whose store does not work: nothing is lost, everybody is told, and it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, Timer

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from starlette.applications import Starlette

from paimon_magics.coordinator.core.values import Committed, Done, Limits, Opened, Phase
from paimon_magics.coordinator.http.authorisation import (
    TokenFile,
)
from paimon_magics.coordinator.http.guard import Guard, guarded
from paimon_magics.coordinator.protocol.documents import request_document, table_document
from paimon_magics.coordinator.routes.catalog import catalog_routes
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.coordinator.store.postgres import PostgresDatabase
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.snapshots.chain import roll_back
from tests.coordinator.postgres import Line, PostgresServer
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write
from tests.coordinator.rest_server import TOKEN, client_options, serving


class SmallDisk:
    """A store in a file with a quota, SQLite's own; it fails as on a disk without space."""

    def __init__(self, path: Path) -> None:
        self.database = SqliteDatabase(path)
        self.store = StateStore(self.database)

    def fill(self) -> None:
        free = self.database._connection.pragma("freelist_count")
        pages = self.database._connection.pragma("page_count")
        assert isinstance(pages, int) and free == 0
        self.database._connection.pragma("max_page_count", pages)

    def protect(self, *, protected: bool) -> None:
        """Let nothing be written, as on a disk that was mounted anew for reading."""
        self.database._connection.pragma("query_only", protected)

    def empty(self) -> None:
        self.database._connection.pragma("max_page_count", 1_000_000)


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path / "coordinator.sqlite")


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
            coordinator.transactions.begin(TABLE, None, "x" * 50_000)


def test_full_disk_is_reported_and_coordinator_continues_with_space(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog, warehouse: Path
) -> None:
    id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    disk.fill()
    begin_until_full(coordinator)
    assert "full" in str(coordinator.problem)
    with pytest.raises(StoreUnavailableError):
        coordinator.transactions.commit(id, request)
    assert coordinator.state.transactions[id].phase is Phase.ACTIVE
    assert isinstance(coordinator.transactions.heartbeat(id), Opened), "nothing of it is stored"
    opened = {path.name for path in warehouse.rglob("pm-*.open")}
    assert len(opened) == len(coordinator.state.transactions), "what could not begin leaves nothing"
    disk.empty()
    wait_for(lambda: coordinator.problem is None)
    assert isinstance(coordinator.transactions.commit(id, request), Committed)
    assert read(catalog) == [{"k": 1}]


def test_commit_published_during_a_full_disk_is_stored_later(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog
) -> None:
    id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    with coordinator.turns(catalog.load(TABLE).location):
        # It waits for this turn, with its request stored.
        answers: list[object] = []
        asking = Thread(target=lambda: answers.append(coordinator.transactions.commit(id, request)))
        asking.start()
        wait_for(lambda: coordinator.state.transactions[id].phase is Phase.COMMITTING)
        disk.fill()
        begin_until_full(coordinator)
    wait_for(lambda: read(catalog) == [{"k": 1}])
    time.sleep(0.2)
    assert answers == [], "not acknowledged before it is stored"
    disk.empty()
    asking.join(30)
    assert isinstance(answers[0], Committed)
    assert answers == [coordinator.transactions.commit(id, request)]


def test_commit_during_a_database_outage_is_known_afterwards(
    catalog: Catalog, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    store = StateStore(PostgresDatabase(postgres.empty_database()))
    coordinator = Coordinator(catalog, store, Settings())
    coordinator.start()
    answers: list[object] = []
    try:
        id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))

        def commit() -> None:
            try:
                answers.append(coordinator.transactions.commit(id, request))
            except StoreUnavailableError as error:
                answers.append(error)

        with coordinator.turns(catalog.load(TABLE).location):
            asking = Thread(target=commit)
            asking.start()
            wait_for(lambda: coordinator.state.transactions[id].phase is Phase.COMMITTING)
            postgres.kill()
        time.sleep(2)
        postgres.start()
        asking.join(30)
        for _ in range(2):
            answer = answers.pop() if answers else coordinator.transactions.commit(id, request)
            if isinstance(answer, StoreUnavailableError):  # it is not told that it was refused
                wait_for(lambda: coordinator.problem is None)
                answer = coordinator.transactions.commit(id, request)
            assert isinstance(answer, Committed) and answer.receipt.snapshot_id == 1
        assert read(catalog) == [{"k": 1}]
    finally:
        postgres.start()
        coordinator.stop()


def commit_twice(coordinator: Coordinator, catalog: Catalog) -> str:
    """Commit two snapshots; return the table's location."""
    for number in (1, 2):
        id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": number}]))
        assert isinstance(coordinator.transactions.commit(id, request), Committed)
    return catalog.load(TABLE).location


def test_roll_back_is_refused_while_the_store_is_read_only(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog
) -> None:
    location = commit_twice(coordinator, catalog)
    table = load_stored(catalog, TABLE)
    disk.protect(protected=True)
    with pytest.raises(StoreUnavailableError):
        roll_back(
            table,
            catalog.publish,
            snapshot_id=1,
            removing=lambda branch, above: coordinator.watching.chain_cut(location, branch, above),
        )
    disk.protect(protected=False)
    wait_for(lambda: coordinator.problem is None)
    assert coordinator.watching.before_change(location) == Done()
    assert read(catalog) == [{"k": 1}, {"k": 2}]


def test_drop_during_a_read_only_store_is_stored_later(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog
) -> None:
    location = commit_twice(coordinator, catalog)
    disk.protect(protected=True)
    catalog.drop_table(TABLE)
    with pytest.raises(StoreUnavailableError):
        coordinator.watching.table_dropped(location)
    disk.protect(protected=False)
    wait_for(lambda: coordinator.problem is None)
    assert not coordinator.state.watched.get(location)


@pytest.mark.parametrize("when", ["before", "after"])
def test_commit_with_a_lost_store_answer_is_made_once(
    catalog: Catalog,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    postgres.empty_database()
    with Line(postgres) as line:
        store = StateStore(PostgresDatabase(line.address))
        coordinator = Coordinator(catalog, store, Settings())
        coordinator.start()
        id, transaction, _ = coordinator.transactions.begin(TABLE, None, "ada")
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
        line.cut_commit(when, for_good=True)
        with pytest.raises(StoreUnavailableError) as raised:
            coordinator.transactions.commit(id, request)
        assert raised.value.unclear
        line.mend()
        wait_for(lambda: coordinator.problem is None)
        wait_for(lambda: read(catalog) == [{"k": 1}])
        answer = coordinator.transactions.commit(id, request)
        assert isinstance(answer, Committed) and answer.receipt.snapshot_id == 1
        assert coordinator.stored.state(id) == store.transactions.finished(id)
        coordinator.stop()


def test_dead_store_server_is_answered_with_503_until_it_returns(
    tmp_path: Path, warehouse: Path, catalog: Catalog, postgres: PostgresServer
) -> None:
    process = Process(
        warehouse,
        tmp_path / "state",
        f"--store={postgres.empty_database()}",
        environment=postgres.environment,
    )
    process.start()
    headers = {"Authorization": f"Bearer {process.token()}"}
    with httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http:
        client = process.client()
        transaction = client.begin(TABLE)
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
        address = f"/v1/transactions/{client.transactions.id_of(transaction)}"
        postgres.kill()
        for each in (
            http.post(f"{address}/commit", json=request_document(request)),
            http.post("/v1/transactions", json={"table": table_document(TABLE)}),
            http.post(f"{address}/abort", json={}),
            http.get("/v1/transactions"),
            http.get("/health/ready"),
        ):
            assert (each.status_code, "does not work" in each.text) == (503, True), each.text
        assert http.get("/health/live").status_code == 200
        assert http.post(f"{address}/heartbeat").status_code == 200
        assert read(catalog) == []
        postgres.start()
        assert client.commit(request).snapshot_id == 1
        wait_until(lambda: http.get("/health/ready").status_code == 200, 5)
        # A database that comes back without what was acknowledged is not gone on with.
        with postgres.administer() as other:
            other.execute("UPDATE paimon_coordinator.owner SET saved = saved - 1")
        for _ in range(2):
            begun = http.post("/v1/transactions", json={"table": table_document(TABLE)})
            assert (begun.status_code, "not as this coordinator left" in begun.text) == (503, True)
        assert "not as this coordinator left" in http.get("/health/ready").text
        # It leaves the warehouse to another one, or to itself when it is started again.
        assert process.running is not None
        wait_until(lambda: process.running.poll() == 4)
    process.close()


def test_engine_commit_waits_until_the_store_is_writable_again(
    coordinator: Coordinator, disk: SmallDisk, catalog: Catalog
) -> None:
    plan = catalog.load(TABLE).schema
    catalog.create_table(TableName("other", "default"), plan)
    routes = catalog_routes(
        Context(catalog, catalog.publish, coordinator.turns, watch=coordinator.watching)
    )
    with serving(
        Guard(Starlette(routes=guarded(routes)), TokenFile(TOKEN.__eq__), 1_000_000)
    ) as url:
        table = CatalogFactory.create(client_options(url, Path(catalog.warehouse))).get_table(
            "default.t"
        )
        builder = table.new_batch_write_builder()
        writing = builder.new_write()
        writing.write_arrow(pa.table({"k": pa.array([7], pa.int32())}))
        messages = writing.prepare_commit()
        disk.protect(protected=True)
        with pytest.raises(StoreUnavailableError, match="readonly"):
            coordinator.transactions.begin(TABLE, None, "ada")
        dropped = httpx.delete(
            f"{url}/v1/paimon/databases/default/tables/other",
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
        )
        assert (dropped.status_code, "readonly" in dropped.json()["message"]) == (503, True)
        later = Timer(1.5, disk.protect, kwargs={"protected": False})
        later.start()
        builder.new_commit().commit(messages)
        writing.close()
        later.join()
    assert read(catalog) == [{"k": 7}]
