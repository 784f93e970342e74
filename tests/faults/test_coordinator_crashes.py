"""A coordinator that dies, fails or stands still at every named step of a commit or an abort, for
each kind of change.

Once it is at work again: what was acknowledged is there once, what was not is there once or not at
all, asking again gives the answer that is true, and no file is left that nothing leads to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.protocol.documents import request_document
from paimon_magics.errors import CommitConflictError, SetupError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.appending import committer_of
from tests.faults.changed_rows import merged
from tests.sampling import sampled
from tests.tables.reachability import unreachable

# The third commit to each merges the manifests of the first two.
MERGING = "'manifest.merge-min-count' = '2'"
TABLES = {
    "append": (f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({MERGING})", Append()),
    "overwrite": (
        f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({MERGING})",
        OverwritePartitions(),
    ),
    "primary key": (
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2', {MERGING})",
        Append(),
    ),
    # A MERGE: files are written anew, a deletion vector marks a row, or a file has new values of
    # columns; and rows are added.
    "rewritten files": (f"CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ({MERGING})", None),
    "marked rows": (
        "CREATE TABLE t (k INT, v STRING) "
        f"TBLPROPERTIES ('deletion-vectors.enabled' = 'true', {MERGING})",
        None,
    ),
    "written columns": (
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        f"'data-evolution.enabled' = 'true', {MERGING})",
        None,
    ),
}
COMMIT_STEPS = (
    "commit.stored",
    "manifest.written",
    "manifests.merged",
    "commit.prepared",
    "publish.linked",
    "commit.published",
    "receipt.stored",
)
OLD = [{"k": 1, "v": "old"}, {"k": 2, "v": "old"}]
NEW = [{"k": 1, "v": "new"}, {"k": 3, "v": "new"}]
EXPECTED = {
    "append": [(1, "new"), (1, "old"), (2, "old"), (3, "new")],
    "overwrite": [(1, "new"), (3, "new")],
    "primary key": [(1, "new"), (2, "old"), (3, "new")],
    "rewritten files": [(1, "new"), (2, "old"), (3, "new")],
    "marked rows": [(1, "new"), (2, "old"), (3, "new")],
    "written columns": [(1, "new"), (2, "old"), (3, "new")],
}


ACTIONS = ("kill", "raise", "stop")
BEFORE_PUBLISHING = ("manifest.written", "manifests.merged")
"""Where an exception refuses the commit, with nothing published."""


def matrix() -> list[object]:
    """Each step with each kind of change and each thing that happens; two at each step always, so
    that each kind and each thing comes up again and again."""
    return [
        pytest.param(
            *(step, kind, action),
            marks=[pytest.mark.soak] if (i + j + k) % 6 or i % 3 == k else [],
        )
        for i, step in enumerate(COMMIT_STEPS)
        for j, kind in enumerate(TABLES)
        for k, action in enumerate(ACTIONS)
    ]


class Armed:
    """A coordinator that lives as long as the tests let it, with a fault at a time."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = Process(
            folder / "warehouse", folder / "state", "--cleanup-grace-ms=200", *options
        )
        self._fault = folder / "fault"
        self._tables = 0
        self.start()

    def start(self) -> None:
        self.process.start(faults=f"@{self._fault}")

    def arm(self, step: str, action: str) -> None:
        self._fault.write_text(f"{step}={action}")

    @property
    def has_acted(self) -> bool:
        return not self._fault.exists()

    def create_table(self, sql: str) -> tuple[Catalog, TableName]:
        """A table of its own for each test."""
        self._tables += 1
        name = TableName(f"t{self._tables}", database="default")
        named = sql.replace("CREATE TABLE t ", f"CREATE TABLE {name.table} ")
        return create_table(self.process.warehouse, named), name

    def wait_until_stopped(self) -> None:
        deadline = time.monotonic() + 60
        while not self.process.is_stopped():
            assert time.monotonic() < deadline, "it was not stopped"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Armed]:
    started = Armed(tmp_path_factory.mktemp("armed"))
    yield started
    started.process.close()


