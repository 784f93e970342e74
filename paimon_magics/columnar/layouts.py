"""The layout of a table's files: sums for each partition and bucket, and the spread of sizes.

Files come as columns, one row for a file, in any order. A *cell* is one bucket of one partition. No
object is created for a file or a cell, so a hundred thousand of either take a fraction of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FILES = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("level", pa.int32()),
        pa.field("record_count", pa.int64()),
        pa.field("file_size_in_bytes", pa.int64()),
        pa.field("creation_time", pa.timestamp("ms", "UTC")),
    ]
)
"""The columns of a table of files."""

CELLS = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("bucket", pa.int32()),
        pa.field("record_count", pa.int64()),
        pa.field("file_size_in_bytes", pa.int64()),
        pa.field("file_count", pa.int64()),
        pa.field("small_file_count", pa.int64()),
        pa.field("level_0_file_count", pa.int64()),
        pa.field("sorted_run_count", pa.int64()),
        pa.field("last_update_time", pa.timestamp("ms", "UTC")),
    ]
)
"""The columns of a table of cells: the sums for one bucket of one partition."""

_SUMMED = ("record_count", "file_size_in_bytes", "file_count", "small_file_count",
           "level_0_file_count")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SizeHistogram:
    """The number of files with at least `edges_bytes[i]` and less than the next edge, and their
    bytes. The last range is open-ended."""

    edges_bytes: tuple[int, ...]
    file_counts: tuple[int, ...]
    total_bytes: tuple[int, ...]


def cells(files: pa.Table, small_below_bytes: int) -> pa.Table:
    """The CELLS of FILES, sorted by partition and bucket. A file of less than `small_below_bytes`
    is small."""
    sizes = files.column("file_size_in_bytes")
    marked = files.append_column("file_count", pa.array(np.ones(files.num_rows, dtype=np.int64)))
    marked = marked.append_column(
        "small_file_count", pc.less(sizes, small_below_bytes).cast(pa.int64())
    )
    marked = marked.append_column(
        "level_0_file_count", pc.equal(files.column("level"), 0).cast(pa.int64())
    )
    marked = marked.append_column("sorted_run", sorted_runs(files))
    grouped = marked.group_by(["partition", "bucket"], use_threads=False).aggregate(
        [
            *((name, "sum") for name in _SUMMED),
            ("sorted_run", "count_distinct"),
            ("creation_time", "max"),
        ]
    )
    columns = {
        **{name: grouped.column(f"{name}_sum") for name in _SUMMED},
        "partition": grouped.column("partition"),
        "bucket": grouped.column("bucket"),
        "sorted_run_count": grouped.column("sorted_run_count_distinct"),
        "last_update_time": grouped.column("creation_time_max"),
    }
    table = pa.table([columns[name].cast(CELLS.field(name).type) for name in CELLS.names], CELLS)
    return table.sort_by([("partition", "ascending"), ("bucket", "ascending")])


def by_partition(table: pa.Table) -> pa.Table:
    """The same sums for each partition, with `bucket_count` in place of the bucket.
    `sorted_run_count` is the greatest of the partition's buckets."""
    grouped = table.group_by(["partition"], use_threads=False).aggregate(
        [
            ("bucket", "count"),
            *((name, "sum") for name in _SUMMED),
            ("sorted_run_count", "max"),
            ("last_update_time", "max"),
        ]
    )
    renamed = {
        "partition": grouped.column("partition"),
        "bucket_count": grouped.column("bucket_count"),
        **{name: grouped.column(f"{name}_sum") for name in _SUMMED},
        "sorted_run_count": grouped.column("sorted_run_count_max"),
        "last_update_time": grouped.column("last_update_time_max"),
    }
    return pa.table(renamed).sort_by([("partition", "ascending")])


def sorted_runs(files: pa.Table) -> pa.Array:
    """A number for each file's sorted run, unique within its bucket: each file of level 0 is a run,
    and each higher level is one. Paimon's `LevelSortedRun`."""
    levels = np.asarray(files.column("level")).astype(np.int64)
    numbers = np.where(levels == 0, -1 - np.arange(len(levels)), levels)
    return pa.array(numbers)


def size_histogram(files: pa.Table, target_bytes: int) -> SizeHistogram:
    """The histogram of file sizes. Edges double from about a thousandth of the target file size
    to twice the target."""
    edges, sizes, places = _steps(files, target_bytes)
    counts = np.bincount(places, minlength=len(edges))
    totals = np.bincount(places, weights=sizes.astype(np.float64), minlength=len(edges))
    return SizeHistogram(
        tuple(edges),
        tuple(int(count) for count in counts),
        tuple(int(total) for total in totals),
    )


def partition_sizes(files: pa.Table, target_bytes: int) -> dict[str, list[int]]:
    """The counts of `size_histogram` for each partition: the number of its files in each step."""
    edges, _, places = _steps(files, target_bytes)
    encoded = files.column("partition").combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices).astype(np.int64)
    count = len(encoded.dictionary)
    counts = np.bincount(codes * len(edges) + places, minlength=count * len(edges))
    rows = counts.reshape(count, len(edges)).tolist()
    return dict(zip(encoded.dictionary.to_pylist(), rows, strict=True))


def _steps(
    files: pa.Table, target_bytes: int
) -> tuple[list[int], npt.NDArray[np.int64], npt.NDArray[np.intp]]:
    """The lower edges of the steps, the size of each file, and the step that it is in."""
    edges = sorted({0, *(target_bytes >> shift for shift in range(11)), target_bytes * 2})
    sizes = np.asarray(files.column("file_size_in_bytes")).astype(np.int64)
    return edges, sizes, np.searchsorted(np.array(edges), sizes, side="right") - 1
