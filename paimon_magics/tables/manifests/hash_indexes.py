"""The check of hash indexes at a commit. A hash index records which keys are in which dynamic
bucket.

A writer reads the indexes when it begins, assigns new keys to buckets by them, and replaces a
bucket's whole index when it commits. A streaming writer never reads them again. Of two writers that
began at the same time, the second would overwrite the additions of the first, and may put the same
new key into another bucket. Then the table would have the key twice. Paimon requires its users to
run one writer at a time. Here both indexes are united if they do not contradict each other. A
commit that puts a key into another bucket than the table is refused. The error names these keys, so
that the table's rows can be moved (`tables/compaction/key_moves.py`).

Not every key in a commit's index was added by its writer. Paimon's writer assigns keys by the index
as it was when it met the partition (HashBucketAssigner), and adds to a bucket's index as that was
when it began to write to the bucket (DynamicBucketIndexMaintainer): so it still has keys that
others added in between and that were moved since. The new files of the bucket show which keys the
writer added.

An index file is a list of the keys' hashes, 32 bits big-endian. A hash belongs to one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.bucket_mode import BucketMode

from paimon_magics.columnar.hash_index import decode_hashes
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.manifests.columns import ReadCache
from paimon_magics.tables.manifests.names import index_path
from paimon_magics.tables.manifests.partitions import partition_text
from paimon_magics.tables.table import StoredTable, Table

_NONE: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_CACHED_BYTES = 64 * 1024 * 1024

IndexedTable = Table | StoredTable
Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""
Brought = Callable[[Bucket, npt.NDArray[np.int32]], npt.NDArray[np.int32]]
"""Those of some sorted hashes whose keys the new files of a commit's bucket have."""


@dataclass(frozen=True, slots=True)
class MisplacedKeys:
    """Keys of a partition that a commit puts into the bucket `bucket`, and that the table has in
    `present_in`, by their `hashes`, sorted."""

    partition: tuple[Any, ...]
    present_in: int
    bucket: int
    hashes: npt.NDArray[np.int32]


