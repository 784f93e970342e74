"""Derives from the text of a PySpark Column which columns it uses and what it compares.

The only public way to inspect a PySpark Column is its text, `Column<'=(day, 1)'>`. The text is
enough for two things, and both are safe: the names in it, as a superset of the columns that are
used, and a guess at a comparison, which the caller lets Spark compare with the Column itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from paimon_magics.planning.reads.predicates import PredicateValue, plain_day
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import INTEGERS, AtomicType
from paimon_magics.statements.lexing.tokens import word_set

_WHOLE = re.compile(r"Column<'(.*)'>", re.DOTALL)
# Texts that may stand for columns which they don't name: stars, patterns, subqueries, and lists
# that Spark cut.
_UNNAMED = re.compile(
    r"star\(|regex\(|subquery|\bexists\b|\bouter\b|\bselect\b|more fields|\[[^\]]*: "
    r"|(?:^|[(,.]|\bdistinct|\ball)\s*\*(?!\()",
    re.IGNORECASE,
)
_OTHER_ROWS = re.compile(r"\bover\b|window", re.IGNORECASE)
_COUNT = re.compile(r"count\((?:\*|unresolvedstar\(\))\)", re.IGNORECASE)
_CALLED = re.compile(r"([\w`.]+)\s*\(|/\*|--")
_OF_A_ROW = word_set(
    "cast try_cast concat concat_ws coalesce substring substr left right upper lower length trim "
    "ltrim rtrim lpad rpad replace split_part abs round bround floor ceil ceiling sqrt pow power "
    "mod sign if nvl nvl2 ifnull nullif isnull isnotnull least greatest year quarter month day "
    "dayofmonth dayofweek dayofyear weekofyear hour minute second to_date to_timestamp date_trunc "
    "trunc date_add date_sub datediff add_months date_format unix_timestamp hash xxhash64 md5 "
    "and or not in when then else case between like unresolvedstar"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS = frozenset({"true", "false", "null"})
_CALL = re.compile(r"(==|=|<=|>=|<|>|in|isNull|isNotNull)\((.*)\)", re.DOTALL)
_OPERATORS = {"==": "="}


@dataclass(frozen=True, slots=True)
class Guess:
    """A possible meaning of a text: `column`, an operator of `ColumnFilter`, and values of the
    column's type. `as_text` tells that the values were given as texts, as in `day =
    '2026-01-31'`."""

    column: str
    operator: str
    values: tuple[PredicateValue, ...] = ()
    as_text: bool = False


def text_within(shown: str) -> str:
    """The text of a Column, from the result of `str`."""
    match = _WHOLE.fullmatch(shown)
    return shown if match is None else match[1]


def mentioned(text: str, columns: Collection[str]) -> frozenset[str] | None:
    """The columns whose names occur in a text; None for a text that may use any column."""
    text = _COUNT.sub("count", text)
    if _UNNAMED.search(text):
        return None
    low = text.lower()
    return frozenset(name for name in columns if _occurs(name, low))


def _occurs(name: str, text: str) -> bool:
    if "`" in name:
        return True  # a text may write it otherwise
    low = name.lower()
    if not _NAME.fullmatch(low):
        return low in text
    return re.search(rf"(?<!\w){low}(?!\w)", text) is not None


def uses_other_rows(text: str) -> bool:
    """Whether the values of the expression may depend on other rows, as in windows."""
    return _OTHER_ROWS.search(text) is not None


def calls_of_a_row(text: str) -> bool:
    """Whether a text calls only functions that return one value for each row."""
    return all(called.lower() in _OF_A_ROW for called in _CALLED.findall(text))


def is_plain_name(text: str) -> bool:
    """Whether a text is a name as it is written without quotes, and no literal."""
    return _NAME.fullmatch(text) is not None and text.lower() not in _WORDS


def guesses(text: str, columns: Collection[Column]) -> Iterator[Guess]:
    """The possible comparisons in a text, the most likely first. Each must be checked."""
    match = _CALL.fullmatch(text)
    if match is None:
        return
    operator, inner = match[1], match[2]
    name, _, rest = inner.partition(", ")
    named = [column for column in columns if column.name.lower() == name.strip("`").lower()]
    if len(named) != 1 or not isinstance(named[0].type, AtomicType):
        return
    column, type_name = named[0], named[0].type.name
    if operator in ("isNull", "isNotNull"):
        if not rest:
            yield Guess(column.name, "is null" if operator == "isNull" else "is not null")
        return
    parts = rest.split(", ") if operator == "in" else [rest]
    if not rest:
        return
    for as_text in (False, True):
        values = [_value(part, type_name, as_text=as_text) for part in parts]
        known = tuple(value for value in values if value is not None)
        if len(known) == len(parts):
            yield Guess(column.name, _OPERATORS.get(operator, operator), known, as_text)


def _value(text: str, type_name: str, *, as_text: bool) -> PredicateValue | None:
    """The value in a text, in a column's type; None if there is none."""
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    if as_text:
        return plain_day(bare) if type_name == "DATE" else None
    if type_name in ("STRING", "VARCHAR"):
        return bare
    if type_name == "BOOLEAN":
        return {"true": True, "false": False}.get(text.lower())
    if type_name == "DATE":
        return plain_day(text)
    if re.fullmatch(r"-?\d+", text) and type_name in (*INTEGERS, "DECIMAL"):
        return int(text)
    if type_name == "DECIMAL":
        try:
            return Decimal(text)
        except InvalidOperation:
            return None
    return None
