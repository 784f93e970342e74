"""The files that one task writes side by side: one writer for each partition and bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paimon_magics.tables.writing.bucket_assignment import Partition
from paimon_magics.tables.writing.key_value_files import KeyValueFiles, KeyValueFileWriter


class OpenFiles:
    """Writers of new files of a table, made when their first rows come.

    `paimon` is pypaimon's table, `files` says how its files are written. If the process dies, files
    stay that no snapshot names; the transaction's attempt noted their folders.
    """

    def __init__(self, paimon: Any, files: KeyValueFiles) -> None:
        self._paimon = paimon
        self._files = files
        self._writers: dict[tuple[Partition, int], KeyValueFileWriter] = {}
        self._is_done = False

    def __iter__(self) -> Iterator[KeyValueFileWriter]:
        return iter(self._writers.values())

    def writer(self, partition: Partition, bucket: int, stem: str) -> KeyValueFileWriter:
        """The writer of one bucket. The names of the files of a new one begin with `stem`."""
        from pypaimon.utils.file_store_path_factory import canonical_data_file_path

        owner = partition, bucket
        if owner not in self._writers:
            path = canonical_data_file_path(self._paimon, partition, bucket, "file")
            folder = str(path).rpartition("/")[0]
            self._writers[owner] = KeyValueFileWriter(self._files, folder, stem)
        return self._writers[owner]

    def messages(self) -> list[bytes]:
        """Finish all files and return their commit messages; nothing may be written after."""
        from pypaimon.write.commit_message import CommitMessage

        from paimon_magics.tables.writing.commit_messages import write_message
        from paimon_magics.tables.writing.data_file_metas import meta_of_new_file

        found = []
        for (partition, bucket), writer in self._writers.items():
            files = [replace(file, is_compacted=False) for file in writer.finish()]
            metas = [meta_of_new_file(self._paimon, file) for file in files]
            found.append(write_message(self._paimon, CommitMessage(partition, bucket, metas)))
        self._is_done = True
        return found

    def abort(self) -> None:
        """Delete all files; their messages must not be committed."""
        for writer in self:
            writer.abort()

    def close(self) -> None:
        """Close the writers, and delete files that are in no returned message."""
        if not self._is_done:
            self.abort()
