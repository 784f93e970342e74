"""The log as objects in a store: who may write it, and what becomes of it when some are lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import paimon_magics.coordinator.inserts.log.object_chain as module
from paimon_magics.coordinator.inserts.engine.recovery import recovered
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed
from paimon_magics.coordinator.inserts.log.log import Appended, LogTable, stored_name
from paimon_magics.coordinator.inserts.log.object_codec import (
    Checkpoint,
    DamagedObjectError,
    open_checkpoint,
    open_entry,
    seal_checkpoint,
    seal_entry,
)
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.records import DamagedError, Segment, read_segments
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.store.database import (
    StoreLostError,
    StoreUnavailableError,
    UnstorableError,
)
from paimon_magics.errors import SetupError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.history import table_id_of_legacy
from paimon_magics.tables.stores.store import LocalStore
from tests.coordinator.inserts.test_logs import OTHER, PLACE, fill, lsns, segment

NAME = stored_name(TableName("t", "default"))


class Store(LocalStore):
    """A local disk that may give no clear answer: after it has created the file, or before."""

    trouble: str = ""
    error: type[Exception] = OSError

    def create(self, path: str, content: bytes) -> bool:
        if self.trouble == "before":
            raise self.error("the connection was reset")
        created = super().create(path, content)
        if self.trouble == "after":
            raise self.error("the connection was reset")
        return created


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def log(tmp_path: Path, store: Store) -> Iterator[ObjectLog]:
    opened = ObjectLog(store, str(tmp_path), "a test")
    yield opened
    opened.close()


def again(folder: Path) -> ObjectLog:
    return ObjectLog(LocalStore(), str(folder), "another")


def objects(folder: Path, kind: str = "entry") -> list[Path]:
    return sorted((folder / ".paimon-magics" / "log").glob(f"{kind}-*"))


def append(log: ObjectLog, first: int, count: int = 1, chain: int = 0) -> int:
    one = segment(first, count, chain)
    log.append([Appended(PLACE, NAME, one, (Keyed(f"l:{first}", -1, first, b"d"),))])
    return one.chain


def test_last_opener_owns_the_log_and_the_former_owner_is_refused(
    log: ObjectLog, tmp_path: Path
) -> None:
    chain = append(log, 1)
    newer = again(tmp_path)
    assert lsns(newer) == [1]
    with pytest.raises(StoreLostError, match="Another coordinator"):
        append(log, 2, chain=chain)
    append(newer, 2, chain=chain)
    with pytest.raises(StoreLostError):
        log.publish(PLACE, 1, 0, 1)
    assert lsns(again(tmp_path)) == [1, 2]


@pytest.mark.parametrize("trouble", ["before", "after"])
def test_unclear_append_is_repeated_and_written_once(
    log: ObjectLog, store: Store, tmp_path: Path, trouble: str
) -> None:
    store.trouble = trouble
    with pytest.raises(StoreUnavailableError) as raised:
        append(log, 1)
    assert raised.value.unclear
    store.trouble = ""
    append(log, 1)
    assert lsns(log) == lsns(again(tmp_path)) == [1]


def test_later_change_settles_an_unclear_append(
    log: ObjectLog, store: Store, tmp_path: Path
) -> None:
    store.trouble = "after"
    with pytest.raises(StoreUnavailableError):
        append(log, 1)
    store.trouble = ""
    log.close_table(OTHER, "why")
    chain = append(log, 1)
    append(log, 2, chain=chain)
    assert lsns(log) == lsns(again(tmp_path)) == [1, 2]


@pytest.mark.parametrize("error", [OSError, RuntimeError, KeyError, MemoryError])
@pytest.mark.parametrize("trouble", ["before", "after"])
def test_unclear_changes_are_repeated_in_any_order(
    log: ObjectLog, store: Store, tmp_path: Path, trouble: str, error: type[Exception]
) -> None:
    store.error = error
    groups = [
        Appended(place, NAME, segment(1, 2, 0), (Keyed("l:1", -1, 1, b"d"),))
        for place in (PLACE, OTHER, "/warehouse/default.db/v")
    ]
    for number, group in enumerate(groups):
        store.trouble = trouble
        with pytest.raises(StoreUnavailableError) as raised:
            log.append([group])
        assert raised.value.unclear
        with pytest.raises(StoreUnavailableError) as raised:
            log.close_table(PLACE, "never")
        assert not raised.value.unclear, "nothing of it was sent"
        store.trouble = ""
        log.close_table(group.table_id, f"why {number}", f"close {number}")
        log.close_table(group.table_id, "")
    for group in (groups[1], groups[0], groups[2], groups[0], groups[1]):
        log.append([group])
        log.close_table(group.table_id, "of another time", "close 0")
    for opened in (log, again(tmp_path)):
        assert [(t.acknowledged, t.closed) for t in opened.tables()] == [(2, "")] * 3
        assert lsns(opened) == [1, 2]


def test_created_but_unreadable_entry_is_unclear(tmp_path: Path) -> None:
    class Unreadable(Store):
        def create(self, path: str, content: bytes) -> bool:
            if not self.trouble or "entry" not in path:
                return super().create(path, content)
            super().create(path, content)
            return False  # as after a request that was sent twice

        def read(self, path: str) -> bytes | None:
            if self.trouble:
                raise SetupError("The store does not answer.")
            return super().read(path)

    disk = Unreadable()
    log = ObjectLog(disk, str(tmp_path), "a test")
    disk.trouble = "yes"
    with pytest.raises(StoreUnavailableError) as raised:
        append(log, 1)
    assert raised.value.unclear
    disk.trouble = ""
    append(log, 1)
    assert lsns(log) == lsns(again(tmp_path)) == [1]


OLD = "/warehouse/default.db/t@1700000000000"


class OldLog:
    """A log of objects as an older version wrote it: by locations, without ids of changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".paimon-magics" / "log"
        self.folder.mkdir(parents=True)
        self.number = self.check = 0
        (self.folder / "identity.json").write_text(json.dumps({"format": 1, "id": "an id"}))
        self.write({"change": "open", "who": "somebody", "id": "1"})

    def write(self, document: dict[str, object], *parts: bytes) -> None:
        self.number += 1
        content, self.check = seal_entry(self.number, self.check, document, parts)
        (self.folder / f"entry-{self.number:020d}").write_bytes(content)

    def append(self, segment: Segment, location: str = OLD, at_ms: int = 1_700_000_000_050) -> None:
        group = {"location": location, "name": NAME, "at_ms": at_ms, "first": segment.first}
        group |= {"last": segment.last, "chain": segment.chain}
        group |= {"keys": [[f"l:{segment.first}", -1, segment.first, "64"]]}
        self.write({"change": "append", "groups": [group]}, segment.body)


