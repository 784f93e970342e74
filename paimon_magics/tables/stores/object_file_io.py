"""pypaimon's file IO for object stores. On S3 it sends fewer requests, with shorter timeouts;
Google Cloud Storage and Azure are reached by the same client that publishes snapshots there.

pypaimon sends two or three requests before it reads a small file on S3, and six to write one. It
retries for more than a minute when the store can't be reached. It does not know Azure. Here a
metadata file is read by one request, and every file is written whole. Reading other files on S3 is
left to Arrow.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from pypaimon.common.options import Options
from pypaimon.filesystem.caching_file_io import CachingFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from paimon_magics.tables.pypaimon_internals import (
    innermost_file_io,
    open_files_by,
    replace_innermost_file_io,
)
from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.s3_access import for_tasks
from paimon_magics.tables.stores.store import (
    GCS_SCHEMES,
    OSS_SCHEMES,
    Stores,
    is_reached_by_client,
    open_object_store,
    os_errors,
)

_ATTEMPTS = 4
_REQUEST_SECONDS = 20
_CONNECT_SECONDS = 5
# Names that only metadata files have.
_METADATA = re.compile(
    r"((snapshot|schema|changelog|manifest|manifest-list|index-manifest|tag|stat)-[^/.]+"
    r"|LATEST|EARLIEST)$"
)
_DATABASE = ".db"
_MARKER = ".database"  # an object in a database's folder, which would not be there without any


def know_object_stores() -> None:
    """Let pypaimon open files in Google Cloud Storage, Azure, OSS and S3 Express by ObjectFileIO;
    in OSS by its own where our client is not installed. Repeated calls have no effect."""
    has_opendal = find_spec("opendal") is not None

    def is_ours(path: str) -> bool:
        has_client = has_opendal or urlsplit(path).scheme not in OSS_SCHEMES
        return has_client and is_reached_by_client(path)

    open_files_by(is_ours, _opened)


def use_object_file_io(
    catalog: Any, warehouse: str, options: dict[str, str], stores: Stores
) -> None:
    """Give a pypaimon catalog a file IO of this module with the store of `stores`, unless it has
    chosen one that is neither Arrow's nor ours."""
    store = stores.of(warehouse)
    chosen = catalog.file_io
    cached = isinstance(chosen, CachingFileIO)
    if not isinstance(store, ObjectStore):
        return
    present = type(innermost_file_io(chosen) if cached else chosen)
    if present not in (PyArrowFileIO, S3FileIO, ObjectFileIO):
        return
    ours = _kind(warehouse)(warehouse, Options(options), store)
    if cached:
        replace_innermost_file_io(chosen, ours)
    else:
        catalog.file_io = ours


class ObjectFileIO(PyArrowFileIO):  # type: ignore[misc]
    """Raises OSError if the store can't be reached or refuses, FileNotFoundError like pypaimon."""

    def __init__(self, path: str, catalog_options: Options, store: ObjectStore) -> None:
        self._path = path
        self._store = store
        super().__init__(self._known_location(), catalog_options)

    def __reduce__(self) -> tuple[Any, ...]:
        # Clients can't be pickled; a task makes its own.
        # Its environment may be older than this one, so keys go along.
        options = {str(key): str(value) for key, value in self.properties.to_map().items()}
        return _restored, (self._path, for_tasks(options, self._path))

    def _known_location(self) -> str:
        """A location of a scheme that pypaimon knows, for which it asks `_initialize_gcs_fs`."""
        return f"{GCS_SCHEMES[0]}://bucket"

    def _initialize_gcs_fs(self) -> pafs.FileSystem:
        scheme, place, *_ = urlsplit(self._path)
        return pafs.PyFileSystem(ObjectFileSystem(self._store, f"{scheme}://{place}"))

    def to_filesystem_path(self, path: str) -> str:
        """The path as Arrow's file system has it: the bucket, or Azure's container and host, and
        the key."""
        return str(path).partition("://")[2] or str(path)

    def mkdirs(self, path: str) -> bool:
        """Make a folder: that of a database by an object in it, another one not at all."""
        if path.rstrip("/").endswith(_DATABASE):
            with os_errors():
                self._store.write(f"{path.rstrip('/')}/{_MARKER}", b"")
        return True

    def new_input_stream(self, path: str) -> Any:
        """A stream of the file's content; a metadata file is read whole, at once."""
        if not _is_metadata(path):
            return super().new_input_stream(path)
        with os_errors():
            content = self._store.read(path)
        if content is None:
            raise FileNotFoundError(f"File {path} does not exist")
        return pa.BufferReader(content)

    def new_output_stream(self, path: str) -> Any:
        """A stream whose content is uploaded when it is closed, unless its `with` block raises."""

        def finish(content: bytes) -> None:
            with os_errors():
                self._store.write(path, content)

        return _Upload(finish)

    def exists(self, path: str) -> bool:
        """Whether the file or folder exists."""
        with os_errors():
            if not _is_metadata(path) and self._store.has_folder(path):
                return True
            return self._store.modified_ms(path) is not None

    def list_status(self, path: str) -> list[pafs.FileInfo]:
        """The files and folders in a folder; [] if it does not exist."""
        where = self.to_filesystem_path(path).rstrip("/")
        with os_errors():
            entries = self._store.entries(path)
        return [_file_info(f"{where}/{name}", size) for name, size in entries]

    def rename(self, src: str, dst: str) -> bool:
        """Copy a file and delete the old one; False if there is none, or the new name is taken.
        This is not atomic: files that must appear atomically are created with `Store.create`."""
        with os_errors():
            if self._store.status(dst) is not None:
                return False
            try:
                self._store.copy(src, dst)
            except FileNotFoundError:
                return False
            self._store.delete([src])
        return True


