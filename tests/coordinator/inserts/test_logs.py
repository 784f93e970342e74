"""What a log has taken is there again, whatever happens to its process or its disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed, Remembered
from paimon_magics.coordinator.inserts.log.log import (
    Appended,
    DeadLetter,
    Log,
    LogTable,
    StoredFlush,
)
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.records import (
    DamagedError,
    Format,
    Record,
    Segment,
    read_segments,
    seal,
)
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import LocalStore, open_store
from tests.backends.s3 import Bucket, S3Server

PLACE = "0123456789abcdef0123456789abcdef"
OTHER = "1123456789abcdef0123456789abcdef"


Open = Callable[[], Log]


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> Bucket:
    return s3.bucket()


@pytest.fixture(params=["sqlite", "postgres", "objects", "objects on S3"])
def open_log(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Open:
    """Opens the log, again and again, in each of the stores that it may lie in."""
    match request.param:
        case "sqlite":
            return lambda: DatabaseLog(SqliteDatabase(tmp_path / "log.sqlite"))
        case "postgres":
            from paimon_magics.coordinator.store.postgres import PostgresDatabase

            server = request.getfixturevalue("postgres")
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            address = server.empty_database()
            return lambda: DatabaseLog(PostgresDatabase(address))
        case "objects":
            return lambda: ObjectLog(LocalStore(), str(tmp_path), "a test")
        case _:
            options = request.getfixturevalue("bucket").options
            warehouse = f"{options['warehouse']}/{tmp_path.name}"
            return lambda: ObjectLog(open_store(warehouse, options), warehouse, "a test")


@pytest.fixture
def log(open_log: Open) -> Iterator[Log]:
    opened = open_log()
    yield opened
    opened.close()


def segment(first: int, count: int, chain: int) -> Segment:
    records = [
        Record(lsn, Format.JSON, 0, 1, 1_000 + lsn, f"row {lsn} ".encode() * 9)
        for lsn in range(first, first + count)
    ]
    return seal(records, chain)


def fill(log: Log, *counts: int, place: str = PLACE, keys: Sequence[Keyed] = ()) -> list[Segment]:
    """Append segments of so many records; the keys with the last one."""
    segments: list[Segment] = []
    for number, count in enumerate(counts):
        previous = segments[-1] if segments else Segment(0, 0, 0, b"")
        segments.append(segment(previous.last + 1, count, previous.chain))
        given = tuple(keys) if number == len(counts) - 1 else ()
        log.append([Appended(place, "default.t", segments[-1], given)])
    return segments


def lsns(log: Log, after: int = 0, chain: int | None = None) -> list[int]:
    records, _ = read_segments(log.read(PLACE, after + 1, 2**62), after, chain)
    return [record.lsn for record in records]


def test_reopened_log_has_all_appended_records(log: Log, open_log: Open) -> None:
    segments = fill(log, 1, 3, 2)
    fill(log, 4, place=OTHER)
    log.close()
    again = open_log()
    assert again.id == log.id
    assert again.tables() == [
        LogTable(PLACE, "default.t", 0, 0, 6),
        LogTable(OTHER, "default.t", 0, 0, 4),
    ]
    assert again.read(PLACE, 1, 6) == [(s.first, s.body) for s in segments]
    assert [first for first, _ in again.read(PLACE, 3, 5)] == [2, 5]
    assert lsns(again, 3) == [4, 5, 6]
    again.close()


def test_publish_drops_records_and_keeps_the_chain(log: Log) -> None:
    segments = fill(log, 2, 3, 2)
    log.publish(PLACE, 3, 77, 12)
    assert log.tables() == [LogTable(PLACE, "default.t", 3, 77, 7, snapshot_id=12)]
    assert lsns(log, 3) == [4, 5, 6, 7]  # the second segment stays whole
    log.publish(PLACE, 5, segments[1].chain, None)
    assert lsns(log, 5, segments[1].chain) == [6, 7]
    assert log.tables()[0].snapshot_id == 12


def test_labels_and_channels_are_remembered_with_their_answers(log: Log) -> None:
    keys = [
        Keyed("l:a", -1, 1, b"xx"),
        Keyed("c:one", 7, 2, b"7"),
        Keyed("c:two", 1, 3, b"t"),
        Keyed("c:one", 8, 4, b"8"),
    ]
    first = fill(log, 4, keys=keys)[0]
    later = segment(5, 1, first.chain)
    log.append([Appended(PLACE, "default.t", later, (Keyed("c:one", 9, 5, b"9"),))])
    assert log.remembered(PLACE, ["l:a", "c:one", "l:b"]) == {
        "l:a": Remembered({-1: (1, b"xx")}, None),
        "c:one": Remembered({7: (2, b"7"), 8: (4, b"8"), 9: (5, b"9")}, 9),
    }
    assert log.remembered(OTHER, ["l:a"]) == {}
    log.publish(PLACE, 5, later.chain, 1)
    assert log.remembered(PLACE, ["c:one"]) == {"c:one": Remembered({9: (5, b"9")}, 9)}
    assert "l:a" in log.remembered(PLACE, ["l:a"])


def test_log_remembers_many_keys_at_once(log: Log) -> None:
    keys = [Keyed(f"l:{n}", -1, n + 1, b"d") for n in range(500)]
    fill(log, 500, keys=keys)
    actual = log.remembered(PLACE, [each.key for each in keys] + ["l:none"])
    assert {key: known.inserts[-1][0] for key, known in actual.items()} == {
        each.key: each.lsn for each in keys
    }


def test_a_flush_and_its_dead_letters_are_noted_together(log: Log) -> None:
    fill(log, 3)
    flush = StoredFlush(1, 3, 5, "id", {"commit_user": "u"})
    dead = DeadLetter(PLACE, 2, "no such column", 9, b"body")
    log.begin_flush(PLACE, flush, [dead])
    assert log.tables()[0].flush == flush
    assert log.dead_letters() == log.dead_letters(PLACE) == [dead]
    assert log.dead_letters(OTHER) == []
    log.drop_flush(PLACE, 1, 3)
    assert log.tables()[0].flush is None
    assert log.dead_letters() == []  # the next try may load it
    log.begin_flush(PLACE, flush, [dead])
    log.publish(PLACE, 3, 5, 1)
    assert log.tables()[0].flush is None
    log.drop_dead_letter(PLACE, 2)
    assert log.dead_letters() == []


def test_dropped_table_keeps_only_its_dead_letters(log: Log) -> None:
    segments = fill(log, 2, keys=[Keyed("l:a", -1, 1, b"xx")])
    dead = DeadLetter(PLACE, 2, "no such column", 9, b"body")
    log.publish(PLACE, 2, segments[-1].chain, 1, [dead])
    log.drop_table(PLACE)
    assert log.tables() == []
    assert log.remembered(PLACE, ["l:a"]) == {}
    assert log.dead_letters() == [dead]


def test_renamed_table_keeps_its_records_and_labels(log: Log, open_log: Open) -> None:
    fill(log, 3, keys=[Keyed("l:a", -1, 1, b"xx")])
    for _ in range(2):
        log.rename_table(PLACE, "default.u")
        log.rename_table(OTHER, "default.v")  # which it does not know
    assert log.tables() == [LogTable(PLACE, "default.u", 0, 0, 3)]
    log.close()
    again = open_log()
    assert again.tables() == [LogTable(PLACE, "default.u", 0, 0, 3)]
    assert "l:a" in again.remembered(PLACE, ["l:a"])
    again.close()


def test_reasons_may_have_any_text(log: Log) -> None:
    fill(log, 2)
    bad = "no such value: a\0b \ud800"
    log.begin_flush(PLACE, StoredFlush(1, 2, 5, "id", {}), [DeadLetter(PLACE, 2, bad, 9, b"body")])
    log.close_table(PLACE, bad)
    shown = "no such value: a\ufffdb \ufffd"
    assert [letter.why for letter in log.dead_letters()] == [shown]
    assert log.tables()[0].closed == shown


def test_closed_table_stays_closed_until_its_loss_is_accepted(log: Log) -> None:
    fill(log, 3)
    log.close_table(PLACE, "lost")
    assert log.tables()[0].closed == "lost"
    for _ in range(2):
        log.accept_loss(PLACE, "default.t", 3)
        assert log.tables()[0].closed == ""
        log.close_table(PLACE, "lost again")
    log.accept_loss(PLACE, "default.t", 3)
    assert log.tables() == [LogTable(PLACE, "default.t", 3, 0, 3)]
    assert log.read(PLACE, 1, 9) == []


def test_group_append_to_several_tables_is_atomic(tmp_path: Path) -> None:
    log = DatabaseLog(SqliteDatabase(tmp_path / "log.sqlite"))
    whole = segment(1, 2, 0)
    log.append([Appended(PLACE, "default.t", whole, ())])
    again = Appended(PLACE, "default.t", whole, ())  # breaks: these lsns are taken
    with pytest.raises(StoreLostError, match="up to 2, so it can't continue with record 1"):
        log.append([Appended(OTHER, "default.u", whole, ()), again])
    assert [table.table_id for table in log.tables()] == [PLACE]
    log.close()


def test_full_disk_refuses_the_append_and_leaves_the_log_unchanged(tmp_path: Path) -> None:
    sqlite = SqliteDatabase(tmp_path / "log.sqlite")
    log = DatabaseLog(sqlite)
    first = fill(log, 2)[0]
    pages = sqlite._connection.pragma("page_count")
    sqlite._connection.pragma("max_page_count", pages)
    large = seal([Record(3, Format.JSON, 0, 1, 0, b"x" * 100_000)], first.chain)
    with pytest.raises(StoreUnavailableError) as raised:
        log.append([Appended(PLACE, "default.t", large, ())])
    assert not raised.value.unclear
    sqlite._connection.pragma("max_page_count", 1_000_000)
    log.append([Appended(PLACE, "default.t", large, ())])
    assert lsns(log) == [1, 2, 3]
    log.close()


class Cut:
    """Copies of a log's files as they were when each record had just been acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = DatabaseLog(SqliteDatabase(folder / "log.sqlite"))
        self.wal = folder / "log.sqlite-wal"
        self.acknowledged: list[int] = []  # the length of the write-ahead log after each record
        chain = 0
        for lsn in range(1, 6):
            one = segment(lsn, 1, chain)
            chain = one.chain
            self.log.append([Appended(PLACE, "default.t", one, ())])
            self.acknowledged.append(self.wal.stat().st_size)

    def recovered(self, folder: Path, wal: bytes, database: bytes | None = None) -> list[int]:
        """What a log finds in these files; raises as it would at its start."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        file = folder / "log.sqlite"
        file.write_bytes(
            (self.folder / "log.sqlite").read_bytes() if database is None else database
        )
        (folder / "log.sqlite-wal").write_bytes(wal)
        log = DatabaseLog(SqliteDatabase(file))
        try:
            tables = log.tables()
            if not tables:
                return []
            result = lsns(log, tables[0].published, tables[0].chain)
            assert tables[0].acknowledged == (result[-1] if result else 0)
            return result
        finally:
            log.close()


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[Cut]:
    (tmp_path / "log").mkdir()
    made = Cut(tmp_path / "log")
    yield made
    made.log.close()


@pytest.mark.parametrize("apart", [41, pytest.param(1, marks=pytest.mark.soak)])
def test_power_cut_keeps_exactly_the_acknowledged_records(
    cut: Cut, tmp_path: Path, apart: int
) -> None:
    whole = cut.wal.read_bytes()
    # The last record's part closely, and a sample of what is before it.
    begin = cut.acknowledged[-2]
    ends = [*range(0, begin, 997), *range(begin, len(whole), apart), len(whole)]
    for end in ends:
        actual = cut.recovered(tmp_path / "again", whole[:end])
        expected = sum(length <= end for length in cut.acknowledged)
        assert actual == list(range(1, expected + 1)), end


def test_a_flipped_bit_of_the_log_gives_a_prefix_or_an_error(cut: Cut, tmp_path: Path) -> None:
    whole = cut.wal.read_bytes()
    for place in range(0, len(whole), 499):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        try:
            actual = cut.recovered(tmp_path / "again", bytes(changed))
        except (SetupError, DamagedError, apsw.Error):
            continue
        assert actual == list(range(1, len(actual) + 1)), place


def test_a_flipped_bit_of_the_database_gives_a_prefix_or_an_error(cut: Cut, tmp_path: Path) -> None:
    cut.log.close()  # all is in the database file then
    whole = (cut.folder / "log.sqlite").read_bytes()
    outcomes = []
    for place in range(0, len(whole), 211):
        changed = bytearray(whole)
        changed[place] ^= 0x04
        try:
            actual = cut.recovered(tmp_path / "again", b"", bytes(changed))
        except (SetupError, DamagedError, apsw.Error, AssertionError, UnicodeDecodeError):
            outcomes.append("error")
            continue
        outcomes.append("prefix")
        assert actual == list(range(1, len(actual) + 1)), place
    assert "error" in outcomes
    cut.log = DatabaseLog(SqliteDatabase(cut.folder / "log.sqlite"))
