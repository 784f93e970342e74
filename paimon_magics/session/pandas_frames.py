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
from paimon_magics.errors import InvalidValueError, nearest

if TYPE_CHECKING:
    import pandas

__all__ = ["pandas_frame"]

_WORDS = {"decimals": ("exact", "float"), "dates": ("exact", "datetime64")}


def pandas_frame(
    rows: pa.Table, *, decimals: str = "exact", dates: str = "exact"
) -> pandas.DataFrame:
    """Return the rows; a column has the same dtype with and without NULLs.

    No value changes, but for what charts and numpy need: with `decimals="float"` a DECIMAL becomes
    the nearest `Float64`, with `dates="datetime64"` a DATE its midnight as `datetime64[us]`. Raises
    InvalidValueError for another word.
    """
    import pandas as pd

    for name, word in (("decimals", decimals), ("dates", dates)):
        if word not in _WORDS[name]:
            raise InvalidValueError(
                f"`{name}` can't be {word!r}.", hint=nearest(str(word), _WORDS[name], what="values")
            )

    def charted(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if decimals == "float" and pa.types.is_decimal(column.type):
            return column.cast(pa.float64())
        if dates == "datetime64" and pa.types.is_date(column.type):
            return column.cast(pa.timestamp("us"))
        return column

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
        for place, column in enumerate(map(charted, rows.columns))
    }
    # By position: the column names of a query need not be unique.
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows.num_rows))
    frame.columns = pd.Index(rows.column_names, dtype=object)
    return frame
