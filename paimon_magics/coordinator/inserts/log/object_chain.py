"""The chain of a log's entries. Each entry is created only if it is absent, and names its
predecessor.

Their combined state is kept in memory (`inner`, in `database`), and written as a checkpoint now and
then.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.inserts.log.changes import apply, check, replay, replayed_id
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.object_codec import (
    Checkpoint,
    DamagedObjectError,
    open_checkpoint,
    open_entry,
    seal_checkpoint,
    seal_entry,
)
from paimon_magics.coordinator.protocol.json_text import storable_text
from paimon_magics.coordinator.store.database import (
    Change,
    StoreLostError,
    StoreUnavailableError,
    Turn,
    UnstorableError,
    check_warehouse,
)
from paimon_magics.coordinator.store.sqlite import MemoryDatabase
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.object_client import is_failure
from paimon_magics.tables.stores.store import Store

_ENTRIES_MAX = 1_024
"""Upper bound on the entries that a start must read, unless a checkpoint is large compared with
them.
"""

_ENTRIES_MAX_LARGE = 16_384
_OPENINGS_MAX = 20
_IDS_MAX = 16_384  # entries whose ids are remembered
_TURN_SECONDS = 60.0  # longer than the store is asked for one entry
_TABLES = (
    "CREATE TABLE IF NOT EXISTS log_damage (why TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS log_writes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
)

_FOLDER = ".paimon-magics/log"
_FORMAT = 2
_FORMATS_READ = (1, 2)  # 1 knew tables by their locations
_READERS = 16


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Change:
    id: str
    document: Mapping[str, Any]
    parts: tuple[bytes, ...]


class ObjectChain:
    """The chain in one folder. The constructor takes the chain over, with an entry that names the
    new owner, `who`. For any thread. `damage` describes lost entries, "" for none.
    """

    def __init__(self, folder: ObjectFolder, who: str) -> None:
        self._folder = folder
        self._who = who
        self._turn = Turn(f"The log {folder.name}")
        self._number = self._check = 0
        self._unclear: _Change | None = None  # it may be the entry after the last one
        self._behind: _Change | None = None  # the last entry, which the state in memory lacks
        self._entries = self._entry_bytes = self._image_bytes = 0
        self.damage = ""
        self.database = MemoryDatabase(folder.name)
        self.inner = DatabaseLog(self.database)
        self._open()

    def write(self, document: Mapping[str, Any], parts: Sequence[bytes] = (), id: str = "") -> None:
        """Make a change durable, and apply it; once, if it is repeated with its `id`. Raises the
        errors of `Log`'s methods."""
        change = _Change(id or uuid.uuid4().hex, document, tuple(parts))
        try:
            with self._turn.within(_TURN_SECONDS):
                if self._behind is not None:
                    self._catch_up()
                if self._unclear is not None:
                    self._create(self._unclear)
                if not _is_known(self.database, change.id):
                    check(self.inner, document)
                    self._create(change)
                    self._tidy()
        except StoreUnavailableError as error:
            unclear = {change.id for change in (self._unclear, self._behind) if change is not None}
            error.unclear = change.id in unclear
            raise

    def _create(self, change: _Change) -> None:
        """Create the next entry, and apply it."""
        number = self._number + 1
        try:
            document = {**change.document, "id": change.id}
            content, check = seal_entry(number, self._check, document, change.parts)
        except (UnicodeError, ValueError, TypeError) as error:
            raise UnstorableError(
                f"The log {self._folder.name} can't store the change: {error}"
            ) from error
        try:
            is_there = self._folder.create_entry(number, content)
        except SetupError as error:  # it was not created now
            raise StoreUnavailableError(
                f"The log {self._folder.name} can't be written: {error.message}", hint=error.hint
            ) from error
        except BaseException as error:
            self._unclear = change
            if not is_failure(error):
                raise
            raise StoreUnavailableError(
                f"The log {self._folder.name} gave no clear answer: {error}",
                hint="The coordinator repeats the request.",
            ) from error
        if not is_there:
            raise self._taken_over()
        self._unclear = None
        self._number, self._check = number, check
        self._entries += 1
        self._entry_bytes += len(content)
        try:
            apply(self.inner, change.document, change.parts)
            _remember(self.database, number, change.id)
        except BaseException as error:
            self._behind = change
            if not is_failure(error):
                raise
            raise StoreUnavailableError(
                f"The log {self._folder.name} can't be read further: {error}"
            ) from error

    def _catch_up(self) -> None:
        """Read the state again, after an entry was written but could not be applied."""
        number = self._number
        try:
            is_whole = self._recover()
        except Exception as error:
            raise StoreUnavailableError(
                f"The log {self._folder.name} can't be read: {error}",
                hint="The coordinator repeats the request.",
            ) from error
        if not is_whole:
            raise StoreLostError(self.damage)
        if self._number != number:
            raise self._taken_over()
        self._behind = None

    def _taken_over(self) -> StoreLostError:
        return StoreLostError(
            f"Another coordinator has written to the log {self._folder.name}.",
            hint="Only one coordinator may own the warehouse, so this coordinator stops.",
        )

    def _tidy(self) -> None:
        """Write a checkpoint when it costs little compared with the entries since the last one."""
        if self._entries < _ENTRIES_MAX:
            return
        if self._entry_bytes * 4 < self._image_bytes and self._entries < _ENTRIES_MAX_LARGE:
            return
        try:
            self._write_checkpoint()
        except Exception as error:  # it can wait, since the entries are there
            _log.warning("No checkpoint of %s was written: %r", self._folder.name, error)
            self._entries = 0

    def _write_checkpoint(self, *, keeping_all: bool = False) -> None:
        """Write a checkpoint, and (unless `keeping_all`) remove what it replaces."""
        image = self.database.image()
        number = self._number
        content = seal_checkpoint(Checkpoint(number, self._check, image))
        self._folder.create_checkpoint(number, content)
        self._entries, self._entry_bytes, self._image_bytes = 0, 0, len(content)
        if keeping_all:
            return
        self._folder.remove_until(number)

    # ---- opening ----

    def _open(self) -> None:
        is_whole = self._recover()
        for _ in range(_OPENINGS_MAX):
            try:
                self.write({"change": "open", "who": self._who})
            except StoreLostError:  # the owner before has written meanwhile: read that, too
                is_whole = self._recover()
                continue
            if not is_whole:
                for table in self.inner.tables():
                    why = table.closed or self.damage
                    self.write({"change": "close_table", "table_id": table.table_id, "why": why})
                # The tables are closed once: records that are missing now are missing for good.
                # Damaged objects stay for inspection until the next checkpoint.
                self._write_checkpoint(keeping_all=True)
            return
        raise SetupError(
            f"The log {self._folder.name} is being written by another coordinator.",
            hint="Stop that coordinator first.",
        )

    def _recover(self) -> bool:
        """Read the checkpoint and the entries, and apply them. Return whether all are whole."""
        entries, checkpoints = self._folder.listed()
        troubles = []
        begin = Checkpoint(0, 0, b"")
        for number in sorted(checkpoints, reverse=True):
            content = self._folder.checkpoint(number)
            try:
                begin = open_checkpoint(content, number)
                break
            except DamagedObjectError as error:
                troubles.append(f"checkpoint {number}: {error}")
        database = MemoryDatabase(self._folder.name, begin.image or None)
        inner = DatabaseLog(database)
        database.write([Change(statement) for statement in _TABLES])
        numbers = sorted(number for number in entries if number > begin.number)
        check, expected = begin.check, begin.number + 1
        entry_bytes = 0
        for number, content in self._folder.entries(numbers):
            if number > expected:
                troubles.append(f"entry {expected} is missing")
                check = -1
            expected = number + 1
            entry_bytes += len(content)
            try:
                entry = open_entry(content, number)
                if check not in (-1, entry.before):
                    troubles.append(f"entry {number} does not follow the previous entry")
                check = entry.check
                id = replayed_id(entry)
                if not _is_known(database, id):
                    replay(inner, entry)
                    _remember(database, number, id)
            except DamagedObjectError as error:
                troubles.append(f"entry {number}: {error}")
                check = -1
        if troubles:
            why = f"The log {self._folder.name} is damaged: {', '.join(troubles[:3])}"
            insertion = Change("INSERT INTO log_damage VALUES (?)", (storable_text(why),))
            database.write([Change("DELETE FROM log_damage"), insertion])
        damage = database.read("SELECT why FROM log_damage")
        self.damage = str(damage[0][0]) if damage else ""
        self.database, self.inner = database, inner
        self._number, self._check = numbers[-1] if numbers else begin.number, max(check, 0)
        self._entries, self._entry_bytes = len(numbers), entry_bytes
        self._image_bytes = len(begin.image)
        return not troubles


