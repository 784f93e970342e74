"""pypaimon's file IO for S3 with fewer requests and shorter timeouts.

pypaimon sends two or three requests before it reads a small file, and six to write one. It retries
for more than a minute when the store can't be reached. Here a metadata file is read by one request,
and every file is written whole. Reading other files is left to pypaimon.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
from pypaimon.common.options import Options
from pypaimon.filesystem.caching_file_io import CachingFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

from paimon_magics.errors import SetupError
from paimon_magics.tables.pypaimon_internals import innermost_file_io, replace_innermost_file_io
from paimon_magics.tables.stores.s3 import ObjectStore
from paimon_magics.tables.stores.store import (
    Stores,
    UnreachableError,
    UnreachableFileError,
    open_store,
)

__all__ = ["S3FileIO", "use_s3_file_io"]

_ATTEMPTS = 4
_REQUEST_SECONDS = 20
_CONNECT_SECONDS = 5
# Names that only metadata files have.
_METADATA = re.compile(
    r"((snapshot|schema|changelog|manifest|manifest-list|index-manifest|tag|stat)-[^/.]+"
    r"|LATEST|EARLIEST)$"
)
_T = TypeVar("_T")


def use_s3_file_io(catalog: Any, warehouse: str, options: dict[str, str], stores: Stores) -> None:
    """Give a pypaimon catalog an S3FileIO if it has chosen pyarrow's file IO for S3."""
    store = stores.of(warehouse)
    chosen = catalog.file_io
    cached = isinstance(chosen, CachingFileIO)
    if not isinstance(store, ObjectStore):
        return
    if type(innermost_file_io(chosen) if cached else chosen) not in (PyArrowFileIO, S3FileIO):
        return
    ours = S3FileIO(warehouse, Options(options), store)
    if cached:
        replace_innermost_file_io(chosen, ours)
    else:
        catalog.file_io = ours


class S3FileIO(PyArrowFileIO):  # type: ignore[misc]
    """Raises OSError if the store can't be reached or refuses, FileNotFoundError like pypaimon."""

    def __init__(self, path: str, catalog_options: Options, store: ObjectStore) -> None:
        self._path = path
        self._store = store
        super().__init__(path, catalog_options)

    def __reduce__(self) -> tuple[Any, ...]:
        # S3 clients can't be pickled; a task makes its own.
        return _restored, (self._path, dict(self.properties.to_map()))

    def _create_s3_retry_config(self, *_: Any, **__: Any) -> dict[str, Any]:
        config: dict[str, Any] = super()._create_s3_retry_config(
            _ATTEMPTS, _REQUEST_SECONDS, _CONNECT_SECONDS
        )
        return config

    def new_input_stream(self, path: str) -> Any:
        """A stream of the file's content; a metadata file is read whole, at once."""
        if not _is_metadata(path):
            return super().new_input_stream(path)
        content = _asked(lambda: self._store.read(path))
        if content is None:
            raise FileNotFoundError(f"File {path} does not exist")
        return pa.BufferReader(content)

    def new_output_stream(self, path: str) -> Any:
        """A stream whose content is uploaded when it is closed, unless its `with` block raises."""
        return _Upload(lambda content: _asked(lambda: self._store.write(path, content)))

    def exists(self, path: str) -> bool:
        """Whether the file or folder exists."""
        if not _is_metadata(path) and _asked(lambda: self._store.has_folder(path)):
            return True
        return _asked(lambda: self._store.modified_ms(path)) is not None

    def list_status(self, path: str) -> list[pafs.FileInfo]:
        """The files and folders in a folder; [] if it does not exist."""
        where = self.to_filesystem_path(path).rstrip("/")
        return [
            pafs.FileInfo(
                f"{where}/{name}",
                pafs.FileType.Directory if size is None else pafs.FileType.File,
                size=size,
            )
            for name, size in _asked(lambda: self._store.entries(path))
        ]


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
        super().close()  # a stream that nobody closed is not uploaded


def _restored(path: str, options: dict[str, str]) -> S3FileIO:
    store = open_store(path, options)
    assert isinstance(store, ObjectStore)
    return S3FileIO(path, Options(options), store)


def _is_metadata(path: str) -> bool:
    return _METADATA.match(path.rsplit("/", 1)[-1]) is not None


def _asked(action: Callable[[], _T]) -> _T:
    try:
        return action()
    except UnreachableError as error:
        raise UnreachableFileError(error.message) from error
    except SetupError as error:
        raise OSError(error.message) from error
