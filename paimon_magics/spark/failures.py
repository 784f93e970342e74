"""Translates Spark's exceptions into our errors, with names, values and places in the statement."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.errors import PySparkException

from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
    error_of_task,
    likely_meant,
)
from paimon_magics.spark.casting import CHECK_FAILED
from paimon_magics.statements.dialects.foreign_names import foreign_function_hint, foreign_type_hint
from paimon_magics.statements.dialects.misreadings import misread
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.rewriting import METADATA_COLUMNS, ROW_ID_COLUMNS
from paimon_magics.tables.stores.corruption import not_accessed, unread_by_java

_T = TypeVar("_T")

# The SQLSTATE class for values that don't fit.
_DATA_EXCEPTION = "22"
_INVALID_VALUE = ("INCOMPATIBLE_DATA_FOR_TABLE", "CAST_OVERFLOW_IN_TABLE_INSERT")
# Advice to Spark's developers, or boilerplate of every such message.
_CHATTER = re.compile(
    r"\s(?:Please,? |If necessary |If you did not |To tolerate |For more information|Search path: |"
    r"Verify the spelling|1\) You can set ).*$",
    re.DOTALL,
)
# Spark's own advice at the end of a message.
_ADVICE = re.compile(r"(?<=[.:)\]\w]) ((?:Use|Add|Rewrite) .*)$", re.DOTALL)
_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "EXPLAIN")
_TRY = {
    "DIVIDE_BY_ZERO": "try_divide(a, b) is NULL there",
    "REMAINDER_BY_ZERO": "try_mod(a, b) is NULL there",
    "CAST_INVALID_INPUT": "try_cast(value AS TYPE) is NULL for such values",
    "CAST_OVERFLOW": "try_cast(value AS TYPE) is NULL for such values",
    "NUMERIC_VALUE_OUT_OF_RANGE": "try_cast(value AS TYPE) is NULL for such values",
}
# Of statements, though Spark's class for them is not its AnalysisException.
_OF_STATEMENTS = ("DATA_SOURCE_NOT_FOUND",)
_MISREAD = ("PARSE_SYNTAX_ERROR", "INVALID_STATEMENT_OR_CLAUSE", "INVALID_SET_SYNTAX")
_HIDDEN_COLUMNS = {
    **dict.fromkeys(
        METADATA_COLUMNS,
        "Only a query of a table, of its `$ro` or `$row_tracking` can name it, and only rows that "
        "are loaded have it. `session.table` takes it in `columns` and `where`. The system table "
        "`$files` has the paths, partitions and buckets of a table's files.",
    ),
    **dict.fromkeys(ROW_ID_COLUMNS, "Only tables with 'row-tracking.enabled' = 'true' have it."),
    "__paimon_search_score": "Paimon's functions that search are not offered.",
    "_metadata": "It is a column of Spark's own files. Tables have `__paimon_file_path`, "
    "`__paimon_row_index`, `__paimon_partition` and `__paimon_bucket`.",
}
"""Hidden columns of Paimon's connector and of Spark, with what to know where one is missing.
Source: `PaimonMetadataColumn`."""
_PATTERN = "yyyy for the year, MM for the month, dd, HH, mm and ss: 'yyyy-MM-dd HH:mm:ss'"
_CORRECT = "Correct the statement."
_HINTS = {
    "DATA_SOURCE_NOT_FOUND": "For a Paimon table leave USING out. Spark reads and writes another "
    "format once its package is on Spark's class path.",
    "MISSING_GROUP_BY": "Add GROUP BY with the columns that are not aggregated.",
    "MISSING_AGGREGATION": "Add the column to GROUP BY, or take any_value(column).",
    "AMBIGUOUS_REFERENCE": "Write the table's name or alias before the column: o.item.",
    "WRONG_NUM_ARGS": "DESCRIBE FUNCTION name shows how a function is called.",
    "DATATYPE_MISMATCH": "Join texts with || or concat(), write dates as DATE '2026-01-31', and "
    "convert with CAST(value AS TYPE).",
    "INVALID_TYPED_LITERAL": "Write dates as DATE '2026-01-31', and times as TIMESTAMP '2026-01-31 "
    "12:00:00'.",
    "INVALID_INLINE_TABLE": "Put each row in parentheses, with the same columns in all rows: "
    "VALUES (1, 'tea'), (2, 'milk').",
    "INVALID_INLINE_TABLE.CANNOT_EVALUATE_EXPRESSION_IN_INLINE_TABLE": "VALUES takes no functions "
    "of your own and no queries. Write SELECT f(1), 'tea' UNION ALL SELECT f(2), 'milk'.",
    "NUM_COLUMNS_MISMATCH": "Name the columns on both sides instead of `*`.",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": "Make the subquery return one row: use max(column) or another "
    "aggregate, or a condition.",
    "INVALID_LIMIT_LIKE_EXPRESSION": "Write a whole number that is not negative.",
}
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\[([A-Z0-9_.]+)\]\s*")
# How py4j begins the text of an exception that PySpark has no class for.
_PY4J_CALL = re.compile(r"^An error occurred while calling [\w.]+\.\s*: [\w.$]+: ")
# The error of a wait for a Spark thread has no information; its cause does.
_WAITED = re.compile(r"^Exception thrown in awaitResult: .*?\nCaused by: [\w.$]+: ", re.DOTALL)
# How Spark writes numbers of types that are not INT: 300L, 5.5BD.
_TYPED_NUMBER = re.compile(r"(-?[\d.]+(?:E-?\d+)?)(?:BD|[LSYDF])")
_CAST_OF_COLUMN = re.compile(r"CAST\(`((?:[^`]|``)*)` AS ")
_UNREAD = re.compile(
    r"\[FAILED_READ_FILE[^\]]*\] Encountered error while reading file (.+?)\.(?=\s)"
)
# Spark's reader fails for the query (as with NULL in IN on an ORC file) or the process.
_NOT_OF_FILES = re.compile(
    r"ClassCast|Match(?=Error)|NoClassDef|NullPointer|OutOfMemory|UnsupportedOperation"
)
_OTHER_TYPE = "SchemaColumnConvertNotSupported"  # of Parquet files
_MAY_BE_WHOLE = (
    "The file may be intact. Rewrite the condition, for example without NULL in IN (…). Or raise "
    "the setting local_rows_max, so that this process reads the table without Spark's reader."
)
_TRACE = re.compile(r"\n\s+File .*$", re.DOTALL)  # Spark Connect has it after the error
# Packages that every task needs, where the executors' Python has none of them.
_MISSING_PACKAGE = re.compile(
    r"ModuleNotFoundError: No module named '((?:paimon_magics|pypaimon|pyarrow)[\w.]*)'"
)
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception)|Exception): .*", re.MULTILINE)


# A comparison with a bind parameter: `id IN (:ids)`, `id = ANY(:ids)`.
_LISTED = re.compile(
    r"(?P<value>(?!NOT\b)[\w.`]+)\s+(?P<negated>NOT\s+)?(?:IN\s*\(|=\s*(?:(?:ANY|SOME)\s*\()?)\s*"
    r"(?P<list>:\w+)",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")


def translate(
    error: BaseException,
    *,
    statement: str | None = None,
    original_position: Callable[[int], int] | None = None,
    spark_text: str | None = None,
) -> PaimonMagicsError:
    """Return this project's error for an error of Spark; callers attach the cause with `raise …
    from`.

    `statement` is the user's text, `spark_text` the text that Spark was given, and
    `original_position` maps an offset in `spark_text` to one in `statement`.
    """
    if isinstance(error, PaimonMagicsError):
        return error
    position = position_of(error, spark_text, original_position)
    condition, parameters = _condition(error)
    kind, message = condition.split(".")[0], _message(error)
    place: dict[str, Any] = {
        "statement": None if position is None else statement,
        "position": position,
    }
    if CHECK_FAILED in message:
        return _check_failed(message)
    of_task = error_of_task(str(error))
    if of_task is not None:
        return of_task
    if condition in _MISREAD and statement is not None and position is not None:
        # Spark names a word of the text that it was given; the user may not have written it.
        return misread(statement, position, "" if condition == "PARSE_SYNTAX_ERROR" else message)
    if condition.startswith("PARSE_") or condition == "INVALID_SQL_SYNTAX":
        return StatementSyntaxError(message, hint=_CORRECT, **place)
    named = _wrong_name(kind, parameters, message, place) if parameters else None
    if named is not None:
        return named
    is_analysis = _is_analysis(error) or kind in _OF_STATEMENTS
    is_data = _sql_state(error).startswith(_DATA_EXCEPTION) and not is_analysis
    if is_data or kind in _INVALID_VALUE:
        return _invalid_value(error, condition, parameters, message, statement, position)
    unread = _unread_file(error, condition, parameters.get("path", ""), spark_text, place)
    if unread is not None:
        return unread
    if is_analysis:
        message, hint = _advised(message)
        known = _HINTS.get(condition) or _HINTS.get(kind)
        hint = _list_hint(kind, parameters, statement, position) or known or hint
        return StatementError(message, hint=hint or _CORRECT, **place)
    missing = _MISSING_PACKAGE.search(str(error))
    if missing is not None:
        return JobError(
            f"The Python of Spark's executors has no `{missing[1].split('.')[0]}`.",
            hint="Before Spark starts, set PYSPARK_PYTHON to a Python that has the packages, on "
            f"this machine {sys.executable}. For executors elsewhere, see docs/deployment.md.",
        )
    cause = _cause(error, message)
    return not_accessed("The Spark job failed", cause) or JobError(
        f"The Spark job failed: {cause}", hint=_HINTS.get(kind, "")
    )


def _list_hint(
    kind: str, parameters: dict[str, str], statement: str | None, position: int | None
) -> str:
    """The hint for a bound list that is compared with single values; "" for other errors."""
    types = "".join(parameters.values())
    if kind != "DATATYPE_MISMATCH" or "ARRAY<" not in types or statement is None:
        return ""
    at = position or 0
    matches = _LISTED.finditer(statement)
    match = next((match for match in matches if match.start() <= at < match.end()), None)
    if match is None:
        return ""
    bound, negated = match["list"], "NOT " if match["negated"] else ""
    return f"If `{bound}` is a list, write {negated}array_contains({bound}, {match['value']})."


def _unread_file(
    error: BaseException,
    condition: str,
    path: str,
    spark_text: str | None,
    place: dict[str, Any],
) -> PaimonMagicsError | None:
    """The error for a file that Spark could not read; None for other conditions."""
    unread = _UNREAD.search(str(error))
    if unread is not None:  # inside other messages, where rows are fetched as Arrow
        reason = _reason(error)
        if _NOT_OF_FILES.match(reason):
            return JobError(
                f"Spark failed while it read {unread[1]}: {reason}.", hint=_MAY_BE_WHOLE
            )
        if reason.startswith(_OTHER_TYPE):
            return InvalidValueError(
                f"A column of the file {unread[1]} has another type than in the files that are "
                f"read with it: {reason.partition(': ')[2]}.",
                hint="Read files with other types by a statement of their own.",
            )
        return unread_by_java(unread[1], reason)
    if condition != "PATH_NOT_FOUND":
        return None
    if spark_text is None:
        return unread_by_java(path, "it is gone")
    # A table's files were checked when its frame was made, so the statement names this path.
    return UnknownNameError(
        f"There is no file or folder `{path}`.", hint="Check the path.", **place
    )


def _wrong_name(
    kind: str, parameters: dict[str, str], message: str, place: dict[str, Any]
) -> PaimonMagicsError | None:
    """The error for a column, function, type, parameter, setting or table that Spark does not know;
    None for other conditions."""
    match kind:
        case _ if kind.startswith("UNRESOLVED_COLUMN") and _hidden_column(parameters):
            name = _hidden_column(parameters)
            return UnsupportedStatementError(
                f"`{name}` is a hidden column, which nothing that this statement reads has.",
                hint=_HIDDEN_COLUMNS[name],
                **place,
            )
        case _ if kind.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_USING_COLUMN")):
            text = f"There is no column {parameters.get('objectName', '')}."
            hint = _proposal(parameters.get("objectName", ""), parameters.get("proposal", ""))
        case "FIELD_NOT_FOUND":
            text, hint = message, ""
        case "UNBOUND_SQL_PARAMETER":
            name = parameters.get("name", "")
            text = f"The parameter `:{name}` has no value."
            hint = f"Define `{name}` before running the statement."
        case "UNRESOLVED_ROUTINE" | "UNRESOLVABLE_TABLE_VALUED_FUNCTION":
            name = (parameters.get("routineName") or parameters.get("name", "")).strip("`")
            text = f"There is no function `{name}`."
            listed = f"SHOW FUNCTIONS LIKE '{name[:2]}*' lists the functions that begin so."
            hint = foreign_function_hint(name) or listed
        case "REQUIRES_SINGLE_PART_NAMESPACE":
            text = f"There is no catalog for {parameters.get('identifier', message)}."
            hint = "Name a table as `table`, or `database.table`."
        case "TABLE_OR_VIEW_NOT_FOUND":
            text, hint = message, "Check the name."
        case "INVALID_CONF_VALUE":
            return InvalidValueError(message, hint="Correct the value.", **place)
        case "INCONSISTENT_BEHAVIOR_CROSS_VERSION" if "pattern" in parameters:
            text = f"{parameters['pattern']} is not a datetime pattern."
            return InvalidValueError(text, hint=f"Write {_PATTERN}.", **place)
        case "UNSUPPORTED_FEATURE" if "tableName" in parameters and "operation" in parameters:
            return UnsupportedStatementError(
                f"{parameters['tableName']} is a table of Spark's own, which does not support "
                f"{parameters['operation']}.",
                hint="Copy it into a Paimon table, which does: CREATE TABLE … USING paimon AS "
                "SELECT * FROM ….",
                **place,
            )
        case "UNSUPPORTED_DATATYPE" | "DATATYPE_MISSING_SIZE":
            return _wrong_type(kind, parameters, place)
        case _:
            return None
    return UnknownNameError(text, hint=hint, **place)


