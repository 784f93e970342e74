"""Serialised rows back into columns; Paimon's own Python serialiser is the other side."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType, DataField, PyarrowFieldParser
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.columnar.binary_rows import decode_bounds, decode_rows
from paimon_magics.errors import TableDamagedError

D, T = datetime.date, datetime.datetime
CASES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-32768, 32767, None],
    "INT": [-(2**31), 2**31 - 1, None],
    "BIGINT": [-(2**63), 2**63 - 1, None],
    "FLOAT": [1.5, -0.25, None],
    "DOUBLE": [1e300, -0.1, None],
    "STRING": ["", "seven b", "eight by", "ä😀 and much more than that", None],
    "BYTES": [b"", b"\x00\x01", b"x" * 40, None],
    "DECIMAL(9, 2)": [Decimal("-1234567.89"), Decimal("0.00"), None],
    "DECIMAL(38, 18)": [Decimal("-12345678901234567890.123456789012345678"), None],
    "DATE": [D(1969, 12, 31), D(2026, 11, 21), None],
    "TIMESTAMP(3)": [T(1969, 12, 31, 23, 59, 59, 999000), None],
    "TIMESTAMP(6)": [T(1960, 1, 2, 3, 4, 5, 678901), T(2026, 11, 21), None],
}


@pytest.mark.parametrize("text", CASES)
def test_decoded_values_equal_the_encoded_values(text: str) -> None:
    values = CASES[text]
    fields = [
        DataField(0, "before", AtomicType("STRING")),
        DataField(1, "value", AtomicType(text)),
        DataField(2, "after", AtomicType("INT")),
    ]
    rows = [
        GenericRowSerializer.to_bytes(GenericRow(["before it comes a text", value, 7], fields))
        for value in values
    ]
    types = [PyarrowFieldParser.from_paimon_type(field.type) for field in fields]
    before, actual, after = decode_rows(pa.array(rows, pa.binary()), types)
    assert before.to_pylist() == ["before it comes a text"] * len(values)
    assert actual.to_pylist() == values
    assert actual.type == types[1]
    assert after.to_pylist() == [7] * len(values)


def test_rows_with_a_wide_header_are_decoded() -> None:
    fields = [DataField(i, f"f{i}", AtomicType("INT")) for i in range(70)]
    values = [None if i % 3 == 0 else i for i in range(70)]
    row = GenericRowSerializer.to_bytes(GenericRow(values, fields))
    actual = decode_rows(pa.array([row], pa.binary()), [pa.int32()] * 70)
    assert [column[0].as_py() for column in actual] == values


def test_empty_rows_are_decoded() -> None:
    assert decode_rows(pa.array([], pa.binary()), [pa.int32()])[0].to_pylist() == []
    empty = GenericRowSerializer.to_bytes(GenericRow([], []))
    assert decode_rows(pa.array([empty], pa.binary()), []) == []


TIMES = [pa.int64(), pa.timestamp("us"), pa.decimal128(38, 2), pa.string()]


def in_slots(*words: int) -> bytes:
    """A row of eight bytes for each field, as pypaimon 1.3 wrote times and all DECIMALs."""
    slots = b"".join(word.to_bytes(8, "little") for word in words)
    return len(words).to_bytes(4, "big") + bytes(8) + slots


def test_bounds_missing_from_the_row_are_unknown() -> None:
    text = int.from_bytes(b"text\x00\x00\x00\x84", "little")
    millis = int(datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC).timestamp() * 1000)
    row = in_slots(7, millis, 150, text)
    fields = [DataField(i, "f", AtomicType(kind)) for i, kind in enumerate(WHOLE)]
    whole = GenericRowSerializer.to_bytes(GenericRow(list(WHOLE.values()), fields))
    # The place that a time in its slot seems to name is inside other rows of these.
    rows_of_both = [row, *[whole] * 20, row, row[:20], in_slots(7)]
    actual = decode_bounds(pa.array(rows_of_both, pa.large_binary()), TIMES)
    unknown = [None, *([0] * 20), None, None, None]
    for column, value, stored in zip(actual, WHOLE.values(), (7, None, None, "text"), strict=True):
        expected = [value if each == 0 else stored for each in unknown]
        expected[-2:] = [None, None]
        assert column.to_pylist() == expected
    with pytest.raises(TableDamagedError, match="it ends too early"):
        decode_rows(pa.array([row], pa.large_binary()), TIMES)


WHOLE: dict[str, Any] = {
    "BIGINT": 1,
    "TIMESTAMP(6)": T(2026, 11, 21, 1, 2, 3, 456789),
    "DECIMAL(38, 2)": Decimal("-12345678901234567890.12"),
    "STRING": "a text behind the slots",
}


def test_bounds_of_no_rows_are_empty() -> None:
    actual = decode_bounds(pa.array([], pa.large_binary()), TIMES)
    assert [column.to_pylist() for column in actual] == [[]] * 4
    actual = decode_bounds(pa.array([b""], pa.large_binary()), TIMES)
    assert [column.to_pylist() for column in actual] == [[None]] * 4
