"""Files that the native writer writes on the local disk, for stores that it is not tried on
(`stores.store.is_reached_by_client`).

The native library reaches Google Cloud Storage and Azure by interfaces and credentials of its own.
So that there is one way to a store, it writes into a local folder, and the finished files are
uploaded by the client that publishes snapshots, part by part. The local disk must have room for the
files of the tasks that run at the same time.

If the process dies, the local folder is left to the system's temporary folder, and what was
uploaded to the attempt's notes, as with every other file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.stores.store import open_object_store

__all__ = ["Staging"]


class Staging:
    """A local folder in the place of a table's, for one writer."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self._location = location.rstrip("/")
        self._store = open_object_store(location, options)
        # Spark's own folder for files of tasks, where the cluster names one.
        spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
        self._folder = tempfile.TemporaryDirectory(prefix="paimon-magics-", dir=spark)
        self._uploaded: list[str] = []

    @property
    def folder(self) -> str:
        """The path of the local folder."""
        return self._folder.name

    def upload(self) -> None:
        """Upload all files in the folder, and remove them there. If it fails, none of them is left
        in the store. Raises SetupError."""
        root = Path(self._folder.name)
        begun: list[str] = []
        try:
            for file in sorted(one for one in root.rglob("*") if one.is_file()):
                begun.append(f"{self._location}/{file.relative_to(root).as_posix()}")
                self._store.upload(file, begun[-1])
                file.unlink()
        except BaseException:
            with contextlib.suppress(PaimonMagicsError):
                self._store.delete(begun)
            raise
        self._uploaded += begun

    def delete(self) -> None:
        """Delete the files that were uploaded."""
        self._store.delete(self._uploaded)
        self._uploaded.clear()

    def close(self) -> None:
        """Remove the local folder."""
        self._folder.cleanup()
