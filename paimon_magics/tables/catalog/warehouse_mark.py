"""The id of a warehouse: a UUID in a mark file, `<warehouse>/.paimon-magics/warehouse-id`.

The id identifies a warehouse however its location is spelled, mounted or moved. The mark records
the location at that time. This distinguishes a copy, whose original still exists, from a moved
warehouse. A copy gets its own id.

The mark is created only if it is absent, so concurrent processes get the same id. If the process
dies, the mark exists completely or not at all.

A moved warehouse leaves a note in its old place, `.paimon-magics/moved.json`. It is written before
anything is moved. From then on nobody may own the warehouse there, and who looks for a table is
told where it went.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from dataclasses import asdict, dataclass

from paimon_magics.columnar.time_zones import UTC, moment_text
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.tables.stores.paths import canonical_location, local_path
from paimon_magics.tables.stores.store import Stores

_NOTE = ".paimon-magics/moved.json"


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a warehouse with the id `warehouse_id` went, since when (in ms), and whether all of it
    is there."""

    to: str
    warehouse_id: str
    at_ms: int
    is_done: bool

    @property
    def text(self) -> str:
        """What happened, as a sentence's end."""
        at = moment_text(self.at_ms, UTC)
        return f"was moved to {self.to} at {at}" if self.is_done else f"is being moved to {self.to}"

    @property
    def hint(self) -> str:
        """What to do."""
        if self.is_done:
            return f"Use {self.to}: connect to it, or start the coordinator with --warehouse."
        return "Repeat the command `paimon-coordinator move`, which goes on where it was."


def moved(stores: Stores, warehouse: str) -> Moved | None:
    """The note of a warehouse that is not in this place any more; None if there is no readable
    one. Raises the store's errors."""
    path = _moved_note(warehouse)
    content = stores.of(path).read(path)
    if content is None:
        return None
    with contextlib.suppress(ValueError, KeyError, TypeError):
        document = json.loads(content)
        return Moved(
            str(document["to"]),
            str(document["warehouse_id"]),
            int(document["at_ms"]),
            document["is_done"] is True,
        )
    return None


def note_move(stores: Stores, warehouse: str, note: Moved) -> None:
    """Leave a note in a warehouse's place. Raises the store's errors."""
    path = _moved_note(warehouse)
    store = stores.of(path)
    store.make_folder(path.rpartition("/")[0])
    store.write(path, json.dumps(asdict(note)).encode())


def is_move_note(path: str) -> bool:
    """Whether a file is such a note."""
    return path.endswith(f"/{_NOTE}")


def move_hint(stores: Stores, warehouse: str) -> str:
    """What to tell about a warehouse where something is missing: that it was moved; else ""."""
    with contextlib.suppress(PaimonMagicsError, OSError):
        note = moved(stores, warehouse)
        if note is not None:
            return f"The warehouse {warehouse} {note.text}. {note.hint}"
    return ""


def _moved_note(warehouse: str) -> str:
    return f"{(local_path(warehouse) or warehouse).rstrip('/')}/{_NOTE}"


_WAREHOUSE_FOLDER = ".paimon-magics"
_WAREHOUSE_MARK = "warehouse-id"
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class _WarehouseMark:
    """A warehouse's id, and its canonical location when the mark was written; "" if an
    administrator wrote only the id."""

    id: str
    location: str


def read_warehouse_id(stores: Stores, warehouse: str) -> str | None:
    """The id of a warehouse; None if it has no mark. Writes no mark. Raises the store's errors, and
    SetupError where the warehouse was moved away."""
    mark, _ = _read(stores, warehouse)
    if mark is None:
        check_not_moved(stores, warehouse)
        return None
    original = _original(stores, warehouse, mark)
    return _id_of_copy(mark, warehouse) if original else mark.id


def check_not_moved(stores: Stores, warehouse: str) -> None:
    """Raise SetupError if a warehouse was moved to another place."""
    note = moved(stores, warehouse)
    if note is not None:
        raise SetupError(f"The warehouse {warehouse} {note.text}.", hint=note.hint)


def mark_moved(stores: Stores, warehouse: str, id: str) -> None:
    """Mark a warehouse that came to this place with its id."""
    mark = _WarehouseMark(id, canonical_location(warehouse))
    _mark(stores, warehouse, mark, replaces=True)