def test_duplicate_append_of_an_older_version_is_read_once(tmp_path: Path) -> None:
    old = OldLog(tmp_path)
    first = segment(1, 2, 0)
    for _ in range(3):
        old.append(first)
    log = again(tmp_path)
    assert log.damage == ""
    id = table_id_of_legacy(OLD)
    assert log.tables() == [LogTable(id, NAME, 0, 0, 2, legacy=OLD)]
    log.append([Appended(id, NAME, segment(3, 1, first.chain), ())])
    newer = again(tmp_path)
    assert [first for first, _ in newer.read(id, 1, 9)] == [1, 3]


def test_log_of_an_older_version_stays_readable(tmp_path: Path) -> None:
    old = OldLog(tmp_path)
    first = segment(1, 2, 0)
    old.append(first)
    old.write(
        {"change": "publish", "location": OLD, "last": 1, "chain": 7, "snapshot_id": 3}
        | {"dead": [[OLD, 1, "why", 9]]},
        b"body",
    )
    old.write({"change": "forget", "before_ms": 1_700_000_000_000})
    old.write({"change": "close_table", "location": OLD, "why": "closed"})
    for _ in range(2):
        log = again(tmp_path)
        id = table_id_of_legacy(OLD)
        assert log.tables() == [
            LogTable(id, NAME, 1, 7, 2, snapshot_id=3, closed="closed", legacy=OLD)
        ]
        assert [letter.table_id for letter in log.dead_letters()] == [id]
        assert log.remembered(id, ["l:1"])["l:1"].inserts == {-1: (1, b"d")}
        log.forget(60_000)
        assert log.remembered(id, ["l:1"])
    assert json.loads((old.folder / "identity.json").read_text())["format"] == 2


