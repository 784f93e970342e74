"""The stores of tables' files, and the few operations done there beneath Paimon's own file IO.

A `Store` can create a file only if it is absent: the primitive by which snapshots, schemas, tags
and branches are published. The scheme of a path decides to which store it belongs. A store without
the primitive is refused with the reason: a check followed by a rename is no substitute.

Light to import: tasks write their journals through it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError, UnsupportedStatementError
from paimon_magics.forks import renew_after_fork
from paimon_magics.tables.stores.corruption import ASK, denied_path, may_not
from paimon_magics.tables.stores.local_store import LocalStore as LocalStore
from paimon_magics.tables.stores.paths import FileStatus, local_path
from paimon_magics.tables.stores.short_keys import has_short_keys

if TYPE_CHECKING:
    from paimon_magics.tables.stores.object_store import ObjectStore

S3_SCHEMES = ("s3", "s3a", "s3n")
GCS_SCHEMES = ("gs",)
AZURE_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
OSS_SCHEMES = ("oss",)
OBJECT_SCHEMES = (*S3_SCHEMES, *GCS_SCHEMES, *AZURE_SCHEMES, *OSS_SCHEMES)
"""The schemes of object stores: their stores are `ObjectStore`s."""

_DIRECTORY_BUCKET = "--x-s3"

_REASONS = {
    "viewfs": "the cluster behind it is unknown, so its renames may not be atomic",
}


Publish = Callable[[str, bytes], bool]
"""Create a file with this content if it is absent; return False if it certainly existed."""


class UnreachableError(SetupError):
    """A store does not respond now; a retry may succeed. Repeating the operation is safe."""


class StoreRefusedError(SetupError):
    """A store has understood a request and refused it. A repetition does not help; other
    credentials may. The operation had no effect."""


class UnreachableFileError(OSError):
    """UnreachableError as an OSError, which Paimon's file IO may raise."""


def failure(error: BaseException, message: str, *, hint: str) -> SetupError:
    """The error for an operation that failed by `error` and certainly had no effect.

    It is an UnreachableError if a store that does not respond is among the causes of `error`, a
    StoreRefusedError if a store has refused, otherwise a SetupError.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnreachableFileError | UnreachableError):
            return UnreachableError(message, hint=hint)
        if isinstance(cause, StoreRefusedError):
            text = message if cause.message in message else f"{message}: {cause.message}"
            return StoreRefusedError(text, hint=hint)
        cause = cause.__cause__ or cause.__context__
    return SetupError(message, hint=hint)


@contextlib.contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Raise an OSError of the body as a SetupError (see `failure`): `what` failed, and had no
    effect."""
    try:
        yield
    except OSError as error:
        denied = denied_path(error)
        if denied is not None:
            raise SetupError(f"{what} failed: {may_not(denied)}.", hint=ASK) from error
        raise failure(
            error,
            f"{what} failed: {error}",
            hint="Check that the store can be reached and written, and run the statement again.",
        ) from error


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Raise a SetupError of the body, which a store has raised, as an OSError: Paimon's file IO may
    raise that."""
    try:
        yield
    except UnreachableError as error:
        raise UnreachableFileError(error.message) from error
    except SetupError as error:
        raise OSError(error.message) from error


class Store(Protocol):
    """One store. Paths are written as in Paimon: plain paths or URIs. Safe for several threads.

    If an operation fails, an object store raises UnreachableError (no answer) or
    StoreRefusedError, HDFS SetupError, a local disk OSError. `renames_folders` tells whether a
    folder can be renamed in one step, with all that it holds.
    """

    renames_folders: bool

    def check(self) -> None:
        """Raise unless `create` can be relied on: UnsupportedStatementError if the store has no
        such operation, SetupError if that could not be found out."""

    def create(self, path: str, content: bytes) -> bool:
        """Create a file if it is absent; return whether this very call did.

        False means that the path existed, with certainty. When it returns, content and name are
        durable. Raises SetupError where certainly nothing was created, OSError where that is
        unknown.
        """

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file, replacing an existing one. Readers see the old or the new content."""

    def read(self, path: str) -> bytes | None:
        """A file's content; None if there is no file."""

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """The leaf names of a folder's files that begin with `prefix`; [] if there is no folder."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing files are skipped."""

    def modified_ms(self, path: str) -> int | None:
        """When a file was written, in epoch milliseconds by the store's clock; None if there is no
        file."""

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None if there is no file."""

    def files_below(self, folder: str) -> list[str]:
        """The paths of all files in a folder and in the folders in it; [] if there is none."""

    def statuses_below(self, folder: str) -> Iterator[list[FileStatus]]:
        """The files in a folder and in the folders in it, some at a time, in no order. Empty
        folders come too, in a store that has folders. What vanishes meanwhile may be left out."""

    def folders(self, folder: str) -> list[str]:
        """The leaf names of the folders in a folder; [] if there is no folder."""

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder in one step, to a name that must be free. Raises FileNotFoundError if it
        is not there. Only for stores that rename folders."""

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that it holds, even if others remove files from it meanwhile."""

    def make_folder(self, folder: str, *, has_parent: bool = False) -> None:
        """Create a folder, which may already exist. Does nothing in a store without folders. With
        `has_parent` only in a folder that exists: raises FileNotFoundError without one."""

    def remove_if_empty(self, folder: str) -> bool:
        """Remove a folder if it is empty; return whether it is removed. Always True in a store
        without folders."""


class _RefusedStore:
    """A store that can't be written safely. Paimon's own file IO may still read it."""

    renames_folders = False

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def check(self) -> None:
        raise UnsupportedStatementError(
            f"Tables in a {self._scheme}:// store are read-only: "
            f"{_REASONS.get(self._scheme, 'this version does not know it')}. Two writers could "
            "overwrite each other's snapshots there.",
            hint="Use a warehouse on a local disk, in S3, Google Cloud Storage, Azure, OSS or "
            "HDFS, or a REST catalog. The tables in this store can be read.",
        )

    def _refuse(self, *_: Any, **__: Any) -> Any:
        self.check()

    create = write = read = names = delete = modified_ms = size = _refuse
    files_below = statuses_below = folders = move_folder = delete_folder = _refuse
    make_folder = remove_if_empty = _refuse


def is_directory_bucket(location: str) -> bool:
    """Whether a location is in a directory bucket of S3 Express, by the bucket's name."""
    scheme, place, *_ = urlsplit(location)
    return scheme in S3_SCHEMES and place.endswith(_DIRECTORY_BUCKET)


