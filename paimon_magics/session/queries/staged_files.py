"""Files of an object store that Spark has no jars for: this process copies them beside Spark, with
the catalog's keys. A copy lives in a temporary folder as long as the connection.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from paimon_magics.errors import InvalidValueError, SetupError, UnknownNameError
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.connection import Connection
from paimon_magics.spark.sessions import runs_here
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, store_errors
from paimon_magics.temporary_folders import OwnedFolder

if TYPE_CHECKING:
    from paimon_magics.tables.stores.object_reader import ObjectReader
    from paimon_magics.tables.stores.object_store import ObjectStore

__all__ = ["staged"]

_PATTERN = re.compile(r"[*?\[{]")
_JARS = "Start Spark with the jars and keys of the store, as docs/stores.md shows"
_PART_BYTES = 8 << 20
_FREE_SHARE = 0.5
"""Of the free disk, copies take at most this share."""


def staged(connection: Connection, path: str) -> str:
    """Copy the object, or all objects of the folder, at `path`; return the `file:` URI of the copy.
    Adds a note.

    Raises UnknownNameError if there is nothing, SetupError if the store refuses, Spark runs on
    other machines, or it is no object store, InvalidValueError for a pattern and for more bytes
    than the disk can spare.
    """
    if path.partition("://")[0] not in OBJECT_SCHEMES or not runs_here(connection.spark):
        raise SetupError(f"Spark has no jar for the store of `{path}`.", hint=f"{_JARS}.")
    if _PATTERN.search(path):
        raise InvalidValueError(
            f"`{path}` is a pattern, and Spark has no jar for its store.",
            hint=f"Name one file or a folder, which is copied; or {_JARS[0].lower()}{_JARS[1:]}.",
        )
    store = cast("ObjectStore", connection.catalog.stores.of(path))
    with store_errors(f"Copying `{path}` to this machine"):
        objects = _objects(store, path)
        if not objects:
            raise UnknownNameError(f"There is no file or folder `{path}`.", hint="Check the path.")
        size_bytes = sum(reader.seek(0, io.SEEK_END) for reader in objects.values())
        owned = OwnedFolder("files")
        _check_disk(path, size_bytes, owned.path)
        root = owned.path / PurePosixPath(path).name
        count = len(objects)
        while objects:  # a reader keeps some of what it has read
            below, reader = objects.popitem()
            _copy(reader, root / below)
    connection.streams.append(owned)
    connection.tell(
        f"Spark has no jar for the store of `{path}`, so {count_text(count, 'file')} "
        f"({size_text(size_bytes)}) were copied to this machine."
    )
    return f"file://{root}"  # not escaped: Spark takes it as it is


def _objects(store: ObjectStore, path: str) -> dict[str, ObjectReader]:
    """Readers of the object at `path`, by "", or of all objects below it, by their paths there."""
    whole = path.rstrip("/")
    if not path.endswith("/"):
        with contextlib.suppress(FileNotFoundError):
            return {"": store.open(whole)}
    files = _shown(whole, store.files_below(whole))
    return {str(PurePosixPath(file).relative_to(whole)): store.open(file) for file in files}


def _shown(folder: str, files: list[str]) -> list[str]:
    """The files that Spark would read: none whose name or folder is hidden, as `_SUCCESS` is
    (`HadoopFSUtils.shouldFilterOutPathName`)."""
    return [
        file
        for file in files
        if not any(
            part.startswith(".") or (part.startswith("_") and "=" not in part)
            for part in file[len(folder) :].split("/")
        )
    ]


def _check_disk(path: str, size_bytes: int, folder: Path) -> None:
    spare_bytes = int(shutil.disk_usage(folder).free * _FREE_SHARE)
    if size_bytes > spare_bytes:
        raise InvalidValueError(
            f"`{path}` has {size_text(size_bytes)}, and Spark has no jar for its store. A copy may "
            f"take {size_text(spare_bytes)} of the disk of {folder.parent}.",
            hint=f"{_JARS}, or set the environment variable TMPDIR to a larger disk.",
        )


def _copy(reader: ObjectReader, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    reader.seek(0)
    with open(target, "wb") as file:
        while part := reader.read(_PART_BYTES):
            file.write(part)
