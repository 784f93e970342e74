"""Notes of the epochs of streams, which a coordinator writes for sessions: they decide what a
stream passes over, so a query's note is its owner's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import CommitConflictError, PaimonMagicsError, UnknownNameError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.receipts import note_epoch, noted_epoch
from paimon_magics.tables.table import Table
from tests.coordinator.process import TABLE, Process, create_table

QUERY = "8c4ea7c1-0c1f-4a64-9d0c-6a3ad2a0a9b3"


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Process]:
    create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT, v INT)")
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    yield process
    process.close()


def opened_table(tmp_path: Path) -> Table:
    return Catalog.open({"warehouse": str(tmp_path / "warehouse")}).load(TABLE)


def client(coordinator: Process, name: str, *allow: str) -> RemoteCoordinator:
    answer = httpx.post(
        f"{coordinator.address}/v1/tokens",
        json={"name": name, "allow": list(allow)},
        headers={"Authorization": f"Bearer {coordinator.token()}"},
    )
    return RemoteCoordinator(At(coordinator.address, answer.json()["token"]))


def test_note_of_a_query_is_replaced_by_its_owner_or_who_may_change_rows(
    coordinator: Process, tmp_path: Path
) -> None:
    table = opened_table(tmp_path)
    ada, eve = (client(coordinator, name, "insert=default.t") for name in ("ada", "eve"))
    opened = ada.begin(TABLE)
    assert ada.note_epoch(opened, QUERY, 3)
    first = noted_epoch(table, QUERY)
    assert first is not None
    assert (first.epoch, first.key, first.owner) == (3, ada.key_of(opened), "ada")
    assert first.transaction.commit_user == opened.commit_user
    with pytest.raises(PaimonMagicsError, match="belongs to ada, not to eve"):
        eve.note_epoch(eve.begin(TABLE), QUERY, 4)
    with pytest.raises(CommitConflictError, match="has gone on to epoch 3"):
        ada.note_epoch(ada.begin(TABLE), QUERY, 2)
    assert noted_epoch(table, QUERY) == first
    maintainer = client(coordinator, "maintainer", "change=default.t")
    assert maintainer.note_epoch(maintainer.begin(TABLE), QUERY, 4)
    assert ada.end(opened, first.key), "the transaction is ended by the key in its note"


def test_note_takes_the_transaction_and_right_of_its_sender(
    coordinator: Process, tmp_path: Path
) -> None:
    table = opened_table(tmp_path)
    ada, reader = client(coordinator, "ada", "insert=default.t"), client(coordinator, "eve", "read")
    opened = ada.begin(TABLE)
    reader.transactions.opened(opened.commit_user, ada.key_of(opened), 60.0)
    with pytest.raises(PaimonMagicsError, match="belongs to ada"):
        reader.note_epoch(opened, QUERY, 1)
    reader.transactions.opened(opened.commit_user, "0" * 32, 60.0)
    with pytest.raises(PaimonMagicsError, match="permission"):
        reader.note_epoch(opened, QUERY, 1)
    assert noted_epoch(table, QUERY) is None
    for name in ("../schema/schema-0", "a/b", ""):
        with pytest.raises(PaimonMagicsError, match="not the id of a streaming query"):
            ada.note_epoch(opened, name, 1)


def test_note_of_an_earlier_version_is_anybodys(coordinator: Process, tmp_path: Path) -> None:
    table = opened_table(tmp_path)
    ada = client(coordinator, "ada", "insert=default.t")
    assert ada.note_epoch(ada.begin(TABLE), QUERY, 1)
    before = noted_epoch(table, QUERY)
    assert before is not None
    note_epoch(table, QUERY, type(before)(before.epoch, before.transaction, before.key))
    eve = client(coordinator, "eve", "insert=default.t")
    assert eve.note_epoch(eve.begin(TABLE), QUERY, 2)


def test_unknown_endpoint_of_a_coordinator_leaves_the_note_to_the_session(
    coordinator: Process,
) -> None:
    ada = client(coordinator, "ada", "insert=default.t")
    opened = ada.begin(TABLE)
    ada.transactions.opened(opened.commit_user, f"{ada.key_of(opened)}/earlier", 60.0)
    assert ada.note_epoch(opened, QUERY, 1) is False
    with pytest.raises(UnknownNameError):
        ada._requests.once("POST", "/v1/earlier", {})
