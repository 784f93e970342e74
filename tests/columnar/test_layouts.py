"""Cells, partitions, sorted runs and sizes from the files of a table."""

from __future__ import annotations

import datetime

import pyarrow as pa

from paimon_magics.columnar.layouts import (
    CELLS,
    FILES,
    by_partition,
    cells,
    size_histogram,
    sorted_runs,
)

DAY = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def files(*rows: tuple[str, int, int, int, int]) -> pa.Table:
    """Files by (partition, bucket, level, rows, bytes), a day apart."""
    found = [(*row, DAY + datetime.timedelta(days=number)) for number, row in enumerate(rows)]
    columns = list(zip(*found, strict=True)) if found else [()] * len(FILES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FILES, strict=True)]
    return pa.table(arrays, FILES)


def test_cell_sums_up_the_files_of_a_bucket() -> None:
    actual = cells(
        files(
            ("b", 0, 0, 10, 100),
            ("a", 1, 5, 1, 50),
            ("a", 0, 0, 2, 10),
            ("a", 0, 0, 3, 20),
            ("a", 0, 5, 400, 90),
            ("a", 0, 5, 500, 80),
        ),
        small_below_bytes=50,
    )
    assert actual.schema == CELLS
    assert actual.to_pylist() == [
        dict(zip(CELLS.names, row, strict=True))
        for row in [
            ("a", 0, 905, 200, 4, 2, 2, 3, DAY + datetime.timedelta(days=5)),
            ("a", 1, 1, 50, 1, 0, 0, 1, DAY + datetime.timedelta(days=1)),
            ("b", 0, 10, 100, 1, 0, 1, 1, DAY),
        ]
    ]
    summed = by_partition(actual).to_pylist()
    assert [row["partition"] for row in summed] == ["a", "b"]
    assert summed[0]["bucket_count"] == 2
    assert summed[0]["record_count"] == 906
    assert summed[0]["sorted_run_count"] == 3


def test_level_0_files_and_higher_levels_are_sorted_runs() -> None:
    actual = files(("", 0, 0, 1, 1), ("", 0, 0, 1, 1), ("", 0, 4, 1, 1), ("", 0, 4, 1, 1))
    assert len(set(sorted_runs(actual).to_pylist())) == 3


def test_no_files_have_no_cells() -> None:
    actual = cells(files(), 10)
    assert actual.num_rows == 0
    assert by_partition(actual).num_rows == 0
    assert sum(size_histogram(files(), 1024).file_counts) == 0


def test_size_histogram_uses_powers_of_two_up_to_twice_the_target() -> None:
    sizes = (0, 1, 2, 1023, 1024, 2047, 2048, 10**9)
    actual = size_histogram(files(*(("", 0, 0, 1, size) for size in sizes)), 1024)
    assert actual.edges_bytes == (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    assert dict(zip(actual.edges_bytes, actual.file_counts, strict=True)) == {
        **dict.fromkeys(actual.edges_bytes, 0),
        **{0: 1, 1: 1, 2: 1, 512: 1, 1024: 2, 2048: 2},
    }
    assert actual.total_bytes[-1] == 2048 + 10**9
