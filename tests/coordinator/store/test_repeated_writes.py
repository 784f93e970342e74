"""A write whose answer is lost happens once, however often it is repeated, and whatever is written
in between; and no error of a database's library goes further than its adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from paimon_magics.coordinator.store.database import (
    Change,
    Database,
    StoreUnavailableError,
    UnstorableError,
)
from paimon_magics.coordinator.store.postgres import PostgresDatabase
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import StateStore
from tests.coordinator.postgres import Line, PostgresServer

_FOREIGN = (RuntimeError, KeyError, MemoryError, OSError)


def insert(text: str) -> list[Change]:
    return [Change("INSERT INTO numbers VALUES (?)", (text,))]


def stored(database: Database) -> list[str]:
    return [text for (text,) in database.read("SELECT n FROM numbers ORDER BY n")]


def written(database: Database, text: str) -> int:
    """Write until that succeeds, under one id; return how often the answer was lost."""
    lost = 0
    for _ in range(10):
        try:
            database.write(insert(text), f"insert {text}")
        except StoreUnavailableError as error:
            lost += error.unclear
        else:
            return lost
    raise AssertionError(text)


@pytest.fixture
def server(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    postgres.empty_database()
    return postgres


@pytest.mark.parametrize("when", ["before", "after"])
def test_unclear_writes_are_repeated_in_any_order(server: PostgresServer, when: str) -> None:
    with Line(server) as line:
        database = PostgresDatabase(line.address)
        database.write([Change("CREATE TABLE numbers (n TEXT)")])
        for text in ("a", "b", "c"):
            line.cut_commit(when, for_good=True)
            with pytest.raises(StoreUnavailableError) as raised:
                database.write(insert(text), f"insert {text}")
            assert raised.value.unclear
            with pytest.raises(StoreUnavailableError) as raised:
                database.write(insert("x"), "insert x")
            assert not raised.value.unclear, "this one was not sent"
            with pytest.raises(StoreUnavailableError) as raised:
                database.write(insert(text), f"insert {text}")
            assert raised.value.unclear, "it still is"
            line.mend()
            database.write(insert(f"then {text}"), f"then {text}")
        for text in ("c", "a", "b", "a", "a"):
            database.write(insert(text), f"insert {text}")
        assert stored(database) == ["a", "b", "c", "then a", "then b", "then c"]
        database.close()


def test_grouped_changes_are_repeated_as_a_whole(server: PostgresServer) -> None:
    with Line(server) as line:
        store = StateStore(PostgresDatabase(line.address))
        line.cut_commit("after", for_good=True)
        with pytest.raises(StoreUnavailableError), store.together("a change"):
            store.database_properties.save("x", {"a": "1"})
        line.mend()
        store.database_properties.save("x", {"a": "2"})
        with store.together("a change"):
            store.database_properties.save("x", {"a": "1"})
        assert store.database_properties.of("x") == {"a": "2"}, "it had happened before"
        store.close()


class Disk(apsw.VFS):
    """A disk whose files can't be synced while it `fails`."""

    def __init__(self) -> None:
        self.fails = False
        self.base = apsw.vfs_names()[0]
        super().__init__("failing", self.base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        disk = self

        class File(apsw.VFSFile):
            def xSync(self, flags: int) -> None:
                if disk.fails:
                    raise apsw.IOError("the disk does not answer")
                super().xSync(flags)

        return File(disk.base, name, flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    yield made
    apsw.set_default_vfs(made.base)
    made.unregister()


def test_failed_sync_leaves_the_write_unclear_until_the_disk_recovers(
    disk: Disk, tmp_path: Path
) -> None:
    database = SqliteDatabase(tmp_path / "a.sqlite")
    database.write([Change("CREATE TABLE numbers (n TEXT)")])
    disk.fails = True
    for text in ("a", "b", "a"):
        with pytest.raises(StoreUnavailableError) as raised:
            database.write(insert(text), f"insert {text}")
        assert raised.value.unclear
    disk.fails = False
    database.write(insert("c"), "insert c")
    for text in ("b", "a", "a", "b"):
        database.write(insert(text), f"insert {text}")
    assert stored(database) == ["a", "b", "c"]
    database.close()
    again = SqliteDatabase(tmp_path / "a.sqlite")
    assert stored(again) == ["a", "b", "c"]
    again.close()


class Breaking:
    """A connection that raises an error at its `number`-th statement, before it or after it."""

    def __init__(self, connection: Any, error: type[Exception], number: int, when: str) -> None:
        self._connection = connection
        self._left = number
        self._error = error
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, *arguments: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            raise self._error("from elsewhere")
        result = self._connection.execute(*arguments)
        if self._left == 0:
            raise self._error("from elsewhere")
        return result


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        opened: Any = SqliteDatabase(tmp_path / "a.sqlite")
    else:
        server = request.getfixturevalue("server")
        opened = PostgresDatabase(f"postgresql://coordinator@/store?host={server.folder}")
    opened.write([Change("CREATE TABLE numbers (n TEXT NOT NULL)")])
    yield opened
    opened.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_unexpected_error_means_unavailable_and_the_write_happens_once(
    database: Any, when: str
) -> None:
    expected = []
    unclear = 0
    for number in range(1, 5):
        for error in _FOREIGN:
            text = f"{number} {error.__name__}"
            database._connection = Breaking(database._connection, error, number, when)
            unclear += written(database, text)
            connection = database._connection
            if isinstance(connection, Breaking):
                database._connection = connection._connection
            expected.append(text)
    assert stored(database) == sorted(expected)
    assert unclear > 0 if when == "after" else True
    for error in _FOREIGN:
        database._connection = Breaking(database._connection, error, 1, when)
        with pytest.raises(StoreUnavailableError, match="from elsewhere"):
            stored(database)
        if isinstance(database._connection, Breaking):
            database._connection = database._connection._connection
        assert stored(database) == sorted(expected)


def test_successful_write_is_not_repeated(database: Any) -> None:
    for _ in range(3):
        database.write(insert("a"), "insert a")
        database.write(insert("b"))
    assert stored(database) == ["a", "b", "b", "b"]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda: "a\ud800", id="lone surrogate"),
        pytest.param(lambda: None, id="constraint"),
    ],
)
def test_unstorable_values_do_not_affect_other_writes(
    database: Any, bad: Callable[[], object]
) -> None:
    with pytest.raises(UnstorableError) as raised:
        database.write([*insert("a"), Change("INSERT INTO numbers VALUES (?)", (bad(),))])
    assert not raised.value.unclear
    database.write(insert("b"))
    assert stored(database) == ["b"]
