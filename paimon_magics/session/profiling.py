"""What is in the columns of a table: NULLs, the least and the greatest value, how many different.

Where every file's statistics are exact, and no row hides another, they say it without a job; for
the rest one Spark job reads the table once. Which of both it was stands beside each column.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pyarrow as pa

from paimon_magics.planning.amounts import count_text
from paimon_magics.planning.definitions import Column
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reading import Relation, frame_of_table, read_plan
from paimon_magics.session.reports import Report, Section
from paimon_magics.session.text import shown_value
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.names import quoted, table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.type_text import to_spark_sql
from paimon_magics.tables.column_bounds import Bounds, column_bounds
from paimon_magics.tables.live_files import ManifestFolder, live_files
from paimon_magics.tables.table_schemas import TableSchemas
from paimon_magics.tables.time_travel import State

__all__ = ["Effort", "profile_of"]

_FILES, _JOB, _NOWHERE = "file statistics", "Spark job", "not known"
_SCHEMA = pa.schema(
    [
        ("column", pa.string()),
        ("type", pa.string()),
        ("nulls", pa.int64()),
        ("min", pa.string()),
        ("max", pa.string()),
        ("distinct", pa.int64()),
        ("from", pa.string()),
    ]
)


class Effort(Enum):
    """How far to go: only what files say, a job where they don't, or a job that counts distinct
    values as well."""

    STATISTICS = "--statistics"
    NEEDED = ""
    DISTINCT = "--distinct"


def profile_of(
    connection: Connection, name: TableName, shown: str, effort: Effort = Effort.NEEDED
) -> Report:
    """A row for each column; at most one Spark job. Raises UnknownNameError, JobError."""
    plan, read = read_plan(connection, Relation(name))
    columns = read.definition.columns
    known: dict[str, Bounds] = {}
    rows: int | None = None
    needs_merge = bool(plan.tasks)
    if isinstance(read.target, State) and not needs_merge:
        table = connection.catalog.load(name)
        folder = connection.manifests(table.location, lambda: ManifestFolder(table.paimon))
        snapshot = read.target.snapshot
        if snapshot is None:
            rows = 0
        else:
            files = live_files(folder, snapshot)
            rows = sum(files["row_count"].to_pylist())
            known = column_bounds(files, TableSchemas(table.paimon).columns, columns)
    lacking = [
        one for one in columns if rows != 0 and not _is_known(one, known.get(one.name, Bounds()))
    ]
    counted: Mapping[str, Any] = {}
    wants_job = effort is Effort.DISTINCT or (effort is Effort.NEEDED and bool(lacking))
    if wants_job:
        asked = columns if effort is Effort.DISTINCT else tuple(lacking)
        counted = _counted(connection, name, asked)
        rows = counted["rows"]
    found = pa.Table.from_pylist(
        [_row(one, known.get(one.name, Bounds()), counted, rows) for one in columns], schema=_SCHEMA
    )
    how = f"one Spark job for {count_text(len(asked), 'column')}" if wants_job else "no Spark job"
    count = "an unknown number of rows" if rows is None else count_text(rows, "row")
    notes = []
    if needs_merge:
        notes.append(
            "Rows of one key lie in several files: only a job can tell which of them count."
        )
    if not wants_job and lacking:
        names = ", ".join(one.name for one in lacking)
        notes.append(f"Files do not say all of {names}: a Spark job would.")
    if None in found.column("distinct").to_pylist() and effort is not Effort.DISTINCT:
        notes.append(f"Distinct values of all columns are estimated by %paimon profile {shown} "
                     "--distinct.")  # fmt: skip
    query = f"SELECT {', '.join(_asked(columns))} FROM {table_text(name)}"
    section = Section("", found, query, in_query=())
    return Report("PROFILE", f"{shown}: {count}, {how}", (section,), tuple(notes))


def _is_known(column: Column, bounds: Bounds) -> bool:
    return bounds.nulls is not None and (bounds.is_exact or not _is_ordered(column))


def _is_ordered(column: Column) -> bool:
    return isinstance(column.type, AtomicType) and "BINARY" not in to_spark_sql(column.type)


def _asked(columns: tuple[Column, ...]) -> list[str]:
    parts = ["count(*) AS rows"]
    for place, column in enumerate(columns):
        name = quoted(column.name)
        parts.append(f"count({name}) AS n{place}")
        if _is_ordered(column):
            parts.append(f"CAST(min({name}) AS STRING) AS least{place}")
            parts.append(f"CAST(max({name}) AS STRING) AS most{place}")
            parts.append(f"approx_count_distinct({name}) AS distinct{place}")
    return parts


def _counted(
    connection: Connection, name: TableName, columns: tuple[Column, ...]
) -> dict[str, Any]:
    """What one job finds: `rows`, and for each column its NULLs, bounds and distinct values."""
    frame = frame_of_table(connection, name)
    found = Outcome(f"profile {name}", "SELECT", dataframe=frame).fetched(
        lambda frame: frame.selectExpr(*_asked(columns)).toArrow()
    )
    (row,) = found.to_pylist()
    counted: dict[str, Any] = {"rows": row["rows"]}
    for place, column in enumerate(columns):
        counted[f"column {column.name}"] = (
            row["rows"] - row[f"n{place}"],
            row.get(f"least{place}"),
            row.get(f"most{place}"),
            row.get(f"distinct{place}"),
        )
    return counted


def _row(
    column: Column, bounds: Bounds, counted: Mapping[str, Any], rows: int | None
) -> dict[str, object]:
    found = counted.get(f"column {column.name}")
    base = {"column": column.name, "type": to_spark_sql(column.type)}
    if found is not None:
        nulls, least, most, distinct = found
        return {**base, "nulls": nulls, "min": least, "max": most, "distinct": distinct,
                "from": _JOB}  # fmt: skip
    if rows == 0:
        return {**base, "nulls": 0, "from": _FILES}
    exact = bounds.is_exact
    return {
        **base,
        "nulls": bounds.nulls,
        "min": shown_value(bounds.least) if exact and bounds.least is not None else None,
        "max": shown_value(bounds.greatest) if exact and bounds.greatest is not None else None,
        "from": _NOWHERE if bounds.nulls is None and not exact else _FILES,
    }
