"""Finds the files that a snapshot prepared by another writer names.

All methods raise MalformedDocumentError for a manifest or manifest list that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.tables.catalog.rest_documents import MalformedDocumentError
from paimon_magics.tables.manifests.file_kinds import ADD
from paimon_magics.tables.manifests.live_files import ManifestCache, ManifestGoneError
from paimon_magics.tables.manifests.names import manifest_folder
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.table import StoredTable

__all__ = ["ChangedFile", "PreparedFiles"]

Document = Mapping[str, Any]

ChangedFile = tuple[int, tuple[str, ...], int, int, str]
"""A changed data file: kind of entry, partition values as texts, bucket, level and name. By the
level two compactions differ that move the same file."""


class PreparedFiles:
    """Reads what snapshots of a table name; each manifest is read once."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._manifests = ManifestCache(table.paimon)

    def check_paths(self, snapshot: Document, latest: Document | None) -> None:
        """Raise MalformedDocumentError or InvalidValueError if a manifest that the snapshot adds
        names a file outside the table's folders."""
        paths = self._table.paths
        paths.check([f"{self._table.paimon.path_factory().data_file_path()}/file"])
        merged = set(self.manifests(snapshot["baseManifestList"]))
        for key in ("baseManifestList", "deltaManifestList") if latest is not None else ():
            merged -= set(self.manifests((latest or {})[key]))
        names = sorted(merged)
        for key in ("deltaManifestList", "changelogManifestList"):
            names += self.manifests(snapshot[key]) if snapshot.get(key) is not None else []
        _check_plain(names)
        with _told_if_gone("A manifest of the snapshot"):
            entries = self._manifests.columns.entries(names)
        _check_plain(entries["file_name"].to_pylist())
        _check_plain(pc.list_flatten(entries["extra_files"]).to_pylist())
        external = pc.unique(entries["external_path"].drop_null()).to_pylist()
        paths.check(path for path in external if path)
        self._check_index_paths(snapshot.get("indexManifest"), (latest or {}).get("indexManifest"))

    def _check_index_paths(self, index: str | None, before: str | None) -> None:
        if index in (None, before):
            return
        manifests = IndexManifestFile(self._table.paimon)
        known = {_index_place(entry) for entry in manifests.read(before)} if before else set()
        new = {_index_place(entry) for entry in manifests.read(index)} - known
        _check_plain(name for name, _ in new)
        self._table.paths.check(path for _, path in new if path)

    def manifests(self, manifest_list: str) -> list[str]:
        """The names of the manifests in a list."""
        with _told_if_gone(f"The manifest list {manifest_list}"):
            names: list[str] = self._manifests.columns.files(manifest_list)["file_name"].to_pylist()
        return names

    def changes(self, manifest_list: str) -> frozenset[ChangedFile]:
        """The data files that the manifests of a list add and delete."""
        entries = self._entries(manifest_list)
        partitions, of_files = partition_values(self._table.paimon, entries)
        texts = [tuple(map(repr, values)) for values in partitions]
        columns = (entries[name].to_pylist() for name in ("kind", "bucket", "level", "file_name"))
        return frozenset(
            (kind, texts[at], bucket, level, name)
            for at, kind, bucket, level, name in zip(of_files, *columns, strict=True)
        )

    def added(self, manifest_list: str) -> pa.Table:
        """The data files that the manifests of a list add: columns of MANIFEST_ENTRIES."""
        entries = self._entries(manifest_list)
        return entries.filter(pc.equal(entries["kind"], ADD))

    def first_numbers(self, manifest_list: str) -> dict[tuple[tuple[Any, ...], int], int]:
        """The least sequence number of the data files that a list adds to each bucket, by the
        values of its partition and its number."""
        added = self.added(manifest_list)
        partitions, of_files = partition_values(self._table.paimon, added)
        columns = (added[name].to_pylist() for name in ("bucket", "min_sequence_number"))
        found: dict[tuple[tuple[Any, ...], int], int] = {}
        for at, bucket, number in zip(of_files, *columns, strict=True):
            key = partitions[at], bucket
            found[key] = min(number, found.get(key, number))
        return found

    def new_paths(self, snapshot: Document, latest: Document | None) -> list[str]:
        """The paths of all files that a snapshot refers to and the latest one does not."""
        folder = manifest_folder(self._table.paimon)
        names = [snapshot["baseManifestList"]]
        merged = set(self.manifests(snapshot["baseManifestList"]))
        if latest is not None:
            for key in ("baseManifestList", "deltaManifestList"):
                merged -= set(self.manifests(latest[key]))
        names += sorted(merged)
        paths = []
        for key in ("deltaManifestList", "changelogManifestList"):
            manifest_list = snapshot.get(key)
            if manifest_list is not None:
                names += [manifest_list, *self.manifests(manifest_list)]
                paths += self._added_paths(manifest_list)
        index, before = snapshot.get("indexManifest"), (latest or {}).get("indexManifest")
        if index is not None and index != before:
            names.append(index)
            paths += self._new_index_paths(index, before)
        if snapshot.get("statistics") is not None:
            statistics = self._table.paimon.path_factory().statistics_path()
            paths.append(f"{statistics}/{snapshot['statistics']}")
        return [*(f"{folder}/{name}" for name in names), *paths]

    def _added_paths(self, manifest_list: str) -> list[str]:
        """The data files that a manifest list adds to the table's folder, and their extra files."""
        added = self.added(manifest_list)
        inside = pc.equal(pc.fill_null(pc.binary_length(added["external_path"]), 0), 0)
        added = added.filter(inside)
        partitions, of_files = partition_values(self._table.paimon, added)
        columns = (added[name].to_pylist() for name in ("bucket", "file_name", "extra_files"))
        return [
            canonical_data_file_path(self._table.paimon, partitions[at], bucket, name)
            for at, bucket, file, beside in zip(of_files, *columns, strict=True)
            for name in [file, *(beside or ())]
        ]

    def _new_index_paths(self, index: str, before: str | None) -> list[str]:
        manifests = IndexManifestFile(self._table.paimon)
        known = {e.index_file.file_name for e in manifests.read(before)} if before else set()
        factory = self._table.paimon.path_factory()
        return [
            factory.bucket_index_path(tuple(e.partition.values), e.bucket, e.index_file)
            for e in manifests.read(index)
            if e.index_file.file_name not in known and not e.index_file.external_path
        ]

    def _entries(self, manifest_list: str) -> pa.Table:
        names: Sequence[str] = self.manifests(manifest_list)
        with _told_if_gone(f"A manifest of the list {manifest_list}"):
            return self._manifests.columns.entries(names)


def _index_place(entry: Any) -> tuple[str, str | None]:
    return entry.index_file.file_name, entry.index_file.external_path


def _check_plain(names: Iterable[str]) -> None:
    for name in names:
        if not is_plain_name(name):
            raise MalformedDocumentError(f"{name!r} in a manifest is not the name of a file.")


@contextmanager
def _told_if_gone(what: str) -> Iterator[None]:
    try:
        yield
    except ManifestGoneError as error:
        raise MalformedDocumentError(f"{what} does not exist.") from error
