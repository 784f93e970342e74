"""Merge engines, changelog producers, file formats and data types: a table of each.

Code asks for what it needs to know (`engine.keeps_first_row`), not for a name. An unknown name,
which another engine may have stored, has no traits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paimon_magics.statements.data_types import AtomicType, DataType


@dataclass(frozen=True, slots=True)
class MergeEngine:
    """How the rows of one key become one (`CoreOptions.MergeEngine`).

    Either the first or the last row stays as a whole, or values are merged column by column
    (`merges_values`), by the aggregate functions of columns. With `skips_nulls` a NULL leaves a
    value as it is, and columns may have sequence groups. `default_function` is that of columns
    without one. `takes_updates` is whether Paimon offers UPDATE.
    """

    name: str
    keeps_first_row: bool = False
    keeps_last_row: bool = False
    merges_values: bool = False
    skips_nulls: bool = False
    default_function: str | None = None
    takes_updates: bool = False

    @property
    def keeps_whole_rows(self) -> bool:
        """Whether the row of a key is one of the rows that were written."""
        return self.keeps_first_row or self.keeps_last_row

    @property
    def delete_option(self) -> str | None:
        """The option with which a row of the kind -D removes the row of its key, None if there is
        no such option."""
        return f"{self.name}.remove-record-on-delete" if self.merges_values else None


MERGE_ENGINES: Mapping[str, MergeEngine] = {
    engine.name: engine
    for engine in (
        MergeEngine("deduplicate", keeps_last_row=True, takes_updates=True),
        MergeEngine("partial-update", merges_values=True, skips_nulls=True, takes_updates=True),
        MergeEngine(
            "aggregation", merges_values=True, default_function="last_non_null_value"
        ),
        MergeEngine("first-row", keeps_first_row=True),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangelogProducer:
    """Where the changelog of a table comes from (`CoreOptions.ChangelogProducer`): from written
    rows, or from compactions, which look rows up or merge all rows."""

    name: str
    is_input: bool = False
    looks_up: bool = False
    compacts_fully: bool = False

    @property
    def of_compactions(self) -> bool:
        """Whether compactions make it."""
        return self.looks_up or self.compacts_fully


CHANGELOG_PRODUCERS: Mapping[str, ChangelogProducer] = {
    producer.name: producer
    for producer in (
        ChangelogProducer("none"),
        ChangelogProducer("input", is_input=True),
        ChangelogProducer("full-compaction", compacts_fully=True),
        ChangelogProducer("lookup", looks_up=True),
    )
}


NO_CHANGELOG = CHANGELOG_PRODUCERS["none"]


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
WRITTEN_FORMATS = tuple(name for name, traits in FILE_FORMATS.items() if traits.compressions)

Family = Literal[
    "boolean", "integer", "float", "decimal", "text", "binary", "date", "time", "timestamp",
    "timestamp_ltz", "variant", "blob", "nested",
]  # fmt: skip
INTEGER_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
INTEGERS = tuple(INTEGER_BITS)
FLOATS = ("FLOAT", "DOUBLE")
TYPE_FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), "text"),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), "binary"),
    "DECIMAL": "decimal",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp_ltz",
    "VARIANT": "variant",
    "BLOB": "blob",
}
"""The atomic types. Those of a family hold the same kind of values, the narrowest first."""


def types_of(*families: Family) -> tuple[str, ...]:
    """The names of the types of these families."""
    return tuple(name for name, family in TYPE_FAMILIES.items() if family in families)


def family_of(data_type: DataType) -> Family:
    """The family of a type; that of arrays, maps and their like is `nested`."""
    return TYPE_FAMILIES[data_type.name] if isinstance(data_type, AtomicType) else "nested"


def is_type(data_type: DataType, *names: str) -> bool:
    """Whether the type is atomic and has one of these names."""
    return isinstance(data_type, AtomicType) and data_type.name in names