class StaleIndexError(CommitConflictError):
    """The commit puts keys into other buckets than the table's index has them in: `misplaced`."""

    def __init__(
        self, message: str, *, hint: str = "", misplaced: Sequence[MisplacedKeys] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.misplaced = tuple(misplaced)


@dataclass(frozen=True, slots=True)
class United:
    """The index of a snapshot for one bucket: `entry` as it is, or if that is None, a new index
    file with the sorted `hashes`. `instead_of` is the commit's own entry, if it has one."""

    bucket: Bucket
    entry: Any
    hashes: npt.NDArray[np.int32]
    instead_of: Any


class HashIndexes:
    """Compares hash indexes. Caches the last ones, sorted: index files never change."""

    def __init__(self, cached_bytes: int = _CACHED_BYTES) -> None:
        self._cache = ReadCache[npt.NDArray[np.int32]](cached_bytes)

    def lacking(
        self,
        table: IndexedTable,
        before: Sequence[Any],
        after: Sequence[Any],
        base: Sequence[Any] = (),
        brought: Brought | None = None,
    ) -> list[United]:
        """The hashes that a commit's index must take from the table's index, so that no key is
        lost.

        `before` are the entries of the table's index manifest, `after` those of the commit's. A
        bucket of the commit that was written on an older index gets the keys added since. It loses
        the keys that moved to other buckets since: according to that index, `base`, if known, else
        according to `brought`, if the commit has no rows of these keys. Raises StaleIndexError for
        keys that the commit puts into other buckets than the table.
        """
        if table.paimon.bucket_mode() != BucketMode.HASH_DYNAMIC:
            return []
        old, new = _by_bucket(before), _by_bucket(after)
        union = []
        misplaced: list[MisplacedKeys] = []
        gone = self.gone(table, base, before)
        read = partial(self._hashes, table)
        present, written, own = _Index(old, read), _Index(new, read), _Index(new, read)
        changed = {
            bucket: entry
            for bucket, entry in new.items()
            if bucket not in old or old[bucket].index_file.file_name != entry.index_file.file_name
        }
        for bucket in changed:
            own[bucket] = (
                _without(written[bucket], gone.get(bucket, _NONE))
                if brought is None
                else _own(bucket, present, written, brought)
            )
        for bucket, entry in changed.items():
            misplaced += _misplaced(table, bucket, present, own)
            lost = _without(present[bucket], own[bucket])
            if len(lost) or len(own[bucket]) < len(written[bucket]):
                union.append(United(bucket, None, np.union1d(own[bucket], lost), entry))
        if misplaced:
            raise _stale(table, misplaced)
        for bucket, entry in old.items():
            if bucket not in new:
                union.append(United(bucket, entry, self._hashes(table, entry), None))
        return union

    def have_met(
        self, table: IndexedTable, base: Sequence[Any], now: Sequence[Any], added: Sequence[Any]
    ) -> bool:
        """Whether the table's index `now` has keys that the entries `added`, which were written on
        the index `base`, add to it: others have added the same keys since."""
        present = _by_bucket(now)
        return any(
            _in(hashes, self._hashes(table, entry)).any()
            for bucket, hashes in self._gone(table, added, base)
            for (partition, _), entry in present.items()
            if partition == bucket[0]
        )

    def count_new(self, table: IndexedTable, before: Sequence[Any], after: Sequence[Any]) -> int:
        """How many hashes the entries `after` have in buckets that lack them in the index `before`.
        Buckets that only `before` has stay as they are."""
        return sum(len(hashes) for _, hashes in self._gone(table, after, before))

    def gone(
        self, table: IndexedTable, base: Sequence[Any], now: Sequence[Any]
    ) -> dict[Bucket, npt.NDArray[np.int32]]:
        """The hashes that are in a bucket in the index `base` and not in the index `now`."""
        return dict(self._gone(table, base, now))

    def _gone(
        self, table: IndexedTable, base: Sequence[Any], now: Sequence[Any]
    ) -> Iterator[tuple[Bucket, npt.NDArray[np.int32]]]:
        """`gone`, with the hashes of one bucket at a time in memory."""
        present = _by_bucket(now)
        for bucket, entry in _by_bucket(base).items():
            other = present.get(bucket)
            if other is not None and other.index_file.file_name == entry.index_file.file_name:
                continue
            hashes = self._hashes(table, entry)
            if other is not None:
                hashes = _without(hashes, self._hashes(table, other))
            if len(hashes):
                yield bucket, hashes

    def hashes_in(
        self, table: IndexedTable, entries: Sequence[Any]
    ) -> Mapping[Bucket, npt.NDArray[np.int32]]:
        """The sorted hashes of each bucket that has an index among the entries."""
        by_bucket = _by_bucket(entries)
        return {bucket: self._hashes(table, entry) for bucket, entry in by_bucket.items()}

    def _hashes(self, table: IndexedTable, entry: Any) -> Any:
        """The sorted hashes in an index file."""
        path = index_path(table.paimon, entry)

        def read() -> npt.NDArray[np.int32]:
            with table.paimon.file_io.new_input_stream(path) as source:
                return np.sort(decode_hashes(source.read()))

        return self._cache.get(path, read)


class _Index:
    """The sorted hashes of each bucket of an index, which are read when they are asked for. Those
    of a bucket may be set; one without an entry has none."""

    def __init__(
        self, entries: Mapping[Bucket, Any], read: Callable[[Any], npt.NDArray[np.int32]]
    ) -> None:
        self._entries, self._read = entries, read
        self._set: dict[Bucket, npt.NDArray[np.int32]] = {}

    def __setitem__(self, bucket: Bucket, hashes: npt.NDArray[np.int32]) -> None:
        self._set[bucket] = hashes

    def __getitem__(self, bucket: Bucket) -> npt.NDArray[np.int32]:
        if bucket in self._set:
            return self._set[bucket]
        entry = self._entries.get(bucket)
        return _NONE if entry is None else self._read(entry)

    def others(self, bucket: Bucket) -> Iterator[Bucket]:
        """The other buckets of a bucket's partition."""
        return (entry for entry in self._entries if entry[0] == bucket[0] and entry != bucket)


def _own(
    bucket: Bucket, present: _Index, written: _Index, brought: Brought
) -> npt.NDArray[np.int32]:
    """The hashes of a commit's bucket without those that other buckets have as well and that its
    writer has not put there."""
    added = _without(written[bucket], present[bucket])
    doubtful = added[:0]
    for index in (present, written) if len(added) else ():
        for other in index.others(bucket):
            doubtful = np.union1d(doubtful, added[_in(added, index[other])])
    return _without(written[bucket], _without(doubtful, brought(bucket, doubtful)))


def _misplaced(
    table: IndexedTable, bucket: Bucket, present: _Index, own: _Index
) -> Iterator[MisplacedKeys]:
    """The hashes that a commit adds to a bucket and that the table has in other buckets of its
    partition. Raises StaleIndexError for those that the commit itself has in two buckets."""
    added = _without(own[bucket], present[bucket])
    others = {*present.others(bucket), *own.others(bucket)}
    for other in sorted(others, key=lambda bucket: bucket[1]) if len(added) else ():
        elsewhere = added[_in(added, present[other])]
        if len(elsewhere):
            yield MisplacedKeys(bucket[0], other[1], bucket[1], elsewhere)
        left = _without(added, present[other])
        twice = left[_in(left, own[other])]
        if len(twice):
            doubled = MisplacedKeys(bucket[0], other[1], bucket[1], twice)
            raise _stale(table, [doubled], may_move=False)


_HINT = (
    "Let only one job at a time write to a table with dynamic buckets, and restart this one so "
    "that it reads the current index."
)


def _stale(
    table: IndexedTable, misplaced: Sequence[MisplacedKeys], *, may_move: bool = True
) -> StaleIndexError:
    first = misplaced[0]
    where = _of(table, (first.partition, first.bucket))
    return StaleIndexError(
        f"This commit puts {count_text(len(first.hashes), 'key')} into bucket "
        f"{first.bucket}{where} that are in bucket {first.present_in}: another writer has added "
        "them since this commit's statement began. The table would contain the keys twice.",
        hint=_HINT,
        misplaced=misplaced if may_move else (),
    )


def _of(table: IndexedTable, bucket: Bucket) -> str:
    where = partition_text(table.paimon.partition_keys, bucket[0])
    return (f" of the partition {where}" if where else "") + f" of `{table.name}`"


def _by_bucket(entries: Sequence[Any]) -> dict[Bucket, Any]:
    return {
        (tuple(entry.partition.values), entry.bucket): entry
        for entry in entries
        if entry.index_file.index_type == IndexManifestFile.HASH_INDEX
    }


def _without(values: npt.NDArray[np.int32], others: Any) -> npt.NDArray[np.int32]:
    """The `values` that are not among the `others`; all are sorted."""
    left: npt.NDArray[np.int32] = values[~_in(values, others)]
    return left


def _in(values: Any, others: Any) -> Any:
    """A mask of the `values` that are among the `others`; both are sorted."""
    if not len(others):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return others[places] == values
