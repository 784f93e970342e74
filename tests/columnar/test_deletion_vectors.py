"""Deletion vectors in both layouts, written by a library of their format."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from paimon_magics.columnar.deletion_vectors import deleted_rows


def in_32_bits(rows: set[int], *, runs: bool = False) -> bytes:
    bitmap = BitMap(rows)
    if runs:
        bitmap.run_optimize()
    data = struct.pack(">i", 1581511376) + bitmap.serialize()
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def in_64_bits(rows: set[int]) -> bytes:
    data = struct.pack("<i", 1681511377) + BitMap64(rows).serialize()
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


ROWS = [
    set(),
    {0},
    {1, 5, 65_535, 65_536, 200_000},
    set(range(10_000)),
    set(range(0, 200_000, 3)),
    {7, *range(70_000, 80_000)},
]


@pytest.mark.parametrize("rows", ROWS, ids=len)
def test_all_kinds_of_containers_are_read(rows: set[int]) -> None:
    for body in (in_32_bits(rows), in_32_bits(rows, runs=True), in_64_bits(rows)):
        assert deleted_rows(body + b"what follows").tolist() == sorted(rows)


@given(st.sets(st.integers(0, 2**31 - 1), max_size=50))
def test_any_rows_are_read(rows: set[int]) -> None:
    for body in (in_32_bits(rows), in_32_bits(rows, runs=True), in_64_bits(rows)):
        assert np.array_equal(deleted_rows(body), sorted(rows))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda body: body[:20], "are needed"),
        (lambda body: body[:12] + b"\xff" + body[13:], "checksum"),
        (lambda body: b"\0\0", "too short"),
    ],
)
def test_a_damaged_vector_is_told(damage, told: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=told):
        deleted_rows(damage(in_32_bits({1, 2, 3})))
