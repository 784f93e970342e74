"""The check of a warehouse's store when a session connects, before any job needs the store.

`probe_store` tries the operations that everything else relies on: it lists the warehouse, creates a
small object, reads it back and removes it. An error names the missing or wrong option and its
correct value. A read-only store is not a failure. The check takes a few seconds at most, whatever
the store does.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from paimon_magics.errors import PaimonMagicsError, SetupError, UnsupportedStatementError
from paimon_magics.redaction import masked
from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.s3_access import s3_access
from paimon_magics.tables.stores.s3_diagnosis import (
    check_access,
    diagnosis,
    is_refusal_to_write,
    no_store,
)
from paimon_magics.tables.stores.short_keys import KeySource
from paimon_magics.tables.stores.store import (
    GCS_SCHEMES,
    OBJECT_SCHEMES,
    OSS_SCHEMES,
    S3_SCHEMES,
    LocalStore,
    Store,
    open_object_store,
    open_store,
)

_FOLDERS_MAX = 5_000
_NO_RIGHT = "its credentials have no write permission there"
_CONTENT = b"written to see whether it can be read"


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The result of a check of a store. `facts` are names and values for a person, without secrets.

    `is_new`: the warehouse does not exist yet, or is a local folder with other files and no
    database. `read_only` is the reason why it can't be written, "" if it can. `is_tried`: the check
    has written and read in the store. `notes` are sentences about it.
    """

    kind: str
    facts: tuple[tuple[str, str], ...] = ()
    is_new: bool = False
    read_only: str = ""
    is_remote: bool = True
    is_tried: bool = True
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts)
        return f"{self.kind}{': ' if facts else ''}{facts} ({self.tried})"

    @property
    def tried(self) -> str:
        """The result of the trial, in words."""
        if self.read_only:
            return f"read only: {self.read_only}"
        return "read and written" if self.is_tried else "not tried"


def probe_store(options: Mapping[str, str]) -> StoreReport:
    """Check the store that a catalog's options name. Raises SetupError if it can't be read."""
    warehouse = options.get("warehouse", "")
    if options.get("metastore", "filesystem") == "rest":
        # The server hands out the credentials of each table when the table is loaded.
        uri = masked("uri", options.get("uri", ""))
        return StoreReport("REST catalog", (("uri", uri),), is_tried=False)
    if local_path(warehouse) is not None:
        return _local(Path(local_path(warehouse) or ""))
    scheme = urlsplit(warehouse).scheme
    if KeySource.of(options) is not None:
        return StoreReport("S3", store_facts(options), is_tried=False)
    if scheme in S3_SCHEMES:
        return _s3(warehouse, options)
    if scheme in OBJECT_SCHEMES:
        return _object_store(scheme, warehouse, options)
    return _other(scheme, warehouse, options)


def keys_of_store(options: Mapping[str, str]) -> str:
    """Whose keys of the store these options use, and what binds who holds them, in words."""
    warehouse = options.get("warehouse", "")
    scheme = urlsplit(warehouse).scheme
    if KeySource.of(options) is not None:
        return "from the coordinator, for minutes: they are limited to what you may read and write"
    if options.get("metastore") == "rest":
        return "from the catalog's server, or this session's own"
    if scheme in OBJECT_SCHEMES:
        return "this session's own: rights at a coordinator don't bind who holds them"
    return "none: rights at a coordinator don't bind who may open the files"


def _local(folder: Path) -> StoreReport:
    if not folder.is_dir():  # the first table makes it
        _check_can_be_created(folder)
        return StoreReport("local disk", is_new=True, is_remote=False, is_tried=False)
    names = [path.name for path in folder.iterdir()]
    is_new = bool(names) and not any(name.endswith(".db") for name in names)
    path = f"{folder}/.paimon-magics-{uuid.uuid4().hex}"
    store, read_only = LocalStore(), ""
    try:
        if not store.create(path, _CONTENT) or store.read(path) != _CONTENT:
            read_only = "a file that was written there could not be read back"
    except (PaimonMagicsError, OSError) as error:
        read_only = error.message if isinstance(error, PaimonMagicsError) else str(error)
    finally:
        with contextlib.suppress(OSError):
            store.delete([path])
    return StoreReport("local disk", is_new=is_new, read_only=read_only, is_remote=False)


@dataclass(frozen=True, slots=True)
class TableFolders:
    """The folders of a local warehouse's tables, and the folders in these: how many were looked at,
    which of them this account may not write, and whether some were left out."""

    looked_at: int
    refused: tuple[str, ...]
    left_out: bool


def folders_below(warehouse: str) -> TableFolders:
    """Look at the rights of a local warehouse's folders of tables, by their modes."""
    root = local_path(warehouse)
    folders = [] if root is None else list(islice(_table_folders(root), _FOLDERS_MAX + 1))
    looked_at = folders[:_FOLDERS_MAX]
    refused = tuple(each for each in looked_at if not os.access(each, os.W_OK | os.X_OK))
    return TableFolders(len(looked_at), refused, len(folders) > _FOLDERS_MAX)


