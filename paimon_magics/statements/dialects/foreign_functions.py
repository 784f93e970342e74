"""Functions of other databases, and their equivalents in Spark. Data, and one lookup."""

from __future__ import annotations

__all__ = ["foreign_function_hint"]

_WRITE: dict[str, str] = {
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


def foreign_function_hint(name: str) -> str:
    """Return what to write instead of another database's function; "" for an unknown name."""
    write = _WRITE.get(name.lower())
    return f"Write {write}." if write else ""