def _reason(error: BaseException) -> str:
    """The innermost cause that the JVM reports."""
    causes = re.findall(r"^Caused by: [\w.$]*?(\w+)(?:: (.*))?$", str(error), re.MULTILINE)
    return ": ".join(filter(None, causes[-1])).rstrip(". ") if causes else "it is gone or damaged"


def _invalid_value(
    error: BaseException,
    condition: str,
    parameters: dict[str, str],
    message: str,
    statement: str | None,
    position: int | None,
) -> InvalidValueError:
    """The error for a value that an expression or a column can't take: the value, its place, and
    the next step."""
    message, advice = _advised(_misfit(error, condition, parameters, message))
    message = message[:1].upper() + message[1:]
    fragment = _fragment(error)
    if statement is not None and position is None and fragment and statement.count(fragment) == 1:
        position = statement.index(fragment)
    if fragment and "`" not in fragment and fragment not in message and len(fragment) <= 60:
        message = f"{message.rstrip('.')}, in {fragment}."
    tried = _TRY.get(condition.split(".")[0])
    if statement is None or _writes(statement):
        hint = "Nothing was written. Correct the value, or convert it in the statement."
    else:
        hint = (f"{tried}." if tried else advice) or "Correct the value or the expression."
    placed = statement if position is not None else None
    return InvalidValueError(message, hint=hint, statement=placed, position=position)


