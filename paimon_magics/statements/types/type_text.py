"""Converts data types to and from text: Paimon's schema form, and Spark SQL.

Schema form is that of a `schema-N` file: a string for a type without children, a JSON object for
ARRAY, MAP and ROW (Paimon's `DataTypeJsonParser`). Fields of a ROW are written without `id`: ids
belong to a table's schema, and the code that writes a schema assigns them. The mapping to Spark SQL
is that of Paimon's `SparkTypeUtils`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError, nearest
from paimon_magics.statements.clauses.names import quoted, text_literal
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowField,
    RowType,
    VectorType,
    as_nullable,
)
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize, word_set
from paimon_magics.statements.types.sql_types import read_type

_MAX_LENGTH = 2**31 - 1
_NOT_NULL = " NOT NULL"
_ATOMIC = re.compile(
    r"""\s*(?P<name>[A-Z_]+)
        (?:\s+PRECISION)?
        (?:\s*\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>\d+)\s*)?\))?
        (?P<zone>\s+WITH(?:OUT)?(?:\s+LOCAL)?\s+TIME\s+ZONE)?
        (?P<null>\s+(?:NOT\s+)?NULL)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_SYNONYMS = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
_DEFAULTS: dict[str, tuple[int, ...]] = {
    "DECIMAL": (10, 0),
    "CHAR": (1,),
    "VARCHAR": (1,),
    "BINARY": (1,),
    "VARBINARY": (1,),
    "TIME": (0,),
    "TIMESTAMP": (6,),
    "TIMESTAMP_LTZ": (6,),
}
_PLAIN = word_set("BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING BYTES DATE VARIANT BLOB")
_NOT_OFFERED = frozenset({"GEOMETRY", "GEOGRAPHY", "RAW"})
_SPARK = {
    "STRING": "STRING",
    "BYTES": "BINARY",
    "BINARY": "BINARY",
    "VARBINARY": "BINARY",
    "BLOB": "BINARY",
    "TIME": "INT",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}


def to_paimon(data_type: DataType) -> str | dict[str, Any]:
    """Return the type in schema form, with NOT NULL if it is not nullable."""
    suffix = "" if data_type.nullable else _NOT_NULL
    match data_type:
        case AtomicType(name="TIMESTAMP_LTZ", parameters=(precision,)):
            return f"TIMESTAMP({precision}) WITH LOCAL TIME ZONE{suffix}"
        case AtomicType(name=name, parameters=()):
            return name + suffix
        case AtomicType(name=name, parameters=parameters):
            return f"{name}({', '.join(map(str, parameters))}){suffix}"
        case ArrayType(element=element):
            return {"type": f"ARRAY{suffix}", "element": to_paimon(element)}
        case MapType(key=key, value=value):
            return {"type": f"MAP{suffix}", "key": to_paimon(key), "value": to_paimon(value)}
        case RowType(fields=fields):
            return {"type": f"ROW{suffix}", "fields": [_field_to_paimon(f) for f in fields]}
        case MultisetType(element=element):
            return {"type": f"MULTISET{suffix}", "element": to_paimon(element)}
        case VectorType(element=element, length=length):
            return {"type": f"VECTOR{suffix}", "element": to_paimon(element), "length": length}


def from_paimon(value: str | Mapping[str, Any]) -> DataType:
    """Return the type with this schema form.

    Raises UnsupportedStatementError for types of Paimon that are not offered, InvalidTableError for
    anything that is not a type of Paimon.
    """
    if isinstance(value, str):
        return _atomic(value)
    text = str(value.get("type", ""))
    root = text.split(" ")[0].split("<")[0].upper()
    nullable = "NOT NULL" not in text
    if root == "ARRAY":
        return ArrayType(from_paimon(value["element"]), nullable)
    if root == "MAP":
        return MapType(from_paimon(value["key"]), from_paimon(value["value"]), nullable)
    if root == "ROW":
        fields = tuple(
            RowField(f["name"], from_paimon(f["type"]), f.get("description"))
            for f in value["fields"]
        )
        return RowType(fields, nullable)
    if root == "MULTISET":
        return MultisetType(from_paimon(value["element"]), nullable)
    if root == "VECTOR":
        return VectorType(from_paimon(value["element"]), int(value["length"]), nullable)
    raise _unknown(text, root)


