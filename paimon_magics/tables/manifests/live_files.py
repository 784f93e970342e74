"""The files of a snapshot, and the files that snapshots add, as Arrow columns.

They are read from manifest lists and manifests; added files that are also deleted are left out. No
folder is listed, and no object is created for a file. Rules: Paimon's `ManifestsReader` and
`FileEntry.mergeEntries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.table.row.generic_row import GenericRowDeserializer
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.errors import TableDamagedError, UnsupportedStatementError
from paimon_magics.planning.reads.splits import Deletions
from paimon_magics.tables.manifests.avro_columns import avro_columns
from paimon_magics.tables.manifests.columns import MANIFEST_ENTRIES, ManifestColumns
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.stores.corruption import damaged

FEW_ENTRIES = 10_000
"""Manifests with so many entries are read whole, and the last snapshot's files are kept: a few
megabytes. A statement asks for them several times."""

_OTHER_FORMATS = {b"ORC": "orc", b"PAR1": "parquet"}
_IDENTITY = ("kind", "partition", "bucket", "level", "file_name")
_Lists = tuple[str | None, str | None]
_CACHED_BYTES_MAX = 256 * 1024 * 1024


class ManifestGoneError(TableDamagedError):
    """A manifest or manifest list does not exist, or no longer."""


class ManifestCache:
    """The manifests of one table, read through pypaimon's file IO and cached, up to
    `cached_bytes_max` bytes."""

    def __init__(self, paimon: Any, cached_bytes_max: int = _CACHED_BYTES_MAX) -> None:
        self._paimon = paimon
        self._folder = paimon.path_factory().manifest_path()
        self.columns = ManifestColumns(self.read, cached_bytes_max)
        self._last_few: tuple[_Lists, pa.Table] | None = None

    def read(self, name: str) -> bytes:
        """The content of a file in the manifest folder. Raises ManifestGoneError if it is gone,
        UnsupportedStatementError if its format is not Avro (`manifest.format`)."""
        path = f"{self._folder}/{name}"
        try:
            with self._paimon.file_io.new_input_stream(path) as stream:
                content = bytes(stream.read())
        except FileNotFoundError as error:
            raise ManifestGoneError(
                f"The manifest {path} is gone.",
                hint="Its snapshot has expired, or the file was removed: read a later snapshot.",
            ) from error
        for magic, format in _OTHER_FORMATS.items():
            if content.startswith(magic):
                raise UnsupportedStatementError(
                    f"The manifest {path} has the format {format}. Only avro can be read here.",
                    hint="Use an engine that reads this format to copy the table to a table "
                    "without the option 'manifest.format'.",
                )
        return content

    def listed_entries(
        self, manifest_lists: Iterable[str | None], columns: Sequence[str] = MANIFEST_ENTRIES.names
    ) -> pa.Table:
        """The entries of the manifests in these lists, in order; None stands for an empty list.
        `columns` are those of MANIFEST_ENTRIES that are wanted."""
        names = [
            name
            for manifest_list in manifest_lists
            if manifest_list
            for name in self.columns.files(manifest_list).column("file_name").to_pylist()
        ]
        return self.columns.entries(names, columns)

    def count_entries(self, snapshot: Any) -> int:
        """How many entries the manifests of a snapshot have."""
        counts = [
            pc.sum(self.columns.files(name).column(column)).as_py() or 0
            for name in _lists(snapshot)
            if name
            for column in ("num_added_files", "num_deleted_files")
        ]
        return sum(counts)

    def few_files(self, snapshot: Any) -> pa.Table:
        """The files of a snapshot whose manifests have few entries; they are cached until another
        snapshot is requested."""
        files = self.files_at_hand(snapshot)
        if files is None:
            lists = _lists(snapshot)
            files = undeleted(self.listed_entries(lists))
            self._last_few = lists, files
        return files

    def files_at_hand(self, snapshot: Any) -> pa.Table | None:
        """The files of a snapshot that `few_files` has cached, if any."""
        last = self._last_few
        return last[1] if last is not None and last[0] == _lists(snapshot) else None

    def deletions(self, index_manifest: str | None) -> dict[tuple[bytes, int, str], Deletions]:
        """The deletion vectors in an index manifest, by partition, bucket and name of the data
        file. Raises TableDamagedError if the file can't be read."""
        if not index_manifest:
            return {}
        try:
            rows = avro_columns(self.read(index_manifest)).to_pylist()
        except ValueError as error:
            raise damaged(f"The index manifest `{index_manifest}`", error) from error
        vectors = {}
        factory = self._paimon.path_factory()
        for row in rows:
            if row["_INDEX_TYPE"] != "DELETION_VECTORS":
                continue
            path = row.get("_EXTERNAL_PATH")
            if not path and factory.index_file_in_data_file_dir:
                path = self._beside_data(row)
            path = path or f"{factory.index_path()}/{row['_FILE_NAME']}"
            for part in row["_DELETIONS_VECTORS_RANGES"] or ():
                key = (row["_PARTITION"], row["_BUCKET"], part["f0"])
                vectors[key] = Deletions(path, part["f1"], part["f2"], part.get("_CARDINALITY"))
        return vectors

    def _beside_data(self, row: dict[str, Any]) -> str:
        """The path of an index file beside data files (`IndexInDataFileDirPathFactory`)."""
        fields = self._paimon.partition_keys_fields
        values = tuple(GenericRowDeserializer.from_bytes(row["_PARTITION"], fields).values)
        name = row["_FILE_NAME"]
        return str(canonical_data_file_path(self._paimon, values, row["_BUCKET"], name))