@pytest.fixture
def process(tmp_path: Path, store_address: str | None) -> Iterator[Process]:
    store = [] if store_address is None else [f"--store={store_address}"]
    started = Process(tmp_path / "warehouse", tmp_path / "state", "--cleanup-grace-ms=200", *store)
    yield started
    started.close()


def rows(catalog: Catalog, name: TableName = TABLE) -> list[tuple[object, object]]:
    return sorted((row["k"], row["v"]) for row in read(catalog, name))  # type: ignore[type-var]


def ask_impatiently(process: Process, id: str, request: CommitRequest) -> None:
    """One request, as a client that does not come back would make it."""
    headers = {"Authorization": f"Bearer {process.token()}"}
    with pytest.raises(httpx.TransportError):
        httpx.post(
            f"{process.address}/v1/transactions/{id}/commit",
            json=request_document(request),
            headers=headers,
            trust_env=False,
            timeout=20,
        )


@pytest.mark.slow
@pytest.mark.parametrize(("step", "kind", "action"), matrix())
def test_disturbed_commit_happens_once(armed: Armed, step: str, kind: str, action: str) -> None:
    sql, change = TABLES[kind]
    process = armed.process
    catalog, name = armed.create_table(sql)
    client = process.client()
    for row in OLD:
        first = client.begin(name)
        client.commit(CommitRequest(first, Append(), write(catalog, first, [row])))
    _, request = begun(client, catalog, change, name)

    armed.arm(step, action)
    with ThreadPoolExecutor(1) as patient:
        answer = patient.submit(client.commit, request)
        match action:
            case "kill":
                assert process.has_died()
                armed.start()
            case "stop":
                armed.wait_until_stopped()
                time.sleep(0.2)
                assert not answer.done()
                process.go_on()
        if action == "raise" and step in BEFORE_PUBLISHING:
            with pytest.raises(SetupError, match=f"armed at {step}"):
                answer.result(120)
            assert rows(catalog, name) == [(1, "old"), (2, "old")]
            wait_until_nothing_is_left(catalog, name)
            return
        receipt = answer.result(120)
    assert armed.has_acted
    assert receipt.snapshot_id == 3
    assert client.commit(request) == receipt
    assert rows(catalog, name) == EXPECTED[kind]
    latest = catalog.load(name).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == 3
    assert unreachable(catalog.load(name)) == set()
    after = client.begin(name)
    client.commit(CommitRequest(after, Append(), write(catalog, after, [{"k": 9, "v": "z"}])))
    assert (9, "z") in rows(catalog, name)
    assert unreachable(catalog.load(name)) == set()


def wait_until_nothing_is_left(catalog: Catalog, name: TableName) -> None:
    deadline = time.monotonic() + 20
    while unreachable(catalog.load(name)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert unreachable(catalog.load(name)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=[] if step == "publish.linked" else [pytest.mark.soak])
        for step in COMMIT_STEPS
    ],
)
def test_interrupted_commit_with_a_remote_store_happens_once(process: Process, step: str) -> None:
    process.start()
    catalog = create_table(process.warehouse, TABLES["append"][0])
    client = process.client()
    for row in OLD:
        first = client.begin(TABLE)
        client.commit(CommitRequest(first, Append(), write(catalog, first, [row])))
    process.kill()

    process.start(faults=f"{step}=kill")
    transaction, request = begun(client, catalog, Append())
    ask_impatiently(process, client.transactions.id_of(transaction), request)
    assert process.has_died()

    process.start()
    receipt = client.commit(request)
    assert receipt.snapshot_id == 3
    assert client.commit(request) == receipt
    assert rows(catalog) == EXPECTED["append"]
    assert unreachable(catalog.load(TABLE)) == set()


