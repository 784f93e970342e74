"""Types between this project, pypaimon and Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicInteger, DataTypeParser, PyarrowFieldParser

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.types.type_text import from_sql
from paimon_magics.tables.schema.types import (
    arrow_schema,
    arrow_type,
    column_from_field,
    field_from_column,
    from_arrow_type,
    from_paimon_type,
    to_paimon_type,
)

TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL(20, 3)": pa.decimal128(20, 3),
    "STRING": pa.string(),
    "VARCHAR(7)": pa.string(),
    "CHAR(3)": pa.string(),
    "BINARY": pa.binary(),
    "BINARY(4)": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ(3)": pa.timestamp("ms", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TIMESTAMP_NTZ(9)": pa.timestamp("ns"),
    "ARRAY<INT NOT NULL>": pa.list_(pa.field("item", pa.int32(), nullable=False)),
    "MAP<STRING, ARRAY<INT>>": pa.map_(pa.string(), pa.list_(pa.int32())),
    "STRUCT<a: INT NOT NULL, b: STRING>": pa.struct(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]
    ),
}


@pytest.mark.parametrize(("sql", "arrow"), TYPES.items())
def test_types_round_trip_through_pypaimon_and_have_its_arrow_type(
    sql: str, arrow: pa.DataType
) -> None:
    data_type = from_sql(sql)
    assert from_paimon_type(to_paimon_type(data_type, AtomicInteger(0))) == data_type
    assert arrow_type(data_type) == arrow


def test_columns_round_trip_through_pypaimon_with_their_ids() -> None:
    column = Column(4, "s", from_sql("STRUCT<a: INT, b: ARRAY<STRUCT<x: INT>>>"), "note", None)
    field = field_from_column(column)
    assert column_from_field(field) == column
    assert [nested.id for nested in field.type.fields] == [5, 7]


def test_arrow_schema_equals_pypaimons() -> None:
    columns = [Column(i, f"c{i}", from_sql(sql)) for i, sql in enumerate(TYPES)]
    fields = [field_from_column(column) for column in columns]
    assert arrow_schema(columns) == PyarrowFieldParser.from_paimon_schema(fields)


@pytest.mark.parametrize(
    ("arrow", "sql"),
    [
        (pa.large_string(), "STRING"),
        (pa.large_binary(), "BINARY"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.large_list(pa.int64()), "ARRAY<BIGINT>"),
        (pa.timestamp("us", tz="Europe/Berlin"), "TIMESTAMP"),
        (pa.timestamp("s"), "TIMESTAMP_NTZ(0)"),
        (pa.decimal128(5, 1), "DECIMAL(5, 1)"),
        (pa.map_(pa.string(), pa.int32()), "MAP<STRING, INT>"),
        (pa.struct([("a", pa.large_string())]), "STRUCT<a: STRING>"),
    ],
)
def test_arrow_types_map_to_paimon_types(arrow: pa.DataType, sql: str) -> None:
    assert from_arrow_type(arrow) == from_sql(sql)


@pytest.mark.parametrize("arrow", [pa.null(), pa.uint64(), pa.duration("s"), pa.float16()])
def test_arrow_types_without_equivalent_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidTableError, match="no type for Arrow's"):
        from_arrow_type(arrow)


@pytest.mark.parametrize(
    "document",
    [
        {"type": "MULTISET", "element": {"type": "ROW", "fields": []}},
        {"type": "VECTOR NOT NULL", "element": "FLOAT", "length": 3},
    ],
)
def test_types_of_other_engines_round_trip_through_pypaimon(document: dict[str, Any]) -> None:
    field = DataTypeParser.parse_data_field({"id": 0, "name": "v", "type": document})
    column = column_from_field(field)
    assert field_from_column(column).type == field.type