def to_spark_sql(data_type: DataType) -> str:
    """Return the type in Spark SQL, for a cast or a description, without its own NOT NULL.

    Spark has no MULTISET and VECTOR: their names are Flink's.
    """
    match data_type:
        case AtomicType(name=name) if name in _SPARK:
            return _SPARK[name]
        case AtomicType(name=name, parameters=()):
            return name
        case AtomicType(name=name, parameters=parameters):
            return f"{name}({', '.join(map(str, parameters))})"
        case ArrayType(element=element):
            return f"ARRAY<{to_spark_sql(element)}>"
        case MapType(key=key, value=value):
            return f"MAP<{to_spark_sql(key)}, {to_spark_sql(value)}>"
        case RowType(fields=fields):
            return f"STRUCT<{', '.join(_field_to_spark_sql(f) for f in fields)}>"
        case MultisetType(element=element):
            return f"MULTISET<{to_spark_sql(element)}>"
        case VectorType(element=element, length=length):
            return f"VECTOR<{to_spark_sql(element)}, {length}>"


def from_sql(text: str) -> DataType:
    """Return the type that SQL text gives; the text may end with NOT NULL.

    Raises InvalidTableError for a type that Paimon's tables can't have, StatementSyntaxError for
    text that is not a type at all.
    """
    cursor = Cursor(text, tokenize(text))
    data_type = read_type(cursor)
    if cursor.accept("NOT", "NULL"):
        data_type = as_nullable(data_type, False)
    cursor.expect_end()
    return data_type


def _field_to_paimon(field: RowField) -> dict[str, Any]:
    result: dict[str, Any] = {"name": field.name, "type": to_paimon(field.type)}
    if field.comment is not None:
        result["description"] = field.comment
    return result


def _field_to_spark_sql(field: RowField) -> str:
    suffix = "" if field.type.nullable else _NOT_NULL
    if field.comment is not None:
        suffix += f" COMMENT {text_literal(field.comment)}"
    return f"{quoted(field.name)}: {to_spark_sql(field.type)}{suffix}"


@lru_cache(maxsize=1024)
def _atomic(text: str) -> DataType:
    """The type that a schema's text names. A statement reads the same few texts again and again."""
    match = _ATOMIC.fullmatch(text)
    if match is None:
        raise _unknown(text, re.split(r"[\s(<]", text.strip())[0].upper())
    name = match["name"].upper()
    name = _SYNONYMS.get(name, name)
    zone = (match["zone"] or "").upper().split()
    if zone and name not in ("TIME", "TIMESTAMP"):
        raise _unknown(text, name)
    if name == "TIMESTAMP" and "LOCAL" in zone:
        name = "TIMESTAMP_LTZ"
    null = (match["null"] or "").upper().split()
    nullable = "NOT" not in null
    numbers = tuple(int(match[g]) for g in ("first", "second") if match[g] is not None)
    if name in _PLAIN and not numbers:
        return AtomicType(name, (), nullable)
    if name not in _DEFAULTS or len(numbers) > len(_DEFAULTS[name]):
        raise _unknown(text, name)
    parameters = numbers + _DEFAULTS[name][len(numbers) :]
    if parameters == (_MAX_LENGTH,) and name in ("VARCHAR", "VARBINARY"):
        return AtomicType("STRING" if name == "VARCHAR" else "BYTES", (), nullable)
    return AtomicType(name, parameters, nullable)


def _unknown(text: str, root: str) -> Exception:
    if root in _NOT_OFFERED:
        return UnsupportedStatementError(
            f"Columns of Paimon's type {root} are not offered yet (`{text}`).",
            hint="Read the table with another engine, or without that column.",
        )
    known = (*_PLAIN, *_DEFAULTS, "ARRAY", "MAP", "ROW")
    return InvalidTableError(
        f"`{text}` is not a type of Paimon.", hint=nearest(root, known, what="types")
    )
