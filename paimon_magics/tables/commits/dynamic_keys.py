"""Keys of tables with dynamic buckets at a commit: united hash indexes, moved keys, and keys that a
stream may also add.

A writer that read the index before keys were moved still puts their rows into the old bucket, and
its commit doesn't show that. So every snapshot since the move carries the property KEYS_MOVED_FOR:
the commit user for whom the keys were moved. The index of this user is right. Commits of other
engines are searched for keys that the index of their bucket lacks, and refused. Sessions and the
coordinator's own transactions name the snapshot that they were planned on, and are checked by that
(`commit_checks`).

Keys are read from the data files that a commit adds, or that others have added: key columns only.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.columnar.hash_index import encode_hashes
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.compaction.schedule import obstacle_to_moves
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.tables.commits.receipts import is_of_log
from paimon_magics.tables.manifests.hash_indexes import (
    Bucket,
    HashIndexes,
    IndexedTable,
    StaleIndexError,
    United,
)
from paimon_magics.tables.manifests.names import (
    ADD,
    MetadataNames,
    NamedIndexManifests,
    index_path,
    manifest_folder,
)
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.snapshots.other_engines import streaming_jobs
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.splits.stored_files import stored_files, stores_elsewhere
from paimon_magics.tables.table import Table


def new_file(table: Table, bucket: Bucket, meta: Any) -> StoredFile:
    """A file that a commit message adds to a bucket; `meta` is pypaimon's."""
    return StoredFile(
        meta.external_path or canonical_data_file_path(table.paimon, *bucket, meta.file_name),
        meta.file_name.rpartition(".")[2].lower(),
        meta.schema_id,
        meta.row_count,
        meta.file_size,
    )


def files_by_bucket(table: Table, entries: pa.Table) -> Iterator[tuple[Bucket, StoredFile]]:
    """The files of manifest entries (columns of MANIFEST_ENTRIES), each with its bucket."""
    if not entries.num_rows:
        return
    partitions, of_files = partition_values(table.paimon, entries)
    names = (entries[name].to_pylist() for name in ("bucket", "file_name", "external_path"))
    buckets, paths = [], []
    for at, bucket, name, outside in zip(of_files, *names, strict=True):
        buckets.append((partitions[at], bucket))
        paths.append(outside or canonical_data_file_path(table.paimon, *buckets[-1], name))
    files = stored_files(entries, np.arange(entries.num_rows), pa.array(paths, pa.string()), {})
    yield from zip(buckets, files, strict=True)


