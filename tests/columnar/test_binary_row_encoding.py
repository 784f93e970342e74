"""Rows of values in Paimon's serialised form, beside pypaimon's own and read back."""

from __future__ import annotations

import datetime
import inspect
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.columnar.binary_rows import decode_rows, encode_row, encode_values

_MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 123456)
_CASES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("BOOLEAN", pa.bool_(), [True, False]),
    ("TINYINT", pa.int8(), [-128, 7]),
    ("SMALLINT", pa.int16(), [-300, 7]),
    ("INT", pa.int32(), [-(2**31), 7]),
    ("BIGINT", pa.int64(), [-(2**63), 7]),
    ("FLOAT", pa.float32(), [-1.5]),
    ("DOUBLE", pa.float64(), [1e300]),
    ("STRING", pa.string(), ["", "sevenxx", "eight by", "ü" * 30]),
    ("BYTES", pa.binary(), [b"", b"\0" * 7, b"x" * 9]),
    ("DATE", pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2026, 1, 2)]),
    ("DECIMAL(18, 2)", pa.decimal128(18, 2), [Decimal("-1.05"), Decimal("9" * 16)]),
    ("DECIMAL(38, 3)", pa.decimal128(38, 3), [Decimal("-1.050"), Decimal("9" * 35), Decimal(0)]),
    ("TIMESTAMP(3)", pa.timestamp("ms"), [_MOMENT.replace(microsecond=123000)]),
    ("TIMESTAMP(6)", pa.timestamp("us"), [_MOMENT]),
]


@pytest.mark.parametrize(("name", "data_type", "values"), _CASES, ids=[each[0] for each in _CASES])
def test_row_encoding_matches_pypaimon(
    name: str, data_type: pa.DataType, values: list[Any]
) -> None:
    fields = [DataField(i, f"f{i}", AtomicType(name)) for i in range(2)]
    # Partitions are serialised as Java does once a catalog is open; keys and bounds as pypaimon.
    encode = inspect.unwrap(GenericRowSerializer.to_bytes.__func__)
    for value in values:
        for row in ([value, None], [None, value], [value, value]):
            theirs = encode(GenericRowSerializer, GenericRow(row, fields))
            assert encode_values(row, [data_type] * 2) == theirs


_ROWS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(max_size=20),
    st.none() | st.binary(max_size=20),
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.decimals(-(10**35), 10**35, places=2, allow_nan=False),
)


@given(_ROWS)
def test_encoded_row_is_decoded_again(values: tuple[Any, ...]) -> None:
    types = [
        pa.int64(),
        pa.string(),
        pa.binary(),
        pa.timestamp("ns"),
        pa.decimal128(38, 2),
    ]
    row = [pa.array([value], t)[0] for value, t in zip(values, types, strict=True)]
    encoded = pa.array([encode_row(row)], pa.large_binary())
    actual = [column[0] for column in decode_rows(encoded, types)]
    assert actual == row


def test_a_nested_value_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be in a key or a bound"):
        encode_values([[1]], [pa.list_(pa.int32())])
