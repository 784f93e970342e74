"""Packing the files of append tables; the expected groups follow Paimon's rules by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.compaction.append_tables import (
    AppendFile,
    AppendRules,
    RowRangeFile,
    files_in_order,
    packed_files,
    row_range_bins,
    window_of_files,
)

RULES = AppendRules(target_bytes=100, open_file_cost_bytes=5)
VECTORS = AppendRules(target_bytes=100, open_file_cost_bytes=5, has_deletion_vectors=True)


def sized(*sizes: int) -> list[AppendFile]:
    return [
        AppendFile(f"f{number}", size, rows=10, min_sequence_number=number * 10)
        for number, size in enumerate(sizes)
    ]


def sizes_of(group: tuple[AppendFile, ...]) -> list[int]:
    return [file.size_bytes for file in group]


def test_small_files_are_packed_up_to_twice_the_target() -> None:
    assert [sizes_of(g) for g in packed_files(sized(60, 50, 60, 69, 70, 300), RULES)] == [
        [50, 60, 60, 69]
    ]


def test_too_few_small_files_are_not_packed() -> None:
    assert packed_files(sized(1, 2, 3, 4), RULES) == []
    assert [sizes_of(g) for g in packed_files(sized(5, 1, 2, 3, 4), RULES)] == [[1, 2, 3, 4, 5]]


def test_file_count_limit_applies() -> None:
    rules = AppendRules(
        target_bytes=100, open_file_cost_bytes=0, file_count_max=6, file_count_min=2
    )
    (group,) = packed_files(sized(*[1] * 20), rules)
    assert len(group) == 6


def test_files_sharing_an_index_file_are_packed_together() -> None:
    kept = AppendFile("kept", 500, 10, vector_file="a", deleted_rows=2)
    many = AppendFile("many", 500, 10, vector_file="b", deleted_rows=3)
    unknown = AppendFile("unknown", 500, 10, vector_file="b")
    small = AppendFile("small", 1, 10, vector_file="c", deleted_rows=1)
    assert packed_files([kept, many, unknown, small, *sized(2)], VECTORS) == [
        (small, many, unknown)
    ]
    assert packed_files([small, *sized(2, 3)], VECTORS) == [(small,)]


def test_index_files_are_ignored_without_deletion_vectors() -> None:
    assert packed_files([AppendFile("large", 500, 10, vector_file="b")], RULES) == []


def test_writer_compaction_picks_the_oldest_window() -> None:
    assert sizes_of(window_of_files(reversed(sized(1, 2, 3, 4, 5, 6)), RULES)) == [1, 2, 3, 4, 5]
    assert sizes_of(window_of_files(sized(150, 50, 1, 2, 3, 4, 5), RULES)) == [50, 1, 2, 3, 4]
    assert window_of_files(sized(1, 2, 3, 4), RULES) == ()


def test_full_compaction_keeps_order_and_leading_large_files() -> None:
    assert sizes_of(files_in_order(sized(90, 80, 1, 90, 2), RULES)) == [1, 90, 2]
    assert files_in_order(sized(1, 90, 90, 2), RULES) == ()
    assert files_in_order(sized(90, 1, 2), RULES) == ()
    assert files_in_order(sized(1, 2), RULES) == ()
    assert sizes_of(files_in_order(sized(90, 1), VECTORS)) == [1]
    first = AppendFile("first", 90, 10, -1, vector_file="a", deleted_rows=1)
    assert files_in_order([*sized(90), first], VECTORS) == (first, *sized(90))
    everything = AppendRules(target_bytes=100, rewrites_all_files=True)
    assert sizes_of(files_in_order(sized(90, 90), everything)) == [90, 90]


@given(
    sizes=st.lists(st.integers(1, 300), max_size=40),
    vectors=st.lists(st.sampled_from([None, None, "a", "b", "c"]), min_size=40, max_size=40),
)
def test_no_file_or_index_file_is_in_two_groups(
    sizes: list[int], vectors: list[str | None]
) -> None:
    files = [
        AppendFile(f"f{number}", size, 10, vector_file=vectors[number])
        for number, size in enumerate(sizes)
    ]
    groups = packed_files(files, VECTORS)
    names = [file.name for group in groups for file in group]
    assert len(names) == len(set(names))
    indexes = [index for g in groups for index in {f.vector_file for f in g} if index is not None]
    assert len(indexes) == len(set(indexes))
    assert set(names) >= {file.name for file in files if file.vector_file is not None}


def ranges(*files: tuple[int, int, int]) -> list[RowRangeFile]:
    """Files by first row id, rows and bytes, from the last to the first."""
    return [RowRangeFile(place, *each) for place, each in enumerate(files)][::-1]


def test_files_of_equal_and_adjacent_row_ranges_are_merged() -> None:
    rules = AppendRules(target_bytes=100, open_file_cost_bytes=5, file_count_min=3)
    files = ranges((0, 10, 1), (0, 10, 50), (10, 5, 46), (15, 5, 1), (20, 5, 1), (25, 5, 1))
    # Bytes of 5 + 50 + 46 are more than the target size; the other files are many enough, too.
    assert row_range_bins(files, rules) == [(0, 1, 2), (3, 4, 5)]
    # A gap between row ids ends a bin: two files are too few.
    assert row_range_bins(ranges((0, 1, 1), (1, 1, 1), (3, 1, 1), (4, 1, 1)), rules) == []
    # Rows of more than the target size stay alone, with all of their columns.
    large = ranges((0, 9, 1), (9, 1, 99), (9, 1, 9), (9, 1, 1), (10, 1, 1), (11, 1, 1), (12, 1, 1))
    assert row_range_bins(large, rules) == [(1, 2, 3), (4, 5, 6)]


def test_single_file_forms_no_row_range_bin() -> None:
    rules = AppendRules(target_bytes=100, file_count_min=1)
    assert row_range_bins(ranges((0, 9, 300)), rules) == []
    assert row_range_bins([], rules) == []


def test_partly_overlapping_row_ranges_are_refused() -> None:
    with pytest.raises(TableDamagedError, match="the row ids 0 to 9, the other 5 to 9"):
        row_range_bins(ranges((0, 10, 1), (5, 5, 1)), RULES)
