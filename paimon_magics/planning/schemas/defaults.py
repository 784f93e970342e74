"""Column defaults: the SQL text of DEFAULT as Paimon stores and reads it.

Paimon stores a default as text, removes one pair of single quotes, and casts the rest from STRING
to the column's type (`DefaultValueUtils`). It evaluates no expressions and knows no escapes, so
only plain literals mean the same to Paimon, to Spark and here; everything else is refused. Of
nested types, `nested_defaults` tells which those are.
"""

from __future__ import annotations

import datetime
import re

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.nested_defaults import misfit
from paimon_magics.statements.data_types import (
    INTEGER_BITS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    family_of,
)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
# Numbers and booleans whose text is the same to Paimon and as Spark's CAST to STRING writes it.
_PLAIN = re.compile(r"(-?(0|[1-9]\d*)(\.\d+)?|true|false)")
_LITERAL = re.compile(r"""(?:(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ)\s*)?(['"])(.*)\1""",
                      re.DOTALL | re.IGNORECASE)  # fmt: skip
_TIMESTAMP = re.compile(r"(\d{4,}-\d{1,2}-\d{1,2})(?:[ T](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?)?")


def stored_default(column: str, data_type: DataType, text: str | None) -> str | None:
    """Return the text to store for `DEFAULT text`; None without a default and for DEFAULT NULL.

    Raises InvalidTableError for anything but a plain literal that fits the column's type.
    """
    if text is None or text.strip().upper() == "NULL":
        return None
    text = text.strip()
    value = default_text(text)
    if isinstance(data_type, ArrayType | MapType | RowType):
        if wrong := misfit(data_type, text, _fits):
            raise _refused(column, text, wrong)
        return text
    if not isinstance(data_type, AtomicType) or data_type.name in ("VARIANT", "BLOB", "TIME"):
        hint = "Columns of this type can't have a default: give the value in the INSERT."
        raise _refused(column, text, hint)
    quoted = _LITERAL.fullmatch(text)
    if quoted and ("\\" in value or "'" in value or '"' in value):
        raise _refused(column, text, "A default can't contain quotes or backslashes.")
    if family_of(data_type) in ("text", "binary"):
        if not quoted:
            hint = "Write a literal in quotes; give the value of an expression in the INSERT."
            raise _refused(column, text, hint)
        if data_type.parameters and len(value) > data_type.parameters[0]:
            raise _refused(column, text, f"It is longer than {data_type.parameters[0]}.")
    elif not _fits(data_type, value):
        raise _refused(column, text, f"Write a literal that fits {data_type.name}.")
    return f"'{value}'" if quoted else text


def retyped_default(column: str, data_type: DataType, stored: str | None) -> str | None:
    """The default of a column that gets another type: Paimon keeps the text (`SchemaManager`).

    A number or a boolean becomes a text in quotes where the type is one of texts. Raises
    InvalidTableError where the default doesn't fit the type.
    """
    if family_of(data_type) == "text" and stored and _PLAIN.fullmatch(stored):
        stored = f"'{stored}'"
    return stored_default(column, data_type, stored)


def default_text(stored: str) -> str:
    """The value of a stored default, without quotes and type name."""
    match = _LITERAL.fullmatch(stored.strip())
    return match[2] if match else stored.strip()


def _fits(data_type: AtomicType, value: str) -> bool:
    match data_type.name:
        case "BOOLEAN":
            return value.lower() in ("true", "false")
        case name if name in INTEGER_BITS:
            half = 2 ** (INTEGER_BITS[name] - 1)
            return bool(re.fullmatch(r"[+-]?\d+", value)) and -half <= int(value) < half
        case "FLOAT" | "DOUBLE":
            return bool(_NUMBER.fullmatch(value))
        case "DECIMAL":
            match = re.fullmatch(r"[+-]?0*(\d*)(?:\.(\d*))?", value)
            precision, scale = data_type.parameters
            return bool(
                match
                and (match[1] or match[2] or "0" in value)
                and len(match[1]) <= precision - scale
                and len(match[2] or "") <= scale
            )
        case "DATE":
            return _is_date(value)
        case _:
            match = _TIMESTAMP.fullmatch(value)
            return bool(match and _is_date(match[1]) and _is_time(match[2]))


def _is_date(value: str) -> bool:
    parts = value.split("-")
    try:
        datetime.date(*(int(part) for part in parts))
    except (ValueError, TypeError):
        return False
    return True


def _is_time(value: str | None) -> bool:
    try:
        datetime.time.fromisoformat(value or "00:00")
    except ValueError:
        return False
    return True


def _refused(column: str, text: str, hint: str) -> InvalidTableError:
    return InvalidTableError(f"The column `{column}` can't have the default {text}.", hint=hint)
