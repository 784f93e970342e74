"""Types: SQL text, Paimon's schema form and Spark's SQL say the same."""

from __future__ import annotations

import pytest

from paimon_magics.errors import InvalidTableError, StatementSyntaxError, UnsupportedStatementError
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    MapType,
    RowField,
    RowType,
    as_nullable,
)
from paimon_magics.statements.types.type_text import from_paimon, from_sql, to_paimon, to_spark_sql

INT = AtomicType("INT")
STRING = AtomicType("STRING")


@pytest.mark.parametrize(
    ("sql", "paimon", "spark"),
    [
        ("BOOLEAN", "BOOLEAN", "BOOLEAN"),
        ("tinyint", "TINYINT", "TINYINT"),
        ("BYTE", "TINYINT", "TINYINT"),
        ("SMALLINT", "SMALLINT", "SMALLINT"),
        ("SHORT", "SMALLINT", "SMALLINT"),
        ("INT", "INT", "INT"),
        ("INTEGER", "INT", "INT"),
        ("BIGINT", "BIGINT", "BIGINT"),
        ("LONG", "BIGINT", "BIGINT"),
        ("FLOAT", "FLOAT", "FLOAT"),
        ("REAL", "FLOAT", "FLOAT"),
        ("DOUBLE", "DOUBLE", "DOUBLE"),
        ("DECIMAL", "DECIMAL(10, 0)", "DECIMAL(10, 0)"),
        ("DEC(5)", "DECIMAL(5, 0)", "DECIMAL(5, 0)"),
        ("NUMERIC(38, 18)", "DECIMAL(38, 18)", "DECIMAL(38, 18)"),
        ("DATE", "DATE", "DATE"),
        ("TIMESTAMP", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP_NTZ", "TIMESTAMP(6)", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ(9)", "TIMESTAMP(9)", "TIMESTAMP_NTZ"),
        ("STRING", "STRING", "STRING"),
        ("CHAR(3)", "CHAR(3)", "CHAR(3)"),
        ("CHARACTER(3)", "CHAR(3)", "CHAR(3)"),
        ("VARCHAR(10)", "VARCHAR(10)", "VARCHAR(10)"),
        ("VARCHAR(2147483647)", "STRING", "STRING"),
        ("BINARY", "BYTES", "BINARY"),
        ("BYTES", "BYTES", "BINARY"),
        ("BINARY(16)", "BINARY(16)", "BINARY"),
        ("VARBINARY(16)", "VARBINARY(16)", "BINARY"),
        ("VARBINARY(2147483647)", "BYTES", "BINARY"),
        ("VARIANT", "VARIANT", "VARIANT"),
        ("INT NOT NULL", "INT NOT NULL", "INT"),
        ("ARRAY<INT>", {"type": "ARRAY", "element": "INT"}, "ARRAY<INT>"),
        (
            "MAP<STRING, ARRAY<TIMESTAMP>> NOT NULL",
            {
                "type": "MAP NOT NULL",
                "key": "STRING NOT NULL",
                "value": {"type": "ARRAY", "element": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
            },
            "MAP<STRING, ARRAY<TIMESTAMP>>",
        ),
        (
            "STRUCT<a: INT NOT NULL COMMENT 'it''s', `b c` STRUCT<d:DATE>>",
            {
                "type": "ROW",
                "fields": [
                    {"name": "a", "type": "INT NOT NULL", "description": "it's"},
                    {
                        "name": "b c",
                        "type": {"type": "ROW", "fields": [{"name": "d", "type": "DATE"}]},
                    },
                ],
            },
            "STRUCT<`a`: INT NOT NULL COMMENT 'it\\'s', `b c`: STRUCT<`d`: DATE>>",
        ),
    ],
)
def test_sql_type_converts_to_paimon_and_spark(sql, paimon, spark):
    data_type = from_sql(sql)
    assert to_paimon(data_type) == paimon
    assert to_spark_sql(data_type) == spark
    assert from_paimon(paimon) == data_type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TIMESTAMP", AtomicType("TIMESTAMP", (6,))),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", AtomicType("TIMESTAMP", (3,))),
        ("TIMESTAMP_LTZ(3) NOT NULL", AtomicType("TIMESTAMP_LTZ", (3,), False)),
        ("TIMESTAMP WITH LOCAL TIME ZONE", AtomicType("TIMESTAMP_LTZ", (6,))),
        ("TIME", AtomicType("TIME", (0,))),
        ("TIME(3) WITHOUT TIME ZONE", AtomicType("TIME", (3,))),
        ("VARCHAR", AtomicType("VARCHAR", (1,))),
        ("VARCHAR(2147483647) NOT NULL", AtomicType("STRING", (), False)),
        ("VARBINARY( 2147483647 )", AtomicType("BYTES")),
        ("NUMERIC(5,2)", AtomicType("DECIMAL", (5, 2))),
        ("decimal(5) null", AtomicType("DECIMAL", (5, 0))),
        ("DOUBLE PRECISION", AtomicType("DOUBLE")),
        ("INTEGER", INT),
        ("BLOB", AtomicType("BLOB")),
        (
            {
                "type": "ROW NOT NULL",
                "fields": [{"id": 7, "name": "a", "type": "INT", "description": "d"}],
            },
            RowType((RowField("a", INT, "d"),), False),
        ),
        (
            {"type": "MAP", "key": "STRING NOT NULL", "value": {"type": "ARRAY", "element": "INT"}},
            MapType(as_nullable(STRING, False), ArrayType(INT)),
        ),
    ],
)
def test_all_spellings_of_schema_types_are_parsed(text, expected):
    assert from_paimon(text) == expected
    assert from_paimon(to_paimon(expected)) == expected


