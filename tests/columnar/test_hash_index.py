"""Dynamic buckets, against a row-by-row model of the rules."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paimon_magics.columnar.hash_index import (
    PartitionBuckets,
    TooManyBucketsError,
    assigner_of,
    decode_hashes,
    encode_hashes,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def buckets(
    known: dict[int, list[int]] | None = None,
    *,
    assigner: int = 0,
    assigners: int = 1,
    rows: int = 3,
    most: int = -1,
) -> PartitionBuckets:
    return PartitionBuckets(
        [(bucket, ints(*hashes)) for bucket, hashes in (known or {}).items()],
        assigner=assigner,
        assigners=assigners,
        rows_per_bucket=rows,
        buckets_max=most,
    )


def test_known_hash_stays_in_its_bucket() -> None:
    actual = buckets({0: [1, 2, 3], 7: [-4, 5]}).assign(ints(5, 1, -4, 5))
    assert actual.tolist() == [7, 0, 7, 7]


def test_new_hashes_fill_open_buckets_before_opening_others() -> None:
    actual = buckets({0: [1, 2], 1: [3]}).assign(ints(10, 11, 12, 13, 14))
    assert actual.tolist() == [0, 1, 1, 2, 2]


def test_equal_hashes_share_a_bucket_and_count_once() -> None:
    partition = buckets(rows=2)
    assert partition.assign(ints(9, 9, 9, 8, 7)).tolist() == [0, 0, 0, 0, 1]
    assert partition.assign(ints(7, 8, 6)).tolist() == [1, 0, 1]


def test_an_assigner_opens_its_own_buckets_only() -> None:
    partition = buckets({0: [3], 1: [1]}, assigner=1, assigners=3, rows=1)
    hashes = ints(*[h for h in range(4, 30) if h % 3 == 1])
    assert all(bucket % 3 == 1 for bucket in partition.assign(hashes))


def test_full_table_with_a_bucket_limit_fills_evenly() -> None:
    actual = buckets(rows=1, most=4).assign(ints(*range(1000, 2000)))
    counts = np.bincount(actual)
    assert len(counts) == 4 and counts.min() > 200


def test_running_out_of_bucket_numbers_is_an_error() -> None:
    with pytest.raises(TooManyBucketsError, match="target-row-num"):
        buckets(rows=1).assign(np.arange(32_768, dtype=np.int32))


def test_index_file_holds_unique_big_endian_integers() -> None:
    content = encode_hashes(ints(7, -2, 7))
    assert content == struct.pack(">ii", -2, 7)
    assert decode_hashes(content).tolist() == [-2, 7]
    with pytest.raises(ValueError):
        decode_hashes(content[:-1])


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_several_assigners_never_put_a_hash_into_two_buckets(
    batches: list[list[int]], assigners: int, rows: int
) -> None:
    everywhere: dict[int, set[int]] = {}
    parts = [buckets(assigner=a, assigners=assigners, rows=rows) for a in range(assigners)]
    for batch in batches:
        hashes = ints(*batch)
        owners = assigner_of(hashes, assigners)
        for assigner, part in enumerate(parts):
            mine = hashes[owners == assigner]
            for hash, bucket in zip(mine.tolist(), part.assign(mine).tolist(), strict=True):
                everywhere.setdefault(hash, set()).add(bucket)
    assert all(len(places) == 1 for places in everywhere.values())
    sizes = np.bincount([next(iter(places)) for places in everywhere.values()] or [0])
    assert sizes.max() <= rows
