"""The formats of data files, and what each can do here.

Code asks for what it needs to know (`file_format.limits_rows`), not for a name. An unknown name,
which another engine may have stored, has no traits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of data files. Without `compressions` files of this format are not written here:
    other codecs fail in Java, too, or would fail only in the tasks.

    `is_spark_exact` says that a raw scan reads most types as Paimon does, `limits_rows` that a file
    can end after a number of rows, `timestamp_digits_max` how fine timestamps are.
    """

    name: str
    compressions: tuple[str, ...] = ()
    is_spark_exact: bool = False
    limits_rows: bool = False
    timestamp_digits_max: int = 9


FILE_FORMATS: Mapping[str, FileFormat] = {
    file_format.name: file_format
    for file_format in (
        FileFormat(
            "parquet",
            ("none", "uncompressed", "snappy", "gzip", "gz", "lz4", "lz4_raw", "zstd"),
            is_spark_exact=True,
            limits_rows=True,
        ),
        FileFormat(
            "orc",
            ("none", "uncompressed", "snappy", "lz4", "zlib", "zstd"),
            is_spark_exact=True,
        ),
        FileFormat(
            "avro",
            ("none", "null", "bzip2", "deflate", "snappy", "xz", "zstandard", "zstd"),
            timestamp_digits_max=6,
        ),
        # These need an engine's plug-in, or are for format tables only.
        *map(FileFormat, ("row", "blob", "lance", "mosaic", "vortex", "csv", "json", "text")),
    )
}
WRITTEN_FORMATS = tuple(name for name, known in FILE_FORMATS.items() if known.compressions)
