"""The SQL words that completion offers, by place.

They are those of the offered statements and of Spark's queries. A clause has the words that are
used often, not all that Spark's grammar allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from paimon_magics.statements.lexing.tokens import word_set

TIME_FUNCTIONS = (
    "current_timestamp()",
    "current_timestamp() - INTERVAL 1 HOUR",
    "current_timestamp() - INTERVAL 1 DAY",
    "current_date()",
    "timestamp_millis(",
)
"""Expressions for the time of TIMESTAMP AS OF."""

STATEMENTS = (
    "SELECT", "WITH", "INSERT INTO", "INSERT OVERWRITE", "DELETE FROM", "UPDATE", "MERGE INTO",
    "CREATE TABLE", "CREATE DATABASE", "CREATE OR REPLACE TEMPORARY VIEW", "ALTER TABLE",
    "DROP TABLE", "DROP DATABASE", "TRUNCATE TABLE", "DESCRIBE", "SHOW", "USE", "CALL", "EXPLAIN",
    "SET", "VALUES", "FROM",
)  # fmt: skip
"""The beginnings of statements."""

TYPES = (
    "BIGINT", "INT", "SMALLINT", "TINYINT", "STRING", "BOOLEAN", "DOUBLE", "FLOAT",
    "DECIMAL(10, 2)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "VARCHAR(255)", "CHAR(10)",
    "ARRAY<STRING>", "MAP<STRING, STRING>", "STRUCT<a: INT>", "NOT NULL", "COMMENT", "DEFAULT",
)  # fmt: skip
"""What may follow a column's name in a column definition."""

FUNCTIONS = (
    "abs", "approx_count_distinct", "array", "array_contains", "avg", "bool_and", "bool_or", "ceil",
    "coalesce", "collect_list", "collect_set", "concat", "concat_ws", "contains", "count",
    "count_if", "current_date", "current_timestamp", "date_add", "date_format", "date_sub",
    "date_trunc", "datediff", "day", "dayofweek", "dense_rank", "element_at", "endswith", "explode",
    "first_value", "floor", "from_json", "from_unixtime", "get_json_object", "greatest", "hash",
    "hour", "if", "ifnull", "initcap", "lag", "last_value", "lead", "least", "length", "lower",
    "make_date", "map_keys", "map_values", "max", "max_by", "md5", "mean", "median", "min",
    "min_by", "minute", "month", "months_between", "named_struct", "nullif", "nvl", "percentile",
    "percentile_approx", "pow", "quarter", "rand", "rank", "regexp_extract", "regexp_replace",
    "replace", "round", "row_number", "second", "sha2", "size", "split", "sqrt", "startswith",
    "stddev", "struct", "substring", "sum", "to_date", "to_json", "to_timestamp",
    "transform", "trim", "trunc", "try_cast", "try_divide", "unix_timestamp", "upper", "uuid",
    "variance", "weekofyear", "year",
)  # fmt: skip
"""Functions of Spark that are used often."""

TABLE_FUNCTIONS = word_set(
    "PAIMON_INCREMENTAL_QUERY PAIMON_INCREMENTAL_BETWEEN_TIMESTAMP PAIMON_INCREMENTAL_TO_AUTO_TAG"
)
"""Paimon's table functions, whose first argument is a table's name."""

CLAUSES = word_set("SELECT FROM WHERE ON USING GROUP ORDER SORT HAVING LIMIT VALUES JOIN QUALIFY")
"""Words that begin a clause of a query."""

BEFORE_OPERANDS = word_set(
    "SELECT DISTINCT ALL WHERE ON AND OR NOT BY HAVING WHEN THEN ELSE CASE IN BETWEEN LIKE RLIKE "
    "IS EXISTS USING QUALIFY SET VALUES"
)
"""Words that are followed by an operand."""

_QUERY_ENDS = ("GROUP BY", "ORDER BY", "HAVING", "LIMIT", "UNION ALL", "EXCEPT", "INTERSECT")
OPERATORS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "EXISTS")
"""What may follow an operand of a condition."""

_IN_CLAUSE = {
    "SELECT": ("FROM", "AS", "DISTINCT", "CASE WHEN", "THEN", "ELSE", "END", "OVER", *OPERATORS),
    "FROM": (
        "WHERE", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "CROSS JOIN",
        "LEFT SEMI JOIN", "LEFT ANTI JOIN", "ON", "USING", "AS", "VERSION AS OF",
        "TIMESTAMP AS OF", "LATERAL VIEW", "TABLESAMPLE", "SELECT", *_QUERY_ENDS,
    ),
    "WHERE": (*OPERATORS, *_QUERY_ENDS),
    "ON": (*OPERATORS, "WHERE", "JOIN", "LEFT JOIN", *_QUERY_ENDS),
    "USING": ("WHERE", "JOIN", "LEFT JOIN", *_QUERY_ENDS),
    "GROUP": ("BY", "ALL", "HAVING", "ORDER BY", "LIMIT", "UNION ALL"),
    "HAVING": (*OPERATORS, "ORDER BY", "LIMIT", "UNION ALL"),
    "ORDER": ("BY", "ASC", "DESC", "NULLS FIRST", "NULLS LAST", "LIMIT"),
    "SORT": ("BY", "ASC", "DESC", "LIMIT"),
    "LIMIT": ("OFFSET", "ALL"),
    "QUALIFY": (*OPERATORS, "ORDER BY", "LIMIT"),
}  # fmt: skip
_IN_CLAUSE["JOIN"] = _IN_CLAUSE["FROM"]

