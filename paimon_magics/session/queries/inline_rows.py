"""The rows of VALUES that have no common type in a column: which column, and which types.

Spark's error names the column alone, as `col2`. The types of its values come from Spark's analysis
of the values by themselves; no job runs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from paimon_magics.errors import StatementError
from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.lexing.tokens import Token, tokenize

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession

_log = logging.getLogger(__name__)

_CONDITION = "INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE"
_UNNAMED = re.compile(r"col(\d+)")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_VALUES_MAX = 1000  # Spark analyzes so many values in some milliseconds
_SHOWN_MAX = 40


def with_types(
    error: StatementError,
    spark: SparkSession,
    statement: str,
    bound: Mapping[str, object],
    names: Callable[[int], Sequence[str]] | None = None,
) -> StatementError:
    """Return the error with the types of the values, if it is Spark's on such rows; else `error`.

    `names` returns the columns that the values of a row are for, from their number.
    """
    cause = error.__cause__
    if getattr(cause, "getCondition", lambda: "")() != _CONDITION or error.position is None:
        return error
    column = str(cause.getMessageParameters().get("colName", "")).strip("`")  # type: ignore[union-attr]
    try:
        tokens = tokenize(statement)
        rows, behind = _rows(tokens, error.position)
        index = _index(column, tokens[behind:])
        texts = [statement[row[index][0] : row[index][1]] for row in islice(rows, _VALUES_MAX)]
        types = _types(spark, [text for text in texts if text.upper() != "DEFAULT"], bound)
        targets = list(names(len(rows[0]))) if names is not None and rows else []
    except Exception:  # of any kind: Spark's own error says less, and is as true
        _log.info("The types of the values in VALUES could not be read.", exc_info=True)
        return error
    if len(types) < 2:
        return error
    shown = " and ".join(f"{name} ({shortened(text, _SHOWN_MAX)})" for name, text in types.items())
    column = targets[index] if index < len(targets) else column
    *_, last = types
    detailed = StatementError(
        f"Column `{column}` has values of different types in VALUES: {shown}.",
        hint=f"Give them one type in all rows, such as CAST(value AS {last}).",
        statement=error.statement,
        position=error.position,
    )
    detailed.__cause__ = cause
    return detailed


def _rows(tokens: Sequence[Token], position: int) -> tuple[list[list[tuple[int, int]]], int]:
    """The values of each row of the VALUES at an offset, as ranges of the text, and the index of
    the token behind the rows."""
    index = next(i for i, token in enumerate(tokens) if token.start >= position) + 1
    rows: list[list[tuple[int, int]]] = []
    while tokens[index].text == "(":
        start, depth, row = index + 1, 1, []
        while depth:
            index += 1
            text = tokens[index].text
            depth += (text in _OPENING) - (text in _CLOSING)
            if depth == 0 or (depth == 1 and text == ","):
                row.append((tokens[start].start, tokens[index - 1].end))
                start = index + 1
        rows.append(row)
        index += 1
        if index >= len(tokens) or tokens[index].text != ",":
            break
        index += 1
    return rows, index


def _index(column: str, behind: Sequence[Token]) -> int:
    """The place of a column in a row; `behind` are the tokens behind the rows, such as those of
    `AS t(a, b)`."""
    unnamed = _UNNAMED.fullmatch(column)
    names = [token.name for token in behind if token.kind in ("word", "quoted")]
    if column in names:
        aliases = names[names[0].upper() == "AS" :][1:]  # without the table's own
        return aliases.index(column)
    assert unnamed is not None
    return int(unnamed[1]) - 1


def _types(
    spark: SparkSession, texts: Sequence[str], bound: Mapping[str, object]
) -> dict[str, str]:
    """The types of values, in upper case, each with the first value of it; NULL has none."""
    schema = spark.sql(f"SELECT {', '.join(texts)}", args=dict(bound) or None).schema
    types: dict[str, str] = {}
    for each, text in zip(schema.fields, texts, strict=True):
        types.setdefault(each.dataType.simpleString().upper(), text)
    types.pop("VOID", None)
    return types
