"""What is stored is there again, all or nothing, and a store that does not work says so."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.coordinator.core import Pause, Phase, TransactionState
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.store import Store, open_store
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import CommitReceipt

ACTIVE = TransactionState(
    id="a", table="/w/default.db/t", phase=Phase.ACTIVE, expires_at_ms=10, owner="ada"
)
OPENED: dict[str, object] = {"commit_user": "u", "base_snapshot_id": 3}
COMMITTED = replace(
    ACTIVE, phase=Phase.COMMITTED, receipt=CommitReceipt(4, "APPEND", 10, 2), expires_at_ms=20
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(state: Path, store_address: str | None) -> Iterator[Store]:
    opened = open_store(state, store_address)
    yield opened
    opened.close()


def test_what_was_stored_is_there_when_it_is_opened_again(
    store: Store, state: Path, store_address: str | None
) -> None:
    store.open(ACTIVE, OPENED)
    committing = replace(ACTIVE, phase=Phase.COMMITTING, digest="d")
    store.save(committing, b"\x00request")
    store.close()
    again = open_store(state, store_address)
    assert again.unfinished() == [(committing, OPENED)]
    assert again.request("a") == b"\x00request"
    again.save(COMMITTED)
    assert (again.unfinished(), again.finished("a")) == ([], COMMITTED)
    assert (again.request("a"), again.opened("a")) == (b"\x00request", OPENED)
    again.close()


def test_properties_of_databases_outlive_the_coordinator(
    store: Store, state: Path, store_address: str | None
) -> None:
    store.save_database_properties("x", {"comment": "of the tills", "ä": "ö"})
    store.save_database_properties("y", {"a": "1"})
    store.save_database_properties("y", {"a": "2"})
    store.close()
    again = open_store(state, store_address)
    assert again.database_properties("x") == {"comment": "of the tills", "ä": "ö"}
    assert again.database_properties("y") == {"a": "2"}
    again.save_database_properties("y", {})
    assert again.database_properties("y") == again.database_properties("nobody") == {}
    again.close()


def test_a_pause_outlives_the_coordinator(
    store: Store, state: Path, store_address: str | None
) -> None:
    assert store.pause() is None
    store.save_pause(Pause("ada", 7))
    store.close()
    again = open_store(state, store_address)
    assert again.pause() == Pause("ada", 7)
    again.save_pause(None)
    assert again.pause() is None
    again.close()


def test_what_an_older_version_stored_is_read(store: Store) -> None:
    store.open(ACTIVE, OPENED)
    body = json.loads(store._read("SELECT body FROM transactions")[0][0])
    for name in ("origin", "name", "ended_at_ms", "files"):
        del body[name]
    store._write("UPDATE transactions SET body = ?", json.dumps(body))
    assert store.unfinished() == [(ACTIVE, OPENED)]


def test_finished_transactions_are_listed_newest_first_and_forgotten_by_age(store: Store) -> None:
    for number in range(5):
        held = replace(COMMITTED, id=str(number), expires_at_ms=number)
        store.open(replace(held, phase=Phase.ACTIVE, receipt=None), OPENED)
        store.save(held)
    assert [held.id for held in store.recently_finished(2)] == ["4", "3"]
    store.forget_finished(2)
    assert [held.id for held in store.recently_finished(9)] == ["4", "3"]
    assert (store.finished("2"), store.opened("2"), store.request("2")) == (None, None, None)


def test_what_belongs_together_is_stored_together_or_not_at_all(store: Store) -> None:
    with pytest.raises(RuntimeError), store.together():
        store.open(ACTIVE, OPENED)
        raise RuntimeError
    assert store.unfinished() == []
    with store.together():
        store.open(ACTIVE, OPENED)
        store.open(replace(ACTIVE, id="b"), OPENED)
    assert [held.id for held, _ in store.unfinished()] == ["a", "b"]


def test_a_store_of_another_format_is_refused(
    store: Store, state: Path, store_address: str | None
) -> None:
    store._write("UPDATE meta SET format = 1")
    store.close()
    with pytest.raises(SetupError, match="another version") as raised:
        open_store(state, store_address)
    assert "drain it there" in raised.value.hint


def test_a_change_that_is_made_twice_is_as_if_made_once(store: Store) -> None:
    for _ in range(2):
        store.open(ACTIVE, OPENED)
    assert store.unfinished() == [(ACTIVE, OPENED)]
    for _ in range(2):
        store.save(COMMITTED, b"request")
    assert (store.finished("a"), store.request("a")) == (COMMITTED, b"request")


def test_a_second_owner_is_refused_and_told_who_the_first_is(
    store: Store, state: Path, store_address: str | None
) -> None:
    with pytest.raises(SetupError, match="in use by another") as raised:
        open_store(state, store_address)
    if store_address is not None:
        assert f"{getpass.getuser()} on {socket.gethostname()}, process" in raised.value.message
    store.open(ACTIVE, OPENED)
    assert store.unfinished() == [(ACTIVE, OPENED)]


def test_a_full_disk_stores_nothing_and_is_named(state: Path) -> None:
    state.mkdir()
    database = SqliteDatabase(state / "coordinator.sqlite")
    store = Store(database)
    store.open(ACTIVE, OPENED)
    # SQLite's own quota: it fails as on a disk without space.
    pages = database._connection.pragma("page_count")
    database._connection.pragma("max_page_count", pages)
    with pytest.raises(StoreUnavailableError, match="full") as raised, store.together():
        store.save(COMMITTED)
        store.open(replace(ACTIVE, id="b"), {"text": "x" * 100_000})
    assert not raised.value.unclear
    assert store.unfinished() == [(ACTIVE, OPENED)]
    database._connection.pragma("max_page_count", pages + 100)
    store.save(COMMITTED)
    store.close()
    again = open_store(state)
    assert (again.unfinished(), again.finished("a")) == ([], COMMITTED)
    again.close()


def test_a_state_folder_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="can't be made"):
        open_store(tmp_path / "file")
