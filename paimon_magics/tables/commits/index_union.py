"""Writes an index manifest that unites the hash indexes of a commit and of the table.

A streaming writer commits what it has prepared, or fails for ever: it can't prepare it again on a
newer index. So the committer adds to its index the keys that other writers have added meanwhile
(`hash_indexes`). If the process dies before the snapshot is published, the files written here stay,
and no snapshot names them; Paimon's `remove_orphan_files` finds them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.row.generic_row import GenericRow

from paimon_magics.columnar.hash_index import encode_hashes
from paimon_magics.tables.manifests.file_kinds import ADD
from paimon_magics.tables.manifests.hash_indexes import Bucket, IndexedTable, United
from paimon_magics.tables.manifests.index_manifests import NamedIndexManifests
from paimon_magics.tables.manifests.names import MetadataNames, manifest_folder

__all__ = [
    "IndexUnion",
    "after_adding",
    "hash_entries",
    "united_entries",
    "write_index_file",
    "write_union",
]


@dataclass(frozen=True, slots=True)
class IndexUnion:
    """An index manifest by its name, the paths of the files `written` for it, and of those of the
    commit that it takes the place of."""

    manifest: str
    written: tuple[str, ...]
    superseded: tuple[str, ...]

    def discard(self, table: IndexedTable) -> None:
        """Remove what was written: the commit was not published."""
        _remove(table, self.written)

    def settle(self, table: IndexedTable) -> None:
        """Remove what has been superseded: the commit was published with the union."""
        _remove(table, self.superseded)


def write_union(
    table: IndexedTable, manifest: str | None, after: Sequence[Any], united: Sequence[United]
) -> IndexUnion:
    """Write what `HashIndexes.lacking` found for a commit's index manifest with the entries `after`
    (None and () for a commit without one)."""
    entries, written, superseded = united_entries(table, after, united)
    names = MetadataNames(uuid.uuid4().hex)
    name = NamedIndexManifests(table.paimon, names).write(entries)
    folder = manifest_folder(table.paimon)
    old = () if manifest is None else (f"{folder}/{manifest}",)
    return IndexUnion(name, (f"{folder}/{name}", *written), (*old, *superseded))


def hash_entries(table: IndexedTable, manifest: str | None) -> list[Any]:
    """The entries of hash indexes in an index manifest; [] for None."""
    found = IndexManifestFile(table.paimon).read(manifest) if manifest is not None else []
    return [one for one in found if one.index_file.index_type == IndexManifestFile.HASH_INDEX]


def after_adding(entries: Sequence[Any], added: Sequence[Any]) -> list[Any]:
    """The entries of an index with those of `added` in place of earlier ones of their buckets."""
    buckets = {(tuple(one.partition.values), one.bucket) for one in added}
    kept = [one for one in entries if (tuple(one.partition.values), one.bucket) not in buckets]
    return [*kept, *added]


def united_entries(
    table: IndexedTable, after: Sequence[Any], united: Sequence[United], prefix: str = ""
) -> tuple[list[Any], list[str], list[str]]:
    """Write the index files of a union, with names that begin with `prefix`. Return its entries,
    the paths of the new files, and of those that they take the place of."""
    replaced = {id(one.instead_of) for one in united if one.instead_of is not None}
    entries = [entry for entry in after if id(entry) not in replaced]
    written, superseded = [], []
    for one in united:
        if one.entry is not None:
            entries.append(one.entry)
            continue
        path, entry = write_index_file(table, one.bucket, one.hashes, f"{prefix}index-")
        written.append(path)
        entries.append(entry)
        superseded.append(_path(table, one.instead_of))
    return entries, written, superseded


def write_index_file(
    table: IndexedTable, of: Bucket, hashes: npt.NDArray[np.int32], prefix: str
) -> tuple[str, Any]:
    """Write the index file of a bucket, with a name that begins with `prefix`. Return its path and
    its entry."""
    partition, bucket = of
    content = encode_hashes(hashes)
    name = f"{prefix}{uuid.uuid4()}-0"
    factory = table.paimon.path_factory()
    path, is_external = factory.new_bucket_index_path(partition, bucket, name)
    with table.paimon.file_io.new_output_stream(path) as stream:
        stream.write(content)
    meta = IndexFileMeta(
        index_type=IndexManifestFile.HASH_INDEX,
        file_name=name,
        file_size=len(content),
        row_count=len(hashes),
    )
    if is_external:
        meta = replace(meta, external_path=path)
    row = GenericRow(list(partition), table.paimon.partition_keys_fields)
    return path, IndexManifestEntry(ADD, row, bucket, meta)


def _path(table: IndexedTable, entry: Any) -> str:
    return str(
        table.paimon.path_factory().bucket_index_path(
            tuple(entry.partition.values), entry.bucket, entry.index_file, table.paimon.file_io
        )
    )


def _remove(table: IndexedTable, paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            table.paimon.file_io.delete(path)
