"""A PostgreSQL store whose server dies, is locked, full, or not what it was."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

import paimon_magics.coordinator.store.postgres as module
from paimon_magics.coordinator.core.values import Phase, TransactionState
from paimon_magics.coordinator.store.database import Change, StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.store.postgres import PostgresDatabase
from paimon_magics.coordinator.store.state_store import StateStore, open_store, store_address
from paimon_magics.errors import SetupError
from tests.coordinator.postgres import Line, PostgresServer

HELD = TransactionState(id="a", location="/w/default.db/t", phase=Phase.ACTIVE, expires_at_ms=10)


@pytest.fixture
def address(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    return postgres.empty_database()


@pytest.fixture
def database(address: str) -> Iterator[PostgresDatabase]:
    opened = PostgresDatabase(address)
    yield opened
    opened.close()


@pytest.fixture
def store(database: PostgresDatabase) -> StateStore:
    return StateStore(database)


def test_restarted_server_keeps_everything_stored(
    store: StateStore, postgres: PostgresServer
) -> None:
    store.transactions.open(HELD, {})
    postgres.kill()
    with pytest.raises(StoreUnavailableError, match="does not work") as raised:
        store.transactions.open(replace(HELD, id="b"), {})
    assert not raised.value.unclear
    with pytest.raises(StoreUnavailableError):
        store.transactions.unfinished()
    postgres.start()
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a"]
    store.transactions.open(replace(HELD, id="c"), {})
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a", "c"]


def test_ended_database_session_is_reopened_transparently(
    store: StateStore, postgres: PostgresServer, address: str
) -> None:
    for id in "abc":
        postgres.end_sessions()
        store.transactions.open(replace(HELD, id=id), {})
    postgres.end_sessions()
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a", "b", "c"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_an_answer_is_made_once(
    postgres: PostgresServer, address: str, when: str
) -> None:
    with Line(postgres) as line:
        database = PostgresDatabase(line.address)
        database.write([Change("CREATE TABLE numbers (n BIGINT)")])
        line.cut_commit(when)
        database.write([Change("INSERT INTO numbers VALUES (?)", (7,))])
        assert line.cuts == 1
        assert database.read("SELECT n FROM numbers") == [(7,)]
        database.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_without_an_answer_is_unclear_while_the_server_is_out_of_reach(
    postgres: PostgresServer, address: str, when: str
) -> None:
    with Line(postgres) as line:
        store = StateStore(PostgresDatabase(line.address))
        line.cut_commit(when, for_good=True)
        with pytest.raises(StoreUnavailableError) as raised:
            store.transactions.open(HELD, {})
        assert raised.value.unclear
        with pytest.raises(StoreUnavailableError) as raised:
            store.check()
        assert not raised.value.unclear, "of this write nothing was done"
        line.mend()
        store.transactions.open(HELD, {})
        assert store.transactions.unfinished() == [(HELD, {})]
        store.close()


def test_write_to_locked_rows_waits_and_then_fails(
    store: StateStore, postgres: PostgresServer, address: str
) -> None:
    store.transactions.open(HELD, {})
    with postgres.administer() as other, other.transaction():
        other.execute("LOCK TABLE paimon_coordinator.transactions")
        with pytest.raises(StoreUnavailableError, match="lock timeout") as raised:
            store.transactions.save(replace(HELD, phase=Phase.COMMITTING))
        assert not raised.value.unclear
    store.transactions.save(replace(HELD, phase=Phase.ABORTING))
    assert [each.phase for each, _ in store.transactions.unfinished()] == [Phase.ABORTING]


@pytest.mark.parametrize(
    ("state", "message"), [("53100", "could not extend file"), ("25006", "read-only transaction")]
)
def test_write_refused_by_the_server_is_not_stored(
    store: StateStore, postgres: PostgresServer, address: str, state: str, message: str
) -> None:
    with postgres.administer() as other:
        # The server's own error, raised where it would come up by itself.
        other.execute(
            "CREATE FUNCTION paimon_coordinator.refuse() RETURNS trigger LANGUAGE plpgsql "
            "AS $$ BEGIN "
            f"RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = '{message}'; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON paimon_coordinator.transactions "
            "EXECUTE FUNCTION paimon_coordinator.refuse()".encode()
        )
        with pytest.raises(StoreUnavailableError, match=message) as raised, store.together():
            store.forget_finished(0)
            store.transactions.open(HELD, {})
        assert not raised.value.unclear
        other.execute("DROP TRIGGER refuse ON paimon_coordinator.transactions")
    store.transactions.open(HELD, {})
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ("saved = saved - 1", "not as this coordinator left it"),
        ("saved = saved + 1", "not as this coordinator left it"),
        ("generation = generation + 1, holder = 'eve'", "taken over by another coordinator: eve"),
    ],
)
@pytest.mark.parametrize("reconnect", [False, True])
def test_changed_owner_row_of_the_database_ends_the_store(
    store: StateStore,
    postgres: PostgresServer,
    address: str,
    changed: str,
    says: str,
    reconnect: bool,
) -> None:
    store.transactions.open(HELD, {})
    with postgres.administer() as other:
        other.execute(f"UPDATE paimon_coordinator.owner SET {changed}".encode())
    if reconnect:
        postgres.end_sessions()
    with pytest.raises(StoreLostError, match=says):
        store.transactions.open(replace(HELD, id="b"), {})
    with postgres.administer() as other:
        rows = other.execute("SELECT id FROM paimon_coordinator.transactions").fetchall()
    assert rows == [("a",)]


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit"])
def test_server_without_durable_commits_is_refused(
    postgres: PostgresServer, address: str, tmp_path: Path, setting: str
) -> None:
    with postgres.administer() as other:
        try:
            if setting == "fsync":
                other.execute("ALTER SYSTEM SET fsync = off")
                other.execute("SELECT pg_reload_conf()")
            else:
                other.execute("ALTER ROLE coordinator SET synchronous_commit = off")
            with pytest.raises(SetupError, match=f"{setting} = off") as raised:
                open_store(tmp_path, address)
            assert f"Set {setting} = on" in raised.value.hint
        finally:
            other.execute("ALTER SYSTEM RESET fsync")
            other.execute("SELECT pg_reload_conf()")
            other.execute("ALTER ROLE coordinator RESET synchronous_commit")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("mysql://somewhere/db", "does not begin with postgresql"),
        ("postgresql://[", "can't be read"),
        ("postgresql://nobody@/db?host=/nowhere", "postgresql://nobody@/nowhere/db does not work"),
    ],
)
def test_unusable_store_address_is_named(tmp_path: Path, address: str, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        open_store(tmp_path, address)


def test_no_message_shows_the_password(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as raised:
        open_store(tmp_path, "postgresql://ada:secret@127.0.0.1:1/db")
    assert "postgresql://ada@127.0.0.1:1/db" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_password_on_the_command_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIMON_COORDINATOR_STORE", "postgresql://ada:secret@host/db")
    assert store_address(None) == "postgresql://ada:secret@host/db"
    assert store_address("postgresql://ada@host/db") == "postgresql://ada@host/db"
    for option in ("postgresql://ada:secret@host/db", "postgresql://host/db?password=secret"):
        with pytest.raises(SetupError, match="password") as raised:
            store_address(option)
        assert "secret" not in str(raised.value) and "PGPASSWORD" in raised.value.hint


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes that must fail."""
    begin = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        call()
    return time.monotonic() - begin


