"""The note that a moved warehouse leaves in its old place, `.paimon-magics/moved.json`.

It is written before anything is moved. From then on nobody may own the warehouse there, and who
looks for a table is told where it went.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from paimon_magics.columnar.time_zones import UTC, moment_text
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.stores.paths import local_path
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
    path = _path(warehouse)
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
    path = _path(warehouse)
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


def _path(warehouse: str) -> str:
    return f"{(local_path(warehouse) or warehouse).rstrip('/')}/{_NOTE}"