def _writes(statement: str) -> bool:
    """Whether the statement does more than read."""
    try:
        words = [token.upper for token in tokenize(statement)]
    except StatementSyntaxError:
        return False
    return bool(words) and (words[0] not in _QUERY_WORDS or "INSERT" in words)


def _advised(message: str) -> tuple[str, str]:
    """Spark's message without the advice at its end, and the advice."""
    match = _ADVICE.search(message)
    if match is None:
        return message, ""
    text, advice = message[: match.start()].rstrip(), match[1].strip()
    return text, advice if advice.endswith(".") else advice + "."


def _wrong_type(kind: str, parameters: dict[str, str], place: dict[str, Any]) -> StatementError:
    name = (parameters.get("typeName") or parameters.get("type", "")).strip('"')
    if kind == "DATATYPE_MISSING_SIZE":
        text, hint = f"The type {name} needs a length.", f"Write {name}(10), or STRING."
    else:
        root = name.split("(")[0]
        text = f"There is no type `{name}`."
        hint = foreign_type_hint(root) or "DESCRIBE TABLE t shows how types are written."
    return StatementError(text, hint=hint, **place)


def _misfit(error: BaseException, condition: str, parameters: dict[str, str], message: str) -> str:
    """The message for a value that does not fit its column, if Spark names both; else `message`."""
    value = parameters.get("expression") or parameters.get("value")
    wanted = parameters.get("targetType", "").strip('"')
    if condition.startswith("NUMERIC_VALUE_OUT_OF_RANGE"):
        wanted = f"DECIMAL({parameters.get('precision')}, {parameters.get('scale')})"
    if value is None or not wanted:
        return message
    number = _TYPED_NUMBER.fullmatch(value)
    value = value if number is None else number[1]
    column = _cast_column(error)
    if column is None:
        return f"The value {value} can't be cast to {wanted}."
    return f"Column `{column}` is {wanted}, and the value {value} does not fit."