@pytest.mark.parametrize("is_done", [True, False])
def test_rename_begun_by_an_older_version_is_finished_or_forgotten(
    tmp_path: Path, is_done: bool
) -> None:
    old = OldLog(tmp_path)
    old.append(segment(1, 2, 0))
    old.write({"change": "begin_move", "id": "2", "location": OLD, "target": "new"})
    made = OLD.replace("/t@", "/u@") if is_done else "/warehouse/default.db/u@1800000000000"
    log = ObjectLog(LocalStore(), str(tmp_path), "me", renamed={"new": made}.get)
    id, name = (table_id_of_legacy(made), "new") if is_done else (table_id_of_legacy(OLD), NAME)
    for opened in (log, again(tmp_path)):
        assert [(t.table_id, t.name, t.acknowledged) for t in opened.tables()] == [(id, name, 2)]
        assert len(opened.read(id, 1, 2)) == 1
        assert opened.remembered(id, ["l:1"])


def test_invalid_unicode_stays_out_of_the_log(log: ObjectLog, tmp_path: Path) -> None:
    with pytest.raises(UnstorableError):
        log.append([Appended(PLACE, "t\udfff", segment(1, 1, 0), ())])
    append(log, 1)
    assert lsns(again(tmp_path)) == [1]


def test_append_with_a_gap_or_overlap_is_not_written(log: ObjectLog, tmp_path: Path) -> None:
    chain = append(log, 1)
    for first in (1, 3):
        with pytest.raises(
            StoreLostError, match=f"up to 1, so it can't continue with record {first}"
        ):
            append(log, first, count=2, chain=chain)
    newer = again(tmp_path)
    assert newer.damage == ""
    assert lsns(newer) == [1]