AFTER_TABLE = {
    "INSERT": ("VALUES", "SELECT", "PARTITION (", "BY NAME", "WITH", "TABLE"),
    "TRUNCATE": ("PARTITION (",),
    "DROP": ("PURGE",),
    "CREATE": (
        "PARTITIONED BY (", "TBLPROPERTIES (", "COMMENT", "USING paimon", "LOCATION", "AS SELECT",
    ),
}  # fmt: skip
"""What may follow the table's name, by the statement's first word."""

_FOLLOWING: dict[tuple[str, ...], tuple[str, ...]] = {
    ("INSERT",): ("INTO", "OVERWRITE"),
    ("DELETE",): ("FROM",),
    ("MERGE",): ("INTO",),
    ("CREATE",): ("TABLE", "DATABASE", "OR REPLACE TEMPORARY VIEW", "TEMPORARY VIEW"),
    ("CREATE", "TABLE"): ("IF NOT EXISTS",),
    ("CREATE", "DATABASE"): ("IF NOT EXISTS",),
    ("CREATE", "OR"): ("REPLACE TEMPORARY VIEW",),
    ("ALTER",): ("TABLE",),
    ("ALTER", "TABLE"): (
        "ADD COLUMNS (", "ALTER COLUMN", "DROP COLUMN", "RENAME COLUMN", "RENAME TO",
        "SET TBLPROPERTIES (", "UNSET TBLPROPERTIES (", "DROP PARTITION (", "CREATE TAG",
        "REPLACE TAG", "DELETE TAG", "RENAME TAG",
    ),
    ("ALTER", "TABLE", "ADD"): ("COLUMNS (", "COLUMN"),
    ("ALTER", "TABLE", "SET"): ("TBLPROPERTIES (",),
    ("ALTER", "TABLE", "UNSET"): ("TBLPROPERTIES (", "TBLPROPERTIES IF EXISTS ("),
    ("ALTER", "TABLE", "DROP"): ("COLUMN", "PARTITION (", "IF EXISTS PARTITION ("),
    ("ALTER", "TABLE", "RENAME"): ("COLUMN", "TO", "TAG"),
    ("ALTER", "TABLE", "CREATE"): ("TAG", "OR REPLACE TAG"),
    ("ALTER", "TABLE", "ALTER", "COLUMN", "*"): (
        "TYPE", "COMMENT", "FIRST", "AFTER", "SET NOT NULL", "DROP NOT NULL", "SET DEFAULT",
        "DROP DEFAULT",
    ),
    ("ALTER", "TABLE", "ALTER", "COLUMN", "*", "TYPE"): TYPES,
    ("ALTER", "TABLE", "RENAME", "COLUMN", "*"): ("TO",),
    ("ALTER", "TABLE", "RENAME", "TAG", "*"): ("TO",),
    ("ALTER", "TABLE", "CREATE", "TAG", "*"): ("AS OF VERSION", "RETAIN"),
    ("ALTER", "TABLE", "REPLACE", "TAG", "*"): ("AS OF VERSION", "RETAIN"),
    ("DROP",): ("TABLE", "DATABASE"),
    ("DROP", "TABLE"): ("IF EXISTS",),
    ("DROP", "DATABASE", "*"): ("CASCADE", "RESTRICT"),
    ("TRUNCATE",): ("TABLE",),
    ("SHOW",): (
        "TABLES", "DATABASES", "COLUMNS IN", "PARTITIONS", "TBLPROPERTIES", "TAGS", "CREATE TABLE",
    ),
    ("SHOW", "TABLES"): ("IN", "LIKE"),
    ("SHOW", "TABLES", "IN", "*"): ("LIKE",),
    ("SHOW", "DATABASES"): ("LIKE",),
    ("SHOW", "COLUMNS"): ("IN",),
    ("SHOW", "CREATE"): ("TABLE",),
}  # fmt: skip


def following(said: Sequence[str]) -> tuple[str, ...]:
    """Return what may follow these words of a statement other than a query.

    In the keys of `_FOLLOWING`, `*` matches any word.
    """
    for form, found in _FOLLOWING.items():
        if len(form) == len(said) and all(a in ("*", b) for a, b in zip(form, said, strict=True)):
            return found
    return ()


def in_clause(clause: str, last: str) -> tuple[str, ...]:
    """Return the words that may follow the word `last` in a clause of a query."""
    if last in ("GROUP", "ORDER", "SORT", "PARTITION", "CLUSTER", "DISTRIBUTE"):
        return ("BY",)
    if last in BEFORE_OPERANDS:
        first = ("DISTINCT", "CASE WHEN") if last == "SELECT" else ("NOT", "CASE WHEN", "EXISTS")
        return ("NULL", "NOT NULL") if last == "IS" else first
    return _IN_CLAUSE.get(clause, ())
