"""The check of hash indexes at a commit. They tell which keys are in which dynamic bucket.

A writer reads the indexes when it begins, assigns new keys to buckets by them, and replaces a
bucket's whole index when it commits. Of two writers that began at the same time, the second would
overwrite the additions of the first, and may put the same new key into another bucket. Then the
table would have the key twice. Paimon leaves it to its users to run one writer at a time. Here a
commit that was prepared on an outdated index is refused.

An index file is a list of the keys' hashes, 32 bits big-endian. A hash belongs to one bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pypaimon.manifest.index_manifest_file import IndexManifestFile
from pypaimon.table.bucket_mode import BucketMode

from paimon_magics.columnar.hash_index import decode_hashes
from paimon_magics.errors import CommitConflictError
from paimon_magics.tables.manifests.read_cache import ReadCache
from paimon_magics.tables.table import StoredTable

__all__ = ["HashIndexes", "StaleIndexError"]

_CACHED_BYTES = 64 * 1024 * 1024

Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""


class StaleIndexError(CommitConflictError):
    """The commit's hash index lacks keys of the table's index, or has keys of another bucket."""


class HashIndexes:
    """Compares hash indexes. Caches the last ones, sorted: index files never change."""

    def __init__(self, cached_bytes: int = _CACHED_BYTES) -> None:
        self._cache = ReadCache[npt.NDArray[np.int32]](cached_bytes)

    def check(self, table: StoredTable, before: str | None, after: str | None) -> None:
        """Raise StaleIndexError unless a commit may replace the index manifest `before` by `after`.

        Both are names. Each bucket whose index the commit replaces must keep its keys. It must not
        get a key that another bucket of its partition has.
        """
        if before == after or table.paimon.bucket_mode() != BucketMode.HASH_DYNAMIC:
            return
        old, new = _hash_files(table, before), _hash_files(table, after)
        for bucket, entry in old.items():
            if bucket not in new:
                raise _stale(table, bucket, entry.index_file.row_count)
        for bucket, entry in new.items():
            known = old.get(bucket)
            if known is None or known.index_file.file_name != entry.index_file.file_name:
                self._check_bucket(table, bucket, known, new)

    def _check_bucket(
        self, table: StoredTable, bucket: Bucket, known: Any, new: Mapping[Bucket, Any]
    ) -> None:
        hashes = self._hashes(table, new[bucket])
        if known is None:
            added = hashes
        else:
            before = self._hashes(table, known)
            lost = int(np.count_nonzero(~_in(before, hashes)))
            if lost:
                raise _stale(table, bucket, lost)
            added = hashes[~_in(hashes, before)]
        for other, entry in new.items():
            if other[0] != bucket[0] or other[1] == bucket[1] or not len(added):
                continue
            twice = int(np.count_nonzero(_in(added, self._hashes(table, entry))))
            if twice:
                raise StaleIndexError(
                    f"This commit puts {twice:,} keys into bucket {bucket[1]}{_of(table, bucket)} "
                    f"that are in bucket {other[1]}: another writer has added them since it began. "
                    "They would be in the table twice.",
                    hint=_HINT,
                )

    def _hashes(self, table: StoredTable, entry: Any) -> Any:
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


def _stale(table: StoredTable, bucket: Bucket, lost: int) -> StaleIndexError:
    return StaleIndexError(
        f"The hash index of bucket {bucket[1]}{_of(table, bucket)} that this commit brings lacks "
        f"{lost:,} keys: another writer has added them since it began. They would be in the table "
        "twice when they are written again.",
        hint=_HINT,
    )


def _of(table: StoredTable, bucket: Bucket) -> str:
    keys: Sequence[str] = table.paimon.partition_keys
    where = ", ".join(f"{key} = {value}" for key, value in zip(keys, bucket[0], strict=True))
    return (f" of the partition {where}" if where else "") + f" of `{table.name}`"


def _hash_files(table: StoredTable, name: str | None) -> dict[Bucket, Any]:
    if name is None:
        return {}
    return {
        (tuple(entry.partition.values), entry.bucket): entry
        for entry in IndexManifestFile(table.paimon).read(name)
        if entry.index_file.index_type == IndexManifestFile.HASH_INDEX
    }


def _in(values: Any, others: Any) -> Any:
    """A mask of the `values` that are among the `others`; both are sorted."""
    if not len(others):
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(others, values), len(others) - 1)
    return others[places] == values
