"""Logs that knew tables by their locations, and what a log knows beside its records: its own time,
and its warehouse."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed, Remembered
from paimon_magics.coordinator.inserts.log.log import Appended, Log, LogTable
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.store.database import Change, Database, StoreLostError
from paimon_magics.coordinator.store.postgres import PostgresDatabase
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.errors import SetupError
from paimon_magics.tables.schema.history import table_id_of_legacy
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.inserts.test_logs import PLACE, fill, segment

T = "/warehouse/default.db/t@1700000000000"
U = "/warehouse/default.db/u@1700000000000"
DAY_MS = 86_400_000

_OLD_TABLES = (
    "CREATE TABLE log_meta (format {i} NOT NULL, id TEXT NOT NULL){e}",
    "CREATE TABLE log_tables (location TEXT PRIMARY KEY, name TEXT NOT NULL, "
    "published {i} NOT NULL, chain {i} NOT NULL, acknowledged {i} NOT NULL, snapshot_id {i}, "
    "closed TEXT NOT NULL DEFAULT '', flush TEXT){e}",
    "CREATE TABLE log_segments (location TEXT NOT NULL, first {i} NOT NULL, last {i} NOT NULL, "
    "body {b} NOT NULL, PRIMARY KEY (location, first)){e}",
    "CREATE TABLE log_keys (location TEXT NOT NULL, key TEXT NOT NULL, off {i} NOT NULL, "
    "lsn {i} NOT NULL, answers {b} NOT NULL, at_ms {i} NOT NULL, "
    "PRIMARY KEY (location, key, off)){e}",
    "CREATE TABLE log_dead_letters (location TEXT NOT NULL, lsn {i} NOT NULL, why TEXT NOT NULL, "
    "at_ms {i} NOT NULL, body {b} NOT NULL, PRIMARY KEY (location, lsn)){e}",
    "CREATE TABLE log_moves (location TEXT PRIMARY KEY, target TEXT NOT NULL){e}",
    "INSERT INTO log_meta VALUES (1, 'an id')",
)


@pytest.fixture(params=["sqlite", "postgres"])
def open_database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Database]:
    if request.param == "sqlite":
        return lambda: SqliteDatabase(tmp_path / "log.sqlite")
    server = request.getfixturevalue("postgres")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    address = server.empty_database()
    return lambda: PostgresDatabase(address)


def old_log(database: Database, *locations: str, moves: dict[str, str] | None = None) -> None:
    """A log as an older version left it, with two records of each table, the first a label's."""
    dialect = database.dialect
    names = {"i": dialect.integer, "b": dialect.bytes, "e": dialect.table_end}
    changes = [Change(each.format(**names)) for each in _OLD_TABLES]
    one = segment(1, 2, 0)
    answer = (1).to_bytes(8, "big") + b"\1d"
    for at in locations:
        changes += [
            Change("INSERT INTO log_tables VALUES (?, 'n', 0, 0, 2, NULL, '', NULL)", (at,)),
            Change("INSERT INTO log_segments VALUES (?, 1, 2, ?)", (at, one.body)),
            Change(
                "INSERT INTO log_keys VALUES (?, 'l:a', -1, 1, ?, ?)",
                (at, answer, 1_700_000_000_000 + 99 * DAY_MS),
            ),
            *(
                Change(
                    "INSERT INTO log_keys VALUES (?, ?, -1, 1, ?, 1700000000000)",
                    (at, f"l:{n}", answer),
                )
                for n in range(1_500)
            ),
            Change("INSERT INTO log_dead_letters VALUES (?, 9, 'why', 5, ?)", (at, b"b")),
        ]
    for at, target in (moves or {}).items():
        changes.append(Change("INSERT INTO log_moves VALUES (?, ?)", (at, target)))
    database.write(changes)
    database.close()


def check_whole(log: Log, id: str) -> None:
    assert log.read(id, 1, 9) == [(1, segment(1, 2, 0).body)]
    known = log.remembered(id, ["l:a", "l:0", "l:1499"])
    assert [each.inserts for each in known.values()] == [{-1: (1, b"d")}] * 3
    assert [letter.lsn for letter in log.dead_letters(id)] == [9]


