"""The log after a power cut: of what was not synced any part may be there, torn or not at all."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from paimon_magics.coordinator.inserts.engine.recovery import recovered
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed
from paimon_magics.coordinator.inserts.log.log import Appended, stored_name
from paimon_magics.coordinator.inserts.log.records import Format, Record, read_segments, seal
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.statements.statement import TableName

PLACE = "/warehouse/default.db/t"
NAME = stored_name(TableName("t", "default"))
SECTOR = 512


@dataclass(frozen=True)
class Write:
    """What a process asked of a file: bytes at a place, or (`content` None) a new size."""

    path: str
    offset: int
    content: bytes | None


@dataclass(frozen=True)
class Sync:
    path: str


@dataclass(frozen=True)
class Delete:
    path: str


@dataclass(frozen=True)
class Acknowledged:
    """From here on somebody counts on these records, and on what is published."""

    last: int
    published: int


@dataclass
class Disk:
    """What was asked of it, in order, and what is on it for certain after each step."""

    events: list[Write | Sync | Delete | Acknowledged] = field(default_factory=list)

    def after(self, cut: int, chance: random.Random) -> tuple[dict[str, bytes], Acknowledged]:
        """The files as a power cut after so many events may leave them."""
        durable: dict[str, bytearray] = {}
        pending: dict[str, list[Write]] = {}
        promised = Acknowledged(0, 0)
        for event in self.events[:cut]:
            match event:
                case Write(path=path):
                    pending.setdefault(path, []).append(event)
                case Sync(path=path):
                    for write in pending.pop(path, []):
                        _carry_out(durable.setdefault(path, bytearray()), write)
                    durable.setdefault(path, bytearray())
                case Delete(path=path):
                    durable.pop(path, None)
                    pending.pop(path, None)
                case Acknowledged():
                    promised = event
        for path, writes in pending.items():
            content = durable.setdefault(path, bytearray())
            fate = chance.random()
            for write in writes:
                if fate < 0.3 or (fate < 0.8 and chance.random() < 0.5):
                    continue
                _carry_out(content, _torn(write, chance) if chance.random() < 0.3 else write)
        return {path: bytes(content) for path, content in durable.items()}, promised


def _torn(write: Write, chance: random.Random) -> Write:
    if write.content is None:
        return write
    length = chance.randrange(0, len(write.content) + 1)
    return Write(write.path, write.offset, write.content[: length // SECTOR * SECTOR or length])


def _carry_out(content: bytearray, write: Write) -> None:
    if write.content is None:
        del content[write.offset :]
        content.extend(b"\0" * (write.offset - len(content)))
        return
    end = write.offset + len(write.content)
    content.extend(b"\0" * (end - len(content)))
    content[write.offset : end] = write.content


class RecordingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, base: str, name: object, flags: list[int]) -> None:
        super().__init__(base, name, flags)  # type: ignore[arg-type]
        self._disk = disk
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.events.append(Write(self._path, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.events.append(Write(self._path, newsize, None))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.events.append(Sync(self._path))


class RecordingDisk(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("recording", self._base, makedefault=True)
        self._disk = disk

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.events.append(Delete(filename))

    def xOpen(self, name: object, flags: list[int]) -> RecordingFile:  # type: ignore[override]
        return RecordingFile(self._disk, self._base, name, flags)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """A log that was written by many groups, some of them loaded, with checkpoints in between."""
    recorded = Disk()
    recording = RecordingDisk(recorded)
    folder = tmp_path_factory.mktemp("recorded")
    try:
        database = SqliteDatabase(folder / "log.sqlite")
        log = DatabaseLog(database)
        database._connection.wal_autocheckpoint(12)
        chain = 0
        for lsn in range(1, 31):
            one = seal([record(lsn)], chain)
            chain = one.chain
            log.append([Appended(PLACE, NAME, one, (Keyed(f"l:{lsn}", -1, lsn, b"d"),))])
            published = lsn // 10 * 10
            recorded.events.append(Acknowledged(lsn, max(published - 10, 0)))
            if lsn % 10 == 0:
                log.publish(PLACE, lsn, chain, lsn)
                recorded.events.append(Acknowledged(lsn, lsn))
        log.close()
    finally:
        recording.unregister()
    return recorded


def record(lsn: int) -> Record:
    return Record(lsn, Format.JSON, 0, 1, 1_000, f"row {lsn} ".encode() * 40, f"l:{lsn}")


def test_power_cut_keeps_acknowledged_records_whole(disk: Disk, tmp_path: Path) -> None:
    chance = random.Random(20261122)
    writes = sum(isinstance(event, Write) for event in disk.events)
    assert writes > 200  # the model has seen what SQLite does
    checkpoints = {event.path for event in disk.events if isinstance(event, Sync)}
    assert len(checkpoints) >= 2  # the write-ahead log, and the database
    found_more = 0
    first = next(n for n, e in enumerate(disk.events) if isinstance(e, Acknowledged))
    for number, cut in enumerate(range(first, len(disk.events) + 1, 3)):
        files, promised = disk.after(cut, chance)
        folder = tmp_path / str(number)
        folder.mkdir()
        for path, content in files.items():
            (folder / Path(path).name).write_bytes(content)
        log = DatabaseLog(SqliteDatabase(folder / "log.sqlite"))
        (table,) = log.tables()
        queue = recovered(log, table, Thresholds()).queue
        assert not queue.closed, cut
        assert table.published >= promised.published, cut
        assert table.acknowledged >= promised.last, cut
        segments = log.read(PLACE, table.published + 1, table.acknowledged)
        records, _ = read_segments(segments, table.published, table.chain)
        expected = [record(lsn) for lsn in range(table.published + 1, table.acknowledged + 1)]
        assert records == expected, cut
        known = log.remembered(PLACE, [f"l:{lsn}" for lsn in range(1, 32)])
        assert set(known) == {f"l:{lsn}" for lsn in range(1, table.acknowledged + 1)}
        found_more += table.acknowledged > promised.last
        log.close()
    assert found_more  # what nobody was told of may be there, whole
