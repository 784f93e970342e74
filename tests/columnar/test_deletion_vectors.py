"""Deletion vectors in both layouts, written by a library of their format."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from paimon_magics.columnar.deletion_vectors import deleted_rows, united_rows, vector_file


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
def test_random_rows_are_read(rows: set[int]) -> None:
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
def test_damaged_vector_is_refused(damage, told: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=told):
        deleted_rows(damage(in_32_bits({1, 2, 3})))


WIDE = [[], [3], [2**32 - 1, 2**32, 2**32 + 7], [5, 3 * 2**32]]


@pytest.mark.parametrize("is_64_bit", [False, True])
def test_index_file_holds_the_given_vectors(is_64_bit: bool) -> None:
    vectors = {f"data-{len(rows)}": np.array(sorted(rows), dtype=np.int64) for rows in ROWS}
    if is_64_bit:
        vectors |= {f"wide-{i}": np.array(rows, dtype=np.int64) for i, rows in enumerate(WIDE)}
    content, stored = vector_file(vectors, is_64_bit=is_64_bit)
    assert content[0] == 1
    assert [each.data_file for each in stored] == list(vectors)
    for each in stored:
        assert np.array_equal(deleted_rows(content[each.offset :]), vectors[each.data_file])
        (size,) = struct.unpack_from(">i", content, each.offset)
        assert each.length == (size + 8 if is_64_bit else size)
        assert each.rows == len(vectors[each.data_file])


def test_index_file_without_vectors_holds_only_its_version() -> None:
    assert vector_file({}, is_64_bit=False) == (b"\1", [])


def test_32_bit_vector_refuses_larger_row_numbers() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        vector_file({"data": np.array([2**31])}, is_64_bit=False)


@given(st.lists(st.lists(st.integers(0, 20)), min_size=1))
def test_united_rows_have_no_duplicates(parts: list[list[int]]) -> None:
    united = united_rows([np.array(sorted(part), dtype=np.int64) for part in parts])
    assert united.tolist() == sorted(set().union(*parts))