@pytest.mark.slow
def test_coordinator_frozen_longer_than_a_lease_ends_no_transaction(tmp_path: Path) -> None:
    armed = Armed(tmp_path, "--lease-ms=2000")
    process = armed.process
    try:
        catalog, name = armed.create_table(TABLES["append"][0])
        waiting, stopped = process.client(), process.client()
        idle = waiting.begin(name)
        _, request = begun(stopped, catalog, Append(), name)
        armed.arm("commit.prepared", "stop")
        with ThreadPoolExecutor(1) as patient:
            answer = patient.submit(stopped.commit, request)
            armed.wait_until_stopped()
            time.sleep(6)
            process.go_on()
            assert answer.result(60).snapshot_id == 1
        time.sleep(1.5)  # it has looked at its leases
        messages = write(catalog, idle, [{"k": 9, "v": "z"}])
        assert waiting.commit(CommitRequest(idle, Append(), messages)).snapshot_id == 2
    finally:
        process.close()


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_files_of_an_interrupted_commit_go_when_it_is_refused(process: Process) -> None:
    """Its client does not come back, and before the restart somebody makes it a conflict."""
    process.start(faults="commit.prepared=kill")
    catalog = create_table(process.warehouse, TABLES["overwrite"][0])
    client = process.client()
    transaction, request = begun(client, catalog, OverwritePartitions())
    ask_impatiently(process, client.transactions.id_of(transaction), request)
    assert process.has_died()
    committer = committer_of(catalog)
    other = committer.begin(TABLE)
    committer.commit(CommitRequest(other, Append(), write(catalog, other, OLD)))
    left = unreachable(catalog.load(TABLE))
    assert any("manifest" in name for name in left)
    process.start()
    for _ in range(100):
        if not unreachable(catalog.load(TABLE)):
            break
        time.sleep(0.1)
    assert unreachable(catalog.load(TABLE)) == set()
    assert rows(catalog) == [(1, "old"), (2, "old")]


def begun(
    client: RemoteCoordinator, catalog: Catalog, change: Change | None, name: TableName = TABLE
) -> tuple[Transaction, CommitRequest]:
    """The new rows, written by a transaction; merged by `k` where `change` is None."""
    transaction = client.begin(name)
    if change is None:
        return transaction, merged(catalog, transaction, (0, 0), NEW[0], NEW[1:])
    messages = write(catalog, transaction, NEW, overwrite=not isinstance(change, Append))
    return transaction, CommitRequest(transaction, change, messages)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "action"), sampled(["abort.stored", "files.removed"], ACTIONS))
def test_disturbed_abort_is_finished(armed: Armed, step: str, action: str) -> None:
    process = armed.process
    catalog, name = armed.create_table(TABLES["append"][0])
    client = process.client()
    transaction, request = begun(client, catalog, Append(), name)
    armed.arm(step, action)
    with ThreadPoolExecutor(1) as patient:
        answer = patient.submit(client.abort, transaction)
        match action:
            case "kill":
                assert process.has_died()
                armed.start()
            case "stop":
                armed.wait_until_stopped()
                process.go_on()
        answer.result(120)
    wait_until_nothing_is_left(catalog, name)
    with pytest.raises(CommitConflictError, match="has ended"):
        client.commit(request)
    assert rows(catalog, name) == []
    assert armed.has_acted


def phases(process: Process) -> list[str]:
    headers = {"Authorization": f"Bearer {process.token()}"}
    listed = httpx.get(process.address + "/v1/transactions", headers=headers, trust_env=False)
    return [each["phase"] for each in listed.json()["transactions"]]


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_unacknowledged_transaction_stays_open_after_a_restart(process: Process) -> None:
    process.start(faults="begin.stored=kill")
    create_table(process.warehouse, TABLES["append"][0])
    impatient = RemoteCoordinator(At(process.address, process.token()), coordinator_wait_ms=0)
    with pytest.raises(SetupError, match="can't be reached"):
        impatient.begin(TABLE)
    assert process.has_died()
    process.start()
    assert phases(process) == ["active"]


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_client_replaces_an_unacknowledged_transaction(process: Process) -> None:
    process.start(faults="begin.stored=kill")
    one_at_a_time = "CREATE TABLE t (k INT NOT NULL) TBLPROPERTIES ('primary-key' = 'k')"
    create_table(process.warehouse, one_at_a_time)

    def restart() -> None:
        assert process.has_died()
        process.start()

    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(restart)
        begun = process.client().begin(TABLE)
        restarted.result(60)
    assert begun.base_snapshot_id == 0
    assert sorted(phases(process)) == ["aborted", "active"]
