"""HDFS: create-if-absent by a temporary file and a rename that does not overwrite.

The name node refuses such a rename when the name exists. A writer that does not know the result
deletes its temporary file: if the file is already gone, the rename has happened.

If the process dies while it creates a file, the file exists whole or not at all. A temporary file
may remain; readers ignore its name.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.paths import FileStatus

# The options that pypaimon hands to the same client.
_CONFIGURATION_PREFIXES = ("dfs.", "fs.", "hadoop.", "ipc.", "io.")
_CONFIGURATION_PREFIX = "hdfs.config."


class HdfsStore:
    """An HDFS cluster. See `Store`."""

    renames_folders = True

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._name = f"hdfs://{urlsplit(location).netloc}"
        self._options = dict(options)
        self._opened: Any = None
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"HdfsStore({self._name})"

    def check(self) -> None:
        """See `Store.check`: HDFS needs no trial, only its client."""
        self._client()

    def create(self, path: str, content: bytes) -> bool:
        """See `Store.create`."""
        target, temporary = _inside(path), _temporary(path)
        self._write(temporary, content, path)
        try:
            self._client().rename(temporary, target, overwrite=False)
        except Exception as error:
            return self._renamed_after_all(temporary, target, path, error)
        return True

    def write(self, path: str, content: bytes) -> None:
        """See `Store.write`."""
        temporary = _temporary(path)
        self._write(temporary, content, path)
        with self._failures("written", path, temporary):
            self._client().rename(temporary, _inside(path), overwrite=True)

    def read(self, path: str) -> bytes | None:
        """See `Store.read`."""
        with self._failures("read", path), contextlib.suppress(FileNotFoundError):
            return bytes(self._client().read(_inside(path)).readall())
        return None

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """See `Store.names`."""
        leaves = (_leaf(status) for status in self._statuses(folder) if not status.isdir)
        return [name for name in leaves if name.startswith(prefix)]

    def delete(self, paths: Iterable[str]) -> None:
        """See `Store.delete`."""
        for path in paths:
            self._delete(path, False)

    def modified_ms(self, path: str) -> int | None:
        """See `Store.modified_ms`."""
        status = self._status(path)
        return None if status is None else int(status.modification_time)

    def size(self, path: str) -> int | None:
        """See `Store.size`."""
        status = self._status(path)
        return None if status is None else int(status.length)

    def files_below(self, folder: str) -> list[str]:
        """See `Store.files_below`."""
        statuses = self._statuses(folder, True)
        return [f"{self._name}{status.path}" for status in statuses if not status.isdir]

    def statuses_below(self, folder: str) -> Iterator[list[FileStatus]]:
        """See `Store.statuses_below`. Empty folders are left out."""
        start = f"{_inside(folder)}/"
        for status in self._statuses(folder, True):
            if not status.isdir:
                inside = str(status.path).removeprefix(start)
                yield [FileStatus(inside, int(status.length), int(status.modification_time))]

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        return [_leaf(status) for status in self._statuses(folder) if status.isdir]

    def move_folder(self, source: str, target: str) -> None:
        """See `Store.move_folder`."""
        try:
            self._client().rename(_inside(source), _inside(target), overwrite=False)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise _failure("renamed", source, error) from error

    def delete_folder(self, folder: str) -> None:
        """See `Store.delete_folder`."""
        self._delete(folder, True)

    def make_folder(self, folder: str, *, has_parent: bool = False) -> None:
        """See `Store.make_folder`."""
        if has_parent and self._status(folder.rpartition("/")[0]) is None:
            raise FileNotFoundError(f"There is no folder for {folder}.")
        with self._failures("created", folder):
            self._client().mkdirs(_inside(folder), create_parent=not has_parent)

    def remove_if_empty(self, folder: str) -> bool:
        """See `Store.remove_if_empty`."""
        try:
            return bool(self._client().delete(_inside(folder), False))
        except Exception:  # not empty, or removed by another process
            return False

    def _status(self, path: str) -> Any:
        """The name node's status of a file or folder; None if there is none."""
        with self._failures("checked", path), contextlib.suppress(FileNotFoundError):
            return self._client().get_file_info(_inside(path))
        return None

    def _statuses(self, folder: str, recursive: bool = False) -> list[Any]:
        with self._failures("listed", folder), contextlib.suppress(FileNotFoundError):
            return list(self._client().list_status(_inside(folder), recursive))
        return []

    def _delete(self, path: str, recursive: bool) -> None:
        with self._failures("deleted", path), contextlib.suppress(FileNotFoundError):
            self._client().delete(_inside(path), recursive)

    def _write(self, temporary: str, content: bytes, path: str) -> None:
        from hdfs_native import WriteOptions

        with self._failures("written", path, temporary):
            options = WriteOptions(create_parent=True, overwrite=True)
            with self._client().create(temporary, options) as file:
                file.write(content)
                file.hsync()

    def _renamed_after_all(self, temporary: str, target: str, path: str, error: Exception) -> bool:
        """Whether a rename that raised `error` has happened all the same; False where the target
        existed before.

        Deleting the temporary file settles it: after that the rename can't happen any more. Raises
        SetupError where nothing was created, OSError where that is unknown.
        """
        try:
            deleted = self._client().delete(temporary)
        except Exception:
            raise OSError(f"{path} may have been created: {error}") from error
        if not deleted:
            return True
        if self._status(path) is not None:
            return False
        raise _failure("created", path, error) from error

    @contextlib.contextmanager
    def _failures(self, done: str, path: str, temporary: str | None = None) -> Iterator[None]:
        """Raise what the client raises as SetupError; delete the `temporary` file before."""
        try:
            yield
        except Exception as error:
            if temporary is not None:
                with contextlib.suppress(Exception):
                    self._client().delete(temporary)
            raise _failure(done, path, error) from error

    def _client(self) -> Any:
        with self._guard:
            if self._opened is None:
                self._opened = self._connect()
            return self._opened

    def _connect(self) -> Any:
        try:
            from hdfs_native import Client
        except ImportError as error:
            raise SetupError(
                f"Tables in {self._name} need the client hdfs-native, which can't be imported: "
                f"{error}.",
                hint="Install it with: pip install 'paimon-magics[hdfs]'",
            ) from error
        configuration = {
            key.removeprefix(_CONFIGURATION_PREFIX): value
            for key, value in self._options.items()
            if key.startswith((*_CONFIGURATION_PREFIXES, _CONFIGURATION_PREFIX))
        }
        folder = self._options.get("hdfs.conf-dir") or os.environ.get("HADOOP_CONF_DIR")
        try:
            return Client(url=self._name, config=configuration or None, config_dir=folder)
        except Exception as error:
            raise SetupError(
                f"{self._name} can't be opened: {error}",
                hint="Check the address, and HADOOP_CONF_DIR or the option 'hdfs.conf-dir'.",
            ) from error


def _inside(path: str) -> str:
    """The path inside the cluster, without scheme and host."""
    _, _, rest = path.partition("://")
    return f"/{rest.partition('/')[2]}".rstrip("/") or "/"


def _leaf(status: Any) -> str:
    return str(status.path.rsplit("/", 1)[-1])


def _temporary(path: str) -> str:
    folder, _, name = _inside(path).rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4()}.tmp"


def _failure(done: str, path: str, error: Exception) -> SetupError:
    return SetupError(
        f"{path} can't be {done}: {' '.join(str(error).split())}",
        hint="Check that the cluster can be reached and that you have write permission there.",
    )
