"""What is stored is there again, all or nothing, and a store that does not work says so."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.coordinator.core.values import Pause, Phase, Stopped, TransactionState
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import StateStore, open_store
from paimon_magics.coordinator.store.tables import StoredToken
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName

ACTIVE = TransactionState(
    id="a", location="/w/default.db/t", phase=Phase.ACTIVE, expires_at_ms=10, owner="ada"
)
OPENED: dict[str, object] = {"commit_user": "u", "base_snapshot_id": 3}
COMMITTED = replace(
    ACTIVE, phase=Phase.COMMITTED, receipt=CommitReceipt(4, "APPEND", 10, 2), expires_at_ms=20
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def store(state: Path, store_address: str | None) -> Iterator[StateStore]:
    opened = open_store(state, store_address)
    yield opened
    opened.close()


def test_closed_database_does_not_blame_the_disk(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "some.sqlite")
    database.close()
    for use in (lambda: database.read("SELECT 1"), lambda: database.write([])):
        with pytest.raises(StoreUnavailableError, match="was closed: the coordinator ends") as told:
            use()
        assert "disk" not in told.value.hint


def test_reopened_store_has_everything_stored(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    store.transactions.open(ACTIVE, OPENED)
    committing = replace(ACTIVE, phase=Phase.COMMITTING, digest="d")
    store.transactions.save(committing, b"\x00request")
    store.close()
    again = open_store(state, store_address)
    assert again.transactions.unfinished() == [(committing, OPENED)]
    assert again.transactions.request("a") == b"\x00request"
    again.transactions.save(COMMITTED)
    assert (again.transactions.unfinished(), again.transactions.finished("a")) == ([], COMMITTED)
    assert (again.transactions.request("a"), again.transactions.opened("a")) == (
        b"\x00request",
        OPENED,
    )
    again.close()


def test_database_in_an_open_folder_is_private_to_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    (folder / "coordinator.sqlite").touch(mode=0o644)  # an older version's
    opened = open_store(folder)
    opened.transactions.open(ACTIVE, OPENED)
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.glob("coordinator.sqlite*")}
    assert set(modes.values()) == {0o600} and len(modes) > 1, modes
    opened.close()


def test_properties_of_databases_outlive_the_coordinator(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    store.database_properties.save("x", {"comment": "of the tills", "ä": "ö"})
    store.database_properties.save("y", {"a": "1"})
    store.database_properties.save("y", {"a": "2"})
    store.close()
    again = open_store(state, store_address)
    assert again.database_properties.of("x") == {"comment": "of the tills", "ä": "ö"}
    assert again.database_properties.of("y") == {"a": "2"}
    again.database_properties.save("y", {})
    assert again.database_properties.of("y") == again.database_properties.of("nobody") == {}
    again.close()


def test_views_and_functions_outlive_the_coordinator(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    store.definitions.save("x", "view", "v", {"query": "SELECT 'ä'"})
    store.definitions.save("x", "view", "v", {"query": "SELECT 'ö'"})
    store.definitions.save("x", "function", "v", {"definitions": {}})
    store.definitions.save("y", "view", "w", {"query": "SELECT 1"})
    store.definitions.move("view", ("y", "w"), ("x", "u"))
    store.close()
    reopened = open_store(state, store_address)
    again = reopened.definitions
    assert sorted(again.names("x", "view")) == ["u", "v"]
    assert again.of("x", "view", "v") == {"query": "SELECT 'ö'"}
    assert again.of("x", "view", "u") == {"query": "SELECT 1"}
    assert again.of("y", "view", "w") is None
    again.delete("x", "view", "v")
    assert again.names("x", "view") == ["u"]
    assert again.of("x", "function", "v") == {"definitions": {}}
    again.delete_all("x")
    assert again.names("x", "view") == again.names("x", "function") == []
    reopened.close()


def test_a_pause_outlives_the_coordinator(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    assert store.halts.pause() is None
    store.halts.save_pause(Pause("ada", 7))
    store.close()
    again = open_store(state, store_address)
    assert again.halts.pause() == Pause("ada", 7)
    again.halts.save_pause(None)
    assert again.halts.pause() is None
    again.close()


def test_state_of_an_older_version_is_read(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    store.transactions.open(replace(ACTIVE, table="default.t"), OPENED)
    body = json.loads(store._sql.read("SELECT body FROM transactions")[0][0])
    older = {**body, "table": body["location"], "name": body["table"]}
    for name in ("location", "origin", "ended_at_ms", "files"):
        del older[name]
    store._sql.write("UPDATE transactions SET body = ?", json.dumps(older))
    store._sql.write("UPDATE meta SET format = 4")
    for column in ("warehouse_id", "warehouse"):
        store._sql.write(f"ALTER TABLE meta DROP COLUMN {column}")
    store.close()
    again = open_store(state, store_address)
    assert again.transactions.unfinished() == [(replace(ACTIVE, table="default.t"), OPENED)]
    assert again._sql.read("SELECT format FROM meta") == [(6,)]
    again.close()


def test_finished_transactions_are_listed_newest_first_and_forgotten_by_age(
    store: StateStore,
) -> None:
    for number in range(5):
        held = replace(COMMITTED, id=str(number), expires_at_ms=number)
        store.transactions.open(replace(held, phase=Phase.ACTIVE, receipt=None), OPENED)
        store.transactions.save(held)
    assert [each.id for each in store.transactions.recently_finished(2)] == ["4", "3"]
    store.forget_finished(2)
    assert [each.id for each in store.transactions.recently_finished(9)] == ["4", "3"]
    assert (
        store.transactions.finished("2"),
        store.transactions.opened("2"),
        store.transactions.request("2"),
    ) == (None, None, None)


def test_grouped_changes_are_stored_atomically(store: StateStore) -> None:
    with pytest.raises(RuntimeError), store.together():
        store.transactions.open(ACTIVE, OPENED)
        raise RuntimeError
    assert store.transactions.unfinished() == []
    with store.together():
        store.transactions.open(ACTIVE, OPENED)
        store.transactions.open(replace(ACTIVE, id="b"), OPENED)
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a", "b"]


@pytest.mark.parametrize("format", [1, 7], ids=["older", "newer"])
def test_a_store_of_another_format_is_refused(
    store: StateStore, state: Path, store_address: str | None, format: int
) -> None:
    store._sql.write("UPDATE meta SET format = ?", format)
    store.close()
    said = f"another version \\(format {format}; this version has format 6\\)"
    with pytest.raises(SetupError, match=said) as raised:
        open_store(state, store_address)
    assert "drain the coordinator" in raised.value.hint


def test_repeated_change_is_idempotent(store: StateStore) -> None:
    for _ in range(2):
        store.transactions.open(ACTIVE, OPENED)
    assert store.transactions.unfinished() == [(ACTIVE, OPENED)]
    for _ in range(2):
        store.transactions.save(COMMITTED, b"request")
    assert (store.transactions.finished("a"), store.transactions.request("a")) == (
        COMMITTED,
        b"request",
    )


def test_second_owner_is_refused_with_the_name_of_the_first(
    store: StateStore, state: Path, store_address: str | None
) -> None:
    with pytest.raises(SetupError, match="in use by another") as raised:
        open_store(state, store_address)
    if store_address is not None:
        assert f"{getpass.getuser()} on {socket.gethostname()}, process" in raised.value.message
    store.transactions.open(ACTIVE, OPENED)
    assert store.transactions.unfinished() == [(ACTIVE, OPENED)]


def test_a_full_disk_stores_nothing_and_is_named(state: Path) -> None:
    state.mkdir()
    database = SqliteDatabase(state / "coordinator.sqlite")
    store = StateStore(database)
    store.transactions.open(ACTIVE, OPENED)
    # SQLite's own quota: it fails as on a disk without space.
    pages = database._connection.pragma("page_count")
    database._connection.pragma("max_page_count", pages)
    with pytest.raises(StoreUnavailableError, match="full") as raised, store.together():
        store.transactions.save(COMMITTED)
        store.transactions.open(replace(ACTIVE, id="b"), {"text": "x" * 100_000})
    assert not raised.value.unclear
    assert store.transactions.unfinished() == [(ACTIVE, OPENED)]
    database._connection.pragma("max_page_count", pages + 100)
    store.transactions.save(COMMITTED)
    store.close()
    again = open_store(state)
    assert (again.transactions.unfinished(), again.transactions.finished("a")) == ([], COMMITTED)
    again.close()


def test_uncreatable_state_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="can't be made"):
        open_store(tmp_path / "file")


def test_store_is_refused_to_another_warehouse(state: Path, store_address: str | None) -> None:
    def opened(id: str) -> None:
        open_store(state, store_address, "/w", warehouse_id=id).close()

    opened("")  # which it is is not known yet
    opened("a" * 32)
    opened("")
    opened("a" * 32)
    with pytest.raises(
        SetupError, match=f"{'a' * 32}, not to this warehouse with the id {'b' * 32}"
    ):
        opened("b" * 32)
    opened("a" * 32)


def test_locations_follow_the_spelling_of_the_warehouse(
    state: Path, store_address: str | None
) -> None:
    table = "/lake/warehouse/default.db/t"
    elsewhere = "/lake/warehouse-2/default.db/t"
    store = open_store(state, store_address, "file:///lake//warehouse/", warehouse_id="a" * 32)
    store.transactions.open(replace(ACTIVE, location=table), {"attempts_folder": f"{table}/x"})
    publication = Publication(
        "p", TableName("t", "default"), table, 3, "list", "u", 1, "APPEND", 10
    )
    store.publications.save(publication, watched=True)
    store.publications.begin_repetition(publication, 5)
    for location in (table, elsewhere):
        store.halts.save_stopped(location, Stopped("why", 1))
    store.close()
    store = open_store(state, store_address, "s3://lake/warehouse", warehouse_id="a" * 32)
    now = "s3://lake/warehouse/default.db/t"
    ((held, opened),) = store.transactions.unfinished()
    assert (held.location, opened) == (now, {"attempts_folder": f"{now}/x"})
    assert [p.location for p in store.publications.by(now, "u")] == [now]
    assert [p.location for p in store.publications.watched()] == [now]
    assert [p.location for p, _, _ in store.publications.repetitions()] == [now]
    assert sorted(where for where, _ in store.halts.stopped()) == [elsewhere, now]
    store.close()


def test_publications_of_removed_snapshots_are_kept_until_their_time(store: StateStore) -> None:
    def publication(id: str, number: int, branch: str | None = None) -> Publication:
        name = TableName("t", "default", branch=branch)
        made = Publication(id, name, "/w/t", number, "list", "u", 1, "APPEND", 10)
        return replace(made, kept_until_ms=10 + number)

    everything = [publication("a", 1), publication("b", 2), publication("c", 2, branch="x")]
    for each in everything:
        store.publications.save(each, watched=True)
    store.publications.unwatch_above("/w/t", None, 1)
    assert {p.id for p in store.publications.watched()} == {"a", "c"}
    assert sorted(store.publications.by("/w/t", "u"), key=lambda p: p.id) == everything
    assert {p.id for p in store.publications.recent(9)} == {"a", "b", "c"}
    assert {p.id for p in store.publications.recent(9, with_removed=False)} == {"a", "c"}
    store.publications.drop_above("/w/t", None, 0)  # a warehouse was put back
    assert {p.id for p in store.publications.by("/w/t", "u")} == {"b", "c"}
    store.publications.forget_unwatched(12)
    assert {p.id for p in store.publications.by("/w/t", "u")} == {"c"}


def test_arbitrary_text_of_a_client_can_be_stored(store: StateStore) -> None:
    bad, shown = "a\0b\ud800", "a\ufffdb\ufffd"
    store.halts.save_stopped("/w/t", Stopped(bad, 1))
    store.halts.save_pause(Pause(bad, 1))
    store.tokens.add(StoredToken("id", bad, "d", (bad,), 1))
    store.audit.save([("1", bad, True)])
    store.definitions.save("x", "view", bad, {"query": bad})
    assert store.halts.stopped() == [("/w/t", Stopped(shown, 1))]
    assert store.halts.pause() == Pause(shown, 1)
    assert store.tokens.all()[0].name == shown
    assert store.audit.first(1, done=True) == [("1", shown)]
    assert store.definitions.of("x", "view", bad) == {"query": bad}
