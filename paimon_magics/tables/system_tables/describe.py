"""The rows of SHOW CREATE TABLE, DESCRIBE and SHOW TBLPROPERTIES.

Their forms are those of Spark with Paimon's Spark catalog. The statement of SHOW CREATE TABLE makes
an equal table here, except for columns of the types TIME and BLOB, which Spark SQL can't declare.
"""

from __future__ import annotations

from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
)
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.table import Table

_SQL_NAMES = {"TIMESTAMP": "TIMESTAMP_NTZ", "BYTES": "BINARY"}


def create_statement(table: Table) -> str:
    """The CREATE TABLE statement that SHOW CREATE TABLE returns."""
    schema = table.schema
    lines = [f"CREATE TABLE {quoted(table.name.database or '')}.{quoted(table.name.table)} ("]
    lines += [",\n".join(f"  {_column_sql(column)}" for column in schema.columns) + ")"]
    lines.append("USING paimon")
    if schema.partition_keys:
        lines.append(f"PARTITIONED BY ({', '.join(quoted(k) for k in schema.partition_keys)})")
    if schema.comment is not None:
        lines.append(f"COMMENT {_literal(schema.comment)}")
    options = [(k, v) for k, v in option_rows(schema) if k != "path"]
    if options:
        pairs = ",\n".join(f"  {_literal(key)} = {_literal(value)}" for key, value in options)
        lines.append(f"TBLPROPERTIES (\n{pairs})")
    return "\n".join(lines)


def describe_rows(table: Table, *, extended: bool = False) -> list[tuple[str, str, str | None]]:
    """The rows (col_name, data_type, comment) of DESCRIBE [EXTENDED]."""
    schema = table.schema
    rows: list[tuple[str, str, str | None]] = [_described(column) for column in schema.columns]
    if schema.partition_keys:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [_described(schema.column(key)) for key in schema.partition_keys]
    if extended:
        details: list[tuple[str, str | None]] = [
            ("Name", f"paimon.{table.name}"),
            ("Type", "MANAGED"),
            ("Location", table.location),
            ("Provider", "paimon"),
            ("Comment", schema.comment),
            ("Table Properties", f"[{','.join(f'{k}={v}' for k, v in option_rows(schema))}]"),
        ]
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(name, value, "") for name, value in details if value is not None]
    return rows


def describe_column(table: Table, name: str) -> list[tuple[str, str]]:
    """The rows (info_name, info_value) of DESCRIBE table column.

    Raises UnknownNameError for a column that the table does not have.
    """
    column = table.schema.column(name)
    rows = [
        ("col_name", column.name),
        ("data_type", type_text(column.type)),
        ("comment", column.comment or "NULL"),
    ]
    return rows if column.default is None else [*rows, ("default", column.default)]


def option_rows(schema: TableSchema) -> list[tuple[str, str]]:
    """The rows (key, value) of SHOW TBLPROPERTIES, sorted, with the primary key among them."""
    options = dict(schema.options)
    if schema.primary_keys:
        options["primary-key"] = ",".join(schema.primary_keys)
    return sorted(options.items())


def type_text(data_type: DataType) -> str:
    """A type as Spark's DESCRIBE writes it: `decimal(9,2)`, `struct<a:int,b:array<string>>`."""
    match data_type:
        case AtomicType():
            return to_spark_sql(data_type).lower().replace(", ", ",")
        case ArrayType(element=element):
            return f"array<{type_text(element)}>"
        case MapType(key=key, value=value):
            return f"map<{type_text(key)},{type_text(value)}>"
        case RowType(fields=fields):
            return f"struct<{','.join(f'{f.name}:{type_text(f.type)}' for f in fields)}>"
        case MultisetType() | VectorType():
            return to_spark_sql(data_type).lower().replace(", ", ",")


def _described(column: Column) -> tuple[str, str, str | None]:
    return column.name, type_text(column.type), column.comment


def _column_sql(column: Column) -> str:
    parts = [quoted(column.name), _type_sql(column.type)]
    if column.default is not None:
        parts.append(f"DEFAULT {column.default}")
    if column.comment is not None:
        parts.append(f"COMMENT {_literal(column.comment)}")
    return " ".join(parts)


def _type_sql(data_type: DataType) -> str:
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case AtomicType(name=name, parameters=parameters):
            if name in ("TIMESTAMP", "TIMESTAMP_LTZ") and parameters == (6,):
                text = "TIMESTAMP" if name == "TIMESTAMP_LTZ" else "TIMESTAMP_NTZ"
            else:
                numbers = f"({', '.join(map(str, parameters))})" if parameters else ""
                text = f"{_SQL_NAMES.get(name, name)}{numbers}"
        case ArrayType(element=element):
            text = f"ARRAY<{_type_sql(element)}>"
        case MapType(key=key, value=value):
            text = f"MAP<{_type_sql(key)}, {_type_sql(value)}>"
        case RowType(fields=fields):
            inner = ", ".join(
                f"{quoted(f.name)}: {_type_sql(f.type)}"
                + (f" COMMENT {_literal(f.comment)}" if f.comment is not None else "")
                for f in fields
            )
            text = f"STRUCT<{inner}>"
        case MultisetType() | VectorType():
            text = to_spark_sql(data_type)
    return text + suffix


def _literal(text: str) -> str:
    return text_literal(text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
