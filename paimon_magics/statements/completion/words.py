"""The SQL words that completion offers, by place.

They are those of the offered statements and of Spark's queries. A clause has the words that are
used often, not all that Spark's grammar allows.
"""

from __future__ import annotations

from enum import Enum, auto

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
    "COPY INTO",
    "CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE DATABASE",
    "CREATE VIEW", "CREATE OR REPLACE VIEW", "CREATE OR REPLACE TEMPORARY VIEW",
    "CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", "ALTER TABLE",
    "ALTER VIEW", "DROP TABLE", "DROP VIEW", "DROP FUNCTION", "DROP DATABASE",
    "TRUNCATE TABLE", "DESCRIBE", "SHOW", "USE", "CALL", "EXPLAIN",
    "SET", "VALUES", "FROM", "ANALYZE TABLE",
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

FILE_OPTIONS = (
    "TYPE = CSV", "TYPE = JSON", "TYPE = PARQUET", "TYPE = ORC", "TYPE = AVRO", "FIELD_DELIMITER =",
    "SKIP_HEADER = 1", "PARSE_HEADER = TRUE", "HEADER = TRUE", "QUOTE =", "ESCAPE =", "NULL_IF = (",
    "EMPTY_FIELD_AS_NULL = TRUE", "MULTI_LINE = TRUE", "ENCODING =", "COMPRESSION =",
    "REPLACE_INVALID_CHARACTERS = TRUE", "DATE_FORMAT =", "TIMESTAMP_FORMAT =",
)  # fmt: skip
"""What FILE_FORMAT of COPY INTO may have."""

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

OPERANDS = ("NOT", "CASE WHEN", "EXISTS")
_WHENS = ("WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE")
_RETAIN = ("AS OF VERSION", "RETAIN")

# Statements other than queries, as patterns of the text of a `Line`: `@` is a name.

TABLE_EXPECTED = (
    "INSERT (?:INTO|OVERWRITE)(?: TABLE)?|UPDATE|DELETE FROM|MERGE INTO|MERGE .* USING"
    "|COPY INTO(?: ' FROM)?"
    "|(?!CREATE ).* TABLE(?: IF EXISTS)?|DESC(?:RIBE)?(?: EXTENDED)?"
    "|SHOW (?:PARTITIONS|TBLPROPERTIES|TAGS|BRANCHES|COLUMNS (?:IN|FROM))"
    "|(?:REFRESH|ANALYZE) TABLE|COMMENT ON TABLE|DESC(?:RIBE)? (?:DETAIL|HISTORY)"
    "|(?:CREATE OR )?REPLACE TABLE|CREATE TABLE(?: IF NOT EXISTS)? @ LIKE"
)
"""What is followed by a table's name."""

DATABASE_EXPECTED = (
    "USE(?: DATABASE)?|(?:DROP|DESC|DESCRIBE) DATABASE(?: IF EXISTS)?|SHOW TABLES (?:IN|FROM)"
)
"""What is followed by a database's name."""

TARGET = (
    "(?:INSERT (?:INTO|OVERWRITE)(?: TABLE)?|COPY INTO"
    "|(?:CREATE(?: OR REPLACE)?|DROP|ALTER|TRUNCATE) TABLE"
    "(?: IF(?: NOT)? EXISTS)?|DESC(?:RIBE)?(?: TABLE)?(?: EXTENDED)?"
    "|SHOW (?:PARTITIONS|TBLPROPERTIES))(?P<table>@)(?: .*)?"
)
"""A statement whose table is written already."""

COLUMN_EXPECTED = (
    "ALTER TABLE @ (?:DROP|RENAME|ALTER) COLUMN|ALTER TABLE .* AFTER"
    "|DESC(?:RIBE)?(?: TABLE)?(?: EXTENDED)? @"
)
"""What is followed by a column of the statement's table."""

TAG_EXPECTED = "ALTER TABLE @ (?:(?:CREATE OR )?REPLACE|DELETE|RENAME) TAG"
VERSION_EXPECTED = "ALTER TABLE .* OF VERSION"

