"""Values below a NULL take no part in a file; those that are missing elsewhere are an error."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics.tables.writing.format_writers import with_required_parts

PAIR = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("at", pa.timestamp("us"), nullable=False),
        pa.field("amount", pa.decimal128(9, 2), nullable=False),
        pa.field("inner", pa.struct([pa.field("n", pa.int32(), nullable=False)])),
    ]
)
ROW = {"value": b"v", "at": 1, "amount": None, "inner": {"n": 1}}


def stored(values: list[object], data_type: pa.DataType) -> list[object]:
    rows = pa.table({"c": pa.array(values, data_type)}).slice(1)
    sink = io.BytesIO()
    pq.write_table(with_required_parts(rows), sink)
    return pq.read_table(io.BytesIO(sink.getvalue()))["c"].cast(data_type).to_pylist()


@pytest.mark.parametrize("in_list", [False, True])
def test_values_below_a_null_are_not_required(*, in_list: bool) -> None:
    from decimal import Decimal

    row = {**ROW, "amount": Decimal("1.00")}
    values: list[object] = [row, None, {**row, "inner": None}, row]
    if in_list:
        values = [values, None, values[1:], []]
    data_type = pa.list_(PAIR) if in_list else PAIR
    expected = pa.array(values, data_type).to_pylist()[1:]
    assert stored(values, data_type) == expected


def test_missing_required_value_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        stored([None, ROW], PAIR)
