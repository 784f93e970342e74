"""The paths of data files, from partition, bucket and name, or from a recorded external path.

No folder is listed and no file opened. Paths are built column by column, a hundred thousand at
once. Source: Paimon's `DataFilePathFactory` and `FileStorePathFactory.bucketPath`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_rows

__all__ = ["file_paths"]

_TEXT = pa.large_string()


def file_paths(
    files: pa.Table,
    partition_types: Sequence[pa.DataType],
    first_bucket_folder: Callable[[tuple[Any, ...]], str],
) -> pa.Array:
    """The path of each of `files` (`partition`, `bucket`, `file_name`, `external_path`), as text.

    `first_bucket_folder` returns the folder of bucket 0 in the partition with these values, of the
    types `partition_types`. It is called once for each partition.
    """
    partitions = files["partition"].combine_chunks().dictionary_encode()
    columns = decode_rows(partitions.dictionary, list(partition_types)) if partition_types else []
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    folders = [
        first_bucket_folder(value).rstrip("/").rpartition("/")[0]
        for value in values or [()] * len(partitions.dictionary)
    ]
    # Bucket names are the same in all partitions, and there may be as many buckets as files.
    buckets, members = np.unique(np.asarray(files["bucket"]), return_inverse=True)
    called = ["bucket-postpone" if bucket < 0 else f"bucket-{bucket}" for bucket in buckets]
    inside = pc.binary_join_element_wise(
        pa.array(folders, type=_TEXT).take(partitions.indices),
        pa.array(called, type=_TEXT).take(pa.array(members)),
        files["file_name"].combine_chunks().cast(_TEXT),
        pa.scalar("/", type=_TEXT),
    )
    external = files["external_path"].combine_chunks().cast(_TEXT)
    is_elsewhere = pc.greater(pc.fill_null(pc.binary_length(external), 0), 0)
    return pc.if_else(is_elsewhere, external, inside)
