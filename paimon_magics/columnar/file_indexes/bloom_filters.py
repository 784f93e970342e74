"""Index `bloom-filter`: a set of hashes, which tells values that are surely absent.

Source: `BloomFilterFileIndex` and `BloomFilter64`.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.file_indexes.hashes import fast_hashes

__all__ = ["BloomFilterIndex", "bloom_filter_bits"]

_MARKS_PER_PASS = 2**18


class BloomFilterIndex:
    """Collects a column's values and writes their filter, which is made for so many `items` and
    takes one in 1 / `false_positives` absent values for present."""

    def __init__(self, *, items: int, false_positives: float) -> None:
        self._bits = bloom_filter_bits(items, false_positives)
        # Java's Math.round: halves upwards.
        self._hashes = max(1, math.floor(self._bits / items * math.log(2) + 0.5))
        self._filter = np.zeros(self._bits // 8, dtype=np.uint8)

    def add(self, column: pa.Array) -> None:
        """Take the values of further rows."""
        hashes = fast_hashes(column)
        size = max(1, _MARKS_PER_PASS // self._hashes)
        for start in range(0, len(hashes), size):
            part = hashes[start : start + size]
            low = part.astype(np.uint32).view(np.int32)
            high = (part >> np.uint64(32)).astype(np.uint32).view(np.int32)
            times = np.arange(1, self._hashes + 1, dtype=np.int32)
            mixed = (low[:, None] + times * high[:, None]).reshape(-1)
            places = np.where(mixed < 0, ~mixed, mixed) % np.int32(self._bits)
            marks = np.left_shift(1, places & 7, dtype=np.uint8, casting="unsafe")
            np.bitwise_or.at(self._filter, places >> 3, marks)

    def finish(self) -> bytes:
        """The filter of all rows."""
        return self._hashes.to_bytes(4, "big") + self._filter.tobytes()


def bloom_filter_bits(items: int, false_positives: float) -> int:
    """How many bits a filter has (`BloomFilter64`)."""
    bits = int(-items * math.log(false_positives) / (math.log(2) * math.log(2)))
    return bits + 8 - bits % 8