def test_time_is_an_int_for_spark():
    assert to_spark_sql(AtomicType("TIME", (3,))) == "INT"


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("INTT", "`INTT`", "`INT`"),
        ("STRNG", "`STRNG`", "`STRING`"),
        ("INTERVAL", "INTERVAL", "two timestamps"),
        ("VOID", "VOID", "CAST"),
        ("TIME", "TIME", "INT"),
        ("TIMESTAMP(3)", "TIMESTAMP(p)", "TIMESTAMP_NTZ(p)"),
        ("DECIMAL(39, 1)", "DECIMAL(39, 1)", "1 to 38"),
        ("DECIMAL(5, 6)", "DECIMAL(5, 6)", "scale"),
        ("VARCHAR", "VARCHAR without a length", "STRING"),
        ("CHAR(0)", "CHAR(0)", "length"),
        ("TIMESTAMP_NTZ(10)", "TIMESTAMP_NTZ(10)", "0 to 9"),
        ("STRING COLLATE UTF8_LCASE", "COLLATE", "UTF-8"),
        ("STRUCT<a: INT, a: INT>", "`a` occurs twice", "Rename"),
        ("ARRAY<INTERVAL>", "INTERVAL", ""),
    ],
)
def test_unsupported_sql_type_is_refused_with_a_hint(sql, message, hint):
    with pytest.raises(InvalidTableError) as caught:
        from_sql(sql)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.position is not None


@pytest.mark.parametrize("sql", ["", "ARRAY<INT", "ARRAY INT>", "INT INT", "DECIMAL(x)", "'INT'"])
def test_malformed_type_is_a_syntax_error(sql):
    with pytest.raises(StatementSyntaxError):
        from_sql(sql)


@pytest.mark.parametrize(
    ("document", "sql"),
    [
        ({"type": "MULTISET NOT NULL", "element": "INT"}, "MULTISET<INT>"),
        ({"type": "VECTOR", "element": "FLOAT NOT NULL", "length": 3}, "VECTOR<FLOAT, 3>"),
    ],
)
def test_types_of_other_engines_are_kept(document, sql):
    actual = from_paimon(document)
    assert to_paimon(actual) == document
    assert to_spark_sql(actual) == sql
    assert actual.nullable == ("NOT NULL" not in document["type"])


@pytest.mark.parametrize("text", ["GEOMETRY", "GEOGRAPHY"])
def test_unsupported_paimon_types_are_named(text):
    with pytest.raises(UnsupportedStatementError, match=text.split("<")[0]):
        from_paimon(text)


@pytest.mark.parametrize("text", ["", "WORD", "INT(3)", "DECIMAL(1, 2, 3)", "DATE WITH TIME ZONE"])
def test_invalid_schema_type_is_refused(text):
    with pytest.raises(InvalidTableError, match="not a type of Paimon"):
        from_paimon(text)
