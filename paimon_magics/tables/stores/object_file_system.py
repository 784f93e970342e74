"""An object store as a file system of Arrow's. Paths are `BUCKET/KEY`, as in Arrow's own.

Folders are what the keys say. A folder that is made is not stored, as no reader needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from paimon_magics.tables.stores.object_store import ObjectStore
from paimon_magics.tables.stores.store import os_errors

__all__ = ["ObjectFileSystem"]


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
        """Do nothing: folders are what the keys say."""

    def delete_dir(self, path: str) -> None:
        """Delete all objects of a folder."""
        with os_errors():
            self.store.delete_folder(self._uri(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete all objects of a folder."""
        self.delete_dir(path)

    def delete_root_dir_contents(self) -> None:
        """Refused: nobody means that."""
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
            found = self.store.entries(self._uri(folder))
        for name, size in found:
            path = f"{folder}/{name}"
            kind = pafs.FileType.Directory if size is None else pafs.FileType.File
            yield pafs.FileInfo(path, kind, size=size)
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
