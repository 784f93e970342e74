"""Whether dictionaries are worth their while in the Parquet files of a statement.

The native writer collects the values of every column in a dictionary until it has a megabyte of
them, and only then takes them as they are: for columns whose values don't repeat that is half of
its work, and makes larger files. It can be told for all columns alone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DICTIONARY_OPTION", "repeats_values"]

DICTIONARY_OPTION = "parquet.enable.dictionary"

_ROWS_MIN = 8_192
_ROWS_MAX = 16_384
_REPEATED_SHARE = 4  # a value comes so many times on average


def repeats_values(rows: pa.RecordBatch) -> bool:
    """Whether columns of `rows`, the first ones of many, gain by a dictionary: a text or bytes
    column whose values repeat, or columns with half of the bytes. True where that is unknown.
    """
    if rows.num_rows < _ROWS_MIN:
        return True
    sample = rows.slice(0, _ROWS_MAX)
    repeated_bytes = 0
    for column in sample.columns:
        if pa.types.is_nested(column.type):
            return True
        if pc.count_distinct(column, mode="all").as_py() * _REPEATED_SHARE <= sample.num_rows:
            if _has_own_lengths(column.type):
                return True
            repeated_bytes += column.nbytes
    return bool(repeated_bytes * 2 >= sample.nbytes)


def _has_own_lengths(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