def test_written_but_unapplied_entry_is_read_again(
    log: ObjectLog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> bytes:
        raise KeyError("from elsewhere")

    class Full:
        def execute(self, *_: object) -> None:
            raise MemoryError

        in_transaction = False

    chain = append(log, 1)
    database = log._chain.database
    working = database._connection
    reads = database.read
    monkeypatch.setattr(database, "read", lambda *a: list(working.execute(a[0], a[1:])))
    database._connection = Full()  # type: ignore[assignment]
    with pytest.raises(StoreUnavailableError) as raised:
        append(log, 2, chain=chain)
    assert raised.value.unclear
    database._connection = working
    monkeypatch.setattr(database, "read", reads)
    entries = store.read
    store.read = broken  # type: ignore[method-assign]
    for lsn, unclear in ((3, False), (2, True)):
        with pytest.raises(StoreUnavailableError) as raised:
            append(log, lsn, chain=chain)
        assert raised.value.unclear == unclear
    assert lsns(log) == [1], "what was there before"
    store.read = entries  # type: ignore[method-assign]
    append(log, 2, chain=chain)
    assert lsns(log) == lsns(again(tmp_path)) == [1, 2]


def test_append_refused_by_the_store_changes_nothing(tmp_path: Path) -> None:
    class Filling(Store):
        is_full = False

        def create(self, path: str, content: bytes) -> bool:
            if self.is_full:
                raise SetupError("The disk is full.")
            return super().create(path, content)

    disk = Filling()
    log = ObjectLog(disk, str(tmp_path), "a test")
    disk.is_full = True
    with pytest.raises(StoreUnavailableError) as raised:
        append(log, 1)
    assert not raised.value.unclear
    disk.is_full = False
    append(log, 1)
    assert lsns(log) == [1]
    log.close()


def test_checkpoint_replaces_earlier_entries(
    log: ObjectLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ENTRIES_MAX", 10)
    chain = 0
    for lsn in range(1, 26):
        chain = append(log, lsn, chain=chain)
        if lsn == 12:
            published = chain
            log.publish(PLACE, 12, chain, 3)
    assert len(objects(tmp_path)) <= 10
    assert len(objects(tmp_path, "checkpoint")) == 1
    newer = again(tmp_path)
    assert newer.tables() == [LogTable(PLACE, NAME, 12, published, 25, snapshot_id=3)]
    assert lsns(newer, 12, published) == list(range(13, 26))
    assert newer.remembered(PLACE, ["l:1"])["l:1"].inserts == {-1: (1, b"d")}
    append(newer, 26, chain=chain)
    assert lsns(again(tmp_path), 12, published) == list(range(13, 27))


class TestDamage:
    @pytest.fixture
    def written(self, tmp_path: Path) -> list[Path]:
        log = again(tmp_path)
        chain = 0
        for lsn in range(1, 6):
            chain = append(log, lsn, chain=chain)
        fill(log, 2, place=OTHER)
        log.close()
        return objects(tmp_path)

    def found(self, folder: Path) -> dict[str, str]:
        """Why each table is closed, "" where it is not; never a wrong row."""
        log = again(folder)
        try:
            why = {}
            for table in log.tables():
                queue = recovered(log, table, Thresholds()).queue
                why[table.table_id] = queue.closed
                if not queue.closed:
                    records, _ = read_segments(
                        log.read(table.table_id, 1, 99), table.published, table.chain
                    )
                    assert [record.lsn for record in records] == list(
                        range(1, table.acknowledged + 1)
                    )
                    assert all(r.payload == f"row {r.lsn} ".encode() * 9 for r in records)
            return why
        finally:
            log.close()

    @pytest.mark.parametrize("number", range(1, 6))
    def test_missing_entry_closes_tables_until_the_loss_is_accepted(
        self, written: list[Path], tmp_path: Path, number: int
    ) -> None:
        written[number].unlink()
        for _ in range(2):  # also when it is started again
            actual = self.found(tmp_path)
            assert all(f"entry {number + 1} is missing" in why for why in actual.values())
            assert set(actual) == {PLACE, OTHER}
        log = again(tmp_path)
        log.accept_loss(PLACE, NAME, 9)
        log.close_table(OTHER, "")
        append(log, 10)
        log.close()
        log = again(tmp_path)
        assert [table.closed for table in log.tables()] == ["", ""]
        assert lsns(log, 9) == [10]
        # Of tables that only the lost entry spoke of nobody knows.
        assert "is missing" in log.damage

    def test_every_flipped_bit_is_noticed(self, written: list[Path], tmp_path: Path) -> None:
        whole = written[2].read_bytes()
        for place in range(0, len(whole), 7):
            changed = bytearray(whole)
            changed[place] ^= 1 << (place % 8)
            with pytest.raises(DamagedObjectError):
                open_entry(bytes(changed), 3)
        written[2].write_bytes(bytes(changed))
        actual = self.found(tmp_path)
        assert all("entry 3: its checksum is wrong" in why for why in actual.values())

    def test_every_cut_is_noticed(self, written: list[Path], tmp_path: Path) -> None:
        whole = written[-1].read_bytes()
        for length in range(len(whole)):
            with pytest.raises(DamagedObjectError):
                open_entry(whole[:length], len(written))
        written[-1].write_bytes(whole[:-1])
        assert all(self.found(tmp_path).values())

    def test_misplaced_entry_is_noticed(self, written: list[Path], tmp_path: Path) -> None:
        first, second = (path.read_bytes() for path in written[2:4])
        written[2].write_bytes(second)
        written[3].write_bytes(first)
        assert all("entry 3: it is number 4" in why for why in self.found(tmp_path).values())

    def test_a_damaged_checkpoint_is_noticed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_ENTRIES_MAX", 3)
        log = again(tmp_path)
        chain = append(log, 1)
        for lsn in range(2, 8):
            chain = append(log, lsn, chain=chain)
        log.close()
        (checkpoint,) = objects(tmp_path, "checkpoint")
        whole = bytearray(checkpoint.read_bytes())
        whole[len(whole) // 2] ^= 4
        checkpoint.write_bytes(whole)
        log = again(tmp_path)
        assert "checkpoint" in log.damage
        assert all(table.closed for table in log.tables())
        with pytest.raises(DamagedError):
            read_segments(log.read(PLACE, 1, 99), 0, 0)

    def test_log_without_its_identity_is_not_opened(
        self, written: list[Path], tmp_path: Path
    ) -> None:
        (tmp_path / ".paimon-magics" / "log" / "identity.json").unlink()
        with pytest.raises(StoreLostError, match="the file with its id"):
            again(tmp_path)


def test_flipped_bits_in_a_checkpoint_are_noticed() -> None:
    content = seal_checkpoint(Checkpoint(7, 8, b"image" * 50))
    assert open_checkpoint(content, 7) == Checkpoint(7, 8, b"image" * 50)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 16
        with pytest.raises(DamagedObjectError):
            open_checkpoint(bytes(changed), 7)


def test_opened_entry_equals_the_sealed_entry() -> None:
    content, check = seal_entry(3, 9, {"change": "x", "n": [1]}, [b"", b"abc"])
    entry = open_entry(content, 3)
    assert (entry.before, entry.check, entry.document) == (9, check, {"change": "x", "n": [1]})
    assert entry.parts == (b"", b"abc")
    with pytest.raises(DamagedObjectError, match="it is number 3"):
        open_entry(content, 4)