def _table_folders(root: str) -> Iterator[str]:
    for database in sorted(Path(root).glob("*.db")):
        for table in _folders_in(database):
            yield str(table)
            yield from map(str, _folders_in(table))


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:  # no right to look, or gone meanwhile
        return []


def _check_can_be_created(folder: Path) -> None:
    """Raise SetupError for a folder that can't be made: one above it is made, and removed again."""
    missing = folder
    while not missing.parent.exists():
        missing = missing.parent
    try:
        missing.mkdir()
        with contextlib.suppress(OSError):  # another process has used it meanwhile
            missing.rmdir()
    except OSError as error:
        if missing.is_dir():  # another process has created it meanwhile
            return
        raise SetupError(
            f"The warehouse {folder} does not exist and can't be created: {error.strerror}.",
            hint="Name an existing folder, or a new folder below a folder that you can write to.",
        ) from error


def _s3(warehouse: str, options: Mapping[str, str]) -> StoreReport:
    access = s3_access(options)
    check_access(warehouse, access)
    store = open_object_store(warehouse, options, is_impatient=True)
    try:
        is_new = not store.has_folder(warehouse)
    except SetupError as error:
        raise diagnosis(warehouse, access, error) from error
    try:
        read_only = _write_obstacle(store)
    except PaimonMagicsError as error:
        raise diagnosis(warehouse, access, error) from error
    if read_only not in ("", _NO_RIGHT) and not _reads_back(store, warehouse):
        raise no_store(warehouse, access)
    return StoreReport("S3", store_facts(options), is_new, read_only)


def _write_obstacle(store: Store) -> str:
    """The reason why a store can't be written, "" if it can. Raises unrelated errors."""
    try:
        store.check()
    except UnsupportedStatementError as error:
        return error.message
    except PaimonMagicsError as error:
        if not is_refusal_to_write(error):
            raise
        return _NO_RIGHT
    return ""


def _object_store(scheme: str, warehouse: str, options: Mapping[str, str]) -> StoreReport:
    kinds = {GCS_SCHEMES: "Google Cloud Storage", OSS_SCHEMES: "OSS"}
    kind = next((kinds[kind] for kind in kinds if scheme in kind), "Azure Blob Storage")
    store = open_object_store(warehouse, options, is_impatient=True)
    facts = store_facts(options)
    try:
        is_new = not store.has_folder(warehouse)
    except SetupError as error:
        reached = ", ".join(f"{name} {value}" for name, value in facts)
        raise type(error)(
            f"The warehouse {warehouse} can't be used: {error.message}. It was reached by: "
            f"{reached}.",
            hint="Check the network, that the bucket or container exists, and that the credentials "
            "have permission to list, read and write it. docs/stores.md has the options.",
        ) from error
    return StoreReport(kind, facts, is_new, _write_obstacle(store))


def endpoint_of(options: Mapping[str, str]) -> str | None:
    """The address of the store that a catalog's options name; None for the store's own."""
    warehouse = options.get("warehouse", "")
    if urlsplit(warehouse).scheme not in OBJECT_SCHEMES:
        return None
    endpoint: str | None = open_object_store(warehouse, options).access.endpoint
    return endpoint


def _reads_back(store: ObjectStore, warehouse: str) -> bool:
    """Whether an object that was written can be read: a server that accepts every request may not
    be a store."""
    path = f"{warehouse.rstrip('/')}/.paimon-magics-{uuid.uuid4().hex}"
    try:
        store.write(path, _CONTENT)
        return store.read(path) == _CONTENT
    except PaimonMagicsError:
        return False
    finally:
        with contextlib.suppress(PaimonMagicsError):
            store.delete([path])


def store_facts(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """How a bucket is reached, for a person: names and values, without secrets; () for a warehouse
    that is in no object store."""
    warehouse = options.get("warehouse", "")
    scheme = urlsplit(warehouse).scheme
    if scheme not in OBJECT_SCHEMES:
        return ()
    if scheme not in S3_SCHEMES:
        facts: tuple[tuple[str, str], ...] = open_object_store(warehouse, options).access.facts()
        return facts
    access = s3_access(options)
    if access.keys is not None:
        return (("endpoint", access.endpoint or "AWS"), ("region", access.region or "?"))
    key = access.access_key or os.environ.get("AWS_ACCESS_KEY_ID", "")
    where = "" if access.access_key else " (environment)"
    shown = masked("access-key", key) + where if key else "of the machine's role"
    return (
        ("endpoint", access.endpoint or "AWS"),
        ("region", access.region or "?"),
        ("addressing", "path style" if access.path_style else "virtual hosts"),
        ("access key", shown),
        *((("session token", "***"),) if access.session_token else ()),
    )


def _other(scheme: str, warehouse: str, options: Mapping[str, str]) -> StoreReport:
    read_only = _write_obstacle(open_store(warehouse, options))
    return StoreReport(scheme, (("host", urlsplit(warehouse).netloc),), read_only=read_only)
