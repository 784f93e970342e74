"""`VERSION AS OF`, `TIMESTAMP AS OF` and the bounds of change functions as Paimon's read options.

Spark evaluates their values, which are constants: they may have functions and bind names, but no
columns, and nothing that gives another value each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.statements.queries.determinism import random_part
from paimon_magics.statements.queries.query_text import with_markers_apart
from paimon_magics.statements.statement import TimeTravel

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession

__all__ = ["bounds_value", "travel_options"]

_NO_CONSTANT = {
    "UNRESOLVED_COLUMN": "it names a column",
    "TABLE_OR_VIEW_NOT_FOUND": "it has a query on a table",
}


def travel_options(
    spark: SparkSession, clause: TimeTravel, bound: Mapping[str, object]
) -> dict[str, str]:
    """Return the read option that a clause stands for. Spark evaluates its value, which may contain
    bind names; a whole number in TIMESTAMP AS OF counts seconds. Raises InvalidValueError for a
    value that is no constant, NULL, or no time."""
    is_version = clause.kind == "version"
    what = f"{clause.kind.upper()} AS OF"
    hint = "Write VERSION AS OF 3, VERSION AS OF 'a-tag', or TIMESTAMP AS OF '2026-01-31 12:00:00'."
    wanted = (
        f"CAST({clause.value} AS STRING)"
        if is_version
        else (f"CAST(unix_millis(CAST({clause.value} AS TIMESTAMP)) AS STRING)")
    )
    value = _constant(spark, clause.value, wanted, bound, what, hint)
    if value is None:
        raise InvalidValueError(
            f"The value of {what} is NULL{'' if is_version else ' or not a time'}: {clause.value}.",
            hint="Name a snapshot's number or a tag."
            if is_version
            else "Write it as '2026-01-31 12:00:00'.",
        )
    return {"scan.version" if is_version else "scan.timestamp-millis": value}


def bounds_value(
    spark: SparkSession, texts: Sequence[str], option: str, bound: Mapping[str, object]
) -> str:
    """Return the value of the read `option` that a change function stands for: the values of its
    expressions `texts`. A time of Spark's becomes milliseconds since 1970. Raises InvalidValueError
    for a value that is no constant, or NULL."""
    what, hint = "a bound of the changes", "Write a snapshot's number, a tag or a time in quotes."
    values = []
    for text in texts:
        millis = f"CAST(unix_millis(CAST({text} AS TIMESTAMP)) AS STRING)"
        is_time = f"typeof({text}) IN ('timestamp', 'timestamp_ntz', 'date')"
        plain = f"CAST({text} AS STRING)"
        times = option == "incremental-between-timestamp"
        kind = _constant(spark, text, f"CAST({is_time} AS STRING)", bound, what, hint)
        wanted = millis if times and kind == "true" else plain
        value = _constant(spark, text, wanted, bound, what, hint)
        if value is None:
            raise InvalidValueError(f"The value of {what} is NULL: {text}.", hint=hint)
        values.append(value)
    return ",".join(values)


def _constant(
    spark: SparkSession,
    text: str,
    wanted: str,
    bound: Mapping[str, object],
    what: str,
    hint: str,
) -> str | None:
    """The value of the expression `wanted`, which contains the user's `text`."""
    changing = random_part(text)
    if changing is not None:
        raise InvalidValueError(
            f"The value of {what} must be a constant, but `{text}` gives another one each time.",
            hint=hint,
        )
    arguments = {name: value for name, value in bound.items() if f":{name}" in text}
    try:
        row = spark.sql(
            with_markers_apart(f"SELECT {wanted} AS value"), args=arguments or None
        ).head()
    except Exception as error:
        condition = str(getattr(error, "getCondition", lambda: "")() or "")
        reason = _NO_CONSTANT.get(condition.partition(".")[0])
        if reason is not None:
            raise InvalidValueError(
                f"The value of {what} must be a constant, but `{text}` is none: {reason}.",
                hint=f"{hint} A value that a query gives can be a bind parameter (:name).",
            ) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidValueError(
            f"The value of {what} can't be read: {lines[0]}", hint=hint
        ) from error
    return None if row is None or row["value"] is None else str(row["value"])
