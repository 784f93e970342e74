"""Types of other databases, and their equivalents here. Data, and one lookup."""

from __future__ import annotations

__all__ = ["foreign_type_hint"]

_TIMES = (
    "TIMESTAMP (an instant, shown in the session's time zone) or TIMESTAMP_NTZ (date and time "
    "without a zone)"
)
_INSTANT = "TIMESTAMP, which is an instant"
_TEXT = "STRING"
_NUMBER = "DECIMAL(p, s) for exact numbers, or BIGINT or DOUBLE"
_COUNTED = (
    "BIGINT; Paimon does not number rows by itself: give the numbers in the INSERT, or use "
    "uuid() in a STRING column"
)
_WRITE: dict[str, str] = {
    # MySQL, MariaDB
    "DATETIME": _TIMES,
    "TEXT": _TEXT,
    "TINYTEXT": _TEXT,
    "MEDIUMTEXT": _TEXT,
    "LONGTEXT": _TEXT,
    "MEDIUMINT": "INT",
    "YEAR": "INT or DATE",
    "BIT": "BOOLEAN",
    "ENUM": _TEXT,
    "SET": "ARRAY<STRING>",
    "TINYBLOB": "BINARY",
    "MEDIUMBLOB": "BINARY",
    "LONGBLOB": "BINARY",
    "FIXED": _NUMBER,
    # PostgreSQL
    "SERIAL": _COUNTED,
    "SMALLSERIAL": _COUNTED,
    "BIGSERIAL": _COUNTED,
    "UUID": _TEXT,
    "JSON": "STRING, or VARIANT for values that are parsed once",
    "JSONB": "VARIANT, or STRING",
    "BYTEA": "BINARY",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "INT8": "BIGINT",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "BOOL": "BOOLEAN",
    "TIMESTAMPTZ": _INSTANT,
    "TIMETZ": "INT (milliseconds of the day) or STRING",
    "MONEY": "DECIMAL(19, 4)",
    "INET": _TEXT,
    "CIDR": _TEXT,
    "CITEXT": _TEXT,
    "XML": _TEXT,
    "NAME": _TEXT,
    # Oracle
    "VARCHAR2": "STRING or VARCHAR(n)",
    "NVARCHAR2": "STRING or VARCHAR(n)",
    "NUMBER": _NUMBER,
    "CLOB": _TEXT,
    "NCLOB": _TEXT,
    "BLOB": "BINARY",
    "RAW": "BINARY",
    "LONGRAW": "BINARY",
    "BINARY_FLOAT": "FLOAT",
    "BINARY_DOUBLE": "DOUBLE",
    "PLS_INTEGER": "INT",
    # SQL Server
    "DATETIME2": _TIMES,
    "SMALLDATETIME": _TIMES,
    "DATETIMEOFFSET": _INSTANT,
    "NVARCHAR": "STRING or VARCHAR(n)",
    "NCHAR": "CHAR(n)",
    "NTEXT": _TEXT,
    "SMALLMONEY": "DECIMAL(10, 4)",
    "UNIQUEIDENTIFIER": _TEXT,
    "IMAGE": "BINARY",
    "SQL_VARIANT": "VARIANT",
    "ROWVERSION": "BINARY",
    # BigQuery
    "INT64": "BIGINT",
    "FLOAT64": "DOUBLE",
    "BIGNUMERIC": "DECIMAL(38, s)",
    "BIGDECIMAL": "DECIMAL(38, s)",
    "BYTEINT": "TINYINT",
    # Snowflake
    "OBJECT": "VARIANT, MAP<STRING, …> or STRUCT<…>",
    "TIMESTAMP_TZ": _INSTANT,
    # ClickHouse, DuckDB, Arrow and pandas
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT128": "DECIMAL(38, 0)",
    "INT256": "DECIMAL(38, 0)",
    "HUGEINT": "DECIMAL(38, 0)",
    "UHUGEINT": "DECIMAL(38, 0)",
    "UINT8": "SMALLINT",
    "UINT16": "INT",
    "UINT32": "BIGINT",
    "UINT64": "DECIMAL(20, 0)",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20, 0)",
    "FLOAT32": "FLOAT",
    "DATE32": "DATE",
    "DATETIME64": _TIMES,
    "LOWCARDINALITY": _TEXT,
    "STR": _TEXT,
    "UTF8": _TEXT,
    "LIST": "ARRAY<…>",
    "DICT": "MAP<STRING, …>",
    # Flink, Hive, Protobuf
    "MULTISET": "MAP<…, INT>",
    "TIMESTAMP_WITHOUT_TIME_ZONE": "TIMESTAMP_NTZ",
    "SIGNED": "BIGINT",
    "UNSIGNED": "BIGINT",
    "VECTOR": "ARRAY<FLOAT>",
}


def foreign_type_hint(name: str) -> str:
    """Return what to write instead of another database's type; "" for an unknown name."""
    write = _WRITE.get(name.upper())
    return f"Write {write}." if write else ""