def unmark(stores: Stores, warehouse: str) -> None:
    """Remove the mark of a warehouse that has left this place."""
    path = _path(warehouse)
    stores.of(path).delete([path])


def id_of_mark(stores: Stores, warehouse: str) -> str | None:
    """The id in the mark of a warehouse, even if it is a copy; None without one."""
    mark, _ = _read(stores, warehouse)
    return None if mark is None else mark.id


def warehouse_id(stores: Stores, warehouse: str, adopt: str | None = None) -> str:
    """The id of a warehouse, which gets a mark if it has none. `adopt` is the id that the caller's
    own state belongs to: an unmarked warehouse gets it.

    Raises SetupError for a copy of the warehouse that `adopt` names while the original is there,
    and the store's errors.
    """
    mark, is_there = _read(stores, warehouse)
    location = canonical_location(warehouse)
    if mark is None:
        id = adopt or (uuid.uuid5(uuid.NAMESPACE_URL, location) if is_there else uuid.uuid4()).hex
        return _mark(stores, warehouse, _WarehouseMark(id, location), replaces=is_there)
    if mark.location == location:
        return mark.id
    original = _original(stores, warehouse, mark)
    if original and mark.id == adopt:
        raise SetupError(
            f"The warehouse {warehouse} is a copy of {original}, which still exists. The state of "
            f"this coordinator belongs to the original (id {mark.id}).",
            hint=f"Start the coordinator with {original}, or give the copy a state folder and a "
            f"store of its own. If the copy replaces {original}, remove {_path(original)} first.",
        )
    id = _id_of_copy(mark, warehouse) if original else mark.id
    return _mark(stores, warehouse, _WarehouseMark(id, location), replaces=True)


def _original(stores: Stores, warehouse: str, mark: _WarehouseMark) -> str:
    """The location of the original of this warehouse; "" if this warehouse is not a copy."""
    there = mark.location
    if there in ("", canonical_location(warehouse)):
        return ""
    try:
        other, _ = _read(stores, there)
    except (PaimonMagicsError, OSError):
        return ""  # it is unreachable from here, so they can't be confused here
    if other is None or other.id != mark.id:
        return ""
    with contextlib.suppress(PaimonMagicsError, OSError):  # who may not write takes it for a copy
        return "" if _is_same_place(stores, warehouse, there) else there
    return there


def _is_same_place(stores: Stores, warehouse: str, other: str) -> bool:
    """Whether two locations are the same place, tested by writing a file to one of them."""
    name = f"probe-{uuid.uuid4().hex}"
    path = _path(warehouse, name)
    store = stores.of(path)
    try:
        store.write(path, b"")
        return stores.of(other).read(_path(other, name)) is not None
    finally:
        with contextlib.suppress(PaimonMagicsError, OSError):
            store.delete([path])


def _id_of_copy(mark: _WarehouseMark, warehouse: str) -> str:
    """The id of a copy, the same for all processes that find the copy at the same time."""
    return uuid.uuid5(uuid.UUID(mark.id), canonical_location(warehouse)).hex


def _read(stores: Stores, warehouse: str) -> tuple[_WarehouseMark | None, bool]:
    """The mark of a warehouse, None if it can't be read; and whether a mark exists."""
    path = _path(warehouse)
    content = stores.of(path).read(path)
    if content is None:
        return None, False
    text = content.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        document = {"id": text, "location": ""} if _ID.fullmatch(text) else json.loads(text)
        mark = _WarehouseMark(str(document["id"]), str(document["location"]))
        if _ID.fullmatch(mark.id):
            return mark, True
    return None, True


def _mark(stores: Stores, warehouse: str, mark: _WarehouseMark, *, replaces: bool) -> str:
    path = _path(warehouse)
    content = json.dumps(asdict(mark)).encode()
    store = stores.of(path)
    if replaces:
        store.write(path, content)
        return mark.id
    store.make_folder(path.rpartition("/")[0])
    try:
        if stores.publish(path, content):
            return mark.id
    except OSError:
        if _read(stores, warehouse)[0] is None:  # unclear, but it was not created
            raise
    stored, _ = _read(stores, warehouse)
    return mark.id if stored is None else stored.id


def _path(warehouse: str, name: str = _WAREHOUSE_MARK) -> str:
    return f"{(local_path(warehouse) or warehouse).rstrip('/')}/{_WAREHOUSE_FOLDER}/{name}"
