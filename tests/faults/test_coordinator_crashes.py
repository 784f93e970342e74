"""A coordinator that dies at every named step of a commit or an abort, for each kind of change.

After it is started again: what was acknowledged is there once, what was not is there once or not at
all, asking again gives the answer that is true, and no file is left that nothing leads to.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.documents import request_document
from paimon_magics.coordinator.remote import RemoteCoordinator
from paimon_magics.errors import CommitConflictError, PaimonMagicsError
from paimon_magics.planning.commits import (
    Append,
    Change,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.tables.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, data_files, read, write
from tests.faults.appending import committer_of
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
}


KINDS = [pytest.param(kind, "sqlite", id=kind) for kind in TABLES]


@pytest.fixture
def process(tmp_path: Path, store_address: str | None) -> Iterator[Process]:
    store = [] if store_address is None else [f"--store={store_address}"]
    started = Process(tmp_path / "warehouse", tmp_path / "state", "--cleanup-grace-ms=200", *store)
    yield started
    started.close()


def rows(catalog: Catalog) -> list[tuple[object, object]]:
    return sorted((row["k"], row["v"]) for row in read(catalog))  # type: ignore[type-var]


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
@pytest.mark.parametrize(
    ("kind", "store_address"),
    [*KINDS, pytest.param("append", "postgres", id="append, postgres")],
    indirect=["store_address"],
)
@pytest.mark.parametrize("step", COMMIT_STEPS)
def test_a_commit_that_is_cut_off_happens_once(process: Process, step: str, kind: str) -> None:
    sql, change = TABLES[kind]
    process.start()
    catalog = create_table(process.warehouse, sql)
    client = process.client()
    for row in OLD:
        first = client.begin(TABLE)
        client.commit(CommitRequest(first, Append(), write(catalog, first, [row])))
    process.kill()

    process.start(faults=f"{step}=kill")
    transaction, request = begun(client, catalog, change)
    ask_impatiently(process, client._ids[transaction.commit_user], request)
    assert process.has_died()

    process.start()
    receipt = client.commit(request)
    assert receipt.snapshot_id == 3
    assert client.commit(request) == receipt
    assert rows(catalog) == EXPECTED[kind]
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert latest is not None and latest.id == 3
    assert unreachable(catalog.load(TABLE)) == set()
    after = client.begin(TABLE)
    client.commit(CommitRequest(after, Append(), write(catalog, after, [{"k": 9, "v": "z"}])))
    assert (9, "z") in rows(catalog)
    assert unreachable(catalog.load(TABLE)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_what_a_cut_off_commit_wrote_goes_when_it_is_refused_later(process: Process) -> None:
    """Its client does not come back, and before the restart somebody makes it a conflict."""
    process.start(faults="commit.prepared=kill")
    catalog = create_table(process.warehouse, TABLES["overwrite"][0])
    client = process.client()
    transaction, request = begun(client, catalog, OverwritePartitions())
    ask_impatiently(process, client._ids[transaction.commit_user], request)
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
    client: RemoteCoordinator, catalog: Catalog, change: Change
) -> tuple[Transaction, CommitRequest]:
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, NEW, overwrite=not isinstance(change, Append))
    return transaction, CommitRequest(transaction, change, messages)


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
@pytest.mark.parametrize("step", ["abort.stored", "files.removed"])
def test_an_abort_that_is_cut_off_is_finished_later(process: Process, step: str) -> None:
    process.start(faults=f"{step}=kill")
    catalog = create_table(process.warehouse, TABLES["append"][0])
    client = process.client()
    _, request = begun(client, catalog, Append())
    headers = {"Authorization": f"Bearer {process.token()}"}
    id = client._ids[request.transaction.commit_user]
    address = f"{process.address}/v1/transactions/{id}/abort"
    with contextlib.suppress(httpx.TransportError):
        httpx.post(address, json={}, headers=headers, trust_env=False, timeout=20)
    assert process.has_died()
    process.start()
    for _ in range(100):
        if not data_files(process.warehouse):
            break
        time.sleep(0.1)
    assert not data_files(process.warehouse)
    with pytest.raises(CommitConflictError, match="has ended"):
        client.commit(request)
    assert rows(catalog) == []


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
def test_a_transaction_that_was_stored_but_not_told_ends_by_its_lease(process: Process) -> None:
    process.start(faults="begin.stored=kill")
    create_table(process.warehouse, TABLES["append"][0])
    with pytest.raises(PaimonMagicsError):
        process.client().begin(TABLE)
    assert process.has_died()
    process.start()
    headers = {"Authorization": f"Bearer {process.token()}"}
    listed = httpx.get(process.address + "/v1/transactions", headers=headers, trust_env=False)
    assert [one["phase"] for one in listed.json()["transactions"]] == ["active"]


@pytest.mark.slow
@pytest.mark.parametrize("store_address", ["sqlite"], indirect=True)
@pytest.mark.parametrize("step", ["commit.prepared", "publish.linked", "commit.published"])
def test_a_commit_that_fails_without_an_answer_is_looked_up(process: Process, step: str) -> None:
    process.start(faults=f"{step}=raise")
    catalog = create_table(process.warehouse, TABLES["append"][0])
    client = process.client()
    _, request = begun(client, catalog, Append())
    assert client.commit(request).snapshot_id == 1
    assert rows(catalog) == [(1, "new"), (3, "new")]
