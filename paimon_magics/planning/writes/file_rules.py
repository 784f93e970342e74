"""How data files of a level and changelog files are written: format, compression, statistics.

Source: `KeyValueFileWriterFactory`, `StatsCollectorFactories`, `SimpleColStatsCollector.from`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.schemas.written_options import values_by_level

_TRUNCATED = re.compile(r"TRUNCATE\((\d+)\)")
_BY_LEVEL = ("file.format.per.level", "file.compression.per.level", "metadata.stats-mode.per.level")
_KEYS_LENGTH = 128
# Readers that search for few keys read whole row groups: these are as large as a merge's batches.
_ROW_GROUP_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics kept for a column: none, the number of NULLs, or also its least and greatest
    values. Texts and binaries are cut to `length` characters or bytes, if it is given."""

    wants_nulls: bool = True
    wants_values: bool = True
    length: int | None = None


NO_STATISTICS = Statistics(wants_nulls=False, wants_values=False)
"""`metadata.stats-mode` = none."""
KEY_STATISTICS = Statistics(length=_KEYS_LENGTH)
"""The statistics of key columns in `DataFileMeta.keyStats`."""


@dataclass(frozen=True, slots=True)
class FileRules:
    """How a file is written. `statistics` are those of the table's columns, by name. `dictionaries`
    tells whether Parquet columns have dictionaries; None leaves that to the writer. A row group has
    `row_group_rows` rows at most."""

    format: str
    compression: str
    zstd_level: int
    statistics: Mapping[str, Statistics]
    dictionaries: bool | None = None
    row_group_rows: int = _ROW_GROUP_ROWS


def data_file_format(schema: TableSchema, level: int) -> str:
    """The format of data files on a level. Raises as `data_file_rules`."""
    return values_by_level(schema, "file.format.per.level").get(level) or schema.file_format


def data_file_rules(schema: TableSchema, level: int) -> FileRules:
    """The rules for data files on a level. Raises InvalidTableError for an option's value that
    can't be read."""
    mode = values_by_level(schema, "metadata.stats-mode.per.level").get(level)
    compression = values_by_level(schema, "file.compression.per.level").get(level)
    dictionaries = schema.stored_option("parquet.enable.dictionary")
    return FileRules(
        format=data_file_format(schema, level),
        compression=compression or schema.option("file.compression") or "",
        zstd_level=schema.parsed("file.compression.zstd-level", integer_value, 1),
        statistics=_statistics(schema, mode or schema.option("metadata.stats-mode") or ""),
        dictionaries=None if dictionaries is None else dictionaries.strip().lower() == "true",
    )


def changelog_file_rules(schema: TableSchema, level: int) -> FileRules:
    """The rules for changelog files that are written with data files of a level; options of their
    own come first. Raises as `data_file_rules`."""
    data = data_file_rules(schema, level)
    mode = schema.option("changelog-file.stats-mode")
    return FileRules(
        format=(schema.option("changelog-file.format") or data.format).lower(),
        compression=schema.option("changelog-file.compression") or data.compression,
        zstd_level=data.zstd_level,
        statistics=data.statistics if mode is None else _statistics(schema, mode),
        dictionaries=data.dictionaries,
    )


def check_file_rules(schema: TableSchema) -> None:
    """Raise InvalidTableError for an option of the table's files whose value can't be read, on any
    level that the options name."""
    levels = {0}.union(*(values_by_level(schema, key) for key in _BY_LEVEL))
    for level in sorted(levels):
        changelog_file_rules(schema, level)  # those of data files among them


def _statistics(schema: TableSchema, mode: str) -> dict[str, Statistics]:
    """A column's own mode comes first, then the keys' where files have no key columns of their own
    (`data-file.thin-mode`); `metadata.stats-keep-first-n-columns` counts the others."""
    first = schema.parsed("metadata.stats-keep-first-n-columns", integer_value, -1)
    keys = schema.trimmed_primary_keys if schema.flag("data-file.thin-mode") else ()
    by_column = {}
    counted = 0
    for name in schema.column_names:
        key = f"fields.{name}.stats-mode"
        own = schema.stored_option(key)
        if own is not None:
            by_column[name] = _mode(key, own)
        elif name in keys:
            by_column[name] = KEY_STATISTICS
            continue
        elif 0 <= first <= counted:
            by_column[name] = NO_STATISTICS
        else:
            by_column[name] = _mode("metadata.stats-mode", mode)
        counted += 1
    return by_column


def _mode(key: str, text: str) -> Statistics:
    match text.upper():
        case "NONE":
            return NO_STATISTICS
        case "COUNTS":
            return Statistics(wants_values=False)
        case "FULL":
            return Statistics()
    cut = _TRUNCATED.fullmatch(text.upper())
    if cut is None or int(cut[1]) == 0:
        raise InvalidTableError(
            f"The option '{key}' can't be '{text}'.",
            hint="Use none, counts, full or truncate(16), with any number of characters above 0.",
        )
    return Statistics(length=int(cut[1]))