def live_files(
    folder: ManifestCache, snapshot: Any, columns: Sequence[str] = MANIFEST_ENTRIES.names
) -> pa.Table:
    """The files of a snapshot, in the order in which they were added. `columns` are those of
    MANIFEST_ENTRIES that are wanted, beside those by which a file is known."""
    lists = _lists(snapshot)
    wanted = [name for name in MANIFEST_ENTRIES.names if name in _IDENTITY or name in columns]
    if folder.count_entries(snapshot) <= FEW_ENTRIES:
        return folder.few_files(snapshot).select(wanted)
    return undeleted(folder.listed_entries(lists, wanted))


def _lists(snapshot: Any) -> _Lists:
    return snapshot.base_manifest_list, snapshot.delta_manifest_list


def added_files(folder: ManifestCache, manifest_lists: Iterable[str | None]) -> pa.Table:
    """The files that the manifests of the lists add. Raises TableDamagedError if one deletes a
    file."""
    entries = folder.listed_entries(manifest_lists)
    if entries.num_rows and not _is(entries, "kind", ADD).all():
        raise TableDamagedError(
            "A snapshot of the kind APPEND deletes files.",
            hint="Read the snapshots before and after it instead of its changes.",
        )
    return entries


def undeleted(entries: pa.Table) -> pa.Table:
    """The entries that add a file which no entry deletes. A file may be deleted and added again at
    its level, when it gets another index: each deletion cancels one addition, the oldest."""
    deletes = _is(entries, "kind", DELETE)
    if not deletes.any():
        return entries
    codes = _identities(entries)
    added = np.flatnonzero(~deletes)
    gone = np.bincount(codes[deletes], minlength=int(codes.max()) + 1)
    by_file = added[np.argsort(codes[added], kind="stable")]
    files = codes[by_file]
    firsts = np.searchsorted(files, files)  # where the additions of the same file begin
    lives = np.arange(len(files)) - firsts >= gone[files]
    return entries.take(pa.array(np.sort(by_file[lives])))


def _identities(entries: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each entry, equal for entries that add and delete a file at the same level."""
    codes = np.zeros(entries.num_rows, dtype=np.int64)
    for name in ("file_name", "level", "bucket", "partition"):
        part = entries.column(name).combine_chunks().dictionary_encode().indices
        # Each step numbers what it can tell apart from 0 on, so that no product is too large.
        numbers = codes * (len(part) + 1) + np.asarray(part)
        codes = np.unique(numbers, return_inverse=True)[1].reshape(-1)
    return codes


def _is(entries: pa.Table, name: str, value: int) -> npt.NDArray[np.bool_]:
    marks: npt.NDArray[np.bool_] = np.asarray(entries.column(name)) == value
    return marks