def test_log_of_an_older_version_is_migrated_to_ids(
    open_database: Callable[[], Database],
) -> None:
    old_log(open_database(), T, U)
    for _ in range(2):
        log = DatabaseLog(open_database())
        assert log.id == "an id"
        ids = {at: table_id_of_legacy(at) for at in (T, U)}
        assert sorted(log.tables(), key=lambda t: t.legacy) == [
            LogTable(ids[at], "n", 0, 0, 2, legacy=at) for at in (T, U)
        ]
        log.forget(DAY_MS)
        for id in ids.values():
            check_whole(log, id)
        log.close()


def test_two_spellings_of_a_table_stay_apart(open_database: Callable[[], Database]) -> None:
    other = T.replace("/warehouse", "file:///warehouse")
    old_log(open_database(), other, T)
    database = open_database()
    database.write([Change("UPDATE log_tables SET published = 2 WHERE location = ?", (T,))])
    database.close()
    for _ in range(2):
        log = DatabaseLog(open_database())
        waiting, loaded = sorted(log.tables(), key=lambda t: t.published)
        assert waiting.table_id == table_id_of_legacy(T), "the one whose rows wait"
        assert loaded.table_id != waiting.table_id
        check_whole(log, waiting.table_id)
        check_whole(log, loaded.table_id)
        log.close()


@pytest.mark.parametrize("is_done", [True, False])
def test_pending_rename_is_finished_or_forgotten(
    open_database: Callable[[], Database], is_done: bool
) -> None:
    old_log(open_database(), T, moves={T: "new"})
    made = {"new": U if is_done else None}
    for _ in range(2):
        log = DatabaseLog(open_database(), renamed=made.get)
        (table,) = log.tables()
        assert (table.table_id, table.name) == (
            (table_id_of_legacy(U), "new") if is_done else (table_id_of_legacy(T), "n")
        )
        check_whole(log, table.table_id)
        log.close()
        made = {}


# ---- each log ----


