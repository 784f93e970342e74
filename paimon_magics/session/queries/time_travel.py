"""`VERSION AS OF` and `TIMESTAMP AS OF` as Paimon's read options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError
from paimon_magics.statements.queries.query_text import with_markers_apart
from paimon_magics.statements.statement import TimeTravel

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession

__all__ = ["travel_options"]


def travel_options(
    spark: SparkSession, clause: TimeTravel, bound: Mapping[str, object]
) -> dict[str, str]:
    """Return the read option that a clause stands for. Spark evaluates its value, which may contain
    bind names; a whole number in TIMESTAMP AS OF counts seconds. Raises InvalidValueError."""
    is_version = clause.kind == "version"
    wanted = (
        f"CAST({clause.value} AS STRING)"
        if is_version
        else (f"CAST(unix_millis(CAST({clause.value} AS TIMESTAMP)) AS STRING)")
    )
    arguments = {name: value for name, value in bound.items() if f":{name}" in clause.value}
    try:
        row = spark.sql(
            with_markers_apart(f"SELECT {wanted} AS value"), args=arguments or None
        ).head()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidValueError(
            f"The value of {clause.kind.upper()} AS OF can't be read: {lines[0]}",
            hint="Write VERSION AS OF 3, VERSION AS OF 'a-tag', or TIMESTAMP AS OF "
            "'2026-01-31 12:00:00'.",
        ) from error
    if row is None or row["value"] is None:
        raise InvalidValueError(
            f"The value of {clause.kind.upper()} AS OF is NULL"
            f"{'' if is_version else ' or not a time'}: {clause.value}.",
            hint="Name a snapshot's number or a tag."
            if is_version
            else "Write it as '2026-01-31 12:00:00'.",
        )
    return {"scan.version" if is_version else "scan.timestamp-millis": str(row["value"])}
