"""Assigns key hashes to buckets in a table with dynamic buckets.

Every bucket of such a table has an index file of the hashes of its keys (`HashIndexFile`: 32-bit
integers, big-endian). A hash in an index file stays in that bucket permanently. A new hash goes to
a bucket that is not full, or opens a new bucket. Rules: Paimon's `PartitionIndex` and
`SimpleHashBucketAssigner`.

Several assigners may work on one partition at once. Each is responsible for the hashes that
`assigner_of` gives it, and puts new hashes only into its own buckets (`bucket % assigners`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_BUCKETS_MAX = 32767  # Paimon keeps a bucket in a short

Hashes = npt.NDArray[np.int32]
Buckets = npt.NDArray[np.int32]


_Number = TypeVar("_Number", bound=np.integer)


class TooManyBucketsError(ValueError):
    """All buckets that Paimon can number are full."""


def assigner_of(hashes: Hashes, assigners: int) -> npt.NDArray[np.int32]:
    """The assigner, of `assigners`, that is responsible for each hash."""
    remainders = np.fmod(hashes.astype(np.int64), assigners)
    assigner: npt.NDArray[np.int32] = np.abs(remainders).astype(np.int32)
    return assigner


def decode_hashes(content: bytes) -> Hashes:
    """The hashes in an index file. Raises ValueError for a file that was cut off."""
    return np.frombuffer(content, dtype=">i4").astype(np.int32)


def encode_hashes(hashes: Hashes) -> bytes:
    """The content of an index file with these hashes, each once."""
    return distinct(hashes).astype(">i4").tobytes()


class PartitionBuckets:
    """The buckets of one partition, for one assigner.

    `known` has every bucket with its hashes. `rows_per_bucket` is the option
    `dynamic-bucket.target-row-num`, `buckets_max` is `dynamic-bucket.max-buckets` (-1 for no
    limit). It takes 8 bytes of memory for each hash that the assigner is responsible for.
    """

    def __init__(
        self,
        known: Iterable[tuple[int, Hashes]],
        *,
        assigner: int,
        assigners: int,
        rows_per_bucket: int,
        buckets_max: int = -1,
    ) -> None:
        self._assigner = assigner
        self._assigners = assigners
        self._rows_per_bucket = rows_per_bucket
        self._limit = _BUCKETS_MAX if buckets_max == -1 else buckets_max
        self._limited = buckets_max != -1
        self._sizes: dict[int, int] = {}
        self._runs: list[tuple[Hashes, Buckets]] = []
        mine: list[tuple[Hashes, Buckets]] = []
        for bucket, hashes in known:
            if bucket % assigners == assigner:
                self._sizes[bucket] = len(hashes)
            ours = hashes[assigner_of(hashes, assigners) == assigner]
            mine.append((ours, np.full(len(ours), bucket, dtype=np.int32)))
        if mine:
            self._runs.append(_merged(mine))

    def assign(self, hashes: Hashes) -> Buckets:
        """The bucket of each hash; equal hashes get equal buckets, now and later.

        Raises TooManyBucketsError where no bucket is left.
        """
        unique, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        buckets = self._known(unique)
        new = np.flatnonzero(buckets < 0)
        if len(new):
            # In the order of the rows, as in Paimon.
            new = new[np.argsort(first[new], kind="stable")]
            buckets[new] = self._placed(unique[new])
            added = np.sort(new)
            self._remember(unique[added], buckets[added])
        return buckets[inverse]

    def _known(self, unique: Hashes) -> Buckets:
        buckets = np.full(len(unique), -1, dtype=np.int32)
        for hashes, places in self._runs:
            if not len(hashes):
                continue
            at = np.minimum(np.searchsorted(hashes, unique), len(hashes) - 1)
            is_known = hashes[at] == unique
            buckets[is_known] = places[at[is_known]]
        return buckets

    def _placed(self, hashes: Hashes) -> Buckets:
        placed = np.empty(len(hashes), dtype=np.int32)
        start = 0
        for bucket, room in self._rooms():
            taken = min(room, len(hashes) - start)
            placed[start : start + taken] = bucket
            self._sizes[bucket] = self._sizes.get(bucket, 0) + taken
            start += taken
            if start == len(hashes):
                return placed
        owned = np.array(sorted(self._sizes), dtype=np.int32)
        if not self._limited or not len(owned):
            raise TooManyBucketsError(
                f"all {self._limit} buckets have {self._rows_per_bucket:,} rows; raise "
                "'dynamic-bucket.target-row-num'"
            )
        # Beyond the limit buckets grow evenly; Paimon picks one at random.
        placed[start:] = owned[
            np.abs(np.fmod(hashes[start:].astype(np.int64), 65_537)) % len(owned)
        ]
        return placed

    def _rooms(self) -> Iterator[tuple[int, int]]:
        """This assigner's buckets with room, and for how many rows: existing buckets, then new."""
        for bucket in sorted(self._sizes):
            if self._sizes[bucket] < self._rows_per_bucket:
                yield bucket, self._rows_per_bucket - self._sizes[bucket]
        for bucket in range(self._assigner, self._limit, self._assigners):
            if bucket not in self._sizes:
                yield bucket, self._rows_per_bucket

    def _remember(self, hashes: Hashes, buckets: Buckets) -> None:
        """Add a run of sorted hashes, and merge runs until each is more than twice as long as the
        next. So there are few runs to search, and a hash is merged a logarithmic number of times.
        """
        self._runs.append((hashes, buckets))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            last = self._runs.pop()
            self._runs.append(_merged([self._runs.pop(), last]))


def _merged(runs: list[tuple[Hashes, Buckets]]) -> tuple[Hashes, Buckets]:
    hashes = np.concatenate([hashes for hashes, _ in runs])
    buckets = np.concatenate([buckets for _, buckets in runs])
    order = np.argsort(hashes, kind="stable")
    return hashes[order], buckets[order]


# Each number of an array once.


def distinct(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the whole numbers in ascending order, each once. NumPy's `unique` puts them into a
    hash table, which takes 20 to 60 times as long for hashes of keys."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]
