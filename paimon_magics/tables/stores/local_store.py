"""The local disks as a store of tables' files."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from paimon_magics.tables.stores.local import publish_local_file
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.syncing import sync_path

__all__ = ["LocalStore"]


class LocalStore:
    """The local disks. A file system without hard links is refused only at the first `create`."""

    renames_folders = True

    def check(self) -> None:
        """See `Store.check`."""

    def create(self, path: str, content: bytes) -> bool:
        """See `Store.create`; done by a hard link."""
        return publish_local_file(_local(path), content)

    def write(self, path: str, content: bytes) -> None:
        """See `Store.write`. Not synced to the disk: a power failure may lose the file."""
        target = Path(_local(path))
        temporary = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, path: str) -> bytes | None:
        """See `Store.read`."""
        try:
            return Path(_local(path)).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """See `Store.names`."""
        try:
            with os.scandir(_local(folder)) as entries:
                return [e.name for e in entries if e.name.startswith(prefix) and not e.is_dir()]
        except FileNotFoundError:
            return []

    def delete(self, paths: Iterable[str]) -> None:
        """See `Store.delete`."""
        for path in paths:
            Path(_local(path)).unlink(missing_ok=True)

    def modified_ms(self, path: str) -> int | None:
        """See `Store.modified_ms`."""
        try:
            return os.stat(_local(path)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def files_below(self, folder: str) -> list[str]:
        """See `Store.files_below`."""
        return [f"{place}/{name}" for place, _, names in os.walk(_local(folder)) for name in names]

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        try:
            with os.scandir(_local(folder)) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def move_folder(self, source: str, target: str) -> None:
        """See `Store.move_folder`. Both names are durable when it returns."""
        old, new = _local(source), _local(target)
        if os.path.lexists(new):
            raise FileExistsError(f"{target} exists")
        os.rename(old, new)
        for path in (new, old):
            sync_path(os.path.dirname(path))

    def delete_folder(self, folder: str) -> None:
        """See `Store.delete_folder`. Of a link only the link goes."""
        path = _local(folder)
        while os.path.lexists(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)

    def make_folder(self, folder: str) -> None:
        """See `Store.make_folder`."""
        path = _local(folder)
        while True:
            try:
                os.makedirs(path, exist_ok=True)
            except FileExistsError as error:
                if os.path.exists(path) and not os.path.isdir(path):
                    raise NotADirectoryError(error.errno, "a file is in its place", path) from error
                continue  # it was there, and somebody has removed it before one could look
            return

    def remove_if_empty(self, folder: str) -> bool:
        """See `Store.remove_if_empty`."""
        try:
            os.rmdir(_local(folder))
        except OSError:
            return False
        return True


def _local(path: str) -> str:
    found = local_path(path)
    assert found is not None, path
    return found