def is_reached_by_client(location: str) -> bool:
    """Whether files of all kinds at a location are reached by the client that publishes snapshots
    there: neither pypaimon nor the native library knows the store, was tried on it, or renews keys
    that end."""
    scheme = urlsplit(location).scheme
    is_of_s3 = scheme in S3_SCHEMES
    needs_client = is_directory_bucket(location) or has_short_keys(location)
    return scheme in OBJECT_SCHEMES and (not is_of_s3 or needs_client)


def open_store(location: str, options: Mapping[str, str]) -> Store:
    """The store of a location, by Paimon's catalog options. No request is sent yet.

    `location` is a folder that may be written: `Store.check` makes its trial there.
    """
    if local_path(location) is not None:
        return LocalStore()
    parts = urlsplit(location)
    if parts.scheme in OBJECT_SCHEMES:
        return open_object_store(location, options)
    if parts.scheme == "hdfs":
        from paimon_magics.tables.stores.hdfs import HdfsStore

        return HdfsStore(location, options)
    return _RefusedStore(parts.scheme)


def open_object_store(
    location: str, options: Mapping[str, str], *, is_impatient: bool = False
) -> ObjectStore:
    """The object store of a location whose scheme is in `OBJECT_SCHEMES`. See `open_store`. Raises
    SetupError for options with which no request can succeed."""
    scheme = urlsplit(location).scheme
    kind: type[ObjectStore]
    if scheme in GCS_SCHEMES:
        from paimon_magics.tables.stores.clouds import GcsStore as kind
    elif scheme in AZURE_SCHEMES:
        from paimon_magics.tables.stores.clouds import AzureStore as kind
    elif scheme in OSS_SCHEMES:
        from paimon_magics.tables.stores.clouds import OssStore as kind
    else:
        from paimon_magics.tables.stores.s3_access import S3Store as kind
    return kind(location, options, is_impatient=is_impatient)


class Stores:
    """The stores of a catalog, each opened once. Safe for several threads."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._opened: dict[tuple[str, str], Store] = {}
        self._guard = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`."""
        self._guard = threading.Lock()

    def of(self, location: str) -> Store:
        """The store of a path."""
        key = _authority(location)
        with self._guard:
            if key not in self._opened:
                warehouse = self._options.get("warehouse", "")
                root = warehouse if _authority(warehouse) == key else location
                self._opened[key] = open_store(root, self._options)
            return self._opened[key]

    def renew(self, options: Mapping[str, str]) -> None:
        """Use these options from now on, also for the object stores that are open."""
        with self._guard:
            self._options = dict(options)
            for (scheme, _), store in list(self._opened.items()):
                if scheme in OBJECT_SCHEMES:
                    store.renew(self._options)  # type: ignore[attr-defined]

    def publish(self, path: str, content: bytes) -> bool:
        """Check the path's store, then create the file if it is absent. See `Store.create`."""
        store = self.of(path)
        store.check()
        return store.create(path, content)


def _authority(location: str) -> tuple[str, str]:
    if local_path(location) is not None:
        return "", ""
    parts = urlsplit(location)
    return parts.scheme, parts.netloc
