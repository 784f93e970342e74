"""Reads Spark SQL's types from a statement's tokens into Paimon's data types.

The mapping is that of Paimon's `SparkTypeUtils` (Spark's TIMESTAMP is Paimon's TIMESTAMP_LTZ(6),
TIMESTAMP_NTZ is TIMESTAMP(6)), plus Paimon's own names where Spark has none: TIMESTAMP_NTZ(p),
TIMESTAMP_LTZ(p), BYTES, VARBINARY(n), BINARY(n).
"""

from __future__ import annotations

from typing import NoReturn

from paimon_magics.errors import InvalidTableError, likely_meant
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowField,
    RowType,
    as_nullable,
)
from paimon_magics.statements.dialects.foreign_names import foreign_type_hint
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import Token

_PLAIN = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "STRING": "STRING",
    "BYTES": "BYTES",
    "VARIANT": "VARIANT",
}
_DECIMAL = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_TIMESTAMPS = {
    "TIMESTAMP": "TIMESTAMP_LTZ",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
_LENGTHS = {"CHAR": "CHAR", "CHARACTER": "CHAR", "VARCHAR": "VARCHAR", "VARBINARY": "VARBINARY"}
_MAX_LENGTH = 2**31 - 1
_REFUSED = {
    "INTERVAL": "Store a number of units, or two timestamps.",
    "VOID": "Give the column a type, as in CAST(NULL AS STRING).",
    "NULL": "Give the column a type, as in CAST(NULL AS STRING).",
    "TIME": "Spark reads Paimon's TIME as an INT of milliseconds: declare INT.",
    "GEOMETRY": "Store it as BINARY (WKB).",
    "GEOGRAPHY": "Store it as BINARY (WKB).",
}
# The smallest type that holds all values of an unsigned type.
_WIDER = {
    "TINYINT": "SMALLINT",
    "SMALLINT": "INT",
    "INT": "BIGINT",
    "INTEGER": "BIGINT",
    "BIGINT": "DECIMAL(20, 0)",
}
_TYPES = (
    "Types are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), STRING, DATE, TIMESTAMP, BINARY, "
    "ARRAY<…>, MAP<…>, STRUCT<…> and some more. Put a column's name with a blank in back-quotes."
)
_KNOWN = (
    *_PLAIN,
    *_DECIMAL,
    *_TIMESTAMPS,
    *_LENGTHS,
    "BINARY",
    "ARRAY",
    "MAP",
    "STRUCT",
)


def read_type(cursor: Cursor) -> DataType:
    """Read one type, without a NOT NULL after it. Raises the errors of `type_text.from_sql`."""
    token = cursor.peek()
    if token.kind != "word":
        cursor.fail("a type")
    cursor.next()
    data_type = _read(cursor, token)
    _refuse_foreign_ending(cursor, token, data_type)
    return data_type


def _read(cursor: Cursor, token: Token) -> DataType:
    name = token.upper
    if name in _PLAIN:
        if name == "STRING" and cursor.at("COLLATE"):
            _invalid(cursor, token, "STRING with COLLATE", "Paimon stores strings in UTF-8 order.")
        return AtomicType(_PLAIN[name])
    if name in _DECIMAL:
        return _decimal(cursor, token)
    if name in _TIMESTAMPS:
        return _timestamp(cursor, token)
    if name in _LENGTHS or name == "BINARY":
        return _with_length(cursor, token)
    if name == "ARRAY":
        _open_angle(cursor)
        element = _nested(cursor)
        cursor.expect(">")
        return ArrayType(element)
    if name == "MAP":
        _open_angle(cursor)
        key = as_nullable(_nested(cursor), False)
        cursor.expect(",")
        value = _nested(cursor)
        cursor.expect(">")
        return MapType(key, value)
    if name in ("STRUCT", "ROW"):
        return _struct(cursor)
    if name in _REFUSED:
        _invalid(cursor, token, name, _REFUSED[name])
    raise InvalidTableError(
        f"There is no type `{token.text}`.",
        hint=foreign_type_hint(token.text) or likely_meant(token.text, _KNOWN) or _TYPES,
        statement=cursor.text,
        position=token.start,
    )


def _refuse_foreign_ending(cursor: Cursor, token: Token, data_type: DataType) -> None:
    """Refuse what other databases write after a type: a length, a sign, brackets, a zone."""
    name = token.upper
    written = name
    if isinstance(data_type, AtomicType) and data_type.parameters and cursor.last_end > token.end:
        written = f"{name}({', '.join(map(str, data_type.parameters))})"
    if cursor.at("("):
        _invalid(cursor, token, f"{name}(…)", f"{name} has no length: write {name}.")
    if cursor.at("["):
        _invalid(cursor, token, f"{written}[]", f"Write ARRAY<{written}>.")
    if cursor.at("PRECISION"):
        _invalid(cursor, token, f"{name} PRECISION", f"Write {name}.")
    if cursor.at("WITH") or cursor.at("WITHOUT"):
        ending = " ".join(cursor.peek(i).upper for i in range(4) if cursor.peek(i).kind == "word")
        plain = "TIMESTAMP_NTZ" if cursor.at("WITHOUT") else "TIMESTAMP, which is an instant"
        _invalid(cursor, token, f"{name} {ending}", f"Write {plain}.")
    if cursor.at_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        wider = _WIDER.get(name, name) if cursor.at("UNSIGNED") else name
        _invalid(
            cursor,
            token,
            f"{name} {cursor.peek().upper}",
            f"All number types are signed: write {wider}.",
        )


def _nested(cursor: Cursor) -> DataType:
    data_type = read_type(cursor)
    return as_nullable(data_type, False) if cursor.accept("NOT", "NULL") else data_type


def _decimal(cursor: Cursor, token: Token) -> DataType:
    precision, scale = 10, 0
    if cursor.accept("("):
        precision = _integer(cursor)
        if cursor.accept(","):
            scale = _integer(cursor)
        cursor.expect(")")
    if not 1 <= precision <= 38 or scale > precision:
        _invalid(
            cursor,
            token,
            f"DECIMAL({precision}, {scale})",
            "The precision is 1 to 38, the scale 0 to the precision.",
        )
    return AtomicType("DECIMAL", (precision, scale))


def _timestamp(cursor: Cursor, token: Token) -> DataType:
    name = _TIMESTAMPS[token.upper]
    if not cursor.at("("):
        return AtomicType(name, (6,))
    if token.upper == "TIMESTAMP":
        _invalid(
            cursor,
            token,
            "TIMESTAMP(p)",
            "It means no time zone in Paimon but one in Spark: write TIMESTAMP_NTZ(p) or "
            "TIMESTAMP_LTZ(p).",
        )
    cursor.next()
    precision = _integer(cursor)
    cursor.expect(")")
    if precision > 9:
        _invalid(cursor, token, f"{token.upper}({precision})", "The precision is 0 to 9.")
    return AtomicType(name, (precision,))


def _with_length(cursor: Cursor, token: Token) -> DataType:
    name = _LENGTHS.get(token.upper, "BINARY")
    if not cursor.at("("):
        if name == "BINARY":  # Spark's BINARY has no length
            return AtomicType("BYTES")
        example = f"{name}(10)"
        _invalid(cursor, token, f"{token.upper} without a length", f"Write {example} or STRING.")
    cursor.next()
    length = _integer(cursor)
    cursor.expect(")")
    if not 1 <= length <= _MAX_LENGTH:
        _invalid(cursor, token, f"{name}({length})", f"The length is 1 to {_MAX_LENGTH}.")
    if length == _MAX_LENGTH and name == "VARCHAR":
        return AtomicType("STRING")
    if length == _MAX_LENGTH and name == "VARBINARY":
        return AtomicType("BYTES")
    return AtomicType(name, (length,))


def _struct(cursor: Cursor) -> DataType:
    fields: list[RowField] = []
    if cursor.accept("<>"):
        return RowType(())
    _open_angle(cursor)
    while not cursor.at(">"):
        token = cursor.peek()
        name = cursor.identifier("a field's name")
        cursor.accept(":")
        data_type = _nested(cursor)
        comment = cursor.string("the comment's text") if cursor.accept("COMMENT") else None
        if any(f.name == name for f in fields):
            raise InvalidTableError(
                f"The field `{name}` occurs twice in this STRUCT.",
                hint="Rename one of them.",
                statement=cursor.text,
                position=token.start,
            )
        fields.append(RowField(name, data_type, comment))
        if not cursor.accept(","):
            break
    cursor.expect(">")
    return RowType(tuple(fields))


def _integer(cursor: Cursor) -> int:
    token = cursor.peek()
    if token.kind != "number" or not token.text.isdigit():
        cursor.fail("a whole number")
    cursor.next()
    return int(token.text)


def _open_angle(cursor: Cursor) -> None:
    if not cursor.accept("<"):
        cursor.fail("`<` and the type of the content", hint="Write ARRAY<INT>, MAP<STRING, INT> "
                    "or STRUCT<name: STRING, age: INT>.")  # fmt: skip


def _invalid(cursor: Cursor, token: Token, what: str, hint: str) -> NoReturn:
    raise InvalidTableError(
        f"Paimon tables can't have a column of the type {what}.",
        hint=hint,
        statement=cursor.text,
        position=token.start,
    )