FOLLOWING: dict[str, tuple[str, ...]] = {
    "INSERT": ("INTO", "OVERWRITE"),
    "INSERT (?:INTO|OVERWRITE)(?: TABLE)? @(?: .*)?": (
        "VALUES", "SELECT", "PARTITION (", "BY NAME", "WITH", "TABLE", "REPLACE WHERE",
        "REPLACE USING (",
    ),
    "DELETE": ("FROM",),
    "MERGE": ("INTO",),
    "COPY": ("INTO",),
    "COPY INTO @(?: .*)? ON_ERROR =": ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE"),
    "COPY INTO .* (?:FORCE|OVERWRITE|SINGLE) =": ("TRUE", "FALSE"),
    r"COPY INTO(?: '|@(?: \(\))?)": ("FROM",),
    r"COPY INTO @(?: \(\))? FROM '(?: .*)?": (
        "FILE_FORMAT = (TYPE = CSV)", "FILE_FORMAT = (TYPE = JSON)",
        "FILE_FORMAT = (TYPE = PARQUET)", "FILE_FORMAT = (TYPE = ORC)", "PATTERN =", "FILES = (",
        "FORCE = TRUE", "ON_ERROR = CONTINUE", "ON_ERROR = SKIP_FILE", "REJECTED_ROWS =",
        "VALIDATE",
    ),
    r"COPY INTO ' FROM(?:@| \(\))(?: .*)?": (
        "FILE_FORMAT = (TYPE = PARQUET)", "FILE_FORMAT = (TYPE = CSV, HEADER = TRUE)",
        "FILE_FORMAT = (TYPE = JSON)", "FILE_FORMAT = (TYPE = ORC)", "OVERWRITE = TRUE",
        "PARTITION BY (", "SINGLE = TRUE",
    ),
    "CREATE": (
        "TABLE", "OR REPLACE TABLE", "DATABASE", "VIEW", "OR REPLACE VIEW",
        "OR REPLACE TEMPORARY VIEW", "TEMPORARY VIEW",
    ),
    "REPLACE": ("TABLE",),
    "CREATE (?:TABLE|DATABASE|VIEW)": ("IF NOT EXISTS",),
    "CREATE OR": ("REPLACE TABLE", "REPLACE VIEW", "REPLACE TEMPORARY VIEW"),
    "CREATE OR REPLACE": ("TABLE", "VIEW", "TEMPORARY VIEW"),
    r"CREATE(?: OR REPLACE)? VIEW(?: IF NOT EXISTS)? @(?: \(\))?": (
        "AS SELECT", "COMMENT", "TBLPROPERTIES (",
    ),
    "CREATE TABLE(?: IF NOT EXISTS)? @ LIKE @(?: .*)?": (
        "TBLPROPERTIES (", "USING paimon",
    ),
    "CREATE TABLE(?: IF NOT EXISTS)? @": (
        "PARTITIONED BY (", "TBLPROPERTIES (", "COMMENT", "USING paimon", "LOCATION", "AS SELECT",
        "LIKE",
    ),
    "(?:CREATE(?: OR REPLACE)?|REPLACE) TABLE(?: IF NOT EXISTS)? @(?: .*)?": (
        "PARTITIONED BY (", "TBLPROPERTIES (", "COMMENT", "USING paimon", "LOCATION", "AS SELECT",
    ),
    "ALTER": ("TABLE", "VIEW"),
    "ALTER VIEW @": ("AS SELECT", "RENAME TO", "SET TBLPROPERTIES (", "UNSET TBLPROPERTIES ("),
    "ALTER VIEW @ SET": ("TBLPROPERTIES (",),
    "ALTER VIEW @ UNSET": ("TBLPROPERTIES (", "TBLPROPERTIES IF EXISTS ("),
    "ALTER VIEW @ RENAME": ("TO",),
    "ALTER TABLE @": (
        "ADD COLUMNS (", "ALTER COLUMN", "DROP COLUMN", "RENAME COLUMN", "RENAME TO",
        "SET TBLPROPERTIES (", "UNSET TBLPROPERTIES (", "DROP PARTITION (", "CREATE TAG",
        "REPLACE TAG", "DELETE TAG", "RENAME TAG",
    ),
    "ALTER TABLE @ ADD": ("COLUMNS (", "COLUMN", "PARTITION (", "IF NOT EXISTS PARTITION ("),
    "ALTER TABLE @ SET": ("TBLPROPERTIES (",),
    "ALTER TABLE @ UNSET": ("TBLPROPERTIES (", "TBLPROPERTIES IF EXISTS ("),
    "ALTER TABLE @ DROP": ("COLUMN", "PARTITION (", "IF EXISTS PARTITION ("),
    "ALTER TABLE @ RENAME": ("COLUMN", "TO", "TAG"),
    "ALTER TABLE @ CREATE": ("TAG", "OR REPLACE TAG"),
    "ALTER TABLE @ ALTER COLUMN @": (
        "TYPE", "COMMENT", "FIRST", "AFTER", "SET NOT NULL", "DROP NOT NULL", "SET DEFAULT",
        "DROP DEFAULT",
    ),
    "ALTER TABLE @ ALTER COLUMN @ TYPE": TYPES,
    "ALTER TABLE @ RENAME (?:COLUMN|TAG) @": ("TO",),
    "ALTER TABLE @ (?:CREATE|REPLACE) TAG @": _RETAIN,
    "DROP": ("TABLE", "VIEW", "DATABASE"),
    "DROP (?:TABLE|VIEW|FUNCTION)": ("IF EXISTS",),
    "DROP TABLE(?: IF EXISTS)? @(?: .*)?": ("PURGE",),
    "DROP DATABASE @": ("CASCADE", "RESTRICT"),
    "TRUNCATE": ("TABLE",),
    "TRUNCATE TABLE @(?: .*)?": ("PARTITION (",),
    "SHOW": (
        "TABLES", "DATABASES", "COLUMNS IN", "PARTITIONS", "TBLPROPERTIES", "TAGS", "CREATE TABLE",
        "TABLE EXTENDED LIKE", "VIEWS",
    ),
    "SHOW TABLES": ("IN", "LIKE"),
    "SHOW TABLES IN @": ("LIKE",),
    "SHOW DATABASES": ("LIKE",),
    "SHOW COLUMNS": ("IN",),
    "SHOW CREATE": ("TABLE",),
    "SHOW TABLE": ("EXTENDED LIKE",),
    "SHOW TABLE EXTENDED": ("LIKE", "IN"),
    "DESC(?:RIBE)? TABLE @": ("PARTITION (",),
    "REFRESH": ("TABLE",),
    "ANALYZE": ("TABLE",),
    "ANALYZE TABLE @": ("COMPUTE STATISTICS",),
    "ANALYZE TABLE @ COMPUTE": ("STATISTICS",),
    "ANALYZE TABLE @ COMPUTE STATISTICS": ("FOR ALL COLUMNS", "FOR COLUMNS", "NOSCAN"),
    "ANALYZE TABLE @ COMPUTE STATISTICS FOR": ("ALL COLUMNS", "COLUMNS"),
    "COMMENT": ("ON TABLE", "ON DATABASE"),
    "COMMENT ON": ("TABLE", "DATABASE"),
    "COMMENT ON (?:TABLE|DATABASE) @": ("IS",),
}  # fmt: skip
"""The keywords that may follow. The first pattern that fits counts."""


