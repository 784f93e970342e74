"""Logs that have lost their last records: a backup that was restored, objects that are gone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.inserts.queue.values import (
    Accepted,
    Mode,
    Reason,
    Refused,
)
from paimon_magics.coordinator.store.database import Change
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.inserts.kept import Kept
from tests.coordinator.postgres import PostgresServer
from tests.sampling import only_in_soak

_TABLES = ("log_tables", "log_segments", "log_keys")


class Backup:
    """A log as it was, kept aside."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError


class FileBackup(Backup):
    """A copy of an SQLite file, or of a folder of objects."""

    path = "log.sqlite"

    def save(self) -> None:
        source, target = self.kept.folder / self.path, self.kept.folder / "saved"
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)

    def restore(self) -> None:
        source, target = self.kept.folder / "saved", self.kept.folder / self.path
        if source.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source, target)
        else:
            for file in self.kept.folder.glob("log.sqlite*"):
                file.unlink()
            shutil.copy(source, target)


class ObjectsBackup(FileBackup):
    path = "warehouse/.paimon-magics/log"


class PostgresBackup(Backup):
    """The rows of the log's tables, kept in others."""

    def _all(self, statements: list[str]) -> None:
        log = self.kept.open_log()
        assert isinstance(log, DatabaseLog)
        log.database.write([Change(each.format(t)) for each in statements for t in _TABLES])
        log.close()

    def save(self) -> None:
        self._all(["CREATE TABLE saved_{0} AS SELECT * FROM {0}"])

    def restore(self) -> None:
        self._all(["DELETE FROM {0}", "INSERT INTO {0} SELECT * FROM saved_{0}"])


@pytest.fixture(params=only_in_soak(["sqlite", "postgres", "objects"], ["postgres"]))
def backup(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backup]:
    made: Backup
    match request.param:
        case "sqlite":
            database = tmp_path / "log.sqlite"
            made = FileBackup(Kept(tmp_path, lambda: DatabaseLog(SqliteDatabase(database))))
        case "objects":
            warehouse = str(tmp_path / "warehouse")
            made = ObjectsBackup(Kept(tmp_path, lambda: ObjectLog(LocalStore(), warehouse, "me")))
        case _:
            from paimon_magics.coordinator.store.postgres import PostgresDatabase

            server: PostgresServer = request.getfixturevalue("postgres")
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            address = server.empty_database()
            made = PostgresBackup(Kept(tmp_path, lambda: DatabaseLog(PostgresDatabase(address))))
    made.kept.start()
    yield made
    made.kept.end()


def put_back(backup: Backup, whatever: Callable[[], object]) -> Kept:
    """A log with a row that is loaded and one that waits, put back to that after `whatever`."""
    kept = backup.kept
    kept.insert(1, "one")
    kept.flush()
    kept.insert(2, "two")
    kept.end()
    backup.save()
    kept.start()
    kept.insert(3, "three")
    whatever()
    kept.end()
    backup.restore()
    kept.start()
    return kept


def test_restored_log_misses_noted_records_and_loads_the_rest(
    backup: Backup,
) -> None:
    kept = put_back(backup, lambda: kept_note(backup))
    answer = kept.insert(4)
    assert isinstance(answer, Refused)
    assert answer.reason is Reason.CLOSED
    assert "ends with record 2, but record 3 was acknowledged" in answer.message
    with pytest.raises(SetupError, match="stays closed"):
        kept.reopen(accept_loss=False)
    kept.reopen(accept_loss=True)
    assert kept.insert(1, "one") == Accepted(1, Mode.ASYNC, duplicate=True)
    assert kept.insert(2, "two") == Accepted(2, Mode.ASYNC, duplicate=True)
    assert kept.insert(3, "three") == Accepted(3, Mode.ASYNC)  # its sender may still come again
    kept.flush()
    assert kept.ids() == [1, 2, 3]
    kept.end()
    kept.start()
    assert kept.insert(4) == Accepted(4, Mode.ASYNC)


def kept_note(backup: Backup) -> None:
    backup.kept.note()


def note_and_flush(kept: Kept) -> None:
    kept.note()
    kept.flush()


@pytest.mark.parametrize("whatever", [Kept.flush, note_and_flush])
def test_log_misses_records_that_the_table_has(
    backup: Backup, whatever: Callable[[Kept], object]
) -> None:
    kept = put_back(backup, lambda: whatever(backup.kept))
    answer = kept.insert(4)
    assert isinstance(answer, Refused)
    # On a slow machine the registry has been told of record 3 before the log is set back.
    noticed = "the table has records up to 3|record 3 was acknowledged"
    assert re.search(f"ends with record 2, but ({noticed})", answer.message)
    kept.reopen(accept_loss=True)
    assert kept.insert(4) == Accepted(4, Mode.ASYNC)
    kept.flush()
    assert kept.ids() == [1, 2, 3, 4]


def test_accepting_a_loss_without_a_loss_loses_no_rows(tmp_path: Path) -> None:
    kept = Kept(tmp_path, lambda: DatabaseLog(SqliteDatabase(tmp_path / "log.sqlite")))
    kept.start()
    kept.insert(1)
    kept.reopen(accept_loss=True)
    kept.end()
    kept.start()
    kept.reopen(accept_loss=True)
    kept.flush()
    assert kept.ids() == [1]
    kept.end()


def test_records_acknowledged_during_a_registry_read_are_not_missing(tmp_path: Path) -> None:
    acknowledged = [2]

    class Store(LocalStore):
        def read(self, path: str) -> bytes | None:
            if acknowledged == [2] and "table-" in path:
                acknowledged[0] = 4
                registry.open("t", 5, 0)
            return super().read(path)

    registry = LogRegistry(Store(), str(tmp_path), "1", "a log", "me")
    registry.open("t", 3, 0)
    assert registry.missing("t", lambda: acknowledged[0]) == ""
    assert "record 4 was acknowledged" in registry.missing("t", lambda: 3)
