"""The indexes of one file: what is indexed, and what is left out."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from paimon_magics.columnar.file_indexes.collection import IndexCollection
from paimon_magics.planning.writes.index_rules import (
    Bitmap,
    BitSlices,
    BloomFilter,
    FileIndex,
    RangeBitmap,
)

BLOOM = BloomFilter(20, 0.1)
BITMAP = Bitmap(2, 16384)
RANGE = RangeBitmap(16384)


def index_of(index: FileIndex, *batches: pa.RecordBatch) -> bytes | None:
    collection = IndexCollection([index])
    for batch in batches:
        collection.add(batch)
    return collection.finish()


@pytest.mark.parametrize(("kind", "rules"), [("bloom-filter", BLOOM), ("bitmap", BITMAP)])
def test_map_key_is_indexed_like_a_column(kind: str, rules: BloomFilter | Bitmap) -> None:
    maps = pa.array(
        [[("a", 1), ("b", 2)], None, [("b", 3)], [], [("a", None)], [("a", 1)]],
        pa.map_(pa.string(), pa.int64()),
    )
    values = pa.array([1, None, None, None, None, 1], pa.int64())
    of_key = index_of(FileIndex("m", "a", kind, rules), pa.record_batch({"m": maps}))
    of_column = index_of(FileIndex("m[a]", None, kind, rules), pa.record_batch({"m[a]": values}))
    assert of_key == of_column is not None


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        ("bloom-filter", BLOOM),
        ("bitmap", BITMAP),
        ("bitmap", Bitmap(1, 0)),
        ("range-bitmap", RANGE),
        ("bsi", BitSlices()),
    ],
)
def test_index_is_independent_of_batches_and_slices(
    kind: str, rules: BloomFilter | Bitmap | RangeBitmap | BitSlices
) -> None:
    rows = pa.record_batch({"c": pa.array([5, None, -3, 5, 0, None, 7, 5] * 40, pa.int32())})
    index = FileIndex("c", None, kind, rules)
    parts = [rows.slice(0, 0), rows.slice(0, 3), rows.slice(3, 100), rows.slice(103)]
    assert index_of(index, *parts) == index_of(index, rows)


def test_all_null_range_bitmap_is_omitted() -> None:
    rows = pa.record_batch({"c": pa.array([None, None], pa.int32())})
    assert index_of(FileIndex("c", None, "range-bitmap", RANGE), rows) is None
    assert index_of(FileIndex("c", None, "bitmap", BITMAP), rows) is not None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -(2**63)], pa.int64()),
        pa.array([Decimal(10**25), None], pa.decimal128(30, 0)),
    ],
)
def test_error_names_the_column_of_an_unindexable_number(column: pa.Array) -> None:
    rows = pa.record_batch({"c": column})
    with pytest.raises(ValueError, match="column `c`: a bsi index"):
        index_of(FileIndex("c", None, "bsi", BitSlices()), rows)


def test_text_longer_than_a_block_gets_its_own_block() -> None:
    rows = pa.record_batch({"c": pa.array(["a", "x" * 5000, "y" * 5000, "z"])})
    stored = index_of(FileIndex("c", None, "bitmap", Bitmap(2, 1024)), rows)
    assert stored is not None
    assert b"y" * 5000 in stored
