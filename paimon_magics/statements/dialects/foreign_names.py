"""Types and functions of other databases, and their equivalents here. Data, and lookups."""

from __future__ import annotations

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


_WRITE_FUNCTION: dict[str, str] = {
    "getdate": "current_timestamp()",
    "sysdate": "current_timestamp()",
    "sysdatetime": "current_timestamp()",
    "getutcdate": "current_timestamp()",
    "today": "current_date()",
    "strftime": "date_format(time, 'yyyy-MM-dd')",
    "format_date": "date_format(time, 'yyyy-MM-dd')",
    "format_timestamp": "date_format(time, 'yyyy-MM-dd HH:mm:ss')",
    "strptime": "to_timestamp(text, 'yyyy-MM-dd')",
    "parse_date": "to_date(text, 'yyyy-MM-dd')",
    "str_to_date": "to_timestamp(text, 'yyyy-MM-dd')",
    "parse_timestamp": "to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')",
    "datetime_diff": "timestampdiff(DAY, start, end)",
    "group_concat": "string_agg(value, ',') or array_join(collect_list(value), ',')",
    "array_to_string": "array_join(array, ',')",
    "string_to_array": "split(text, ',')",
    "string_split": "split(text, ',')",
    "unnest": "explode(array), or LATERAL VIEW explode(array) AS x",
    "generate_series": "explode(sequence(start, end))",
    "generate_array": "sequence(start, end)",
    "charindex": "instr(text, part)",
    "strpos": "instr(text, part)",
    "index_of": "instr(text, part)",
    "isnumeric": "try_cast(value AS DOUBLE) IS NOT NULL",
    "convert": "CAST(value AS TYPE)",
    "try_convert": "try_cast(value AS TYPE)",
    "safe_cast": "try_cast(value AS TYPE)",
    "to_string": "CAST(value AS STRING)",
    "to_json_string": "to_json(value)",
    "json_extract": "get_json_object(text, '$.field')",
    "json_value": "get_json_object(text, '$.field')",
    "json_extract_scalar": "get_json_object(text, '$.field')",
    "json_extract_path_text": "get_json_object(text, '$.field')",
    "safe_divide": "try_divide(a, b)",
    "div0": "coalesce(try_divide(a, b), 0)",
    "choose": "CASE value WHEN 1 THEN … END",
    "iff": "if(condition, a, b)",
    "approx_distinct": "approx_count_distinct(value)",
    "approx_quantiles": "approx_percentile(value, 0.5)",
    "quantile": "percentile(value, 0.5)",
    "countd": "count(DISTINCT value)",
    "cnt": "count(*)",
    "newid": "uuid()",
    "gen_random_uuid": "uuid()",
    "generate_uuid": "uuid()",
    "random_uuid": "uuid()",
    "last_insert_id": "the numbers that the INSERT gave; Paimon does not number rows by itself",
    "nextval": "uuid(); Paimon does not number rows by itself",
    "rownum": "row_number() OVER (ORDER BY …)",
    "datepart": "date_part('YEAR', time)",
    "read_csv": "SELECT * FROM csv.`path`",
    "read_csv_auto": "SELECT * FROM csv.`path`",
    "read_parquet": "SELECT * FROM parquet.`path`",
    "parquet_scan": "SELECT * FROM parquet.`path`",
    "read_json": "SELECT * FROM json.`path`",
    "read_json_auto": "SELECT * FROM json.`path`",
    "openrowset": "SELECT * FROM csv.`path` or parquet.`path`",
    "table_changes": "SELECT * FROM paimon_incremental_query('t', '1', '3'), or %paimon changes t",
}


def foreign_type_hint(name: str) -> str:
    """Return what to write instead of another database's type; "" for an unknown name."""
    write = _WRITE.get(name.upper())
    return f"Write {write}." if write else ""


# Functions of other databases, and their equivalents in Spark. Data, and one lookup.


def foreign_function_hint(name: str) -> str:
    """Return what to write instead of another database's function; "" for an unknown name."""
    write = _WRITE_FUNCTION.get(name.lower())
    return f"Write {write}." if write else ""
