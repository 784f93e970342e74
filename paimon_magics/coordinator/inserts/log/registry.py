"""The log registry: for each table, a note in the warehouse names the log with its rows.

A log on a local disk can be lost with its machine, or be unreachable for the coordinator that takes
over. So a table's log is noted as open before its first row is acknowledged, and as clean when
nothing is left in it. A coordinator may find another log open, or its own log without records that
must be there. Then it knows that acknowledged rows are missing. It leaves the table closed until an
administrator accepts the loss, or the log comes back. The note is renewed while rows are
acknowledged. So a coordinator notices the loss of a log's last records, or a return to an old copy,
except for rows acknowledged since the last renewal.

A drop of a table with waiting rows is noted as well. If the drop fails, or the process dies, only
this note shows whether this drop removed the table and its rows.

If the process dies, the note stays open, as it should. Notes of older versions, which identified
tables by their locations, are rewritten when they are first read.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields

from paimon_magics.coordinator.inserts.log.log import Log
from paimon_magics.coordinator.protocol.json_text import dataclass_json
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.schema.history import table_id_of_legacy
from paimon_magics.tables.stores.store import Store, store_errors

_FOLDER = ".paimon-magics/logs"
_PREFIX = "table-"  # older versions had none
_DROP_PREFIX = "drop-"
_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Note:
    """The table's log: its id and name, who opened it, and the lsn after the last known
    acknowledged lsn. `is_open` while the log may hold records that are not in the table; those up
    to `published` are in it.
    """

    table_id: str
    log: str
    name: str
    who: str
    first: int
    is_open: bool
    published: int = 0


_MEMBERS = frozenset(member.name for member in fields(Note))  # a later version has others


class LogRegistry:
    """The notes of one coordinator, which must own the warehouse. Safe for several threads."""

    def __init__(self, store: Store, warehouse: str, log: str, name: str, who: str) -> None:
        self._store = store
        self._folder = f"{warehouse.rstrip('/')}/{_FOLDER}"
        self._log = log
        self._name = name
        self._who = who
        self._turn = threading.Lock()
        self._is_present = False  # no notes of older versions are left

    def note(self, table_id: str) -> Note | None:
        """The note of a table's log; None if it is missing or unreadable."""
        with store_errors(f"Reading the log registry, {self._folder},"):
            self._renew_old()
            content = self._store.read(self._path(table_id))
        return None if content is None else _note_of(content)

    def notes(self) -> list[Note]:
        """The notes of all tables that can be read."""
        with store_errors(f"Reading the log registry, {self._folder},"):
            self._renew_old()
            names = self._store.names(self._folder, _PREFIX)
            contents = [self._store.read(f"{self._folder}/{name}") for name in names]
        notes = [_note_of(content) for content in contents if content is not None]
        return [note for note in notes if note is not None]

    def missing(
        self,
        table_id: str,
        last_lsn: Callable[[], int],
        damage: str = "",
        *,
        published: Callable[[], int] = lambda: _ALL,
    ) -> str:
        """Why acknowledged rows of the table are missing in this log, which has given lsns up to
        `last_lsn()` and knows that those up to `published()` are in the table; both are called
        after the note was read. "" when none are missing. `damage` is the log's own, see
        `Log.damage`.
        """
        note = self.note(table_id)
        acknowledged = last_lsn()
        if note is None or note.table_id != table_id:
            return ""
        if note.log != self._log:
            if not note.is_open:
                return ""
            return (
                f"Acknowledged rows are in another log, {note.name}, which was opened by "
                f"{note.who} and is not empty"
            )
        if damage and note.is_open and not acknowledged:
            return damage
        if note.first > acknowledged + 1:
            return (
                f"The log {self._name} ends with record {acknowledged}, but record "
                f"{note.first - 1} was acknowledged"
            )
        if note.published > published():
            return (
                f"The log {self._name} would load records up to {note.published} again, which are "
                "in the table: the log was put back to an older state"
            )
        return ""

    def open(self, table_id: str, first: int, published: int) -> None:
        """Note that this log may hold records of the table, that those before `first` were
        acknowledged, and that those up to `published` are in the table."""
        self._write(table_id, first, is_open=True, published=published)

    def clean(self, table_id: str, acknowledged: int) -> None:
        """Note that all records up to `acknowledged` are in the table."""
        self._write(table_id, acknowledged + 1, is_open=False, published=acknowledged)

    def check(self) -> None:
        """Raise SetupError if notes can't be read. This writes nothing: the warehouse may be
        gone."""
        with store_errors(f"Looking at the log registry, {self._folder},"):
            self._store.names(self._folder, f"{_PREFIX}none")

    def note_drop(self, table_id: str) -> None:
        """Note that a drop of a table begins. The note stays if the drop fails: the store may still
        carry out a drop whose answer was lost.
        """
        with store_errors(f"Writing to the log registry, {self._folder},"):
            self._store.make_folder(self._folder)
            self._store.write(self._drop_path(table_id), b"")

    def has_drop(self, table_id: str) -> bool:
        """Whether a drop of a table began, in this process or an earlier one."""
        with store_errors(f"Reading the log registry, {self._folder},"):
            return self._store.read(self._drop_path(table_id)) is not None

    def forget(self, table_id: str) -> None:
        """Remove the notes of a table that is gone and has nothing in the log. A failure does no
        harm: no other table has that identity.
        """
        with contextlib.suppress(PaimonMagicsError, OSError):
            self._store.delete([self._path(table_id), self._drop_path(table_id)])

    def _write(self, table_id: str, first: int, *, is_open: bool, published: int) -> None:
        note = Note(table_id, self._log, self._name, self._who, first, is_open, published)
        with store_errors(f"Writing to the log registry, {self._folder},"):
            self._renew_old()
            self._store.make_folder(self._folder)
            self._save(note)

    def _save(self, note: Note) -> None:
        self._store.write(self._path(note.table_id), dataclass_json(note).encode())

    def _path(self, table_id: str) -> str:
        return f"{self._folder}/{_PREFIX}{table_id}.json"

    def _drop_path(self, table_id: str) -> str:
        return f"{self._folder}/{_DROP_PREFIX}{table_id}"

    def _renew_old(self) -> None:
        with self._turn:
            if self._is_present:
                return
            for name in self._store.names(self._folder):
                path = f"{self._folder}/{name}"
                if name.startswith(_PREFIX) or not name.endswith(".json"):
                    continue
                old = _note_of(self._store.read(path) or b"")
                if old is not None:
                    if self._store.read(self._path(old.table_id)) is None:
                        self._save(old)
                    self._store.delete([path])
            self._is_present = True


def _note_of(content: bytes) -> Note | None:
    """The note in a file, also in an older version's file; None if it can't be read."""
    try:
        document = json.loads(content)
        if "location" in document:
            document["table_id"] = table_id_of_legacy(document.pop("location"))
        return Note(**{key: document[key] for key in document if key in _MEMBERS})
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class RegisteredLog:
    """A log, and the registry that notes in the warehouse which tables' records the log holds."""

    log: Log
    registry: LogRegistry