class S3FileIO(ObjectFileIO):
    """The file IO of stores that speak S3: data files are read, and folders made, by Arrow."""

    def _known_location(self) -> str:
        return self._path

    def _create_s3_retry_config(self, *_: Any, **__: Any) -> dict[str, Any]:
        config: dict[str, Any] = super()._create_s3_retry_config(
            _ATTEMPTS, _REQUEST_SECONDS, _CONNECT_SECONDS
        )
        return config

    def to_filesystem_path(self, path: str) -> str:
        """See pypaimon's, which takes `?` and `#` for the ends of a URL's path."""
        known = re.split("[?#]", str(path), maxsplit=1)[0]
        return str(PyArrowFileIO.to_filesystem_path(self, known)) + str(path)[len(known) :]

    def mkdirs(self, path: str) -> bool:
        """See pypaimon's."""
        return bool(PyArrowFileIO.mkdirs(self, path))


class _Upload(io.BytesIO):
    def __init__(self, finish: Callable[[bytes], None]) -> None:
        super().__init__()
        self._finish = finish

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._finish(content)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            super().close()
        self.close()

    def __del__(self) -> None:
        super().close()  # a stream that is not closed is not uploaded


def _kind(path: str) -> type[ObjectFileIO]:
    return ObjectFileIO if is_reached_by_client(path) else S3FileIO


def _opened(path: str, options: Options) -> ObjectFileIO:
    texts = {str(key): str(value) for key, value in options.to_map().items()}
    store = open_object_store(path, texts)  # then it is known where its keys come from
    return _kind(path)(path, options, store)


def _restored(path: str, options: dict[str, str]) -> ObjectFileIO:
    know_object_stores()  # for files in a second store, which pypaimon opens here
    return _opened(path, Options(options))


def _file_info(path: str, size: int | None) -> pafs.FileInfo:
    kind = pafs.FileType.Directory if size is None else pafs.FileType.File
    return pafs.FileInfo(path, kind, size=size)


def _is_metadata(path: str) -> bool:
    return _METADATA.match(path.rsplit("/", 1)[-1]) is not None


# An object store as a file system of Arrow's. Paths are `BUCKET/KEY`, as in Arrow's own.
#
# Folders are implied by keys. A created folder is not stored, as no reader needs it.


class ObjectFileSystem(pafs.FileSystemHandler):  # type: ignore[misc]
    """The objects of one bucket. Raises OSError if the store can't be reached or refuses."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self.store = store
        self._root = root.rstrip("/")  # the bucket's URI; a path follows its own bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectFileSystem) and other.store is self.store

    def get_type_name(self) -> str:
        """Arrow's name of the kind of file system."""
        return "object-store"

    def normalize_path(self, path: str) -> str:
        """The path itself."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """What is at each path."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """What is below a folder."""
        return list(self._below(selector.base_dir.rstrip("/"), selector.recursive))

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: folders are implied by keys."""

    def delete_dir(self, path: str) -> None:
        """Delete all objects of a folder."""
        with os_errors():
            self.store.delete_folder(self._uri(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete all objects of a folder."""
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        """Refused, because it is never intended."""
        raise NotImplementedError("A bucket is not emptied.")

    def delete_file(self, path: str) -> None:
        """Delete an object, if it is there."""
        with os_errors():
            self.store.delete([self._uri(path)])

    def move(self, source: str, target: str) -> None:
        """Copy an object and delete the old one."""
        self.copy_file(source, target)
        self.delete_file(source)

    def copy_file(self, source: str, target: str) -> None:
        """Copy an object within the bucket."""
        with os_errors():
            self.store.copy(self._uri(source), self._uri(target))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """A reader of an object."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """A reader of an object that can seek."""
        with os_errors():
            return pa.PythonFile(self.store.open(self._uri(path)), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Not offered: `ObjectFileIO` writes files whole."""
        raise NotImplementedError("Files are written by ObjectFileIO.new_output_stream.")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Not offered: objects can't be appended to."""
        raise NotImplementedError("Objects can't be appended to.")

    def _below(self, folder: str, recursive: bool) -> Iterator[pafs.FileInfo]:
        with os_errors():
            entries = self.store.entries(self._uri(folder))
        for name, size in entries:
            path = f"{folder}/{name}"
            yield _file_info(path, size)
            if recursive and size is None:
                yield from self._below(path, recursive)

    def _info(self, path: str) -> pafs.FileInfo:
        uri = self._uri(path)
        with os_errors():
            status = self.store.status(uri)
            if status is not None:
                size, modified_ms = status
                return pafs.FileInfo(
                    path, pafs.FileType.File, size=size, mtime_ns=modified_ms * 1_000_000
                )
            is_folder = self.store.has_folder(uri)
        return pafs.FileInfo(path, pafs.FileType.Directory if is_folder else pafs.FileType.NotFound)

    def _uri(self, path: str) -> str:
        return f"{self._root}/{path.partition('/')[2]}"
