"""Writes the deletion vectors of buckets: one index file for each, with all vectors of its files.

A commit replaces the index file of a bucket whenever one of its vectors changes, and deletes the
entry that it was made from by name: so two commits that change the same bucket conflict. Source:
`BucketedDvMaintainer`, `DeletionVectorsIndexFile.writeSingleFile`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.row.generic_row import GenericRow

from paimon_magics.columnar.deletion_vectors import deleted_rows, united_rows, vector_file
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.stores.corruption import damaged
from paimon_magics.tables.table import Table

_Rows = npt.NDArray[np.int64]
Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""


@dataclass(frozen=True)
class ChangedVectors:
    """What a commit does to the deletion vectors of a bucket: entries of the index manifest that it
    adds and deletes."""

    adds: tuple[IndexManifestEntry, ...]
    deletes: tuple[IndexManifestEntry, ...]


@dataclass(frozen=True)
class VectorIndex:
    """The deletion vectors of one snapshot: the entries of its index manifest, by bucket."""

    table: Table
    entries: Mapping[Bucket, tuple[IndexManifestEntry, ...]]

    def marked_files(self, bucket: Bucket) -> frozenset[str]:
        """The names of the bucket's data files that have a vector."""
        return frozenset(
            name
            for entry in self.entries.get(bucket, ())
            for name in entry.index_file.dv_ranges or ()
        )

    def vectors(self, bucket: Bucket) -> dict[str, _Rows]:
        """The deleted rows of the bucket's data files, by name. Raises TableDamagedError for an
        index file that is missing or damaged."""
        paimon = self.table.paimon
        vectors = {}
        for entry in self.entries.get(bucket, ()):
            path = paimon.path_factory().bucket_index_path(
                bucket[0], bucket[1], entry.index_file, paimon.file_io
            )
            try:
                with contextlib.closing(paimon.file_io.new_input_stream(path)) as stream:
                    content = bytes(stream.read())
                for name, vector in (entry.index_file.dv_ranges or {}).items():
                    vectors[name] = deleted_rows(content[vector.offset :])
            except (OSError, ValueError) as error:
                raise damaged(f"The deletion vectors in {path}", error) from error
        return vectors

    def changed(
        self,
        bucket: Bucket,
        marked: Mapping[str, _Rows],
        gone: Collection[str],
        file_name: str,
    ) -> ChangedVectors | None:
        """Rewrite the vectors of a bucket into the index file `file_name`; None if nothing changes.
        Where none is left, a table with a primary key gets a file without vectors, and an append
        table none: `BucketedDvMaintainer`, `AppendDeleteFileMaintainer`.

        `marked` are rows of data files, by name, that are deleted now; `gone` are the names of data
        files that are no longer there.
        """
        before = self.entries.get(bucket, ())
        has_gone = not self.marked_files(bucket).isdisjoint(gone)
        if not has_gone and not any(len(rows) for rows in marked.values()):
            return None
        vectors = {name: rows for name, rows in self.vectors(bucket).items() if name not in gone}
        is_new = False
        for name, rows in marked.items():
            if name in gone or not len(rows):
                continue
            known = vectors.get(name, rows[:0])
            vectors[name] = united_rows([known, rows])
            is_new |= len(vectors[name]) > len(known)
        if not has_gone and not is_new:
            return None
        deletes = tuple(replace(entry, kind=DELETE) for entry in before)
        if not vectors and not self.table.schema.is_primary_key_table:
            return ChangedVectors((), deletes)
        return ChangedVectors((self._written(bucket, vectors, file_name),), deletes)

    def _written(
        self, bucket: Bucket, vectors: Mapping[str, _Rows], file_name: str
    ) -> IndexManifestEntry:
        """Write an index file, and return its entry."""
        is_64_bit = self.table.schema.flag("deletion-vectors.bitmap64")
        content, stored = vector_file(vectors, is_64_bit=is_64_bit)
        paimon = self.table.paimon
        path, is_external = paimon.path_factory().new_bucket_index_path(*bucket, file_name)
        with paimon.file_io.new_output_stream(path) as stream:
            stream.write(content)
        meta = IndexFileMeta(
            index_type=IndexManifestFile.DELETION_VECTORS_INDEX,
            file_name=file_name,
            file_size=len(content),
            row_count=len(stored),
            dv_ranges={
                vector.data_file: DeletionVectorMeta(
                    vector.data_file, vector.offset, vector.length, vector.rows
                )
                for vector in stored
            },
            external_path=path if is_external else None,
        )
        row = GenericRow(list(bucket[0]), paimon.partition_keys_fields)
        return IndexManifestEntry(ADD, row, bucket[1], meta)


def vector_index(table: Table, snapshot: Any) -> VectorIndex:
    """The deletion vectors of one of pypaimon's snapshots; none for None."""
    manifest = None if snapshot is None else snapshot.index_manifest
    entries: dict[Bucket, tuple[IndexManifestEntry, ...]] = {}
    for entry in IndexManifestFile(table.paimon).read(manifest) if manifest else ():
        if entry.index_file.index_type == IndexManifestFile.DELETION_VECTORS_INDEX:
            key = (tuple(entry.partition.values), entry.bucket)
            entries[key] = (*entries.get(key, ()), entry)
    return VectorIndex(table, entries)