class Steady:
    """A steady clock that the test advances."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(params=["sqlite", "postgres", "objects"])
def open_log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Log]:
    if request.param == "objects":
        return lambda **more: ObjectLog(LocalStore(), str(tmp_path), "me", **more)
    if request.param == "sqlite":
        return lambda **more: DatabaseLog(SqliteDatabase(tmp_path / "log.sqlite"), **more)
    server = request.getfixturevalue("postgres")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    address = server.empty_database()
    return lambda **more: DatabaseLog(PostgresDatabase(address), **more)


def append(log: Log, lsn: int, chain: int) -> int:
    one = segment(lsn, 1, chain)
    log.append([Appended(PLACE, "n", one, (Keyed(f"l:{lsn}", -1, lsn, b"d"),))])
    return one.chain


def labels(log: Log) -> set[str]:
    return set(log.remembered(PLACE, [f"l:{lsn}" for lsn in range(1, 9)]))


def test_labels_expire_by_running_time(open_log: Callable[..., Log]) -> None:
    steady = Steady()
    log = open_log(steady=steady)
    chain = append(log, 1, 0)
    steady.seconds += 1_000
    chain = append(log, 2, chain)
    log.forget(2_000_000)
    steady.seconds += 600
    log.close()
    steady.seconds += 1_000_000  # nobody runs it
    log = open_log(steady=steady)
    append(log, 3, chain)
    log.forget(2_000_000)
    assert labels(log) == {"l:1", "l:2", "l:3"}
    steady.seconds += 450  # 2,050 s after the first one
    log.forget(2_000_000)
    assert labels(log) == {"l:2", "l:3"}
    log.close()


def test_label_expiry_ignores_the_machine_clock(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    log = open_log()
    chain = append(log, 1, 0)
    monkeypatch.setattr(time, "time", lambda: 1_900_000_000.0)
    append(log, 2, chain)
    log.forget(3 * DAY_MS)
    assert labels(log) == {"l:1", "l:2"}
    log.close()


def test_log_is_refused_to_another_warehouse(open_log: Callable[..., Log]) -> None:
    for id in ("", "a" * 32, "", "a" * 32):
        open_log(warehouse_id=id).close()
    with pytest.raises(
        SetupError, match=f"{'a' * 32}, not to this warehouse with the id {'b' * 32}"
    ):
        open_log(warehouse_id="b" * 32)


def test_many_old_labels_are_forgotten_in_steps(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    from paimon_magics.coordinator.inserts.log import database

    monkeypatch.setattr(database, "_FORGET_AT_ONCE", 2)
    steady = Steady()
    log = open_log(steady=steady)
    chain = 0
    for lsn in range(1, 8):
        chain = append(log, lsn, chain)
        steady.seconds += 1
    steady.seconds += 100
    append(log, 8, chain)
    log.forget(50_000)
    assert labels(log) == {"l:8"}
    log.close()


def test_registry_reads_notes_of_an_older_version(tmp_path: Path) -> None:
    folder = tmp_path / ".paimon-magics" / "logs"
    folder.mkdir(parents=True)
    note = {"location": T, "log": "1", "name": "a log", "who": "somebody", "first": 5}
    (folder / f"{uuid.uuid4().hex}.json").write_text(json.dumps(note | {"is_open": True}))
    (folder / f"{uuid.uuid4().hex}.json").write_text("broken")
    registry = LogRegistry(LocalStore(), str(tmp_path), "1", "a log", "me")
    id = table_id_of_legacy(T)
    for acknowledged, missing in ((4, False), (3, True)):
        assert bool(registry.missing(id, lambda lsn=acknowledged: lsn)) == missing
    registry.open(id, 7, 0)
    again = LogRegistry(LocalStore(), str(tmp_path), "1", "a log", "me").note(id)
    assert again is not None and again.first == 7
    assert len(list(folder.iterdir())) == 2


def test_append_with_a_gap_or_overlap_is_refused(open_log: Callable[..., Log]) -> None:
    log = open_log()
    fill(log, 2)
    for first in (1, 2, 4):
        with pytest.raises(StoreLostError, match=f"can't continue with record {first}"):
            append(log, first, 0)
    log.close()


def test_append_repeated_after_a_restart_is_stored_once(
    open_log: Callable[..., Log],
) -> None:
    log = open_log()
    append(log, 1, 0)
    for _ in range(2):
        append(log, 1, 0)
    log.close()
    log = open_log()
    append(log, 1, 0)
    assert log.tables() == [LogTable(PLACE, "n", 0, 0, 1)]
    assert [first for first, _ in log.read(PLACE, 1, 9)] == [1]
    log.close()


def append_to_channel(
    log: Log, *offsets: int, lsn: int, chain: int = 0, begins: bool = False
) -> int:
    """Append records of a channel that the first one of them begins, or not."""
    one = segment(lsn, len(offsets), chain)
    keys = tuple(
        Keyed("c:one", offset, lsn + number, b"d", begins and number == 0)
        for number, offset in enumerate(offsets)
    )
    log.append([Appended(PLACE, "n", one, keys)])
    return one.chain


def test_first_offset_of_a_channel_outlives_its_answers(
    open_log: Callable[..., Log],
) -> None:
    log = open_log()
    chain = append_to_channel(log, 7, 8, lsn=1, begins=True)
    chain = append_to_channel(log, 9, lsn=3, chain=chain)
    log.publish(PLACE, 3, chain, 1)
    log.rename_table(PLACE, "u")
    log.close()
    log = open_log()
    assert log.remembered(PLACE, ["c:one"]) == {"c:one": Remembered({9: (3, b"d")}, 9, 7)}
    log.drop_table(PLACE)
    assert log.remembered(PLACE, ["c:one"]) == {}
    log.close()


def test_first_offset_of_an_older_versions_channel_is_unknown(
    open_log: Callable[..., Log],
) -> None:
    log = open_log()
    append_to_channel(log, 7, 8, lsn=1)
    log.close()
    log = open_log()
    known = {7: (1, b"d"), 8: (2, b"d")}
    assert log.remembered(PLACE, ["c:one"]) == {"c:one": Remembered(known, 8, None)}
    log.close()


def test_first_offset_is_forgotten_only_with_its_channel(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    from paimon_magics.coordinator.inserts.log import database

    monkeypatch.setattr(database, "_FORGET_AT_ONCE", 1)
    steady = Steady()
    log = open_log(steady=steady)
    chain = append_to_channel(log, 7, lsn=1, begins=True)
    for lsn in range(2, 5):
        steady.seconds += 10
        chain = append_to_channel(log, 6 + lsn, lsn=lsn, chain=chain)
    log.forget(15_000)
    log.close()
    log = open_log(steady=steady)
    steady.seconds += 10
    log.forget(15_000)
    assert log.remembered(PLACE, ["c:one"]) == {"c:one": Remembered({10: (4, b"d")}, 10, 7)}
    steady.seconds += 100
    log.forget(15_000)
    assert log.remembered(PLACE, ["c:one"]) == {}
    append_to_channel(log, 2, lsn=5, chain=chain, begins=True)
    assert log.remembered(PLACE, ["c:one"]) == {"c:one": Remembered({2: (5, b"d")}, 2, 2)}
    log.close()
