"""Decides whether a statement's Parquet files get dictionaries.

The native writer collects the values of each column in a dictionary of up to a megabyte before it
writes values plainly. For columns whose values don't repeat that is half of its work, and makes
files larger. Its option holds for all columns together.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DICTIONARY_OPTION", "repeating_columns", "repeats_values"]

DICTIONARY_OPTION = "parquet.enable.dictionary"

_ROWS_MIN = 8_192
_ROWS_MAX = 16_384
_REPEATED_SHARE = 4  # how often a value occurs on average, at least


def repeats_values(rows: pa.RecordBatch) -> bool:
    """Whether the values of `rows`, the first of many, repeat so that dictionaries pay: those of a
    text or bytes column, or of columns with half of all bytes. True for nested columns and too few
    rows, where that is unknown."""
    if rows.num_rows < _ROWS_MIN:
        return True
    sample = rows.slice(0, _ROWS_MAX)
    repeated_bytes = 0
    for column in sample.columns:
        if pa.types.is_nested(column.type):
            return True
        if _repeats(column):
            if _has_own_lengths(column.type):
                return True
            repeated_bytes += column.nbytes
    return bool(repeated_bytes * 2 >= sample.nbytes)


def repeating_columns(rows: pa.Table) -> list[str] | bool:
    """The columns that get dictionaries in a file whose first rows are `rows`; True for all of
    them: where few rows tell nothing, and with nested columns, whose parts have names of their own.
    """
    if rows.num_rows < _ROWS_MIN or any(pa.types.is_nested(one.type) for one in rows.schema):
        return True
    sample = rows.slice(0, _ROWS_MAX)
    return [name for name in sample.column_names if _repeats(sample.column(name))]


def _repeats(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether each value occurs `_REPEATED_SHARE` times on average."""
    distinct_max = len(values) // _REPEATED_SHARE
    # The first values alone may be too many different ones.
    return all(
        pc.count_distinct(some, mode="all").as_py() <= distinct_max
        for some in (values.slice(0, distinct_max + 1), values)
    )


def _has_own_lengths(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
