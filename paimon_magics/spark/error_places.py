"""Where in a statement Spark has found an error."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.errors import PySparkException

__all__ = ["position_of", "without_place"]

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")


def without_place(message: str) -> str:
    """A message without the line and column that Spark has put into it."""
    return _PLACE.sub("", message)


def position_of(
    error: BaseException,
    spark_text: str | None,
    original_position: Callable[[int], int] | None,
) -> int | None:
    """Where the user's text is wrong, as an offset; None where Spark does not say it. See
    `failures.translate` for the arguments."""
    if original_position is None or spark_text is None:
        return None
    offset = _context_offset(error, spark_text)
    if offset is None:
        place = _PLACE.search(str(error))
        if place is None:
            return None
        offset = _offset_of(spark_text, int(place[1]), int(place[2]))
    return original_position(min(max(offset, 0), len(spark_text)))


def _context_offset(error: BaseException, spark_text: str) -> int | None:
    if not isinstance(error, PySparkException):
        return None
    try:
        contexts = error.getQueryContext()
        for context in contexts:
            start = context.startIndex()
            # A context in the text of a view has offsets in that text, not in ours.
            if not context.objectName() and 0 <= start < len(spark_text):
                return int(start)
    except Exception:
        return None
    return None


def _offset_of(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + column
