"""The history of loaded files, which a coordinator writes for sessions: it decides what others
load, so a session can neither write it by itself nor replace what others have noted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Transaction
from paimon_magics.planning.copying.load_history import (
    HISTORY_FOLDER,
    PENDING_FOLDER,
    LoadRecord,
    record_of,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.provenance import LOAD, PREFIX
from tests.coordinator.process import TABLE, Process, create_table, wait_until, write

FILE = LoadRecord("/in/a.csv", 8, 1_700_000_000_000, 5, 0, 1)
SOURCES = {FILE.path: (FILE.size_bytes, FILE.modified_ms)}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def coordinator(warehouse: Path, tmp_path: Path) -> Iterator[Process]:
    create_table(warehouse, "CREATE TABLE t (k INT, v INT)")
    process = Process(warehouse, tmp_path / "state")
    process.start()
    yield process
    process.close()


def client(coordinator: Process, name: str, *allow: str) -> RemoteCoordinator:
    answer = httpx.post(
        f"{coordinator.address}/v1/tokens",
        json={"name": name, "allow": list(allow)},
        headers={"Authorization": f"Bearer {coordinator.token()}"},
    )
    return coordinator.client(answer.json()["token"])


def catalog_of(warehouse: Path) -> Catalog:
    return Catalog.open({"warehouse": str(warehouse)})


def request(warehouse: Path, transaction: Transaction) -> CommitRequest:
    messages = write(catalog_of(warehouse), transaction, [{"k": 1, "v": 1}])
    return CommitRequest(transaction, Append(), messages, ((PREFIX + LOAD, "some"),))


def names(warehouse: Path, folder: str) -> list[str]:
    path = warehouse / "default.db" / "t" / folder
    return sorted(file.name for file in path.iterdir()) if path.exists() else []


def is_loaded(warehouse: Path) -> bool:
    history = LoadHistory(catalog_of(warehouse).load(TABLE))
    return history.loaded(SOURCES, 0, settles=False) == set(SOURCES)


def test_commit_completes_the_history_with_times_of_the_coordinator(
    coordinator: Process, warehouse: Path
) -> None:
    ada = client(coordinator, "ada", "change=default.t")
    opened = ada.begin(TABLE)
    assert ada.note_load(opened, (FILE,))
    assert names(warehouse, PENDING_FOLDER) == [opened.commit_user]
    assert not is_loaded(warehouse), "nothing is committed"
    receipt = ada.commit(request(warehouse, opened))
    assert is_loaded(warehouse)
    (name,) = names(warehouse, HISTORY_FOLDER)
    record = record_of((warehouse / "default.db" / "t" / HISTORY_FOLDER / name).read_bytes())
    assert record is not None
    assert (record.path, record.snapshot_id) == (FILE.path, receipt.snapshot_id)
    assert record.loaded_ms > FILE.modified_ms, "not the client's 5"
    assert names(warehouse, PENDING_FOLDER) == []


def test_note_takes_the_transaction_and_right_of_its_sender(
    coordinator: Process, warehouse: Path
) -> None:
    ada, reader = client(coordinator, "ada", "change=default.t"), client(coordinator, "eve", "read")
    opened = ada.begin(TABLE)
    reader.transactions.opened(opened.commit_user, ada.key_of(opened), 60.0)
    with pytest.raises(PaimonMagicsError, match="belongs to ada"):
        reader.note_load(opened, (FILE,))
    reader.transactions.opened(opened.commit_user, "0" * 32, 60.0)
    with pytest.raises(PaimonMagicsError, match="permission"):
        reader.note_load(opened, (FILE,))
    writer = client(coordinator, "bob", "insert=default.t")
    with pytest.raises(PaimonMagicsError, match="permission"):
        writer.note_load(writer.begin(TABLE), (FILE,))
    with pytest.raises(InvalidValueError, match="record of a loaded file"):
        ada._transaction(ada.key_of(opened), "load", {"records": [{"filePath": "/in/a.csv"}]})
    assert names(warehouse, PENDING_FOLDER) == []


def test_end_of_a_transaction_removes_its_note(coordinator: Process, warehouse: Path) -> None:
    ada = client(coordinator, "ada", "change=default.t")
    opened = ada.begin(TABLE)
    assert ada.note_load(opened, (FILE,))
    ada.abort(opened)
    wait_until(lambda: names(warehouse, PENDING_FOLDER) == [])
    assert not is_loaded(warehouse)


def test_coordinator_that_dies_before_the_history_completes_it_after_its_start(
    coordinator: Process, warehouse: Path
) -> None:
    coordinator.kill()
    coordinator.start(faults="load.published=kill")
    ada = coordinator.client()
    opened = ada.begin(TABLE)
    assert ada.note_load(opened, (FILE,))
    commit = request(warehouse, opened)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(ada.commit(commit)))
    thread.start()
    assert coordinator.has_died()
    assert names(warehouse, HISTORY_FOLDER) == []
    assert is_loaded(warehouse), "the note and the snapshot say so"
    coordinator.start()
    thread.join(60)
    assert len(answers) == 1, "the repeated request finds the commit"
    wait_until(lambda: names(warehouse, PENDING_FOLDER) == [])
    assert len(names(warehouse, HISTORY_FOLDER)) == 1
    assert is_loaded(warehouse)


def test_repeated_note_and_commit_record_a_file_once(coordinator: Process, warehouse: Path) -> None:
    ada = client(coordinator, "ada", "change=default.t")
    opened = ada.begin(TABLE)
    for _ in range(2):
        assert ada.note_load(opened, (FILE,))
    commit = request(warehouse, opened)
    id = ada.key_of(opened)
    first = ada.commit(commit)
    ada.transactions.opened(opened.commit_user, id, 60.0)
    assert ada.commit(commit) == first
    assert len(names(warehouse, HISTORY_FOLDER)) == 1


def test_next_note_completes_what_an_interrupted_load_has_left(
    coordinator: Process, warehouse: Path
) -> None:
    table = warehouse / "default.db" / "t"
    ada = client(coordinator, "ada", "change=default.t")
    opened = ada.begin(TABLE)
    assert ada.note_load(opened, (FILE,))
    left = (table / PENDING_FOLDER / opened.commit_user).read_bytes()
    ada.commit(request(warehouse, opened))
    for file in (table / HISTORY_FOLDER).iterdir():
        file.unlink()
    (table / PENDING_FOLDER / opened.commit_user).write_bytes(left)
    following = ada.begin(TABLE)
    assert ada.note_load(following, ())
    assert names(warehouse, PENDING_FOLDER) == [following.commit_user]
    assert len(names(warehouse, HISTORY_FOLDER)) == 1


def test_unknown_endpoint_of_a_coordinator_leaves_the_history_to_the_session(
    coordinator: Process,
) -> None:
    ada = client(coordinator, "ada", "change=default.t")
    opened = ada.begin(TABLE)
    ada.transactions.opened(opened.commit_user, f"{ada.key_of(opened)}/earlier", 60.0)
    assert ada.note_load(opened, (FILE,)) is False
