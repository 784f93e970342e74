"""Takes the folders of dropped tables out of their names, and deletes them afterwards.

A table's name is free at once, however large its files are, and a new table under that name is
never deleted. `<warehouse>/.paimon-magics/dropped` holds everything that is still to be deleted:

- Where a store renames folders, the table's folder, under a new UUID. A record in it has the files
  that the table had elsewhere.
- Elsewhere a tombstone, `<hash of the location>-<UUID>.json`. It lists the table's files, and no
  others are deleted. Schemas go first: without them no engine sees a table. Then go the files whose
  names a new table would use again (snapshots, tags, …); a mark beside the tombstone, `….unnamed`,
  records that they are gone. Until then no table is created there.

A store deletes schemas one by one, and may fail between them: others then see a table of which a
part can't be read. So the tombstone keeps the contents of the schemas. As long as one schema
exists, the drop has not happened, and missing schemas are written again. At that point no other
file of the table is deleted, and files that others added in the meantime stay.

If the process dies, the next process that looks here completes the work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_magics.errors import CommitConflictError, PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.tables.stores.paths import canonical_location, local_path
from paimon_magics.tables.stores.store import Store, Stores
from paimon_magics.tables.table import ATTEMPTS_FOLDER, MARK_NAME

_log = logging.getLogger(__name__)
_FOLDER = ".paimon-magics/dropped"
_RECORD = ".paimon-magics-dropped"
_UNNAMED = ".unnamed"
_TOMBSTONE = ".json"
_SCHEMA = "schema/schema-"
_ENDED = "is_ended"
_OF_TABLE = re.compile(r"^[^/]+/schema/schema-\d+$")
# Folders of files that have unique names, so that no new table uses them again.
_UNIQUE = ("manifest", "index", "statistics")
_METADATA = ("schema", "snapshot", "changelog", "tag", "branch", "consumer")
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
# A drop whose names are not free after that long has died: it takes seconds.
_DEAD_AFTER_MS = 120_000


@dataclass(frozen=True, slots=True)
class Detached:
    """A dropped table, or a database's folder, whose files are still to be deleted.

    `label` is its former name for messages, and `location` its former folder; "" if the record
    can't be read. `path` is its folder now, or its tombstone. `outside` are files elsewhere. A
    database had no tables when it was dropped; a table created in the meantime is not deleted.
    """

    label: str
    location: str
    path: str
    is_moved: bool
    outside: tuple[str, ...] = ()
    is_database: bool = False


class DroppedFolders:
    """The dropped tables and databases of a warehouse that are still to be deleted. Raises the
    errors of its store."""

    def __init__(self, stores: Stores, warehouse: str) -> None:
        self._stores = stores
        self._folder = f"{(local_path(warehouse) or warehouse).rstrip('/')}/{_FOLDER}"

    def detach(
        self, label: str, location: str, outside: Sequence[str] = (), *, is_database: bool = False
    ) -> Detached | None:
        """Take a folder out of its name; None if there is none. Nothing is deleted yet."""
        location = (local_path(location) or location).rstrip("/")
        store = self._stores.of(location)
        detached = Detached(label, location, "", False, tuple(outside), is_database)
        if not store.renames_folders:
            return self._bury(store, detached)
        target = f"{self._folder}/{uuid.uuid4().hex}"
        store.make_folder(self._folder)
        try:
            _put_record(store, detached)
            store.move_folder(location, target)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("%s can't be moved, so its files are listed instead: %s", location, error)
            return self._bury(store, detached)
        reach("drop.detached")
        return replace(detached, path=target, is_moved=True)

    def delete_database(self, location: str) -> bool:
        """Delete the files in a database's folder that are there now; return False, and delete
        nothing, if it has a table. For a store that renames no folders."""
        location = (local_path(location) or location).rstrip("/")
        store = self._stores.of(location)
        names = _below(store, location)
        if any(_OF_TABLE.search(name) for name in names):
            return False
        _delete(store, location, names)
        if local_path(location) is not None:
            _remove_empty(store, location)
        return True

    def put_back(self, detached: Detached) -> bool:
        """Give a moved folder its name back; return False if it is taken. A table that could not
        be created there has left empty folders at most."""
        store = self._stores.of(detached.path)
        try:
            for folder in (f"{detached.location}/schema", detached.location):
                store.remove_if_empty(folder)
            store.move_folder(detached.path, detached.location)
            store.delete([f"{detached.location}/{_RECORD}"])
        except (PaimonMagicsError, OSError):
            return False
        return True

    def delete(self, detached: Detached) -> None:
        """Delete a detached table or database. The call can be repeated."""
        for path in detached.outside:
            self._stores.of(path).delete([path])
        store = self._stores.of(detached.path)
        if not detached.is_moved:
            self._delete_listed(store, detached)
        elif detached.is_database and self.has_tables(detached):
            _log.warning("%s is kept: a table was created in it during the drop", detached)
        else:
            store.delete_folder(detached.path)

    def has_tables(self, detached: Detached) -> bool:
        """Whether a moved database has tables."""
        store, path = self._stores.of(detached.path), detached.path
        return any(store.names(f"{path}/{name}/schema", "schema-") for name in store.folders(path))

    def left(self) -> list[Detached]:
        """The tables and databases that this process or a dead process detached but didn't
        delete."""
        store = self._stores.of(self._folder)
        left = []
        for name in store.folders(self._folder) if store.renames_folders else ():
            path = f"{self._folder}/{name}"
            record = _document(store.read(f"{path}/{_RECORD}"))
            left.append(_detached(record, path, is_moved=True))
        names = store.names(self._folder)
        for name in names:
            path = f"{self._folder}/{name}"
            if name.endswith(_TOMBSTONE):
                left.append(_detached(_document(store.read(path)), path, is_moved=False))
            elif name.removesuffix(_UNNAMED) + _TOMBSTONE not in names:
                store.delete([path])
        return left

    def is_settled(self, detached: Detached) -> bool:
        """Whether any process may delete the detached files: no live process is still detaching the
        name."""
        store = self._stores.of(detached.path)
        if detached.is_moved or store.read(_mark(detached)) is not None:
            return True
        return _is_dead(store, detached.path)

    def wait_for_name(self, label: str, location: str) -> None:
        """Return when no drop uses the names of a location's files any more; complete an
        interrupted drop. Raises CommitConflictError if that takes too long."""
        location = (local_path(location) or location).rstrip("/")
        store = self._stores.of(location)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := self._using_names(store, location):
            dead = [path for path in left if _is_dead(store, path)]
            for path in dead:
                self.delete(_detached(_document(store.read(path)), path, is_moved=False))
            if dead:
                continue
            if time.monotonic() > deadline:
                raise CommitConflictError(
                    f"`{label}` can't be created yet: a table of that name is being dropped.",
                    hint="Run the statement again. After an interrupted drop, the next CREATE "
                    f"completes it once {_DEAD_AFTER_MS // 60_000} minutes have passed.",
                )
            time.sleep(_PAUSE_SECONDS)

    def _using_names(self, store: Store, location: str) -> list[str]:
        names = store.names(self._folder, f"{_hash(location)}-")
        return [
            f"{self._folder}/{name}"
            for name in names
            if name.endswith(_TOMBSTONE) and name.removesuffix(_TOMBSTONE) + _UNNAMED not in names
        ]

    def _bury(self, store: Store, dropped: Detached) -> Detached | None:
        """Write the tombstone of a folder, with the files that are in it now."""
        names = _below(store, dropped.location)
        if not names:
            return None
        path = f"{self._folder}/{_hash(dropped.location)}-{uuid.uuid4().hex}{_TOMBSTONE}"
        schemas = {
            name: content
            for name in names
            if name.startswith(_SCHEMA)
            and (content := store.read(f"{dropped.location}/{name}")) is not None
        }
        store.make_folder(self._folder)
        store.write(path, _record(dropped, names, schemas))
        reach("drop.detached")
        detached = replace(dropped, path=path)
        try:
            _delete_schemas(store, detached, names)
        except Exception:  # of any type: a part of the schemas may be gone
            if _is_restored(store, detached, schemas):
                self._end(store, detached, names)
                raise
        if store.read(path) is None:  # this process stood still, and was taken for dead
            if _is_restored(store, detached, schemas):
                raise CommitConflictError(
                    f"`{dropped.label}` was not dropped: the drop took too long.",
                    hint="Run the statement again.",
                )
            if store.names(f"{dropped.location}/schema", "schema-"):  # of a new table
                return replace(detached, path="")
        self._free_names(store, detached, names)
        return detached

    def _end(self, store: Store, detached: Detached, files: Sequence[str]) -> None:
        """Remove the tombstone of a table that stays."""
        try:
            store.delete([detached.path])
        except Exception:  # a store may refuse deletions, and take this
            with contextlib.suppress(PaimonMagicsError, OSError):
                store.write(detached.path, _record(detached, files, is_ended=True))

    def _delete_listed(self, store: Store, detached: Detached) -> None:
        record = _document(store.read(detached.path))
        files = _files(record)
        mark = _mark(detached)
        if store.read(mark) is None:
            if record.get(_ENDED) or _is_restored(store, detached, _schemas(record), files):
                store.delete([detached.path])  # nothing was dropped: others use the table
                return
            self._free_names(store, detached, files)
        _delete(store, detached.location, [name for name in files if _is_unique(name)])
        if local_path(detached.location) is not None:
            _remove_empty(store, detached.location)
        store.delete([detached.path])
        store.delete([mark])

    def _free_names(self, store: Store, detached: Detached, files: Sequence[str]) -> None:
        """Delete the files that make a table visible, and the files whose names a new table would
        reuse."""
        location = detached.location
        _delete_schemas(store, detached, files)
        reach("drop.schema_removed")
        now = _below(store, location)
        if not any(name.startswith(_SCHEMA) for name in now):  # else it is a new table already
            files = sorted({*files, *now})
        _delete(store, location, [name for name in files if not _is_unique(name)])
        store.write(_mark(detached), b"")
        reach("drop.unnamed")


def _delete_schemas(store: Store, detached: Detached, files: Iterable[str]) -> None:
    """Delete the files that make a table visible, the newest last: readers of the others fail."""
    first = [name for name in files if name.startswith("schema/")]
    _delete(store, detached.location, sorted(first, key=_schema_order))


def _is_restored(
    store: Store, detached: Detached, schemas: Mapping[str, bytes], files: Iterable[str] = ()
) -> bool:
    """Whether a table that was to be dropped is still there; lost schemas are written again. A
    tombstone of an older version has `files` alone."""
    if not schemas:
        listed = {name for name in files if name.startswith(_SCHEMA)}
        return bool(listed) and listed <= set(_below(store, detached.location))
    stored = {name: store.read(f"{detached.location}/{name}") for name in schemas}
    present = {name: content for name, content in stored.items() if content is not None}
    # Other schemas of these names are those of a new table.
    if not present or any(schemas[name] != content for name, content in present.items()):
        return False
    for name, content in schemas.items():  # the oldest first
        if name not in present:
            store.write(f"{detached.location}/{name}", content)
    return True


def _put_record(store: Store, detached: Detached) -> None:
    """Write the record, and overwrite an existing record in any case. On a full disk a table
    without files elsewhere needs none."""
    path = f"{detached.location}/{_RECORD}"
    try:
        store.write(path, _record(detached))
    except FileNotFoundError:
        raise
    except OSError:
        if detached.outside or store.read(path) is not None:
            raise


def _is_dead(store: Store, path: str) -> bool:
    if _document(store.read(path)).get(_ENDED):
        return True
    modified_ms = store.modified_ms(path)
    return modified_ms is not None and time.time() * 1000 - modified_ms > _DEAD_AFTER_MS


def _files(record: Mapping[str, object]) -> list[str]:
    """The files that a tombstone lists."""
    files = record.get("files")
    return [str(name) for name in files] if isinstance(files, list) else []


def _schemas(record: Mapping[str, object]) -> dict[str, bytes]:
    """The schemas in a tombstone, by their names."""
    texts = record.get("schemas")
    if not isinstance(texts, dict):
        return {}
    return {str(name): str(text).encode(errors="surrogateescape") for name, text in texts.items()}


def _mark(detached: Detached) -> str:
    return detached.path.removesuffix(_TOMBSTONE) + _UNNAMED


def _below(store: Store, folder: str) -> list[str]:
    """The names of all files below a folder, relative to it."""
    start = len(folder) + 1
    return [path[start:] for path in store.files_below(folder)]


def _delete(store: Store, location: str, names: Iterable[str]) -> None:
    store.delete([f"{location}/{name}" for name in names])


def _is_unique(name: str) -> bool:
    """Whether no new table has a file of this name: data files, manifests and indexes."""
    first, slash, _ = name.partition("/")
    return first in _UNIQUE or (bool(slash) and first not in _METADATA)


def _schema_order(name: str) -> tuple[int, str]:
    """The newest schema last: engines write with it and must not write with an older schema."""
    number = name.rpartition("-")[2]
    return (int(number) if number.isdigit() else -1), name


def _remove_empty(store: Store, location: str) -> None:
    for folder, _, _ in os.walk(location, topdown=False):
        store.remove_if_empty(folder)


def _hash(location: str) -> str:
    text = canonical_location(location).encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest()[:16]


def _record(
    detached: Detached,
    files: Sequence[str] | None = None,
    schemas: Mapping[str, bytes] | None = None,
    *,
    is_ended: bool = False,
) -> bytes:
    record: dict[str, object] = {
        "label": detached.label,
        "location": detached.location,
        "outside": detached.outside,
        "is_database": detached.is_database,
    }
    if files is not None:
        texts = {n: c.decode(errors="surrogateescape") for n, c in (schemas or {}).items()}
        record |= {"files": files, "schemas": texts, _ENDED: is_ended}
    return json.dumps(record).encode()


def _document(content: bytes | None) -> dict[str, object]:
    with contextlib.suppress(ValueError):
        document = json.loads(content or b"{}")
        if isinstance(document, dict):
            return document
    return {}


def _detached(record: dict[str, object], path: str, *, is_moved: bool) -> Detached:
    outside = record.get("outside")
    texts = tuple(map(str, outside)) if isinstance(outside, list) else ()
    label, location = (str(record.get(key) or "") for key in ("label", "location"))
    return Detached(label, location, path, is_moved, texts, record.get("is_database") is True)


def remove_remains(store: Store, location: str) -> None:
    """Remove a folder with nothing in it but what was written beside the rename or drop of the
    table of that name: its id, and notes of earlier versions."""
    notes = f"{location}/{ATTEMPTS_FOLDER}"
    own = store.names(location)
    there = {*own, *store.folders(location)}
    if not there or there - {MARK_NAME, ATTEMPTS_FOLDER}:
        return
    names = store.names(notes)
    if not store.folders(notes) and all(name.endswith(".open") for name in names):
        store.delete(f"{notes}/{name}" for name in names)
        store.remove_if_empty(notes)
        store.delete(f"{location}/{name}" for name in own)
        store.remove_if_empty(location)
