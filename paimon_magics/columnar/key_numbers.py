"""Numbers keys, so that rows of several tables can be compared by one number each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.float_order import in_java_order

__all__ = ["key_numbers"]

_Ints = npt.NDArray[np.int64]


def key_numbers(tables: Sequence[pa.Table]) -> list[_Ints]:
    """The numbers of the rows of each table: from 0 up without gaps, equal for rows that are equal
    in all columns. The tables have the same columns, without NULLs. Floating-point numbers are
    equal as in Java."""
    codes: _Ints = np.zeros(sum(one.num_rows for one in tables), dtype=np.int64)
    for name in tables[0].column_names:
        parts = [chunk for one in tables for chunk in one[name].chunks]
        values = in_java_order(pa.concat_arrays(parts)) if parts else pa.array([], pa.int64())
        encoded = values.dictionary_encode()
        places = np.asarray(encoded.indices).astype(np.int64)
        _, codes = np.unique(codes * len(encoded.dictionary) + places, return_inverse=True)
    ends = np.cumsum([one.num_rows for one in tables])[:-1]
    return np.split(codes.reshape(-1), ends)
