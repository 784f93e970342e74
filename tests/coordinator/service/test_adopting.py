"""A transaction that another coordinator has opened: what is taken of it, and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.protocol.documents import request_document, transaction_document
from paimon_magics.coordinator.service.transactions import adopted_transaction
from paimon_magics.errors import CommitConflictError, InvalidValueError, UnknownNameError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import (
    TABLE,
    Process,
    create_table,
    data_files,
    read,
    wait_until,
    write,
)
from tests.faults.appending import committer_of


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT, v STRING)")


@pytest.fixture
def transaction(catalog: Catalog) -> Transaction:
    """Opened by somebody else: no coordinator knows it."""
    return committer_of(catalog).begin(TABLE)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("adopting")
    process = Process(folder / "warehouse", folder / "state", "--cleanup-grace-ms=200")
    process.start()
    yield process
    process.close()


def test_adopted_transaction_gets_a_recomputed_folder(
    catalog: Catalog, transaction: Transaction
) -> None:
    document = transaction_document(replace(transaction, attempts_folder="/etc"))
    table, found = adopted_transaction(catalog, document)
    assert table.name == TABLE
    assert found == transaction


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"commit_user": "somebody"}, InvalidValueError),
        ({"commit_user": "paimon-magics-" + "-" * 36}, InvalidValueError),
        ({"file_prefix": "data-"}, InvalidValueError),
        ({"file_prefix": "pm-" + "0" * 32 + "-"}, InvalidValueError),
        ({"file_prefix": "../"}, InvalidValueError),
        ({"commit_identifier": 1}, InvalidValueError),
        ({"base_snapshot_id": 1}, InvalidValueError),
        ({"base_snapshot_id": -1}, InvalidValueError),
        ({"base_snapshot_id": "0"}, InvalidValueError),
        ({"table": {"database": "..", "table": "t"}}, InvalidValueError),
        ({"table": {"database": "default", "table": "nowhere"}}, UnknownNameError),
    ],
)
def test_impossible_transaction_is_not_adopted(
    catalog: Catalog, transaction: Transaction, changes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        adopted_transaction(catalog, transaction_document(transaction) | changes)


def opened_elsewhere(process: Process, name: str) -> tuple[Catalog, Transaction]:
    catalog = create_table(process.warehouse, f"CREATE TABLE {name} (k INT, v STRING)")
    return catalog, committer_of(catalog).begin(TableName(name, "default"))


def ask(process: Process, id: str, verb: str, document: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {process.token()}"}
    address = f"{process.address}/v1/transactions/{id}/{verb}"
    return httpx.post(address, json=document, headers=headers, trust_env=False, timeout=60)


def test_commit_of_an_adopted_transaction_is_made_once(started: Process) -> None:
    catalog, transaction = opened_elsewhere(started, "committed")
    client = started.client()
    client.transactions.ended(transaction.commit_user, "0" * 31 + "1")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    receipt = client.commit(request)
    assert (receipt.snapshot_id, receipt.delta_rows) == (1, 1)
    assert client.commit(request) == receipt
    assert read(catalog, transaction.table) == [{"k": 1, "v": None}]
    started.end()
    started.start()
    assert client.commit(request) == receipt


def test_abort_of_an_adopted_transaction_removes_its_files(started: Process) -> None:
    catalog, transaction = opened_elsewhere(started, "ended")
    client = started.client()
    client.transactions.ended(transaction.commit_user, "0" * 31 + "2")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    mine = {name for name in data_files(started.warehouse) if transaction.file_prefix in name}
    assert mine
    client.abort(transaction)
    wait_until(lambda: not mine & data_files(started.warehouse))
    with pytest.raises(CommitConflictError, match="has ended"):
        client.commit(request)


def test_adopted_commit_with_missing_files_has_an_unknown_outcome(started: Process) -> None:
    catalog, transaction = opened_elsewhere(started, "gone")
    request = CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}]))
    for path in started.warehouse.rglob(f"{transaction.file_prefix}*.parquet"):
        path.unlink()
    document = request_document(request) | {"transaction": transaction_document(transaction)}
    answer = ask(started, "0" * 31 + "3", "commit", document)
    assert answer.status_code == 500, "the one who opened it may have been cut off publishing it"
    assert answer.json()["error"]["type"] == "UnknownOutcomeError"
    assert "is gone" in answer.json()["error"]["message"]
    after = started.client().begin(transaction.table)
    rows = write(catalog, after, [{"k": 2}])
    assert started.client().begin(transaction.table).base_snapshot_id == 0, "the table is free"
    assert rows


@pytest.mark.parametrize(
    ("id", "changes", "status", "named"),
    [
        ("x" * 32, {}, 400, "not the id of a transaction"),
        ("0" * 32, {"transaction": {}}, 400, "`table` is missing"),
        ("0" * 32, {"messages": ["AAAA"]}, 400, "can't be read"),
        ("0" * 32, {"transaction": None}, 400, "`transaction` must be an object"),
    ],
)
def test_invalid_adoption_request_is_named(
    started: Process, id: str, changes: dict[str, object], status: int, named: str
) -> None:
    _, transaction = opened_elsewhere(started, "bad")
    document = request_document(CommitRequest(transaction, Append()))
    document |= {"transaction": transaction_document(transaction)} | changes
    answer = ask(started, id, "commit", document)
    assert answer.status_code == status
    assert named in answer.json()["error"]["message"]


def test_files_of_another_transaction_are_not_committed(started: Process) -> None:
    catalog, transaction = opened_elsewhere(started, "borrowed")
    _, other = opened_elsewhere(started, "borrowed")
    messages = write(catalog, other, [{"k": 1}])
    document = request_document(CommitRequest(transaction, Append(), messages))
    document |= {"transaction": transaction_document(transaction)}
    answer = ask(started, "0" * 31 + "4", "commit", document)
    assert answer.status_code == 400
    assert "does not belong to the transaction" in answer.json()["error"]["message"]


@pytest.mark.parametrize("has_expired", [False, True], ids=["snapshot", "file"])
def test_committed_transaction_is_not_ended_by_a_document_with_a_later_base(
    tmp_path: Path, has_expired: bool
) -> None:
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT, v STRING)")
    committer = committer_of(catalog)
    for key in range(3):
        transaction = committer.begin(TABLE)
        if key == 0:
            first = transaction
        rows = write(catalog, transaction, [{"k": key, "v": "a"}])
        committer.commit(CommitRequest(transaction, Append(), rows))
    snapshot = tmp_path / "warehouse" / "default.db" / "t" / "snapshot" / "snapshot-1"
    if has_expired:
        snapshot.unlink()
        (snapshot.parent / "EARLIEST").write_text("2")
    files = data_files(tmp_path / "warehouse")
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--cleanup-grace-ms=200")
    process.start()
    try:
        answer = httpx.post(
            f"{process.address}/v1/transactions/{uuid.uuid4().hex}/abort",
            json={
                "reason": "x",
                "transaction": transaction_document(replace(first, base_snapshot_id=3)),
                "owner": "eve",
                "host": "h",
                "process": 1,
            },
            headers={"authorization": f"Bearer {process.token()}"},
            trust_env=False,
        )
        assert (answer.status_code, "was committed to" in answer.text) == (400, True), answer.text
        assert data_files(tmp_path / "warehouse") == files
        assert [row["k"] for row in read(catalog)] == [0, 1, 2]
    finally:
        process.close()


def test_open_transaction_is_not_ended_by_its_document_under_another_id(started: Process) -> None:
    catalog, _ = opened_elsewhere(started, "opened_here")
    name = TableName("opened_here", "default")
    client = started.client()
    transaction = client.begin(name)
    messages = write(catalog, transaction, [{"k": 1}])
    document = {"transaction": transaction_document(transaction)}
    answer = ask(started, uuid.uuid4().hex, "abort", document | {"reason": "x"})
    assert (answer.status_code, "is open here" in answer.text) == (400, True), answer.text
    client.commit(CommitRequest(transaction, Append(), messages))
    assert len(read(catalog, name)) == 1
