"""The check of hash indexes at a commit. They tell which keys are in which dynamic bucket.

A writer reads the indexes when it begins, assigns new keys to buckets by them, and replaces a
bucket's whole index when it commits. A streaming writer never reads them again. Of two writers that
began at the same time, the second would overwrite the additions of the first, and may put the same
new key into another bucket. Then the table would have the key twice. Paimon leaves it to its users
to run one writer at a time. Here both indexes are united where they do not contradict each other;
a commit that puts a key into another bucket than the table has it in is refused, and the error says
which keys these are, so that the table's rows can be moved (`tables/compaction/key_moves.py`).

An index file is a list of the keys' hashes, 32 bits big-endian. A hash belongs to one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.bucket_mode import BucketMode

from paimon_magics.columnar.hash_index import decode_hashes
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.formatting import count_text
from paimon_magics.tables.manifests.read_cache import ReadCache
from paimon_magics.tables.table import StoredTable, Table

__all__ = ["Bucket", "HashIndexes", "IndexedTable", "MisplacedKeys", "StaleIndexError", "United"]

_CACHED_BYTES = 64 * 1024 * 1024

IndexedTable = Table | StoredTable
Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""


@dataclass(frozen=True, slots=True)
class MisplacedKeys:
    """Keys of a partition that a commit puts into the bucket `bucket`, and that the table has in
    `found_in`, by their `hashes`, sorted."""

    partition: tuple[Any, ...]
    found_in: int
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
    """What a snapshot's index must have for one bucket: `entry` as it is, or a new index file with
    `hashes`, sorted, where that is None. `instead_of` is the commit's own entry, if it has one."""

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
    ) -> list[United]:
        """What a commit's index must get from the table's, so that no key is lost.

        `before` are the entries of the table's index manifest, `after` those of the commit's. A
        bucket of the commit that was written on an older index gets the keys that came since. Where
        that index, `base`, is known, it loses those that went to other buckets since. Raises
        StaleIndexError for keys that the commit puts into other buckets than the table.
        """
        if table.paimon.bucket_mode() != BucketMode.HASH_DYNAMIC:
            return []
        old, new = _by_bucket(before), _by_bucket(after)
        found = []
        misplaced: list[MisplacedKeys] = []
        gone = self.gone(table, base, before)
        for bucket, entry in new.items():
            known = old.get(bucket)
            if known is None or known.index_file.file_name != entry.index_file.file_name:
                written = self._hashes(table, entry)
                hashes = written[~_in(written, gone.get(bucket, written[:0]))]
                present = hashes[:0] if known is None else self._hashes(table, known)
                added = hashes[~_in(hashes, present)]
                misplaced += self._misplaced(table, bucket, added, old, new)
                lost = present[~_in(present, hashes)]
                if len(lost) or len(hashes) < len(written):
                    found.append(United(bucket, None, np.union1d(hashes, lost), entry))
        if misplaced:
            raise _stale(table, misplaced)
        for bucket, entry in old.items():
            if bucket not in new:
                found.append(United(bucket, entry, self._hashes(table, entry), None))
        return found

    def have_met(
        self, table: IndexedTable, base: Sequence[Any], now: Sequence[Any], added: Sequence[Any]
    ) -> bool:
        """Whether the table's index `now` has keys that the entries `added`, which were written on
        the index `base`, add to it: others have added the same keys since."""
        before, present = _by_bucket(base), _by_bucket(now)
        for bucket, entry in _by_bucket(added).items():
            hashes = self._hashes(table, entry)
            known = before.get(bucket)
            if known is not None:
                hashes = hashes[~_in(hashes, self._hashes(table, known))]
            for (partition, _), one in present.items() if len(hashes) else ():
                if partition == bucket[0] and _in(hashes, self._hashes(table, one)).any():
                    return True
        return False

    def count_new(self, table: IndexedTable, before: Sequence[Any], after: Sequence[Any]) -> int:
        """How many hashes the entries `after` have in buckets that lack them in the index `before`.
        Buckets that only `before` has stay as they are."""
        known = _by_bucket(before)
        count = 0
        for bucket, entry in _by_bucket(after).items():
            one = known.get(bucket)
            if one is None or one.index_file.file_name != entry.index_file.file_name:
                hashes = self._hashes(table, entry)
                present = hashes[:0] if one is None else self._hashes(table, one)
                count += int(np.count_nonzero(~_in(hashes, present)))
        return count

    def gone(
        self, table: IndexedTable, base: Sequence[Any], now: Sequence[Any]
    ) -> dict[Bucket, npt.NDArray[np.int32]]:
        """The hashes that were in a bucket in the index `base` and are not in it `now`."""
        present = _by_bucket(now)
        found = {}
        for bucket, entry in _by_bucket(base).items():
            known = present.get(bucket)
            if known is not None and known.index_file.file_name == entry.index_file.file_name:
                continue
            hashes = self._hashes(table, entry)
            left = hashes[:0] if known is None else self._hashes(table, known)
            lost = hashes[~_in(hashes, left)]
            if len(lost):
                found[bucket] = lost
        return found

    def hashes_in(
        self, table: IndexedTable, entries: Sequence[Any]
    ) -> Mapping[Bucket, npt.NDArray[np.int32]]:
        """The sorted hashes of each bucket that has an index among the entries."""
        return {bucket: self._hashes(table, one) for bucket, one in _by_bucket(entries).items()}

    def _misplaced(
        self,
        table: IndexedTable,
        bucket: Bucket,
        added: npt.NDArray[np.int32],
        old: Mapping[Bucket, Any],
        new: Mapping[Bucket, Any],
    ) -> Iterator[MisplacedKeys]:
        """The hashes `added` to a bucket that the table has in other buckets of its partition.
        Raises StaleIndexError for those that the commit itself has in two buckets."""
        others = [other for other in {**old, **new} if other[0] == bucket[0] and other != bucket]
        for other in others if len(added) else ():
            known = old.get(other)
            before = added[:0] if known is None else self._hashes(table, known)
            found = added[_in(added, before)]
            if len(found):
                yield MisplacedKeys(bucket[0], other[1], bucket[1], found)
            left = added[~_in(added, before)]
            twice = left[_in(left, self._hashes(table, new[other]))] if other in new else left[:0]
            if len(twice):
                own = MisplacedKeys(bucket[0], other[1], bucket[1], twice)
                raise _stale(table, [own], may_move=False)

    def _hashes(self, table: IndexedTable, entry: Any) -> Any:
        """The sorted hashes in an index file."""
        path = table.paimon.path_factory().bucket_index_path(
            tuple(entry.partition.values), entry.bucket, entry.index_file, table.paimon.file_io
        )

        def read() -> npt.NDArray[np.int32]:
            with table.paimon.file_io.new_input_stream(path) as source:
                return np.sort(decode_hashes(source.read()))

        return self._cache.get(path, read)


