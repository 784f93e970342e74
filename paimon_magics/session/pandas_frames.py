"""Rows as a pandas DataFrame: the dtype follows from a column's type, never from its values.

| SQL | pandas |
| --- | --- |
| TINYINT, SMALLINT, INT, BIGINT | `Int8`, `Int16`, `Int32`, `Int64` |
| BOOLEAN | `boolean` |
| FLOAT, DOUBLE | `Float32`, `Float64`: NaN is a number there, and NULL is `<NA>` |
| STRING | `string` |
| TIMESTAMP | `datetime64[us, ZONE]` in the session's zone |
| TIMESTAMP_NTZ | `datetime64[us]` |
| DATE, DECIMAL, BINARY | `object`: `datetime.date`, `decimal.Decimal`, `bytes` |
| ARRAY, MAP, STRUCT | `object`: list, dict, dict |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.columnar.python_values import python_values

if TYPE_CHECKING:
    import pandas

__all__ = ["pandas_frame"]


def pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return the rows without changing a value; a column has the same dtype with and without
    NULLs."""
    import pandas as pd

    strings = pd.StringDtype("pyarrow")
    dtypes = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.float32(): pd.Float32Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): strings,
        pa.large_string(): strings,
    }
    columns = {
        place: pd.Series(python_values(column), dtype=object)
        if pa.types.is_nested(column.type)
        else column.to_pandas(types_mapper=dtypes.get)
        for place, column in enumerate(rows.columns)
    }
    # By position: the column names of a query need not be unique.
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows.num_rows))
    frame.columns = pd.Index(rows.column_names, dtype=object)
    return frame
