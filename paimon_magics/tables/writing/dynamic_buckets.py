"""The hash index of a table with dynamic buckets, read for a statement and written by its tasks.

The index of a snapshot is one file of key hashes for each (partition, bucket). A statement plans
on the index of its base snapshot, and its commit adds a new file for each bucket that got new keys.
The commit fails if another commit changed the index of such a partition meanwhile.

The names of our index files begin with the transaction's prefix, so that the files of an attempt
that did not count can be found and removed. With `index-file-in-data-file-dir` they lie in the
folders of their buckets, which the attempt has noted for the data files
(`IndexInDataFileDirPathFactory`).
"""

from __future__ import annotations

import functools
import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.bucket_hash import binary_row_hash
from paimon_magics.columnar.hash_index import (
    PartitionBuckets,
    assigner_of,
    decode_hashes,
    distinct,
    encode_hashes,
)
from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.stores.s3_access import io_options
from paimon_magics.tables.stores.store import open_store
from paimon_magics.tables.writing.attempts import Attempt
from paimon_magics.tables.writing.bucket_counts import Partition
from paimon_magics.tables.writing.new_files import file_path

if TYPE_CHECKING:
    from pypaimon.write.commit_message import CommitMessage

    from paimon_magics.tables.table import Table

INDEX_FOLDER = -100
"""The bucket number by which attempts note that they write in the folder of index files."""

_HASH = "HASH"
_BESIDE_DATA = "index-file-in-data-file-dir"

