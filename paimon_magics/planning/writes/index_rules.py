"""The file index for each column of a table's data files, by the options `file-index.*`.

Source: `FileIndexOptions` and the options that each `FileIndexer` reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.options.values import (
    double_value,
    integer_value,
    memory_size_bytes,
    positive_value,
)
from paimon_magics.planning.schemas.feature_rules import declared_file_indexes
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import AtomicType, DataType, MapType

_PREFIX = "file-index."
_BITS_MAX = 2**31 - 8
_UNCHUNKED = ("BOOLEAN", "TINYINT", "SMALLINT")


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """`bloom-filter`: made for so many items; one in 1 / `false_positives` absent values passes."""

    items: int
    false_positives: float


@dataclass(frozen=True, slots=True)
class Bitmap:
    """`bitmap`, in a version of its format; version 2 keeps the values in blocks."""

    version: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class RangeBitmap:
    """`range-bitmap`, with the values in chunks."""

    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class BitSlices:
    """`bsi`."""


@dataclass(frozen=True, slots=True)
class FileIndex:
    """One index: of a column, or of the values under one key of a MAP column."""

    column: str
    map_key: str | None
    kind: str
    rules: BloomFilter | Bitmap | RangeBitmap | BitSlices

    @property
    def name(self) -> str:
        """The name of the indexed column or key in the index file (`FileIndexCommon.toMapKey`)."""
        return self.column if self.map_key is None else f"{self.column}[{self.map_key}]"


@dataclass(frozen=True, slots=True)
class FileIndexes:
    """The indexes of each data file. Up to `in_manifest_max_bytes` they lie in the manifest, else
    in a file of their own."""

    indexes: tuple[FileIndex, ...]
    in_manifest_max_bytes: int


def file_indexes_of(schema: TableSchema) -> FileIndexes:
    """The indexes that a table asks for; none if it doesn't. Changelog files have none.

    Raises InvalidTableError for options that request an impossible index.
    """
    declared, column_options = declared_file_indexes(schema)
    indexes = []
    for column, map_key, kind in declared:
        data_type = schema.column(column).type
        if map_key is not None and isinstance(data_type, MapType):
            data_type = data_type.value
        # Options of the MAP apply to all of its keys.
        options = dict(column_options.get((kind, column), {}))
        if map_key is not None:
            options |= column_options.get((kind, f"{column}[{map_key}]"), {})
        rules = _rules(kind, f"{_PREFIX}{kind}.{column}.", data_type, options)
        indexes.append(FileIndex(column, map_key, kind, rules))
    in_manifest_max = schema.parsed("file-index.in-manifest-threshold", memory_size_bytes, 500)
    return FileIndexes(tuple(indexes), in_manifest_max)


def _rules(
    kind: str, prefix: str, data_type: DataType, options: Mapping[str, str]
) -> BloomFilter | Bitmap | RangeBitmap | BitSlices:
    if kind == "bloom-filter":
        return _bloom_filter(prefix, options)
    if kind == "bitmap":
        version = integer_value(f"{prefix}version", options.get("version", "2"))
        if version not in (1, 2):
            raise InvalidTableError(
                f"The option '{prefix}version' can't be '{version}'.", hint="Use 1 or 2."
            )
        key = "index-block-size"
        return Bitmap(version, memory_size_bytes(prefix + key, options.get(key, "16kb")))
    if kind == "range-bitmap":
        is_unchunked = isinstance(data_type, AtomicType) and data_type.name in _UNCHUNKED
        size = options.get("chunk-size", "0b" if is_unchunked else "16kb")
        return RangeBitmap(memory_size_bytes(f"{prefix}chunk-size", size))
    return BitSlices()


def _bloom_filter(prefix: str, options: Mapping[str, str]) -> BloomFilter:
    items = positive_value(f"{prefix}items", options.get("items", "1000000"))
    share = double_value(f"{prefix}fpp", options.get("fpp", "0.1"))
    if not 0 < share < 1:
        raise InvalidTableError(
            f"The option '{prefix}fpp' can't be '{share}'.",
            hint="It is the false positive rate: between 0 and 1.",
        )
    if -items * math.log(share) / math.log(2) ** 2 > _BITS_MAX:
        raise InvalidTableError(
            f"The filter of '{prefix}items' = '{items}' and '{prefix}fpp' = '{share}' would take "
            "more than 256 MiB.",
            hint="Set fewer items, or a higher false positive rate.",
        )
    return BloomFilter(items, share)