def _read(error: BaseException, read: Callable[[PySparkException], _T], otherwise: _T) -> _T:
    """The result of a PySpark error's method. It calls the JVM, which may be gone."""
    if not isinstance(error, PySparkException):
        return otherwise
    try:
        return read(error)
    except Exception:
        return otherwise


def _fragments(error: BaseException) -> list[str]:
    """The texts of the expressions in the error's query context."""
    return _read(error, lambda e: [c.fragment().strip() for c in e.getQueryContext()], [])


def _fragment(error: BaseException) -> str:
    """The text of the expression that failed; empty if Spark does not report it."""
    return next(
        (fragment for fragment in _fragments(error) if fragment and "\n" not in fragment), ""
    )


def _sql_state(error: BaseException) -> str:
    return _read(error, lambda e: e.getSqlState() or "", "")


def _cast_column(error: BaseException) -> str | None:
    """The table's column whose cast failed. Casts that `casting` builds as text name it."""
    for fragment in _fragments(error):
        match = _CAST_OF_COLUMN.match(fragment)
        if match is not None:
            return match[1].replace("``", "`")
    return None


def _condition(error: BaseException) -> tuple[str, dict[str, str]]:
    """Spark's condition and its parameters. Where PySpark has no class for an exception, its text
    begins with the condition, and there are no parameters."""
    parameters: dict[str, str] = _read(error, lambda e: dict(e.getMessageParameters() or {}), {})
    condition = _read(error, lambda e: e.getCondition() or "", "")
    in_text = None if condition else _CONDITION.match(_text(error))
    return in_text[1] if in_text else condition, parameters