Assign = Callable[[Partition, npt.NDArray[np.int32]], npt.NDArray[np.int32]]
"""Returns the bucket of each key hash of a partition."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """The file with the key hashes of one (partition, bucket)."""

    partition: Partition
    bucket: int
    path: str


@dataclass(frozen=True, slots=True)
class IndexWritten:
    """An index file that a task wrote. It replaces the earlier file of its (partition, bucket)."""

    partition: Partition
    bucket: int
    name: str
    size_bytes: int
    hashes: int


@dataclass(frozen=True)
class DynamicBuckets:
    """The data that the tasks of a statement need to assign buckets. Picklable and small: about a
    hundred bytes for each bucket.

    `keys` are the primary-key columns that are no partition columns. `index` is the index of the
    base snapshot, empty for an overwrite. `assigners` is the number of assigners that share the
    work. New index files lie in `folder`, or in the folders of their buckets if there is a `table`:
    a pickle of pypaimon's table, which knows these.
    """

    keys: tuple[str, ...]
    rows_per_bucket: int
    buckets_max: int
    assigners: int
    index: tuple[IndexFile, ...]
    folder: str
    file_prefix: str
    location: str
    store_options: tuple[tuple[str, str], ...] = field(repr=False)  # may hold credentials
    table: bytes | None = field(default=None, repr=False)

    def path(self, partition: Partition, bucket: int, name: str) -> str:
        """The path of an index file of a bucket."""
        if self.table is None:
            return f"{self.folder}/{name}"
        return file_path(_unpickled(self.table), partition, bucket, name)

    def hashes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int32]:
        """The key hash of each row."""
        return binary_row_hash([batch.column(key) for key in self.keys])

    def owners(self, batch: pa.RecordBatch, _: Sequence[str]) -> npt.NDArray[np.int32]:
        """The number of the assigner of each row; it does not depend on the partition."""
        return assigner_of(self.hashes(batch), self.assigners)

    def assigner(self) -> Assign:
        """Return a function that assigns buckets. It remembers what it assigned, and reads the
        index of a partition when it first needs it."""
        known: dict[tuple[Partition, int], PartitionBuckets] = {}

        def assign(partition: Partition, hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
            owners = assigner_of(hashes, self.assigners)
            buckets = np.empty(len(hashes), dtype=np.int32)
            for owner in distinct(owners).tolist():
                if (partition, owner) not in known:
                    known[partition, owner] = self._load(partition, owner)
                rows = owners == owner
                buckets[rows] = known[partition, owner].assign(hashes[rows])
            return buckets

        return assign

    def stored(self, partition: Partition, bucket: int) -> npt.NDArray[np.int32]:
        """The key hashes that the index has for a bucket."""
        files = [f for f in self.index if f.bucket == bucket and f.partition == partition]
        return np.concatenate([np.empty(0, dtype=np.int32), *map(self._read, files)])

    def _load(self, partition: Partition, assigner: int) -> PartitionBuckets:
        files = [file for file in self.index if file.partition == partition]
        return PartitionBuckets(
            ((file.bucket, self._read(file)) for file in files),
            assigner=assigner,
            assigners=self.assigners,
            rows_per_bucket=self.rows_per_bucket,
            buckets_max=self.buckets_max,
        )

    def _read(self, file: IndexFile) -> npt.NDArray[np.int32]:
        content = open_store(self.location, dict(self.store_options)).read(file.path)
        if content is None:
            raise TableDamagedError(
                f"The hash index {file.path} of the table is missing. The buckets of its keys are "
                "unknown.",
                hint="Nothing was written. Restore the file, or overwrite the partition.",
            )
        return decode_hashes(content)


class IndexWriter:
    """Collects the key hashes of the rows that a task writes, and writes its buckets' index files.

    Takes four bytes of memory for each row.
    """

    def __init__(self, buckets: DynamicBuckets, running: Attempt) -> None:
        self._buckets = buckets
        self._running = running
        self._store = open_store(buckets.location, dict(buckets.store_options))
        self._seen: dict[tuple[Partition, int], list[npt.NDArray[np.int32]]] = {}
        self._partition: pa.RecordBatch | None = None

    def add(
        self,
        partition: Partition,
        bucket: int,
        hashes: npt.NDArray[np.int32],
        keys: pa.RecordBatch,
    ) -> None:
        """Add the key hashes of rows that go to a bucket. `keys` is the partition as Arrow."""
        self._seen.setdefault((partition, bucket), []).append(distinct(hashes))
        self._partition = keys

    def write(self) -> tuple[IndexWritten, ...]:
        """Write an index file for each bucket that got hashes that its index did not have."""
        if self._partition is not None and self._buckets.table is None:
            self._running.note(self._partition, [INDEX_FOLDER])
        written = []
        for (partition, bucket), seen in self._seen.items():
            stored = self._buckets.stored(partition, bucket)
            union = distinct(np.concatenate([stored, *seen]))
            if len(union) == len(stored):
                continue
            name = f"{self._buckets.file_prefix}index-{self._running.name_part}{uuid.uuid4()}"
            content = encode_hashes(union)
            self._store.create(self._buckets.path(partition, bucket, name), content)
            written.append(IndexWritten(partition, bucket, name, len(content), len(union)))
        return tuple(written)

    def abort(self, written: Iterable[IndexWritten]) -> None:
        """Delete index files that will never be committed."""
        self._store.delete(
            self._buckets.path(file.partition, file.bucket, file.name) for file in written
        )


@functools.lru_cache(maxsize=4)
def _unpickled(table: bytes) -> Any:
    return pickle.loads(table)


def dynamic_buckets(
    table: Table, file_prefix: str, base_snapshot_id: int, slots: int
) -> DynamicBuckets:
    """How a statement assigns buckets on the index of its base snapshot (0 for none). Up to `slots`
    tasks share the work, fewer if the options `dynamic-bucket.*` say so."""
    schema = table.schema
    wanted = [slots]
    for key in ("assigner-parallelism", "initial-buckets", "max-buckets"):
        number = int(schema.option(f"dynamic-bucket.{key}") or -1)
        if number > 0:
            wanted.append(number)
    return DynamicBuckets(
        keys=schema.trimmed_primary_keys,
        rows_per_bucket=int(schema.option("dynamic-bucket.target-row-num") or 2_000_000),
        buckets_max=int(schema.option("dynamic-bucket.max-buckets") or -1),
        assigners=min(wanted),
        index=_hash_index_of(table, base_snapshot_id),
        folder=str(table.paimon.path_factory().index_path()),
        file_prefix=file_prefix,
        location=table.location,
        store_options=io_options(table.paimon),
        table=pickle.dumps(table.paimon) if schema.flag(_BESIDE_DATA) else None,
    )


def _hash_index_of(table: Table, snapshot_id: int) -> tuple[IndexFile, ...]:
    """The hash index of a snapshot; () for a table without snapshots (id 0)."""
    from paimon_magics.tables.snapshots.latest import read_snapshot

    if not snapshot_id:
        return ()
    snapshot = read_snapshot(table.paimon, snapshot_id)
    return () if snapshot is None else hash_index_in(table, snapshot)


def hash_index_in(table: Table, snapshot: Any) -> tuple[IndexFile, ...]:
    """The hash index of one of pypaimon's snapshots."""
    from pypaimon.manifest.index_manifest_file import IndexManifestFile

    if not snapshot.index_manifest:
        return ()
    paimon = table.paimon
    factory = paimon.path_factory()
    return tuple(
        IndexFile(
            partition=tuple(entry.partition.values),
            bucket=entry.bucket,
            path=factory.bucket_index_path(
                tuple(entry.partition.values), entry.bucket, entry.index_file
            ),
        )
        for entry in IndexManifestFile(paimon).read(snapshot.index_manifest)
        if entry.index_file.index_type == _HASH
    )


def put_index_files(
    table: Table, messages: Iterable[CommitMessage], written: Iterable[IndexWritten]
) -> None:
    """Add the index file of its (partition, bucket) to each message. Raises TableDamagedError for
    an index file of a bucket without a message."""
    from pypaimon.index.index_file_meta import IndexFileMeta
    from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
    from pypaimon.table.row.generic_row import GenericRow

    by_owner = {(file.partition, file.bucket): file for file in written}
    fields = table.paimon.partition_keys_fields
    for message in messages if by_owner else ():
        file = by_owner.pop((tuple(message.partition), message.bucket), None)
        if file is not None:
            meta = IndexFileMeta(
                index_type=_HASH,
                file_name=file.name,
                file_size=file.size_bytes,
                row_count=file.hashes,
            )
            message.index_adds.append(
                IndexManifestEntry(ADD, GenericRow(list(file.partition), fields), file.bucket, meta)
            )
    if by_owner:
        raise TableDamagedError(
            f"The writers of `{table.name}` left an index of buckets that they did not write. "
            "Nothing was committed.",
            hint="Run the statement again, and report this with the table's definition.",
        )