def key_batches(
    table: Table, files: Sequence[StoredFile], elsewhere: frozenset[str] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """The key columns of some files; `elsewhere` are the stores of files outside the table's
    folder."""
    keys = table.schema.trimmed_primary_keys
    reader = whole_rows_reader(table, [file.schema_id for file in files], elsewhere)
    reader = replace(reader, wanted=tuple(field for field in reader.wanted if field.name in keys))
    for file in files:
        for rows in reader.batches(file):
            yield rows.select(list(keys))


_NONE: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
KEYS_MOVED_FOR = PREFIX + "keys-moved-for"
"""The property of a snapshot that tells for whom keys were last moved to other buckets."""


_AWAITED_MS = 3_600_000  # a job that has committed nothing for so long is taken to have ended


def carried_properties(latest: Mapping[str, Any] | None) -> dict[str, str]:
    """The properties that the latest snapshot passes on to the next snapshot."""
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
    for bucket, file in files_by_bucket(table, added):
        known = hashes.get(bucket, _NONE)
        for key_hash in _key_hashes(table, file, stores_elsewhere(added)):
            lost = int(np.count_nonzero(~np.isin(key_hash, known)))
            if lost:
                raise StaleIndexError(
                    f"This commit puts {count_text(lost, 'row')} into bucket {bucket[1]} of "
                    f"`{table.name}`. Their keys are in another bucket: they were moved for a "
                    "streaming job after this writer read the index. The table would contain the "
                    "keys twice.",
                    hint="Restart this job so that it reads the current index.",
                )


def brought_hashes(
    table: Table, added: pa.Table, bucket: Bucket, hashes: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Those of the `hashes` whose keys are in the files that `added` (columns of MANIFEST_ENTRIES)
    has in the bucket, sorted. Reads the key columns of these files, and of no others."""
    brought = hashes[:0]
    of_number = added.filter(pc.equal(added["bucket"], bucket[1]))
    for place, file in files_by_bucket(table, of_number):
        if place == bucket:
            for key_hash in _key_hashes(table, file, stores_elsewhere(added)):
                brought = np.union1d(brought, hashes[np.isin(hashes, key_hash)])
    return brought


def has_moved_keys(
    table: Table, messages: Sequence[CommitMessage], gone: Mapping[Bucket, npt.NDArray[np.int32]]
) -> bool:
    """Whether new files of the messages have keys of hashes that are `gone` from their buckets.
    Reads the key columns of the files in these buckets."""
    for message in messages:
        bucket = tuple(message.partition), message.bucket
        lost = gone.get(bucket, _NONE)
        for meta in message.new_files if len(lost) else ():
            hashes = _key_hashes(table, new_file(table, bucket, meta))
            if any(np.isin(key_hash, lost).any() for key_hash in hashes):
                return True
    return False


def _key_hashes(
    table: Table, file: StoredFile, elsewhere: frozenset[str] = frozenset()
) -> Iterator[npt.NDArray[np.int32]]:
    """The hashes of the keys in a file, batch by batch."""
    for keys in key_batches(table, [file], elsewhere):
        yield binary_row_hash(keys.columns)


# Writes an index manifest that unites the hash indexes of a commit and of the table.
#
# A streaming writer commits its prepared files, or fails forever: it can't prepare them again on a
# newer index. So the committer adds to its index the keys that other writers have added meanwhile
# (`hash_indexes`). If the process dies before the snapshot is published, the files written here
# stay, and no snapshot names them; Paimon's `remove_orphan_files` finds them.


@dataclass(frozen=True, slots=True)
class IndexUnion:
    """An index manifest by its name, the paths of the files `written` for it, and of those of the
    commit that it takes the place of."""

    manifest: str
    written: tuple[str, ...]
    superseded: tuple[str, ...]

    def discard(self, table: IndexedTable) -> None:
        """Remove the written files: the commit was not published."""
        _remove(table, self.written)

    def settle(self, table: IndexedTable) -> None:
        """Remove the superseded files: the commit was published with the union."""
        _remove(table, self.superseded)


def write_union(
    table: IndexedTable, manifest: str | None, after: Sequence[Any], united: Sequence[United]
) -> IndexUnion:
    """Write the hashes that `HashIndexes.lacking` found for a commit's index manifest with the
    entries `after` (None and () for a commit without one)."""
    entries, written, superseded = united_entries(table, after, united)
    names = MetadataNames(uuid.uuid4().hex)
    name = NamedIndexManifests(table.paimon, names).write(entries)
    folder = manifest_folder(table.paimon)
    old = () if manifest is None else (f"{folder}/{manifest}",)
    return IndexUnion(name, (f"{folder}/{name}", *written), (*old, *superseded))


def hash_entries(table: IndexedTable, manifest: str | None) -> list[Any]:
    """The entries of hash indexes in an index manifest; [] for None."""
    entries = IndexManifestFile(table.paimon).read(manifest) if manifest is not None else []
    return [e for e in entries if e.index_file.index_type == IndexManifestFile.HASH_INDEX]


def after_adding(entries: Sequence[Any], added: Sequence[Any]) -> list[Any]:
    """The entries of an index with those of `added` in place of earlier ones of their buckets."""
    by_bucket = {
        (tuple(entry.partition.values), entry.bucket): entry for entry in (*entries, *added)
    }
    return list(by_bucket.values())


def united_entries(
    table: IndexedTable, after: Sequence[Any], united: Sequence[United], prefix: str = ""
) -> tuple[list[Any], list[str], list[str]]:
    """Write the index files of a union, with names that begin with `prefix`. Return its entries,
    the paths of the new files, and of those that they take the place of."""
    replaced = {id(bucket.instead_of) for bucket in united}
    entries = [entry for entry in after if id(entry) not in replaced]
    written, superseded = [], []
    for bucket in united:
        if bucket.entry is not None:
            entries.append(bucket.entry)
            continue
        path, entry = write_index_file(table, bucket.bucket, bucket.hashes, f"{prefix}index-")
        written.append(path)
        entries.append(entry)
        superseded.append(index_path(table.paimon, bucket.instead_of))
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


def _remove(table: IndexedTable, paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            table.paimon.file_io.delete(path)


# Prevents a batch from adding keys to a table with dynamic buckets that a streaming job writes, if
# the keys could not be moved for the job.
#
# A streaming job reads the hash indexes when it starts, and can't prepare a commit again. If it
# adds a key that a batch has added before, the coordinator moves the key to the job's bucket,
# unless the table's options forbid it (`planning.compaction.schedule`). Then the job's commit is
# refused, and so is every retry. A batch can be restarted, so the batch is refused instead.
#
# Batches of small inserts are not refused: their rows are already acknowledged.


class StreamedKeysError(CommitConflictError):
    """A batch adds keys to a table whose streaming job could then never commit them."""


def streamed_keys_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[Any], None] | None:
    """Return a check of the latest snapshot (None for none), on which the commit will be published.
    It raises StreamedKeysError. None if there is nothing to check."""
    is_batch = isinstance(request.change, Append | OverwritePartitions | OverwriteTouched)
    added = [entry for message in messages for entry in message.index_adds]
    if not is_batch or not added or is_of_log(dict(request.properties)):
        return None
    indexes = HashIndexes()

    def check(latest: Any) -> None:
        if latest is not None:
            before = hash_entries(table, latest.index_manifest)
            check_streamed_keys(table, latest.id, before, added, indexes)

    return check


def check_streamed_keys(
    table: Table,
    latest_id: int,
    before: Sequence[Any],
    after: Sequence[Any],
    indexes: HashIndexes,
    by: str = "",
) -> None:
    """Raise StreamedKeysError if a batch of the commit user `by` may not add its keys.

    `before` are the entries of the index of the latest snapshot, `after` those that the batch
    replaces them by.
    """
    obstacle = obstacle_to_moves(table.schema)
    if obstacle is None:
        return
    count = indexes.count_new(table, before, after)
    since_ms = int(time.time() * 1000) - _AWAITED_MS
    jobs = streaming_jobs(table.paimon, latest_id, since_ms) if count else ()
    if not jobs or by in {job.user for job in jobs}:
        return
    job = jobs[0]
    raise StreamedKeysError(
        f"This commit adds {count:,} new keys to `{table.name}` while the streaming job {job.user} "
        f"writes to it (last commit: snapshot {job.last_id}). With {obstacle}, keys can't change "
        "buckets, so the job could not commit any of these keys. Nothing was committed.",
        hint="Let the streaming job write these rows, or stop it and wait an hour after its last "
        f"commit. Rows with existing keys can always be written; without {obstacle}, new keys can "
        "be written too.",
    )
