"""Creates files: on a local disk without pypaimon, elsewhere by its file IO."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paimon_magics.tables.stores.paths import local_path

__all__ = ["FileCreation"]


@dataclass(frozen=True)
class FileCreation:
    """Creates and deletes files. `file_io` is pypaimon's, for files that are not on a local disk.
    Picklable."""

    file_io: Any = None

    def __repr__(self) -> str:
        return "FileCreation()"  # the file IO may hold credentials

    def open(self, path: str) -> Any:
        """A new file to write, in a folder that need not exist; raises OSError."""
        local = local_path(path)
        if local is None:
            return self.file_io.new_output_stream(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return pa.OSFile(local, "wb")

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        local = local_path(path)
        if local is None:
            self.file_io.delete_quietly(path)
        elif os.path.exists(local):
            os.remove(local)
