"""Values of the source by which a MERGE finds rows of its target, and the files that their range
rules out.

`t.column = value` in ON, where the value is an expression over the source alone: no row of the
target matches whose column is below the least or above the greatest of the values. Only ranges of
types are used in which Spark's `=` and the statistics of files agree on what is less: not those of
FLOAT and DOUBLE (NaN, -0.0), of timestamps and times (time zones), of CHAR (padding), and not where
a comparison would round or read one type as another.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from paimon_magics.planning.row_changes.merges import (
    MergePlan,
    on_terms,
    side_and_column,
    text_range,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, word_set
from paimon_magics.statements.queries.query_traits import random_part
from paimon_magics.statements.statement import ColumnFilter, FilterValue, MergeInto, TextRange

KeyValue = int | str | Decimal | datetime.date

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
"""The integer types, with the digits that Spark gives each as a DECIMAL (`DecimalType.forType`)."""
_DIGITS_MAX = 38
_OPERATORS = frozenset({"+", "-", "*", "/", "%", "||", "&", "|", "^"})
"""They bind closer than a comparison does."""
_NO_VALUE = word_set("NOT EXISTS CASE ANY SOME ALL INTERVAL")
_OF_THE_MOMENT = word_set(
    "current_date curdate current_timestamp current_time localtimestamp now unix_timestamp "
    "to_unix_timestamp getdate sysdate"
)
"""Functions that have another value when the rows are read again."""


@dataclass(frozen=True, slots=True)
class SourceKey:
    """`column = value` of ON: a column of the target and the text of an expression that only names
    the source. With `null_safe` a NULL matches NULLs."""

    column: str
    value: TextRange
    null_safe: bool
    is_column: bool
    """Whether the value is a plain column of the source."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The least and the greatest value of a SourceKey in all rows of the source; both are None
    if no row has a value."""

    key: SourceKey
    least: KeyValue | None
    greatest: KeyValue | None


def source_keys(merge: MergeInto, plan: MergePlan, schema: TableSchema) -> tuple[SourceKey, ...]:
    """Return the keys whose ranges can rule out files of the target. There are none with a clause
    NOT MATCHED BY SOURCE, which affects rows outside the source."""
    if plan.numbered("NOT MATCHED BY SOURCE"):
        return ()
    terms = on_terms(merge)
    keys = [(term, _key(merge, plan, schema, term)) for term in terms]
    if plan.join == "INNER" and any(
        key is None and not _names_target(merge, schema, term) for term, key in keys
    ):
        # Spark may look at such a term first, and compute no value of the rows that it rules out,
        # which may fail for those.
        keys = [(term, key) for term, key in keys if key is not None and key.is_column]
    return tuple(key for _, key in keys if key is not None)


def _key(
    merge: MergeInto, plan: MergePlan, schema: TableSchema, term: tuple[Token, ...]
) -> SourceKey | None:
    at = next((n for n, token in enumerate(term) if token.text in ("=", "==", "<=>")), None)
    if at is None:
        return None
    sides = term[:at], term[at + 1 :]
    for own, other in (sides, sides[::-1]):
        column = _target_column(merge, plan, schema, own)
        if column is not None and _is_of_source(merge, schema, other):
            is_column = side_and_column(merge, other) is not None or len(other) == 1
            null_safe = term[at].text == "<=>"
            return SourceKey(column, text_range(merge, other), null_safe, is_column)
    return None


def _target_column(
    merge: MergeInto, plan: MergePlan, schema: TableSchema, tokens: tuple[Token, ...]
) -> str | None:
    """The column of the target that is the whole side of a comparison, if files can be told by
    it. Files of a data-evolution table have some columns of their rows only."""
    side = side_and_column(merge, tokens)
    if side is not None and side[0] == "target":
        name = side[1]
    elif len(tokens) == 1 and tokens[0].kind in IDENTIFIER_KINDS:
        name = tokens[0].name.lower()
        if name in (source_column.lower() for source_column in plan.source_columns):
            return None
    else:
        return None
    known = schema.partition_keys if schema.data_evolution_enabled else schema.column_names
    named = [known_name for known_name in known if known_name.lower() == name]
    return named[0] if len(named) == 1 else None


def _is_of_source(merge: MergeInto, schema: TableSchema, tokens: tuple[Token, ...]) -> bool:
    """Whether the tokens are one value that can't refer to the target. Spark checks whether the
    source has its names."""
    if not tokens or not _is_value(Cursor("", tokens)):
        return False
    names = {token.name.lower() for token in tokens if token.kind in IDENTIFIER_KINDS}
    if names & _OF_THE_MOMENT or random_part(" ".join(token.text for token in tokens)) is not None:
        return False
    return not _names_target(merge, schema, tokens)


def _names_target(merge: MergeInto, schema: TableSchema, tokens: tuple[Token, ...]) -> bool:
    """Whether a name among the tokens may mean the target or a column of it."""
    own = {name.lower() for name in schema.column_names}
    before = ""
    for token in tokens:
        name = token.name.lower() if token.kind in IDENTIFIER_KINDS else ""
        if name == merge.target_alias.lower() or (name in own and before != "."):
            return True
        before = token.text
    return False


def _is_value(cursor: Cursor) -> bool:
    """Whether the tokens are operands with arithmetic between them: then all of them belong to one
    side of the comparison."""
    while True:
        while cursor.accept_any("+", "-", "~"):
            pass
        token = cursor.peek()
        if cursor.at("("):
            cursor.skip_brackets()
        elif cursor.at(":"):
            cursor.next()
            if cursor.next().kind not in IDENTIFIER_KINDS:
                return False
        elif token.kind in ("number", "string"):
            cursor.next()
        elif token.kind in IDENTIFIER_KINDS and token.upper not in _NO_VALUE:
            cursor.next()
            while cursor.at(".") and cursor.peek(1).kind in IDENTIFIER_KINDS:
                cursor.index += 2
            if cursor.at("("):
                cursor.skip_brackets()
            elif token.kind == "word" and cursor.peek().kind == "string":
                cursor.next()  # DATE '2026-01-31'
        else:
            return False
        if cursor.at_end:
            return True
        if cursor.next().text not in _OPERATORS:
            return False


def compare_alike(column: DataType, value: AtomicType) -> bool:
    """Whether a column and a value of these types are equal only if the value is in the column's
    own order where it is, so that the values' range holds for the column."""
    match column, value:
        case AtomicType(name=own), AtomicType(name=other) if own in _DIGITS:
            return other in _DIGITS
        case AtomicType(name="DECIMAL", parameters=(precision, scale)), AtomicType() as other:
            digits, places = _decimal(other)
            whole = max(precision - scale, digits - places)
            # With more digits Spark would round both sides (`DecimalPrecision.widerDecimalType`).
            return digits > 0 and whole + max(scale, places) <= _DIGITS_MAX
        case AtomicType(name="STRING" | "VARCHAR"), AtomicType(name=other):
            return other in ("STRING", "VARCHAR")
        case AtomicType(name="DATE"), AtomicType(name=other):
            return other == "DATE"
        case _:
            return False


