"""A log's folder in a store: numbered entries and checkpoints, and a file with the log's id."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from paimon_magics.coordinator.store.database import StoreLostError, check_warehouse
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import Store

__all__ = ["ObjectFolder"]

_FOLDER = ".paimon-magics/log"
_FORMAT = 2
_FORMATS_READ = (1, 2)  # 1 knew tables by their locations
_READERS = 16


class ObjectFolder:
    """Reads, creates and removes the log's objects. Raises the store's errors."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self._store = store
        self.name = self._folder = f"{warehouse.rstrip('/')}/{_FOLDER}"
        self._store.make_folder(self._folder)

    def identity(self, warehouse_id: str = "") -> str:
        """The log's id, which is made if there is none yet; it is bound to the warehouse with an
        id. Raises StoreLostError if the file is missing beside entries, or has another format, and
        SetupError if it belongs to another warehouse."""
        path = f"{self._folder}/identity.json"
        content = self._store.read(path)
        if content is None:
            if self.listed() != ([], []):
                raise StoreLostError(
                    f"The log {self.name} has lost the file that says which log it is.",
                    hint=f"Restore {path}, or remove the whole folder and lose the rows that "
                    "wait in it.",
                )
            document = {"format": _FORMAT, "id": uuid.uuid4().hex, "warehouse_id": warehouse_id}
            self._store.create(path, json.dumps(document).encode())
            content = self._store.read(path)
        try:
            found = json.loads(content or b"")
            format, id = found["format"], str(found["id"])
            bound_id = str(found.get("warehouse_id", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            format, id, bound_id = None, "", ""
        if format not in _FORMATS_READ:
            raise StoreLostError(
                f"The log {self.name} has another format than this version's.",
                hint="Start the version of paimon-magics that wrote it.",
            )
        if check_warehouse(f"The log {self.name}", bound_id, warehouse_id) or format != _FORMAT:
            # An older version, which can't read what follows, then says so.
            document = {"format": _FORMAT, "id": id, "warehouse_id": warehouse_id or bound_id}
            self._store.write(path, json.dumps(document).encode())
        return id

    def listed(self) -> tuple[list[int], list[int]]:
        """The numbers of the existing entries and checkpoints."""
        found: dict[str, list[int]] = {"entry": [], "checkpoint": []}
        for name in self._store.names(self._folder):
            kind, _, number = name.partition("-")
            if kind in found and number.isdigit():
                found[kind].append(int(number))
        return found["entry"], found["checkpoint"]

    def entries(self, numbers: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield entries by number; the content is empty for one that was removed meanwhile."""
        with ThreadPoolExecutor(_READERS) as pool:
            contents = pool.map(lambda number: self._store.read(self._path(number)) or b"", numbers)
            yield from zip(numbers, contents, strict=True)

    def create_entry(self, number: int, content: bytes) -> bool:
        """Create an entry. Return whether it is there with this content. Raises SetupError if it
        certainly was not created now; after any other error it may have been."""
        path = self._path(number)
        if self._store.create(path, content):
            return True
        try:
            return self._store.read(path) == content
        except SetupError as error:  # it may be ours, created by a request without an answer
            raise OSError(error.message) from error

    def checkpoint(self, number: int) -> bytes:
        """A checkpoint's content; empty for one that was removed meanwhile."""
        return self._store.read(self._checkpoint_path(number)) or b""

    def create_checkpoint(self, number: int, content: bytes) -> None:
        """Create a checkpoint, unless it is there."""
        self._store.create(self._checkpoint_path(number), content)

    def remove_until(self, number: int) -> None:
        """Remove the entries and checkpoints that the checkpoint of that number replaces."""
        entries, checkpoints = self.listed()
        old = [self._path(one) for one in entries if one <= number]
        old += [self._checkpoint_path(one) for one in checkpoints if one < number]
        self._store.delete(old)

    def _path(self, number: int) -> str:
        return f"{self._folder}/entry-{number:020d}"

    def _checkpoint_path(self, number: int) -> str:
        return f"{self._folder}/checkpoint-{number:020d}"
