"""Whether a store and a warehouse are those that were used together last.

A database that was put back to an older dump would bring revoked tokens back to life, and forget
what was acknowledged since; a warehouse that was put back, or copied, lacks rows of which the store
says that they are there. Both have the same ids as before. So each start of a coordinator draws a
mark, and notes it in both. Whenever rights are taken away, both count that. A start with a store or
a warehouse that lacks the other's last mark, or a store that lacks a count, is refused.

The mark is written to the store, then to the warehouse, and confirmed in the store. If the process
dies in between, the store has both marks, and the next start accepts either of them.

The warehouse has a note for each start, and the one of the latest start counts. So a process that
stood still, was succeeded and goes on in the middle of a write replaces no note but its own.
"""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum, auto

from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.coordinator.store.tables import UNFINISHED, PairTable, StorePair
from paimon_magics.errors import SetupError
from paimon_magics.faults import reach
from paimon_magics.tables.stores.store import Store, store_errors

_PREFIX = "store-"
_NEVER = "never"  # the mark of a warehouse that was not used with the store yet


@dataclass(frozen=True, slots=True)
class WarehousePair:
    """What a warehouse notes of one store: see `StorePair`. `who` started it."""

    store: str
    starts: int
    mark: str
    rights: int
    who: str = ""


_MEMBERS = frozenset(member.name for member in fields(WarehousePair))  # a later version has others


class Standing(Enum):
    """How a store and a warehouse stand to each other."""

    SAME = auto()
    STORE_OLDER = auto()
    WAREHOUSE_OLDER = auto()


def standing(stored: StorePair | None, noted: WarehousePair | None) -> Standing:
    """Compare what store and warehouse know of each other."""
    if stored is None:
        return Standing.SAME
    mark = _NEVER if noted is None else noted.mark
    if mark in (stored.mark, stored.prior):
        lacks_rights = noted is not None and noted.rights > stored.rights
        return Standing.STORE_OLDER if lacks_rights else Standing.SAME
    is_older = noted is None or noted.starts < stored.starts
    return Standing.WAREHOUSE_OLDER if is_older else Standing.STORE_OLDER