def look_up_alike(column: DataType, value: AtomicType) -> bool:
    """Whether a column and a value of these types are equal only where both are the same whole
    number, day or text."""
    if isinstance(column, AtomicType) and column.name == "DECIMAL":
        return False
    return compare_alike(column, value)


def _decimal(value: AtomicType) -> tuple[int, int]:
    """The precision and scale of a number without a point that moves; (0, 0) for other types."""
    match value:
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            return precision, scale
        case _:
            return _DIGITS.get(value.name, 0), 0


def range_filters(
    ranges: Sequence[KeyRange],
) -> tuple[tuple[ColumnFilter, ...], dict[str, object]]:
    """Return the conditions on the target's columns, and the values bound to the names in them."""
    bound: dict[str, object] = {}
    return tuple(_conditions(ranges, bound)), bound


def _conditions(ranges: Iterable[KeyRange], bound: dict[str, object]) -> Iterator[ColumnFilter]:
    def value(bound_value: KeyValue) -> tuple[FilterValue]:
        name = f"__paimon_magics_key_{len(bound)}"
        bound[name] = bound_value
        return (FilterValue("parameter", name),)

    for key_range in ranges:
        column = key_range.key.column
        if key_range.least is None or key_range.greatest is None:
            yield ColumnFilter(column, "in", ())  # nothing is equal to a NULL
        elif key_range.least == key_range.greatest:
            yield ColumnFilter(column, "=", value(key_range.least))
        else:
            yield ColumnFilter(column, ">=", value(key_range.least))
            yield ColumnFilter(column, "<=", value(key_range.greatest))
