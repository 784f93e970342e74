"""The files of a snapshot after messages of a compaction that are not committed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.reads.splits import Deletions
from paimon_magics.tables.manifests.columns import columns_of_entries
from paimon_magics.tables.manifests.live_files import undeleted
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import bucket_key
from paimon_magics.tables.writing.deletion_vector_files import VectorIndex

_FileKey = tuple[bytes, int, str]


def files_after(table: Table, files: pa.Table, written: Sequence[CommitMessage]) -> pa.Table:
    """The live `files` (MANIFEST_ENTRIES) after messages."""
    changed = [
        _entry(table, message, kind, file)
        for message in written
        for kind, some in ((DELETE, message.compact_before), (ADD, message.compact_after))
        for file in some
    ]
    if not changed:
        return files
    return undeleted(pa.concat_tables([files, columns_of_entries(changed)]))


def deletions_after(
    table: Table, deletions: Mapping[_FileKey, Deletions], written: Sequence[CommitMessage]
) -> Mapping[_FileKey, Deletions]:
    """The deletion vectors of data files after messages."""
    vectors = dict(deletions)
    for message in written:
        if not (message.compact_index_adds or message.compact_index_deletes):
            continue
        key = bucket_key(table, tuple(message.partition), message.bucket)
        vectors = {file: vector for file, vector in vectors.items() if file[:2] != key}
        for entry in message.compact_index_adds:
            path = _index_path(table, entry)
            for name, vector in (entry.index_file.dv_ranges or {}).items():
                vectors[(*key, name)] = Deletions(
                    path, vector.offset, vector.length, vector.cardinality
                )
    return vectors


def vectors_after(index: VectorIndex, written: Sequence[CommitMessage]) -> VectorIndex:
    """The index files of deletion vectors after messages."""
    entries = dict(index.entries)
    for message in written:
        if message.compact_index_adds or message.compact_index_deletes:
            entries[tuple(message.partition), message.bucket] = tuple(message.compact_index_adds)
    return VectorIndex(index.table, entries)


def _entry(table: Table, message: CommitMessage, kind: int, file: object) -> ManifestEntry:
    paimon = table.paimon
    partition = GenericRow(list(message.partition), paimon.partition_keys_fields)
    total = paimon.total_buckets if message.total_buckets is None else message.total_buckets
    return ManifestEntry(kind, partition, message.bucket, total, file)


def _index_path(table: Table, entry: IndexManifestEntry) -> str:
    values = tuple(entry.partition.values)
    factory = table.paimon.path_factory()
    return str(factory.bucket_index_path(values, entry.bucket, entry.index_file))
