"""Spark's exceptions as errors of ours: which name, which value, where in the user's text."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.errors import PySparkException

from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
    error_of_task,
)
from paimon_magics.spark.casting import CHECK_FAILED
from paimon_magics.statements.misreadings import misreading
from paimon_magics.tables.damage import damaged

__all__ = ["translate"]

_INVALID_VALUE = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "ARITHMETIC_OVERFLOW",
    "INVALID_ARRAY_INDEX",
    "DIVIDE_BY_ZERO",
    "CANNOT_PARSE_TIMESTAMP",
    "CAST_OVERFLOW_IN_TABLE_INSERT",
    "INCOMPATIBLE_DATA_FOR_TABLE",
    "INVALID_FRACTION_OF_SECOND",
    "DATETIME_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW",
)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_CAST_OF_COLUMN = re.compile(r"CAST\(`((?:[^`]|``)*)` AS ")
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE[^\]]*\] Encountered error while reading file (.+?)\.(?=\s)"
)
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)|Exception): .*", re.MULTILINE)


def translate(
    error: BaseException,
    *,
    statement: str | None = None,
    original_position: Callable[[int], int] | None = None,
    spark_text: str | None = None,
) -> PaimonMagicsError:
    """The error of ours for what Spark raised; the cause stays attached by `raise … from`.

    `statement` is the user's text, `spark_text` the text that Spark was given, and
    `original_position` maps an offset in that text to the user's.
    """
    if isinstance(error, PaimonMagicsError):
        return error
    position = _position(error, spark_text, original_position)
    condition, parameters = _condition(error)
    message = _message(error)
    place = {"statement": statement, "position": position}
    if position is None:
        place["statement"] = None
    if CHECK_FAILED in message:
        return _check_failed(message)
    of_task = error_of_task(str(error))
    if of_task is not None:
        return of_task
    if condition == "PARSE_SYNTAX_ERROR" and statement is not None and position is not None:
        # Spark names a word of the text that it was given, which may be none of the user's.
        wrong, hint = misreading(statement, position)
        return StatementSyntaxError(wrong, hint=hint, **place)  # type: ignore[arg-type]
    if condition.startswith("PARSE_") or condition == "INVALID_SQL_SYNTAX":
        return StatementSyntaxError(message, hint="Correct the statement.", **place)  # type: ignore[arg-type]
    if condition.startswith("UNRESOLVED_COLUMN") or condition.startswith("UNRESOLVED_USING_COLUMN"):
        return UnknownNameError(
            f"There is no column {parameters.get('objectName', '')}.",
            hint=_proposal(parameters.get("proposal", "")),
            **place,  # type: ignore[arg-type]
        )
    if condition == "FIELD_NOT_FOUND":
        return UnknownNameError(message, **place)  # type: ignore[arg-type]
    if condition == "UNBOUND_SQL_PARAMETER":
        name = parameters.get("name", "")
        return UnknownNameError(
            f"The parameter `:{name}` has no value.",
            hint=f"Define `{name}` before running the statement.",
            **place,  # type: ignore[arg-type]
        )
    if condition.split(".")[0] == "UNRESOLVED_ROUTINE":
        name = parameters.get("routineName", "").strip("`")
        return UnknownNameError(
            f"There is no function `{name}`.",
            hint=f"SHOW FUNCTIONS LIKE '{name[:2]}*' lists those that begin so.",
            **place,  # type: ignore[arg-type]
        )
    if condition.split(".")[0] == "INVALID_CONF_VALUE":
        return InvalidValueError(message, hint="Correct the value.", **place)  # type: ignore[arg-type]
    if condition.split(".")[0] == "TABLE_OR_VIEW_NOT_FOUND":
        return UnknownNameError(message, hint="Check the name.", **place)  # type: ignore[arg-type]
    if condition.split(".")[0] in _INVALID_VALUE:
        return InvalidValueError(
            _misfit(error, condition, parameters, message),
            hint="Nothing was written. Correct the value, or convert it in the statement.",
            **place,  # type: ignore[arg-type]
        )
    unread = _UNREAD.search(str(error))
    if unread is not None:  # within others, where Arrow is asked for
        return damaged(f"The file {unread[1]}", _reason(error))
    if condition == "PATH_NOT_FOUND" and spark_text is not None:
        # A table's files were looked for when its frame was made: this path is in the statement.
        return UnknownNameError(
            f"There is no file or folder `{parameters.get('path', '')}`.",
            hint="Check the path.",
            **place,  # type: ignore[arg-type]
        )
    if condition == "PATH_NOT_FOUND":
        return damaged(f"The file {parameters.get('path', '')}", "it is gone")
    if _is_analysis(error):
        return StatementError(message, hint="Correct the statement.", **place)  # type: ignore[arg-type]
    return JobError(f"The Spark job failed: {_cause(error, message)}")


def _reason(error: BaseException) -> str:
    """The innermost cause that the JVM names."""
    causes = re.findall(r"Caused by: [\w.$]*?(\w+): (.*)", str(error))
    return ": ".join(causes[-1]).strip().rstrip(".") if causes else "it is gone or damaged"


def _misfit(error: BaseException, condition: str, parameters: dict[str, str], message: str) -> str:
    """Which value does not fit which column, where Spark says so."""
    value = parameters.get("expression") or parameters.get("value")
    wanted = parameters.get("targetType", "").strip('"')
    if condition.startswith("NUMERIC_VALUE_OUT_OF_RANGE"):
        wanted = f"DECIMAL({parameters.get('precision')}, {parameters.get('scale')})"
    if value is None or not wanted:
        return message
    column = _cast_column(error)
    if column is None:
        return f"The value {value} can't be cast to {wanted}."
    return f"Column `{column}` is {wanted}, and the value {value} does not fit."


def _cast_column(error: BaseException) -> str | None:
    """The table's column whose cast failed: `casting` names it in the text of the cast."""
    if not isinstance(error, PySparkException):
        return None
    try:
        fragments = [context.fragment() for context in error.getQueryContext()]
    except Exception:
        return None
    for fragment in fragments:
        found = _CAST_OF_COLUMN.match(fragment)
        if found is not None:
            return found[1].replace("``", "`")
    return None