def test_frozen_server_does_not_block_reads_and_writes_for_long(
    store: StateStore, postgres: PostgresServer, address: str
) -> None:
    store.transactions.open(HELD, {})
    with postgres.frozen():
        writes: list[float] = []
        writing = Thread(target=lambda: writes.append(seconds(store.check)))
        writing.start()
        time.sleep(0.2)
        assert seconds(store.transactions.unfinished) < 2, "a read does not queue behind it"
        writing.join()
        assert 4 < writes[0] < 7
        assert seconds(store.transactions.unfinished) < 4
        assert seconds(store.check) < 4
    store.transactions.open(replace(HELD, id="b"), {})
    assert [each.id for each, _ in store.transactions.unfinished()] == ["a", "b"]


def test_a_read_has_a_deadline(store: StateStore, postgres: PostgresServer, address: str) -> None:
    with postgres.frozen():
        assert 4 < seconds(store.transactions.unfinished) < 7
    assert store.transactions.unfinished() == []


def test_commit_completed_by_a_frozen_server_is_made_once(
    database: PostgresDatabase, postgres: PostgresServer, address: str
) -> None:
    database.write([Change("CREATE TABLE numbers (n BIGINT)")])
    with postgres.administer() as other:
        # The commit itself waits until the server stands still.
        other.execute(
            b"CREATE FUNCTION paimon_coordinator.wait() RETURNS trigger LANGUAGE plpgsql "
            b"AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$; "
            b"CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON paimon_coordinator.numbers "
            b"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            b"EXECUTE FUNCTION paimon_coordinator.wait()"
        )
    insert = [Change("INSERT INTO numbers VALUES (?)", (7,))]
    unclear: list[bool] = []

    def write() -> None:
        with pytest.raises(StoreUnavailableError) as raised:
            database.write(insert, "insert 7")
        unclear.append(raised.value.unclear)

    writing = Thread(target=write)
    writing.start()
    time.sleep(0.5)
    with postgres.frozen():
        writing.join()
    assert unclear == [True]
    database.write([Change("INSERT INTO numbers VALUES (?)", (8,))], "insert 8")
    for _ in range(2):
        database.write(insert, "insert 7")
    assert sorted(database.read("SELECT n FROM numbers")) == [(7,), (8,)]


def test_write_through_a_frozen_session_is_made_once(
    database: PostgresDatabase, postgres: PostgresServer, address: str
) -> None:
    database.write([Change("CREATE TABLE numbers (n BIGINT)")])
    insert = [Change("INSERT INTO numbers VALUES (?)", (7,))]
    ((pid,),) = database.read("SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert seconds(lambda: database.write(insert, "insert 7")) < 8
        # Others can be connected, but its lock is there still.
        assert seconds(lambda: database.write(insert, "insert 7")) < 8
        assert seconds(lambda: database.read("SELECT 1")) < 8
    finally:
        os.kill(pid, signal.SIGCONT)
    for _ in range(2):
        database.write(insert, "insert 7")
    assert database.read("SELECT n FROM numbers") == [(7,)]


def test_unresolvable_host_does_not_block_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(20))
    monkeypatch.setattr(module, "_OPEN_SECONDS", 1)
    assert seconds(lambda: PostgresDatabase("postgresql://a@nowhere.example/db")) < 5
