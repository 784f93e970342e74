"""What stays to be watched after keys of a table with dynamic buckets were moved to other buckets.

A writer that read the index before the move still puts rows of these keys into their old bucket,
without a word of it in what it commits. So every snapshot from the move on carries the property
KEYS_MOVED_FOR: the commit user for whom they were moved, whose own index has them right. Commits of
other engines are then looked into: a key in a bucket whose index lacks it is refused. Sessions and
the coordinator's own transactions tell the snapshot that they were planned on, and are checked by
that (`bucket_checks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.tables.manifests.hash_indexes import Bucket, HashIndexes, StaleIndexError
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.splits.stored_files import stored_files, stores_elsewhere
from paimon_magics.tables.table import Table

__all__ = [
    "KEYS_MOVED_FOR",
    "brought_hashes",
    "carried_properties",
    "check_key_buckets",
    "has_moved_keys",
]

_NONE: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
KEYS_MOVED_FOR = PREFIX + "keys-moved-for"
"""The property of a snapshot that tells for whom keys were last moved to other buckets."""


def carried_properties(latest: Mapping[str, Any] | None) -> dict[str, str]:
    """What the properties of the latest snapshot hand on to the next one."""
    user = (latest or {}).get(KEYS_MOVED_FOR)
    return {} if user is None else {KEYS_MOVED_FOR: str(user)}


def check_key_buckets(
    table: Table, added: pa.Table, indexes: HashIndexes, index: Sequence[Any]
) -> None:
    """Raise StaleIndexError if one of the files `added` (columns of MANIFEST_ENTRIES) has a key
    that the index of its bucket lacks. `index` are the entries of the commit's index.

    Reads the key columns of all these files.
    """
    hashes = indexes.hashes_in(table, index)
    for bucket, file in _files(table, added):
        known = hashes.get(bucket)
        for found in _key_hashes(table, file, stores_elsewhere(added)):
            lost = len(found) if known is None else int(np.count_nonzero(~np.isin(found, known)))
            if lost:
                raise StaleIndexError(
                    f"This commit puts {count_text(lost, 'row')} into bucket {bucket[1]} of "
                    f"`{table.name}` whose keys are in another bucket now: they were moved there "
                    "for a streaming job after this writer read the index. They would be in the "
                    "table twice.",
                    hint="Start this job again: it then reads the index as it is now.",
                )


def brought_hashes(
    table: Table, added: pa.Table, bucket: Bucket, hashes: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Those of the `hashes` whose keys are in the files that `added` (columns of MANIFEST_ENTRIES)
    has in the bucket, sorted. Reads the key columns of these files, and of no others."""
    found = hashes[:0]
    for place, file in _files(table, added.filter(pc.equal(added["bucket"], bucket[1]))):
        if place == bucket:
            for one in _key_hashes(table, file, stores_elsewhere(added)):
                found = np.union1d(found, hashes[np.isin(hashes, one)])
    return found


def has_moved_keys(
    table: Table, messages: Sequence[CommitMessage], gone: Mapping[Bucket, npt.NDArray[np.int32]]
) -> bool:
    """Whether new files of the messages have keys of hashes that are `gone` from their buckets.
    Reads the key columns of the files in these buckets."""
    for message in messages:
        lost = gone.get((tuple(message.partition), message.bucket), _NONE)
        for meta in message.new_files if len(lost) else ():
            path = meta.external_path or canonical_data_file_path(
                table.paimon, tuple(message.partition), message.bucket, meta.file_name
            )
            file = StoredFile(
                path,
                meta.file_name.rpartition(".")[2].lower(),
                meta.schema_id,
                meta.row_count,
                meta.file_size,
            )
            if any(np.isin(found, lost).any() for found in _key_hashes(table, file)):
                return True
    return False


def _files(table: Table, added: pa.Table) -> Iterator[tuple[Bucket, StoredFile]]:
    """The files of manifest entries, each with its bucket."""
    if not added.num_rows:
        return
    partitions, of_files = partition_values(table.paimon, added)
    buckets = added["bucket"].to_pylist()
    names = zip(added["file_name"].to_pylist(), added["external_path"].to_pylist(), strict=True)
    paths = [
        outside or canonical_data_file_path(table.paimon, partitions[at], bucket, name)
        for at, bucket, (name, outside) in zip(of_files, buckets, names, strict=True)
    ]
    stored = stored_files(added, np.arange(added.num_rows), pa.array(paths), {})
    for file, at, bucket in zip(stored, of_files, buckets, strict=True):
        yield (partitions[at], bucket), file


def _key_hashes(
    table: Table, file: StoredFile, elsewhere: frozenset[str] = frozenset()
) -> Iterator[npt.NDArray[np.int32]]:
    """The hashes of the keys in a file, batch by batch."""
    keys = table.schema.trimmed_primary_keys
    reader = whole_rows_reader(table, [file.schema_id], elsewhere)
    reader = replace(reader, wanted=tuple(one for one in reader.wanted if one.name in keys))
    for rows in reader.batches(file):
        yield binary_row_hash([rows.column(key) for key in keys])