def _condition(error: BaseException) -> tuple[str, dict[str, str]]:
    if not isinstance(error, PySparkException):
        return "", {}
    try:
        return error.getCondition() or "", dict(error.getMessageParameters() or {})
    except Exception:
        return "", {}


def _is_analysis(error: BaseException) -> bool:
    return any(base.__name__ == "AnalysisException" for base in type(error).__mro__)


def _message(error: BaseException) -> str:
    """The first sentence of Spark's message: no condition, no plan, no trace."""
    text = str(error).strip() or type(error).__name__
    head = re.split(r"\n(?:== |JVM stacktrace|\s+at )|;\n|; line \d+ pos \d+", text, maxsplit=1)[0]
    head = _SQLSTATE.sub("", _CONDITION.sub("", head.strip()))
    head = _PLACE.sub("", head)
    return " ".join(head.split())


def _cause(error: BaseException, message: str) -> str:
    """A Python task's own error line, where there is one."""
    found = _PYTHON_ERROR.findall(str(error))
    if found:
        return str(found[-1]).strip()
    return message[:500]


def _check_failed(message: str) -> InvalidValueError:
    text = message.split(CHECK_FAILED, 1)[1].strip()
    return InvalidValueError(
        text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."),
        hint="Nothing was written. Filter or correct those rows in the statement.",
    )


def _proposal(proposal: str) -> str:
    names = [name.strip() for name in proposal.split(",") if name.strip()]
    if not names:
        return "Check the name."
    if len(names) == 1:
        return f"Did you mean {names[0]}?"
    return f"The nearest are {', '.join(names)}."


def _position(
    error: BaseException,
    spark_text: str | None,
    original_position: Callable[[int], int] | None,
) -> int | None:
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
            # A context inside a view's own text has offsets of that text, not of ours.
            if not context.objectName() and 0 <= start < len(spark_text):
                return int(start)
    except Exception:
        return None
    return None


def _offset_of(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + column
