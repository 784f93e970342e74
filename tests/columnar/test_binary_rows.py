"""Serialised rows back into columns; Paimon's own Python serialiser is the other side."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType, DataField, PyarrowFieldParser
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer

from paimon_magics.columnar.binary_rows import decode_rows

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
def test_values_come_back_as_they_were(text: str) -> None:
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
    before, found, after = decode_rows(pa.array(rows, pa.binary()), types)
    assert before.to_pylist() == ["before it comes a text"] * len(values)
    assert found.to_pylist() == values
    assert found.type == types[1]
    assert after.to_pylist() == [7] * len(values)


def test_many_fields_have_a_wider_header() -> None:
    fields = [DataField(i, f"f{i}", AtomicType("INT")) for i in range(70)]
    values = [None if i % 3 == 0 else i for i in range(70)]
    row = GenericRowSerializer.to_bytes(GenericRow(values, fields))
    found = decode_rows(pa.array([row], pa.binary()), [pa.int32()] * 70)
    assert [column[0].as_py() for column in found] == values


def test_no_rows_and_no_fields_are_fine() -> None:
    assert decode_rows(pa.array([], pa.binary()), [pa.int32()])[0].to_pylist() == []
    empty = GenericRowSerializer.to_bytes(GenericRow([], []))
    assert decode_rows(pa.array([empty], pa.binary()), []) == []
