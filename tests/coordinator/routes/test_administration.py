"""A coordinator that is looked at, paused, drained and resumed, and open transactions ended."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.client.choosing import local_committer
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.core.values import Phase
from paimon_magics.errors import CommitConflictError, SetupError, UnknownNameError
from paimon_magics.origin import user_name
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.coordinator.rest_server import client_options

NOBODY = "0" * 32


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("administration")
    started = Process(folder / "warehouse", folder / "state")
    started.start()
    yield started
    started.close()


@pytest.fixture(scope="module")
def catalog(process: Process) -> Catalog:
    return create_table(Path(process.warehouse), "CREATE TABLE t (k INT, v STRING)")


@pytest.fixture
def client(process: Process, catalog: Catalog) -> Iterator[RemoteCoordinator]:
    """A client of a coordinator that is not paused, and after the test is not."""
    opened = process.client()
    yield opened
    administration = process.client().administration()
    administration.resume()
    for transaction in administration.transactions():
        if transaction.is_pending:
            administration.abort(transaction.id)


def post(process: Process, path: str, document: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {process.token()}"}
    return httpx.post(process.address + path, json=document, headers=headers, trust_env=False)


def append_by_rest(process: Process) -> None:
    options = client_options(process.address, Path(process.warehouse))
    table = CatalogFactory.create({**options, "token": process.token()}).get_table("default.t")
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table({"k": pa.array([9], pa.int32()), "v": ["rest"]}))
    try:
        committer.commit(writer.prepare_commit())
    finally:
        writer.close()
        committer.close()


def test_pause_refuses_begins_and_still_commits_open_transactions(
    process: Process, client: RemoteCoordinator, catalog: Catalog
) -> None:
    transaction = client.begin(TABLE)
    before = len(read(catalog))
    pause = client.administration().pause()
    assert pause.by == user_name()
    with pytest.raises(SetupError, match=f"was paused by {pause.by} at") as raised:
        client.begin(TABLE)
    assert "%paimon coordinator resume" in raised.value.hint
    answer = post(process, "/v1/transactions", {"table": {"database": "default", "table": "t"}})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    process.kill()
    process.start()
    assert client.administration().status().pause == pause
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    receipt = client.commit(request)
    assert client.commit(request) == receipt
    assert len(read(catalog)) == before + 1
    client.administration().resume()
    process.kill()
    process.start()
    assert client.administration().status().pause is None
    assert client.begin(TABLE).base_snapshot_id == receipt.snapshot_id


def test_second_pause_returns_the_first(process: Process, client: RemoteCoordinator) -> None:
    first = post(process, "/v1/coordinator/pause", {"owner": "ada"}).json()
    assert first["by"] == "ada"
    second = client.administration().pause()
    assert (second.by, second.since_ms) == ("ada", first["since_ms"])


def test_commits_of_engines_obey_a_pause(
    process: Process, client: RemoteCoordinator, catalog: Catalog
) -> None:
    before = len(read(catalog))
    client.administration().pause()
    refused: list[BaseException] = []

    def try_it() -> None:
        try:
            append_by_rest(process)
        except BaseException as error:
            refused.append(error)

    trying = threading.Thread(target=try_it)
    trying.start()
    time.sleep(1)
    assert len(read(catalog)) == before
    assert client.administration().status().pending_commits == ()
    client.administration().resume()
    trying.join(60)  # clients repeat what was answered 503
    assert not refused
    assert len(read(catalog)) == before + 1


def test_drain_waits_for_open_transactions_and_reports_the_rest(
    process: Process, client: RemoteCoordinator, catalog: Catalog
) -> None:
    transaction = client.begin(TABLE, engine="spark 4.3.0")
    told: list[int] = []
    (pending,), status = client.administration().drain(300, told.append)
    assert (told, status.pause is not None) == ([1], True)
    assert (pending.table, pending.phase, pending.owner) == (
        "default.t",
        Phase.ACTIVE,
        user_name(),
    )
    messages = write(catalog, transaction, [{"k": 2}])
    committing = threading.Timer(
        0.5, client.commit, [CommitRequest(transaction, Append(), messages)]
    )
    committing.start()
    assert client.administration().drain(30_000, told.append)[0] == ()
    committing.join()


def test_open_transactions_show_owner_and_origin(
    client: RemoteCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monkeypatch.setenv("JPY_SESSION_NAME", "sales.ipynb")
    client.begin(TABLE, engine="spark 4.3.0")
    (shown,) = client.administration().transactions()
    assert (shown.owner, shown.origin.notebook, shown.origin.host, shown.origin.engine) == (
        "ada",
        "sales.ipynb",
        socket.gethostname(),
        "spark 4.3.0",
    )
    assert shown.table == "default.t"
    assert shown.begun_at_ms <= time.time() * 1000 < shown.expires_at_ms


def test_abort_ends_only_an_open_transaction_with_the_given_id(
    client: RemoteCoordinator, catalog: Catalog
) -> None:
    administration = client.administration()
    transaction = client.begin(TABLE)
    messages = write(catalog, transaction, [{"k": 3}])
    (shown,) = administration.transactions()
    administration.abort(shown.id)
    with pytest.raises(CommitConflictError, match=f"ended: {user_name()} ended it"):
        client.commit(CommitRequest(transaction, Append(), messages))
    with pytest.raises(UnknownNameError, match="no such transaction") as raised:
        administration.abort(NOBODY)
    assert "%paimon transactions" in raised.value.hint
    done = client.begin(TABLE)
    id = client.transactions.id_of(done)
    client.commit(CommitRequest(done, Append(), write(catalog, done, [{"k": 4}])))
    with pytest.raises(CommitConflictError, match="can't be aborted: it is committed"):
        administration.abort(id)


def test_in_process_committer_has_no_administration(catalog: Catalog) -> None:
    with pytest.raises(SetupError, match="commits in its own process") as raised:
        local_committer("in-process", catalog, Settings()).administration()
    assert "coordinator=embedded" in raised.value.hint


def test_status_identifies_the_coordinator(process: Process, client: RemoteCoordinator) -> None:
    status = client.administration().status()
    assert process.running is not None
    assert (status.process, status.host, status.address) == (
        process.running.pid,
        socket.gethostname(),
        process.address,
    )
    assert status.warehouse == str(process.warehouse)
    answer = httpx.get(
        process.address + "/health/ready",
        headers={"Authorization": f"Bearer {process.token()}"},
        trust_env=False,
    )
    assert json.loads(answer.text)["status"] == "ready"