class Names(Enum):
    """Whose columns may follow: none, those of the changed table, or those of all tables."""

    NONE = auto()
    TARGET = auto()
    ALL = auto()


CHANGES: dict[str, tuple[Names, tuple[str, ...]]] = {
    "MERGE WHEN": (Names.NONE, tuple(when.removeprefix("WHEN ") for when in _WHENS)),
    "MERGE WHEN NOT": (Names.NONE, ("MATCHED",)),
    "MERGE WHEN NOT MATCHED BY": (Names.NONE, ("SOURCE", "TARGET")),
    "MERGE WHEN NOT MATCHED": (Names.NONE, ("AND", "THEN", "BY SOURCE")),
    "MERGE WHEN(?: NOT)? MATCHED(?: BY (?:SOURCE|TARGET))?": (Names.NONE, ("AND", "THEN")),
    "MERGE WHEN NOT MATCHED(?! BY SOURCE)(?: .*)? THEN": (Names.NONE, ("INSERT *", "INSERT (")),
    "MERGE WHEN .* THEN": (Names.NONE, ("UPDATE SET", "UPDATE SET *", "DELETE")),
    "MERGE WHEN .* THEN UPDATE": (Names.NONE, ("SET", "SET *")),
    "MERGE WHEN .* THEN INSERT": (Names.NONE, ("*",)),
    r"MERGE WHEN .* THEN INSERT \(\)": (Names.NONE, ("VALUES (",)),
    r"MERGE (?:WHEN .* THEN .*|SET \*)": (Names.NONE, _WHENS),
    "MERGE WHEN .* AND(?: .*)?": (Names.ALL, (*OPERATORS, "THEN")),
    r"\S+ SET(?: .* ,)?": (Names.TARGET, ()),
    r"\S+ SET .* ==?": (Names.ALL, ("DEFAULT", *OPERANDS)),
    "MERGE SET (?:.* , )?[^,]* ==? [^,]*": (Names.ALL, (*OPERATORS, *_WHENS)),
    "UPDATE SET (?:.* , )?[^,]* ==? [^,]*": (Names.ALL, (*OPERATORS, "WHERE")),
    r"\S+ WHERE(?: .*)?": (Names.ALL, OPERATORS),
    "MERGE ON(?: .*)?": (Names.ALL, (*OPERATORS, *_WHENS)),
    "MERGE USING .*": (Names.NONE, ("AS", "ON")),
    "DELETE FROM .*": (Names.NONE, ("AS", "WHERE")),
    "UPDATE (?!SET).*": (Names.NONE, ("AS", "SET")),
    "MERGE INTO .*": (Names.NONE, ("AS", "USING")),
}
"""Whose columns and which keywords may follow the first word of a DELETE, UPDATE or MERGE and its
last clause. Without a clause it is the whole statement."""


def in_clause(clause: str, last: str) -> tuple[str, ...]:
    """Return the words that may follow the word `last` in a clause of a query."""
    if last in ("GROUP", "ORDER", "SORT", "PARTITION", "CLUSTER", "DISTRIBUTE"):
        return ("BY",)
    if last in BEFORE_OPERANDS:
        first = ("DISTINCT", "CASE WHEN") if last == "SELECT" else OPERANDS
        return ("NULL", "NOT NULL") if last == "IS" else first
    return _IN_CLAUSE.get(clause, ())
