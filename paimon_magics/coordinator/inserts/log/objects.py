"""The log as objects in the warehouse's own store, created one after the other if they are absent.

See `logs.Log` for what it promises, `object_codec` for the form of the objects. What they say
together is kept in memory, as the same database that other logs are on a disk; it is written as a
checkpoint now and then, and what the checkpoint stands for goes.

Whoever opens the log creates its next entry. From then on nobody else can: an owner that was
replaced finds its next number taken, and stops before anything is acknowledged.

If the process dies while it writes an entry, that is there or not; one whose creation got no clear
answer is asked for again before anything else is written. Of an entry that is missing or damaged it
is not known whose records it had: then every table of the log stays closed until an administrator
has looked at it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from paimon_magics.coordinator.inserts.log.changes import (
    append_document,
    apply,
    letters_document,
    replay,
)
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.interface import (
    Appended,
    DeadLetter,
    LogTable,
    Remembered,
    StoredFlush,
)
from paimon_magics.coordinator.inserts.log.object_codec import (
    Checkpoint,
    DamagedObjectError,
    open_checkpoint,
    open_entry,
    seal_checkpoint,
    seal_entry,
)
from paimon_magics.coordinator.store.database import Change, StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.store.sqlite import MemoryDatabase
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import Store

__all__ = ["ObjectLog"]

_FOLDER = ".paimon-magics/log"
_FORMAT = 1
_ENTRIES_MAX = 1_024
"""So many entries are read at a start at most, unless checkpoints are large beside them."""

_ENTRIES_MAX_LARGE = 16_384
_READERS = 16
_OPENINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class _Change:
    document: Mapping[str, Any]
    parts: tuple[bytes, ...]


class ObjectLog:
    """A `Log` in a store. `who` is told to the owner that it is taken from."""

    def __init__(self, store: Store, warehouse: str, who: str) -> None:
        self._store = store
        self._folder = f"{warehouse.rstrip('/')}/{_FOLDER}"
        self._who = who
        self.name = self._folder
        self._turn = threading.RLock()
        self._number = self._check = 0
        self._unclear: _Change | None = None
        self._settled: _Change | None = None
        self._entries = self._entry_bytes = self._image_bytes = 0
        self.damage = ""
        self._store.make_folder(self._folder)
        self.id = self._identity()
        self._database = MemoryDatabase(self.name)
        self._inner = DatabaseLog(self._database)
        self._open()

    # ---- see `Log` ----

    def append(self, groups: Sequence[Appended]) -> None:
        """See `Log.append`."""
        self._write(append_document(groups), [group.segment.body for group in groups])

    def begin_flush(self, location: str, flush: StoredFlush, dead: Sequence[DeadLetter]) -> None:
        """See `Log.begin_flush`."""
        self._write(
            {
                "change": "begin_flush",
                "location": location,
                "flush": asdict(flush),
                "dead": letters_document(dead),
            },
            [one.body for one in dead],
        )

    def drop_flush(self, location: str, first: int, last: int) -> None:
        """See `Log.drop_flush`."""
        self._write({"change": "drop_flush", "location": location, "first": first, "last": last})

    def publish(
        self,
        location: str,
        last: int,
        chain: int,
        snapshot_id: int | None,
        dead: Sequence[DeadLetter] = (),
    ) -> None:
        """See `Log.publish`."""
        self._write(
            {
                "change": "publish",
                "location": location,
                "last": last,
                "chain": chain,
                "snapshot_id": snapshot_id,
                "dead": letters_document(dead),
            },
            [one.body for one in dead],
        )

    def close_table(self, location: str, why: str) -> None:
        """See `Log.close_table`."""
        self._write({"change": "close_table", "location": location, "why": why})

    def accept_loss(self, location: str, name: str, published: int) -> None:
        """See `Log.accept_loss`."""
        self._write(
            {
                "change": "accept_loss",
                "location": location,
                "name": name,
                "published": published,
            }
        )

    def begin_move(self, location: str, target: str) -> None:
        """See `Log.begin_move`."""
        # Each is one of its own: who was told that it failed does not ask for the same again.
        id = uuid.uuid4().hex
        self._write({"change": "begin_move", "id": id, "location": location, "target": target})

    def move_table(self, location: str, to_location: str, name: str) -> None:
        """See `Log.move_table`."""
        self._write(
            {
                "change": "move_table",
                "location": location,
                "to_location": to_location,
                "name": name,
            }
        )

    def drop_table(self, location: str) -> None:
        """See `Log.drop_table`."""
        self._write({"change": "drop_table", "location": location})

    def drop_dead_letter(self, location: str, lsn: int) -> None:
        """See `Log.drop_dead_letter`."""
        self._write({"change": "drop_dead_letter", "location": location, "lsn": lsn})

    def forget(self, before_ms: int) -> None:
        """See `Log.forget`."""
        found = self._database.read("SELECT 1 FROM log_keys WHERE at_ms < ? LIMIT 1", before_ms)
        if found:
            self._write({"change": "forget", "before_ms": before_ms})

    def tables(self) -> list[LogTable]:
        """See `Log.tables`."""
        return self._inner.tables()

    def read(self, location: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """See `Log.read`."""
        return self._inner.read(location, first, last)

    def remembered(self, location: str, keys: Sequence[str]) -> dict[str, Remembered]:
        """See `Log.remembered`."""
        return self._inner.remembered(location, keys)

    def dead_letters(self, location: str | None = None) -> list[DeadLetter]:
        """See `Log.dead_letters`."""
        return self._inner.dead_letters(location)

    def close(self) -> None:
        """See `Log.close`."""
        self._inner.close()

    # ---- writing ----

    def _write(self, document: Mapping[str, Any], parts: Sequence[bytes] = ()) -> None:
        change = _Change(document, tuple(parts))
        with self._turn:
            before = self._unclear
            if before is not None:
                self._create(before)
                self._settled = None if before == change else before
                if before == change:
                    return
            if self._settled == change:  # it was written before another's change
                self._settled = None
                return
            self._create(change)
            self._tidy()

    def _create(self, change: _Change) -> None:
        """Create the next entry, and do what it says."""
        number = self._number + 1
        path = self._path(number)
        content, check = seal_entry(number, self._check, change.document, change.parts)
        try:
            if not self._store.create(path, content) and self._store.read(path) != content:
                raise StoreLostError(
                    f"Another coordinator has written to the log {self.name}.",
                    hint="Only one of them may own the warehouse; this one stops.",
                )
        except StoreLostError:
            raise
        except SetupError as error:
            raise StoreUnavailableError(
                f"The log {self.name} can't be written: {error.message}",
                hint=error.hint,
                unclear=self._unclear is not None,
            ) from error
        except OSError as error:
            self._unclear = change
            raise StoreUnavailableError(
                f"The log {self.name} gave no clear answer: {error}",
                hint="It is asked again.",
                unclear=True,
            ) from error
        self._unclear = None
        apply(self._inner, change.document, change.parts)
        self._number, self._check = number, check
        self._entries += 1
        self._entry_bytes += len(content)

    def _tidy(self) -> None:
        """Write a checkpoint when that costs little beside what was written since the last."""
        if self._entries < _ENTRIES_MAX:
            return
        if self._entry_bytes * 4 < self._image_bytes and self._entries < _ENTRIES_MAX_LARGE:
            return
        try:
            self._write_checkpoint()
        except (SetupError, OSError):  # the entries are there: it can wait
            self._entries = 0

    def _write_checkpoint(self, *, keeping_all: bool = False) -> None:
        """Write a checkpoint, and remove what it stands for."""
        image = self._database.image()
        number = self._number
        content = seal_checkpoint(Checkpoint(number, self._check, image))
        self._store.create(self._checkpoint_path(number), content)
        self._entries, self._entry_bytes, self._image_bytes = 0, 0, len(content)
        if keeping_all:
            return
        entries, checkpoints = self._listed()
        old = [self._path(one) for one in entries if one <= number]
        old += [self._checkpoint_path(one) for one in checkpoints if one < number]
        self._store.delete(old)

    # ---- opening ----

    def _open(self) -> None:
        is_whole = self._recover()
        for _ in range(_OPENINGS_MAX):
            document = {"change": "open", "who": self._who, "id": uuid.uuid4().hex}
            try:
                self._write(document)
            except StoreLostError:  # its owner has written meanwhile: read that, too
                is_whole = self._recover()
                continue
            if not is_whole:
                for table in self.tables():
                    self.close_table(table.location, table.closed or self.damage)
                # Told once: what is missing now is missing for good. What is damaged stays for who
                # wants to look at it, until the checkpoint after this one.
                self._write_checkpoint(keeping_all=True)
            return
        raise SetupError(
            f"The log {self.name} is being written by another coordinator.",
            hint="Stop that one first.",
        )

    def _recover(self) -> bool:
        """Read all that is there, and make of it what it says; whether nothing is missing."""
        entries, checkpoints = self._listed()
        troubles = []
        begin = Checkpoint(0, 0, b"")
        for number in sorted(checkpoints, reverse=True):
            content = self._store.read(self._checkpoint_path(number)) or b""
            try:
                begin = open_checkpoint(content, number)
                break
            except DamagedObjectError as error:
                troubles.append(f"checkpoint {number}: {error}")
        self._database = MemoryDatabase(self.name, begin.image or None)
        self._inner = DatabaseLog(self._database)
        self._database.write([Change("CREATE TABLE IF NOT EXISTS log_damage (why TEXT NOT NULL)")])
        numbers = sorted(number for number in entries if number > begin.number)
        last = numbers[-1] if numbers else begin.number
        check, expected = begin.check, begin.number + 1
        with ThreadPoolExecutor(_READERS) as pool:
            contents = pool.map(lambda one: self._store.read(self._path(one)) or b"", numbers)
            for number, content in zip(numbers, contents, strict=True):
                if number > expected:
                    troubles.append(f"entry {expected} is missing")
                    check = -1
                expected = number + 1
                try:
                    entry = open_entry(content, number)
                    if check not in (-1, entry.before):
                        troubles.append(f"entry {number} does not follow the one before")
                    check = entry.check
                    replay(self._inner, entry)
                except DamagedObjectError as error:
                    troubles.append(f"entry {number}: {error}")
                    check = -1
                self._entries += 1
                self._entry_bytes += len(content)
        self._number, self._check = last, max(check, 0)
        self._image_bytes = len(begin.image)
        if troubles:
            self._database.write([Change("DELETE FROM log_damage")])
            why = f"The log {self.name} is damaged: {', '.join(troubles[:3])}"
            self._database.write([Change("INSERT INTO log_damage VALUES (?)", (why,))])
        found = self._database.read("SELECT why FROM log_damage")
        self.damage = str(found[0][0]) if found else ""
        return not troubles

    def _identity(self) -> str:
        path = f"{self._folder}/identity.json"
        content = self._store.read(path)
        if content is None:
            if self._listed() != ([], []):
                raise StoreLostError(
                    f"The log {self.name} has lost the file that says which log it is.",
                    hint=f"Restore {path}, or remove the whole folder and accept what is lost.",
                )
            document = json.dumps({"format": _FORMAT, "id": uuid.uuid4().hex}).encode()
            self._store.create(path, document)
            content = self._store.read(path)
        try:
            found = json.loads(content or b"")
            format, id = found["format"], str(found["id"])
        except (ValueError, KeyError, TypeError):
            format, id = None, ""
        if format != _FORMAT:
            raise StoreLostError(
                f"The log {self.name} has another format than this version's.",
                hint="Start the version of paimon-magics that wrote it.",
            )
        return id

    def _listed(self) -> tuple[list[int], list[int]]:
        """The numbers of entries and of checkpoints that are there."""
        found: dict[str, list[int]] = {"entry": [], "checkpoint": []}
        for name in self._store.names(self._folder):
            kind, _, number = name.partition("-")
            if kind in found and number.isdigit():
                found[kind].append(int(number))
        return found["entry"], found["checkpoint"]

    def _path(self, number: int) -> str:
        return f"{self._folder}/entry-{number:020d}"

    def _checkpoint_path(self, number: int) -> str:
        return f"{self._folder}/checkpoint-{number:020d}"