def _is_analysis(error: BaseException) -> bool:
    return any(base.__name__ == "AnalysisException" for base in type(error).__mro__)


def _text(error: BaseException) -> str:
    """Spark's own text, without the prefixes of py4j and its threads."""
    return _WAITED.sub("", _PY4J_CALL.sub("", str(error).strip()))


def _message(error: BaseException) -> str:
    """The first sentence of Spark's message: no condition, no plan, no trace."""
    text = _text(error) or type(error).__name__
    head = re.split(r"\n(?:== |JVM stacktrace|\s+at )|;\n|; line \d+ pos \d+", text, maxsplit=1)[0]
    head = _SQLSTATE.sub("", _CONDITION.sub("", head.strip()))
    head = _CHATTER.sub("", without_place(head))
    return " ".join(head.split())


def _cause(error: BaseException, message: str) -> str:
    """The error line of the Python task that failed; without one the message, shortened."""
    errors = _PYTHON_ERROR.findall(str(error))
    if errors:
        return str(errors[-1]).strip()
    return _TRACE.sub("", message)[:500]


def _check_failed(message: str) -> InvalidValueError:
    text = message.split(CHECK_FAILED, 1)[1].strip()
    return InvalidValueError(
        text[:1].upper() + text[1:] + ("" if text.endswith(".") else "."),
        hint="Nothing was written. Filter or correct those rows in the statement.",
    )


def _hidden_column(parameters: dict[str, str]) -> str:
    """The hidden column that an unknown name means; "" for any other."""
    parts = parameters.get("objectName", "").lower().replace("`", "").split(".")
    return next((name for name in _HIDDEN_COLUMNS if name.lower() in parts), "")


def _proposal(wanted: str, proposal: str) -> str:
    """A hint with the most likely of the columns that Spark proposes, or that texts need quotes."""
    # Users can't name internal columns, such as the places of rows.
    listed = (name.strip() for name in proposal.split(","))
    names = [name for name in listed if name and "__paimon_magics_" not in name]
    last = {name.rpartition("`.`")[2].strip("`"): name for name in reversed(names)}
    meant = likely_meant(wanted.rpartition("`.`")[2].strip("`"), last)
    if meant:
        near = meant.removeprefix("Did you mean `").removesuffix("`?")
        return f"Did you mean {last[near]}?"
    texts = "" if "`.`" in wanted else f"Put a text in quotes: '{wanted.strip('`')}'."
    if not names:
        return texts or "Check the name."
    return f"The nearest are {', '.join(names)}. {texts}".rstrip()


# Where in a statement Spark has found an error.


def without_place(message: str) -> str:
    """A message without the line and column that Spark has put into it."""
    return _PLACE.sub("", message)


def position_of(
    error: BaseException,
    spark_text: str | None,
    original_position: Callable[[int], int] | None,
) -> int | None:
    """The offset of the error in the user's text; None if Spark does not report it. See
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
    def offset(error: PySparkException) -> int | None:
        for context in error.getQueryContext():
            start = context.startIndex()
            # A context in the text of a view has offsets in that text, not in ours.
            if not context.objectName() and 0 <= start < len(spark_text):
                return int(start)
        return None

    return _read(error, offset, None)


def _offset_of(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + column