_HINT = (
    "Let one job at a time write to a table with dynamic buckets, and start this one again: it "
    "then reads the index as it is now."
)


def _stale(
    table: IndexedTable, misplaced: Sequence[MisplacedKeys], *, may_move: bool = True
) -> StaleIndexError:
    first = misplaced[0]
    where = _of(table, (first.partition, first.bucket))
    return StaleIndexError(
        f"This commit puts {count_text(len(first.hashes), 'key')} into bucket "
        f"{first.bucket}{where} that are in bucket {first.found_in}: another writer has added them "
        "since it began. They would be in the table twice.",
        hint=_HINT,
        misplaced=misplaced if may_move else (),
    )


def _of(table: IndexedTable, bucket: Bucket) -> str:
    keys: Sequence[str] = table.paimon.partition_keys
    where = ", ".join(f"{key} = {value}" for key, value in zip(keys, bucket[0], strict=True))
    return (f" of the partition {where}" if where else "") + f" of `{table.name}`"


def _by_bucket(entries: Sequence[Any]) -> dict[Bucket, Any]:
    return {
        (tuple(entry.partition.values), entry.bucket): entry
        for entry in entries
        if entry.index_file.index_type == IndexManifestFile.HASH_INDEX
    }


def _in(values: Any, others: Any) -> Any:
    """A mask of the `values` that are among the `others`; both are sorted."""
    if not len(others):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return others[places] == values