def _remember(database: MemoryDatabase, number: int, id: str) -> None:
    """Remember the id of an entry, so that no later one is carried out under it."""
    database.write(
        [
            Change("INSERT OR IGNORE INTO log_writes VALUES (?, ?)", (number, id)),
            Change("DELETE FROM log_writes WHERE number <= ?", (number - _IDS_MAX,)),
        ]
    )


def _is_known(database: MemoryDatabase, id: str) -> bool:
    return bool(database.read("SELECT 1 FROM log_writes WHERE id = ?", id))


# A log's folder in a store: numbered entries and checkpoints, and a file with the log's id.


class ObjectFolder:
    """Reads, creates and removes the log's objects. Raises the store's errors."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self._store = store
        self.name = self._folder = f"{warehouse.rstrip('/')}/{_FOLDER}"
        self._store.make_folder(self._folder)

    def identity(self, warehouse_id: str = "") -> str:
        """The log's id, which is created if there is none yet. It is bound to the warehouse with an
        id. Raises StoreLostError if entries exist without the file of the id, or it has another
        format, and SetupError if it belongs to another warehouse.
        """
        path = f"{self._folder}/identity.json"
        content = self._store.read(path)
        if content is None:
            if self.listed() != ([], []):
                raise StoreLostError(
                    f"The log {self.name} has lost the file with its id.",
                    hint=(
                        f"Restore {path}. Or remove the whole folder, which loses the rows that "
                        "wait in it."
                    ),
                )
            document = {"format": _FORMAT, "id": uuid.uuid4().hex, "warehouse_id": warehouse_id}
            self._store.create(path, json.dumps(document).encode())
            content = self._store.read(path)
        try:
            document = json.loads(content or b"")
            format, id = document["format"], str(document["id"])
            bound_id = str(document.get("warehouse_id", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            format, id, bound_id = None, "", ""
        if format not in _FORMATS_READ:
            raise StoreLostError(
                f"The log {self.name} has a different format from this version's.",
                hint="Start the version of paimon-magics that wrote it.",
            )
        apart = (
            "If this is a copy that is to be a warehouse of its own, remove the folder "
            f"{self.name} in it: the rows that wait there are the original's."
        )
        what = f"The log {self.name}"
        if check_warehouse(what, bound_id, warehouse_id, apart) or format != _FORMAT:
            # An older version, which can't read the following entries, then reports that.
            document = {"format": _FORMAT, "id": id, "warehouse_id": warehouse_id or bound_id}
            self._store.write(path, json.dumps(document).encode())
        return id

    def listed(self) -> tuple[list[int], list[int]]:
        """The numbers of the existing entries and checkpoints."""
        numbers: dict[str, list[int]] = {"entry": [], "checkpoint": []}
        for name in self._store.names(self._folder):
            kind, _, number = name.partition("-")
            if kind in numbers and number.isdigit():
                numbers[kind].append(int(number))
        return numbers["entry"], numbers["checkpoint"]

    def entries(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield entries by number; the content is empty for an entry that was removed meanwhile."""
        with ThreadPoolExecutor(_READERS) as pool:
            contents = pool.map(lambda number: self._store.read(self._path(number)) or b"", numbers)
            yield from zip(numbers, contents, strict=True)

    def create_entry(self, number: int, content: bytes) -> bool:
        """Create an entry. Return whether it exists with this content. Raises SetupError if it was
        certainly not created now; after any other error it may exist.
        """
        path = self._path(number)
        if self._store.create(path, content):
            return True
        try:
            return self._store.read(path) == content
        except SetupError as error:  # it may be ours, created by a request without an answer
            raise OSError(error.message) from error

    def checkpoint(self, number: int) -> bytes:
        """A checkpoint's content; empty if it was removed meanwhile."""
        return self._store.read(self._checkpoint_path(number)) or b""

    def create_checkpoint(self, number: int, content: bytes) -> None:
        """Create a checkpoint, unless it exists."""
        self._store.create(self._checkpoint_path(number), content)

    def remove_until(self, number: int) -> None:
        """Remove the entries and checkpoints that the checkpoint of that number replaces."""
        entries, checkpoints = self.listed()
        old = [self._path(entry) for entry in entries if entry <= number]
        old += [
            self._checkpoint_path(checkpoint) for checkpoint in checkpoints if checkpoint < number
        ]
        self._store.delete(old)

    def _path(self, number: int) -> str:
        return f"{self._folder}/entry-{number:020d}"

    def _checkpoint_path(self, number: int) -> str:
        return f"{self._folder}/checkpoint-{number:020d}"
