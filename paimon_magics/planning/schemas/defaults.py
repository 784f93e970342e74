"""Column defaults: the SQL text of DEFAULT as Paimon stores and reads it.

Paimon stores a default as text, removes one pair of single quotes, and casts the rest from STRING
to the column's type (`DefaultValueUtils`). It evaluates no expressions and knows no escapes, so
only plain literals mean the same to Paimon, to Spark and here; everything else is refused.

Of nested types, Paimon reads `ARRAY(…)`, `MAP(…)` and `STRUCT(…)` out of the stored text and casts
each word from STRING (`StringToArrayCastRule` and its kin). It keeps the quotes of texts as part of
them, except double quotes inside a MAP; a text elsewhere would be another one for Spark.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from paimon_magics.errors import InvalidTableError
from paimon_magics.statements.data_types import (
    INTEGER_BITS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    as_nullable,
    family_of,
)

_CALL = re.compile(r"\s*(ARRAY|MAP|STRUCT)\s*\(", re.IGNORECASE)
_LEAF = re.compile(r"""\s*("[^"'\\,;()\[\]{}<>]*"|[^\s"'\\,;()\[\]{}<>]+)\s*""")
_SUFFIXES = {"DOUBLE": "D", "FLOAT": "F"}
_NUMBERS = ("boolean", "integer", "float", "decimal")
_QUOTED = (
    "Paimon keeps the quotes of texts in a nested default, and Spark does not. Only a MAP can have "
    'plain texts, in double quotes: MAP("a", 1).'
)
_NAMES = {ArrayType: "ARRAY", MapType: "MAP", RowType: "STRUCT"}


def misfit(data_type: DataType, text: str, fits: Callable[[AtomicType, str], bool]) -> str | None:
    """What is wrong with the `text` of a default of an ARRAY, MAP or STRUCT; None if nothing is.
    `fits` tells whether a text without quotes fits an atomic type."""
    reader = _Reader(text, fits)
    try:
        reader.read(data_type, in_map=False)
        if text[reader.at :].strip():
            return "Write a single value."
    except _MisfitError as error:
        return str(error)
    return None


class _MisfitError(Exception):
    """What is wrong with a default."""


@dataclass
class _Reader:
    text: str
    fits: Callable[[AtomicType, str], bool]
    at: int = field(default=0)

    def read(self, data_type: DataType, *, in_map: bool) -> str:
        """Pass over a value of the type, and return its text. Raises _MisfitError."""
        start = self.at
        call = _CALL.match(self.text, self.at)
        if call is None:
            leaf = _LEAF.match(self.text, self.at)
            if leaf is None:
                is_text = self.text[self.at :].lstrip().startswith(("'", '"'))
                raise _MisfitError(_QUOTED if is_text else _expected(data_type))
            self.at = leaf.end()
            self._check_leaf(data_type, leaf[1], in_map=in_map)
            return leaf[1].strip('"')
        if _NAMES.get(type(data_type)) != call[1].upper():
            raise _MisfitError(_expected(data_type))
        self.at = call.end()
        match data_type:
            case ArrayType(element=element):
                for _ in self._more():
                    self.read(element, in_map=in_map)
            case MapType(key=key, value=value):
                self._read_map(key, value)
            case RowType(fields=fields):
                self._read_fields([each.type for each in fields], in_map=in_map)
        return self.text[start : self.at].strip()

    def _read_map(self, key: DataType, value: DataType) -> None:
        keys = set()
        for _ in self._more():
            text = self.read(as_nullable(key, False), in_map=True)
            if _key(text) in keys:
                raise _MisfitError("Keys of a MAP differ.")
            keys.add(_key(text))
            if not self.text.startswith(",", self.at):
                raise _MisfitError("Write a MAP as MAP(key, value, …).")
            self.at += 1
            self.read(value, in_map=True)

    def _read_fields(self, types: list[DataType], *, in_map: bool) -> None:
        wanted = f"Write the STRUCT with {len(types)} values, in the order of its fields."
        left = list(types)
        for _ in self._more():
            if not left:
                raise _MisfitError(wanted)
            self.read(left.pop(0), in_map=in_map)
        if left:
            raise _MisfitError(wanted)

    def _more(self) -> Iterator[None]:
        """Once for each value until the bracket closes; the caller reads the value."""
        is_first = True
        while True:
            rest = self.text[self.at :]
            self.at += len(rest) - len(rest.lstrip())
            if self.text.startswith(")", self.at):
                self.at += 1
                return
            if not is_first:
                if not self.text.startswith(",", self.at):
                    raise _MisfitError("Put a comma between values.")
                self.at += 1
            is_first = False
            yield

    def _check_leaf(self, data_type: DataType, word: str, *, in_map: bool) -> None:
        if word == "null" and data_type.nullable:
            return
        if not isinstance(data_type, AtomicType):
            raise _MisfitError(_expected(data_type))
        family, value = family_of(data_type), word.strip('"')
        if word.startswith('"'):
            if not in_map or value != value.strip() or value in ("", "null"):
                raise _MisfitError(_QUOTED)
            is_fitting = family == "text" and (
                not data_type.parameters or len(value) <= data_type.parameters[0]
            )
            is_fitting = is_fitting or (
                family in ("date", "timestamp") and self.fits(data_type, value)
            )
        else:
            suffix = _SUFFIXES.get(data_type.name, "")
            value = value.removesuffix(suffix).removesuffix(suffix.lower())
            is_fitting = family in _NUMBERS and self.fits(data_type, value)
        if not is_fitting:
            raise _MisfitError(f"{word} is no plain literal that fits {data_type.name}.")


def _key(text: str) -> object:
    """A key of a MAP, the same for all ways to write it."""
    try:
        return Decimal(text.strip("dDfF"))
    except InvalidOperation:
        return text.lower() if text.lower() in ("true", "false") else text


def _expected(data_type: DataType) -> str:
    name = _NAMES.get(type(data_type))
    if name is None:
        word = data_type.name if isinstance(data_type, AtomicType) else "the type"
        return f"Write a plain literal of {word}."
    return f"Write {name}(…) of plain literals."


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