class Pairing:
    """The pair of one store and the warehouse that this process owns. `name` names the store in
    messages, `who` this process.
    """

    def __init__(
        self, files: Store, warehouse: str, table: PairTable, *, name: str, who: str
    ) -> None:
        self._files = files
        self._warehouse = warehouse
        self._table = table
        self._name = name
        self._who = who
        self._turn = threading.Lock()
        self._mark = ""
        self._rights = -1
        self.other_store = ""
        """Of a store that was new at this start: which other one the warehouse was used with."""

    def compared(self) -> tuple[Standing, StorePair | None, WarehousePair | None]:
        """How the two stand to each other, and what each of them notes."""
        stored = self._table.read()
        noted = None if stored is None else self._noted(stored.id)
        return standing(stored, noted), stored, noted

    def begin(self) -> None:
        """Draw a new mark. Raises SetupError if store and warehouse don't belong together."""
        verdict, stored, noted = self.compared()
        if stored is not None and stored.mark == UNFINISHED:
            raise SetupError(
                f"A restore of the store {self._name} has begun, and not ended.",
                hint="Repeat the command `paimon-coordinator restore`.",
            )
        if verdict is Standing.STORE_OLDER:
            assert stored is not None
            assert noted is not None
            raise SetupError(
                f"The store {self._name} is older than the warehouse {self._warehouse}: the store "
                f"has start {stored.starts} and {stored.rights} rights taken away, the warehouse "
                f"noted start {noted.starts} (by {noted.who}) and {noted.rights}. A backup was put "
                "back, or a copy of the store is in use.",
                hint="Start with the store that was used last. If that is lost, accept this one: "
                "`paimon-coordinator restore --in-place`. It ends tokens whose revocation may be "
                "missing, and says what else is.",
            )
        if verdict is Standing.WAREHOUSE_OLDER:
            raise SetupError(
                f"The warehouse {self._warehouse} is older than the store {self._name}: it was put "
                "back to an earlier state, or is a copy of a warehouse that was used since.",
                hint="Start with the warehouse that was used last. If that is lost, accept this "
                "one: `paimon-coordinator restore --in-place`. It says which tables lack rows.",
            )
        if stored is None:
            self.other_store = self._other_store()
        self._draw(stored, noted)

    def _other_store(self) -> str:
        others = _notes(self._files, self._warehouse).values()
        if not others:
            return ""
        other = max(others, key=lambda pair: pair.starts)
        return (
            f"The store {self._name} was new at this start, but the warehouse {self._warehouse} "
            f"was used with another one (start {other.starts}, by {other.who}). Tokens, grants, "
            "labels and waiting inserts are in that one: if it still exists, stop, correct --store "
            "or --state, and start again."
        )

    def accept(self) -> None:
        """Let the store and the warehouse belong together from now on."""
        _, stored, noted = self.compared()
        self._draw(stored, noted)

    def note_rights(self) -> None:
        """Note in the warehouse how often rights were taken away; after `begin` only for the start
        that it drew. Raises the store's errors."""
        with self._turn:
            stored = self._table.read()
            if stored is None or stored.rights == self._rights:
                return
            noted = self._noted(stored.id)
            if noted is not None and noted.mark == stored.mark == (self._mark or stored.mark):
                reach("rights.compared")
                self._write(replace(noted, rights=max(stored.rights, noted.rights)))
            self._rights = stored.rights

    def _draw(self, stored: StorePair | None, noted: WarehousePair | None) -> None:
        before = stored or StorePair(uuid.uuid4().hex, 0, "", "", 0)
        starts = max(before.starts, 0 if noted is None else noted.starts) + 1
        rights = max(before.rights, 0 if noted is None else noted.rights)
        prior = _NEVER if noted is None else noted.mark
        pair = StorePair(before.id, starts, uuid.uuid4().hex, prior, rights)
        with self._turn:
            self._table.save(pair)
            reach("pair.stored")
            self._write(WarehousePair(pair.id, starts, pair.mark, rights, self._who))
            reach("pair.noted")
            self._table.save(replace(pair, prior=""))
            self._mark, self._rights = pair.mark, rights
        self._remove_older(pair)

    def _remove_older(self, pair: StorePair) -> None:
        notes = _notes(self._files, self._warehouse, pair.id)
        older = [path for path, noted in notes.items() if noted.starts < pair.starts]
        with store_errors(f"Removing {', '.join(older)}"):
            self._files.delete(older)

    def _noted(self, id: str) -> WarehousePair | None:
        return warehouse_pair(self._files, self._warehouse, id)

    def _write(self, noted: WarehousePair) -> None:
        path = f"{_folder(self._warehouse)}/{_PREFIX}{noted.store}-{noted.starts}.json"
        with store_errors(f"Writing {path}"):
            self._files.make_folder(path.rpartition("/")[0])
            self._files.write(path, json.dumps(asdict(noted)).encode())


def warehouse_pair(files: Store, warehouse: str, id: str) -> WarehousePair | None:
    """What a warehouse notes of the latest start of the store with an id; None if it notes nothing.
    Raises the store's errors, and SetupError for a note that can't be read."""
    notes = _notes(files, warehouse, id).values()
    return max(notes, key=lambda noted: noted.starts, default=None)


def _notes(files: Store, warehouse: str, id: str = "") -> dict[str, WarehousePair]:
    """What a warehouse notes of the store with an id, or of all, by the notes' paths."""
    folder = _folder(warehouse)
    with store_errors(f"Reading {folder}"):
        paths = [f"{folder}/{name}" for name in files.names(folder, f"{_PREFIX}{id}")]
        contents = {path: files.read(path) for path in paths}
    return {path: _note(path, text) for path, text in contents.items() if text is not None}


def _note(path: str, content: bytes) -> WarehousePair:
    try:
        document = json.loads(content)
        return WarehousePair(**{key: document[key] for key in document if key in _MEMBERS})
    except (ValueError, TypeError) as error:
        raise SetupError(
            f"{path} can't be read: {error}.",
            hint="Remove it, then run `paimon-coordinator restore --in-place`.",
        ) from error


def _folder(warehouse: str) -> str:
    return f"{warehouse.rstrip('/')}/{FOLDER}"
