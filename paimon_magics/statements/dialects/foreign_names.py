"""Types and functions of other databases, and their equivalents here. Data, and lookups."""

from __future__ import annotations

from collections.abc import Mapping

_TIMES = (
    "TIMESTAMP (an instant, shown in the session's time zone) or TIMESTAMP_NTZ (date and time "
    "without a zone)"
)
_INSTANT = "TIMESTAMP, which is an instant"
_NUMBER = "DECIMAL(p, s) for exact numbers, or BIGINT or DOUBLE"
_COUNTED = (
    "BIGINT; Paimon does not number rows by itself: give the numbers in the INSERT, or use "
    "uuid() in a STRING column"
)

# What to write here, and its names in MySQL, PostgreSQL, Oracle, SQL Server, BigQuery, Snowflake,
# ClickHouse, DuckDB, Arrow, pandas, Flink, Hive and Protobuf.
_TYPES: dict[str, str] = {
    _TIMES: "DATETIME DATETIME2 SMALLDATETIME DATETIME64",
    "STRING": (
        "TEXT TINYTEXT MEDIUMTEXT LONGTEXT ENUM UUID INET CIDR CITEXT XML NAME CLOB NCLOB NTEXT "
        "UNIQUEIDENTIFIER LOWCARDINALITY STR UTF8"
    ),
    "INT": "MEDIUMINT INT4 PLS_INTEGER INT32 UINT16 USMALLINT",
    "INT or DATE": "YEAR",
    "BOOLEAN": "BIT BOOL",
    "ARRAY<STRING>": "SET",
    "BINARY": "TINYBLOB MEDIUMBLOB LONGBLOB BYTEA BLOB RAW LONGRAW IMAGE ROWVERSION",
    _NUMBER: "FIXED NUMBER",
    _COUNTED: "SERIAL SMALLSERIAL BIGSERIAL",
    "STRING, or VARIANT for values that are parsed once": "JSON",
    "VARIANT, or STRING": "JSONB",
    "SMALLINT": "INT2 INT16 UINT8 UTINYINT",
    "BIGINT": "INT8 INT64 UINT32 UINTEGER SIGNED UNSIGNED",
    "FLOAT": "FLOAT4 BINARY_FLOAT FLOAT32",
    "DOUBLE": "FLOAT8 BINARY_DOUBLE FLOAT64",
    _INSTANT: "TIMESTAMPTZ DATETIMEOFFSET TIMESTAMP_TZ",
    "INT (milliseconds of the day) or STRING": "TIMETZ",
    "DECIMAL(19, 4)": "MONEY",
    "STRING or VARCHAR(n)": "VARCHAR2 NVARCHAR2 NVARCHAR",
    "CHAR(n)": "NCHAR",
    "DECIMAL(10, 4)": "SMALLMONEY",
    "VARIANT": "SQL_VARIANT",
    "DECIMAL(38, s)": "BIGNUMERIC BIGDECIMAL",
    "TINYINT": "BYTEINT",
    "VARIANT, MAP<STRING, …> or STRUCT<…>": "OBJECT",
    "DECIMAL(38, 0)": "INT128 INT256 HUGEINT UHUGEINT",
    "DECIMAL(20, 0)": "UINT64 UBIGINT",
    "DATE": "DATE32",
    "ARRAY<…>": "LIST",
    "MAP<STRING, …>": "DICT",
    "MAP<…, INT>": "MULTISET",
    "TIMESTAMP_NTZ": "TIMESTAMP_WITHOUT_TIME_ZONE",
    "ARRAY<FLOAT>": "VECTOR",
}

_FUNCTIONS: dict[str, str] = {
    "current_timestamp()": "getdate sysdate sysdatetime getutcdate",
    "current_date()": "today",
    "date_format(time, 'yyyy-MM-dd')": "strftime format_date",
    "date_format(time, 'yyyy-MM-dd HH:mm:ss')": "format_timestamp",
    "to_timestamp(text, 'yyyy-MM-dd')": "strptime str_to_date",
    "to_date(text, 'yyyy-MM-dd')": "parse_date",
    "to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')": "parse_timestamp",
    "timestampdiff(DAY, start, end)": "datetime_diff",
    "string_agg(value, ',') or array_join(collect_list(value), ',')": "group_concat",
    "array_join(array, ',')": "array_to_string",
    "split(text, ',')": "string_to_array string_split",
    "explode(array), or LATERAL VIEW explode(array) AS x": "unnest",
    "explode(sequence(start, end))": "generate_series",
    "sequence(start, end)": "generate_array",
    "instr(text, part)": "charindex strpos index_of",
    "try_cast(value AS DOUBLE) IS NOT NULL": "isnumeric",
    "CAST(value AS TYPE)": "convert",
    "try_cast(value AS TYPE)": "try_convert safe_cast",
    "CAST(value AS STRING)": "to_string",
    "to_json(value)": "to_json_string",
    "get_json_object(text, '$.field')": (
        "json_extract json_value json_extract_scalar json_extract_path_text"
    ),
    "try_divide(a, b)": "safe_divide",
    "coalesce(try_divide(a, b), 0)": "div0",
    "CASE value WHEN 1 THEN … END": "choose",
    "if(condition, a, b)": "iff",
    "approx_count_distinct(value)": "approx_distinct",
    "approx_percentile(value, 0.5)": "approx_quantiles",
    "percentile(value, 0.5)": "quantile",
    "count(DISTINCT value)": "countd",
    "count(*)": "cnt",
    "uuid()": "newid gen_random_uuid generate_uuid random_uuid",
    "the numbers that the INSERT gave; Paimon does not number rows by itself": "last_insert_id",
    "uuid(); Paimon does not number rows by itself": "nextval",
    "row_number() OVER (ORDER BY …)": "rownum",
    "date_part('YEAR', time)": "datepart",
    "SELECT * FROM csv.`path`": "read_csv read_csv_auto",
    "SELECT * FROM parquet.`path`": "read_parquet parquet_scan",
    "SELECT * FROM json.`path`": "read_json read_json_auto",
    "SELECT * FROM csv.`path` or parquet.`path`": "openrowset",
    "SELECT * FROM paimon_incremental_query('t', '1', '3'), or %paimon changes t": "table_changes",
}


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: f"Write {here}." for here, names in table.items() for name in names.split()}


_TYPE_HINTS = _by_name(_TYPES)
_FUNCTION_HINTS = _by_name(_FUNCTIONS)


def foreign_type_hint(name: str) -> str:
    """Return what to write instead of another database's type; "" for an unknown name."""
    return _TYPE_HINTS.get(name.upper(), "")


def foreign_function_hint(name: str) -> str:
    """Return what to write instead of another database's function; "" for an unknown name."""
    return _FUNCTION_HINTS.get(name.lower(), "")
